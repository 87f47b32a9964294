"""What every number of a training iteration means, and the page of all metrics, ``docs/metrics.md``.

``python -m starpo.monitor.glossary > docs/metrics.md`` writes the page anew.
"""

from __future__ import annotations

import sys

from starpo.evaluation.glossary import COMPARISON, DIAGNOSIS, MEASURED, METRICS, THOUGHTS, own_failures

ITERATION: dict[str, str] = {
    "iteration": "Number of the iteration, from 0.",
    "policy_step": "Updates behind the policy that was rolled out; smaller than iteration after skipped ones.",
    "status": (
        "trained, skipped (every group was filtered), stopped (run.max_skipped such in a row, or the monitor) or "
        "rolled_back (the monitor went back to an earlier policy; this iteration's update was thrown away)."
    ),
    "timestamp": "When the metrics were written, unix ms.",
}
"""Keys of every iteration's metrics file."""

ROLLOUT: dict[str, str] = {
    "trajectories": "Trajectories of the iteration, before the filter: groups x group size, of all rounds.",
    "resample_rounds": "Further rounds of rollout.groups groups that filter.resample drew.",
    "resampled_groups": "Groups drawn in them.",
    "quarantined": "Trajectories at fault (gates.quarantine, environment errors); they have no part in what follows.",
    "environment_errors": "Trajectories that an error of their environment ended, before or after the first turn.",
    "trajectories_without_turns": "Trajectories without a row: reset failed, or the first prompt was too long.",
    "groups": "Groups with a usable trajectory.",
    "groups_kept": "Groups that the filter kept.",
    "zero_spread_groups": "Groups whose members all have the same return (in-group standard deviation 0).",
    "success": "Share of usable trajectories that solved their task.",
    "success_format_valid": "Share of usable trajectories that solved their task with a valid format in every turn.",
    "success/<environment>": "The same for one environment of a mixture.",
    "return/<environment>": "Mean return in one environment of a mixture, after its reward_scale.",
    "groups/<environment>": "Groups with a usable trajectory in one environment of a mixture.",
    "groups_kept/<environment>": "Groups of one environment of a mixture that the filter kept.",
    "score": (
        "Mean over usable trajectories of the environment's own score, such as WebShop's, of which only 1 is a "
        "success; absent where no turn was given one."
    ),
    "success_error": "Standard error of success, clustered by group.",
    "return": "Mean over usable trajectories of the sum of all reward terms.",
    "term/<term>": (
        "Mean over usable trajectories of the sum of one reward term, its weight applied; absent where "
        "environment and format_penalty are the only ones and returns are not normalised."
    ),
    "term_missing/<term>": "Turns that the term could not judge and that count 0 in it; absent where term/<term> is.",
    "return_std": "Mean over usable trajectories of their group's standard deviation of returns (n - 1).",
    "turns_mean": "Mean turns per trajectory.",
    "actions_mean": "Mean executed actions per trajectory.",
    "response_tokens_mean": "Mean sampled tokens per trajectory.",
    "turn_tokens_mean": "Mean sampled tokens per turn.",
    "rollout_tokens": "Sampled tokens of the iteration.",
    "format_valid_rate": "Share of turns whose response the parser accepted.",
    **THOUGHTS,
}
"""Keys from the rollouts, over all trajectories before the filter."""

UPDATE: dict[str, str] = {
    "trained_trajectories": "Trajectories that the update learned from.",
    "trained_tokens": (
        "Sampled tokens M among them (with algorithm.response_mask = false all but the first of each chain); "
        "each is seen learner.epochs times."
    ),
    "actor_steps": "Optimizer steps of the actor in this iteration.",
    "critic_steps": "Optimizer steps of the critic in this iteration.",
    "bad_steps": (
        "Optimizer steps of actor and critic that were not taken because a loss or the gradient was not finite; their "
        "numbers are in none of the means."
    ),
    "bad_step_cause": "The first such step's network, term and trajectories, as text; absent where bad_steps is 0.",
    "update_retries": (
        "1 where the update ran out of memory and was done again with half of learner.micro_batch_tokens; absent "
        "otherwise."
    ),
    "comparison_steps": "Comparisons of engine and learner in this iteration.",
    "policy_loss": (
        "Policy loss, aggregated as algorithm.aggregation says; with ratio r = exp(logp - old_logp) and "
        "advantage A per token max(-A r, -A clip(r, 1 - clip_low, 1 + clip_high)) for ppo. Mean over steps."
    ),
    "entropy": "1/M sum of -sum_v p_v log p_v over the vocabulary, nats; mean over steps.",
    "approx_kl": "1/M sum of exp(d) - 1 - d with d = logp - old_logp: KL to the rollout policy; mean over steps.",
    "clip_high_share": "Share of tokens with A > 0 and r > 1 + clip_high.",
    "clip_low_share": "Share of tokens with A < 0 and r < 1 - clip_low.",
    "kl_to_base": (
        "KL to the run's first policy by algorithm.kl_estimator, nats per token; only with kl_coefficient > 0. With "
        "kl_in = loss aggregated as the loss, mean over steps; with kl_in = reward before the update, the mean over "
        "trajectories of the mean over tokens."
    ),
    "kl_coefficient": "Weight of the KL penalty in this iteration; moves only with algorithm.kl_target.",
    "importance_weight_mean": (
        "Mean over sampled tokens of min(p(learner) / p(engine), algorithm.importance_cap); only with a cap."
    ),
    "importance_truncated_share": "Share of sampled tokens whose weight is cut to the cap.",
    "gradient_norm": "Global norm of the actor's gradient before clipping; mean over steps.",
    "learning_rate": "Actor's learning rate; mean over steps.",
    "value_loss": (
        "1/M sum of 1/2 max((V - R)^2, (clip(V, V_old - c, V_old + c) - R)^2) with c = algorithm.value_clip; "
        "mean over steps."
    ),
    "value_clip_share": "Share of tokens where the clipped term of the value loss is the larger one.",
    "critic_gradient_norm": "Global norm of the critic's gradient before clipping; mean over steps.",
    "value_mean": "Mean value over trained tokens, before the update.",
    "explained_variance": "1 - Var(R - V) / Var(R) over trained tokens, before the update; 0 if R does not vary.",
    "early_stop": "1 if learner.target_kl ended the actor's passes, else 0.",
    "padding_share": "Padding among the positions that the actor's attention computes; nothing else is padded.",
    "shared_token_share": "Tokens that the actor did not compute again, for another trajectory of the micro-batch "
    "begins alike.",
    "logprob_difference_mean": "Mean |log p(learner) - log p(engine)|, nats, of the first mini-batch: equal weights.",
    "logprob_difference_max": "Largest such difference.",
    "sync_difference": "Largest |log-prob difference|, engine to learner, on the probe after the weight sync, nats.",
}
"""Keys from the update; absent in an iteration that learned nothing."""

MONITOR: dict[str, str] = {
    "monitor": "Verdict of the Echo Trap monitor on the run: 0 quiet, 1 warning, 2 alarm.",
    "monitor_<indicator>": "Stage of one indicator: 0 quiet, 1 warning, 2 alarm.",
    "monitor_events": "Stages that began or ended in this iteration, and what was done about them, as sentences.",
    "monitor_format_lost": "2 where no answer of the iteration had a valid format; absent where that never was.",
    "monitor_return_up_success_down": "2 where return is at its best while success fell: the reward is being gamed.",
}
"""Keys from the monitor."""

TIMINGS: dict[str, str] = {
    "seconds_rollout": "Wall-clock seconds of the rollout node.",
    "seconds_reward": "Of the reward node.",
    "seconds_filter": "Of the filter node.",
    "seconds_update": "Of the optimizer passes, without loading, saving and sync.",
    "seconds_sync": "Of the weight sync and its proof.",
    "seconds_iteration": "Of the whole iteration, without evaluations.",
    "seconds_gates": "Of the gates since the last iteration, evaluations' included; a part of the other times.",
    "seconds_mirror": "Of writing to MLflow; in the timings file only.",
    "tokens_per_second": "Sampled tokens / seconds_rollout; in MLflow and on the terminal only.",
}
"""Clock times, in which two equal runs differ."""

_SECTIONS = (
    (
        "Training, per iteration",
        "`data/05_updates/<run>/iter_NNNN.json`, `open_run(...).metrics()`, MLflow under the same names.",
        ITERATION,
    ),
    ("Rollouts", "In the same file; over all trajectories before the filter.", ROLLOUT),
    ("Update", "In the same file; left out where nothing was learned.", UPDATE),
    ("Echo Trap monitor", "In the same file; thresholds in `conf/base/parameters_monitor.yml`.", MONITOR),
    (
        "Timings",
        "`data/00_runs/<run>/timings.jsonl` and MLflow; `seconds_update` and `seconds_sync` in the metrics file "
        "too.",
        TIMINGS,
    ),
    (
        "Evaluation, per suite and temperature",
        "`data/07_evaluation/<run>/<suite>-t<T>/step_NNNN.json`, `open_run(...).evaluation_summary()`, MLflow as "
        "`<suite>-t<T>/<name>`. Intervals are 95 % and come as `<name>_low` and `<name>_high`.",
        METRICS,
    ),
    (
        "Evaluation, between random play and the optimum",
        "In the same summary; see [evaluation.md](evaluation.md).",
        MEASURED,
    ),
    (
        "Evaluation, failures and luck",
        "In the same summary; per trajectory in `labels_NNNN.parquet` beside it, `open_run(...).failures()`.",
        DIAGNOSIS,
    ),
    (
        "Evaluation, failures of one environment",
        "In the same summary, in suites of that environment, tried after `failures.environment_error`.",
        own_failures,
    ),
    (
        "Two policies compared",
        "`data/08_reporting/<run>/comparison_NNNN.json`, MLflow as `comparison/<suite>-t<T>/<name>`. Numbers come "
        "again with `_256` for the first 256 prompts.",
        COMPARISON,
    ),
)


def markdown() -> str:
    """The whole page."""
    parts = ["# Metrics\n\nEvery number that is logged, with its meaning. Generated by `make docs`.\n"]
    for title, place, entries in _SECTIONS:
        named = entries() if callable(entries) else entries
        rows = [f"| `{name}` | {meaning.replace('|', chr(92) + '|')} |" for name, meaning in named.items()]
        parts.append("\n".join([f"## {title}\n\n{place}\n", "| Name | Meaning |", "|---|---|", *rows, ""]))
    return "\n".join(parts)


if __name__ == "__main__":
    sys.stdout.write(markdown())
