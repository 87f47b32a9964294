"""What every number of an evaluation means, by name."""

from __future__ import annotations

from starpo.agent.records import StopReason
from starpo.environments.registry import built_in_labels
from starpo.evaluation.failures import LABELS

_STOPS = {
    StopReason.LENGTH: "the trajectory ran out of tokens",
    StopReason.TURN_LIMIT: "it used all turns",
    StopReason.ACTION_LIMIT: "it used all actions",
    StopReason.TERMINATED: "the environment ended it, solved or not",
    StopReason.ENVIRONMENT_ERROR: "the environment raised an exception",
}

THOUGHTS: dict[str, str] = {
    "thought_words_mean": "Mean words per thought.",
    "thought_empty_share": "Share of turns whose thought has no word, or that have none.",
    "thought_distinct_share": "Different thoughts / turns: near 0 where the policy always thinks the same.",
    "thought_variety": "1 - mean Jaccard similarity of the word pairs of two thoughts of different groups.",
    "thought_template_similarity": (
        "Mean Jaccard similarity of the word pairs of two thoughts of different groups after each run of words from "
        "the turn's observation or with a digit became one mask: near 1 where thoughts fill in one template."
    ),
    "thought_repetition": (
        "Mean over turns of the share of a thought's word pairs that it held before; 0 for one without a pair."
    ),
    "thought_prompt_information": (
        "Estimate of I(prompt; thought), nats: how much a trajectory's first thought says about which of the first "
        "G <= 256 prompts with several trajectories it answers, between 0 and log G. It is log G + mean log q(prompt | "
        "thought) of a naive Bayes classifier over words that learned from other thoughts: in expectation a lower "
        "bound, of N thoughts that say nothing about 1 / (2 N). Absent with one trajectory per prompt."
    ),
    "thought_prompt_recognised_share": "Share of these thoughts whose own prompt is the classifier's likeliest.",
    "thought_prompt_chance": "1 / G: that share where thoughts say nothing.",
}
"""Keys about thoughts, of an iteration and of a suite alike."""

METRICS: dict[str, str] = {
    "prompts": "Number of prompts (groups) with at least one turn.",
    "trajectories": "Number of trajectories: prompts times samples.",
    "success": "Share of trajectories that solved their task; interval: Wilson, clustered by prompt.",
    "success_format_valid": (
        "Share of trajectories that solved their task with a valid format in every turn; interval: as of success."
    ),
    "success_256": "The same over prompts 0 to 255, the size of the paper's suite (all if there are fewer).",
    "pass_at_{k}": (
        "Mean over prompts of 1 - C(n - c, k) / C(n, k) with c successes among n samples, for k = 2, 4, 8, "
        "... up to the smallest n; interval: t over prompts."
    ),
    "return": (
        "Mean over trajectories of the sum of the environment's rewards, without format penalty or other "
        "terms; interval: t, clustered by prompt."
    ),
    "score": (
        "Mean over trajectories of the environment's own score, such as WebShop's between 0 and 1, of which only 1 "
        "is a success; 0 where nothing was bought; interval: t, clustered by prompt. Absent where there is none."
    ),
    "group_return_variance": "Mean over prompts with n >= 2 samples of their returns' variance (n - 1).",
    "group_return_std": "Mean over prompts with n >= 2 samples of their returns' standard deviation (n - 1).",
    "group_zero_spread": "Share of prompts with n >= 2 samples whose returns are all equal.",
    "turns": "Mean number of turns per trajectory.",
    "actions": "Mean number of executed actions per trajectory.",
    "actions_per_turn": "Executed actions / turns, over the whole suite.",
    "distinct_actions": "Mean over trajectories with an executed action of (different actions / actions).",
    "action_entropy": "Entropy -sum p log p (nats) of the executed actions' frequencies over the suite.",
    "effective": "Executed actions that changed something / executed actions.",
    "response_length": "Mean number of sampled tokens per turn.",
    "response_tokens": "Sampled tokens in all.",
    "tokens": "Context and sampled tokens in all; with agent.context_turns what a window repeats counts again.",
    **THOUGHTS,
    "format_valid": "Share of turns whose response the parser accepted.",
    "cut_off": "Share of turns that ended at the token limit instead of by the policy.",
    "token_nll": (
        "Mean over sampled tokens of -log p under the distribution they were drawn from (nats): an estimate "
        "of that distribution's mean entropy on the policy's own trajectories, at the suite's temperature "
        "and top_p."
    ),
    **{
        f"stop_{reason.value}": f"Share of trajectories in which {meaning}."
        for reason, meaning in _STOPS.items()
    },
}
"""Keys of ``summarise``. Those with an interval also have ``_low`` and ``_high``. A value that is undefined,
such as the entropy without an action or an interval from one prompt, is left out."""

MEASURED: dict[str, str] = {
    "optimum_success": (
        "Mean over the trajectories' prompts of the best chance of success that any agent has under the harness's "
        "max_turns, max_actions_per_turn and max_actions; exact. Absent without a solver."
    ),
    "optimum_return": "The same of the best expected return.",
    "floor_success": (
        "The same of uniformly random legal actions that use the limits up: exact for Bandit, FrozenLake and "
        "Sokoban, else the mean of 16 episodes per prompt with a t interval over prompts. Absent without named "
        "actions."
    ),
    "floor_return": "The same of random play's return.",
    "success_of_optimum": "success / optimum_success; interval: that of success, divided alike.",
    "return_normalised": (
        "(return - floor_return) / (optimum_return - floor_return): 0 is random play, 1 the best possible; interval: "
        "that of return on this scale."
    ),
}
"""Keys that a suite's reference adds to the summary."""


def _share(meaning: str) -> str:
    return f"Share of trajectories with this label: {meaning}."


DIAGNOSIS: dict[str, str] = {
    **{f"failures.{label.value}": _share(meaning) for label, meaning in LABELS.items()},
    "luck_method": (
        "none: no trajectory met anything random, luck_failed_share is 0 for certain; exact: chances in closed form "
        "(FrozenLake, Bandit); replay: 16 replays per trajectory; unknown: replays went otherwise than recorded."
    ),
    "luck_failed_share": (
        "Mean over won trajectories of the chance that their actions, played again without looking under fresh "
        "slips or payouts, fail; interval: t, clustered by prompt. In Bandit a win is the better arm that paid."
    ),
    "slip_plan_success": (
        "Mean over trajectories labelled hole_by_slip or hole_after_slip of the chance that their actions, with the "
        "rest of the last answer, succeed under fresh slips; interval: t, clustered by prompt."
    ),
}
"""Keys that the replays add to the summary. The labels are tried in the order given, an environment's own after
``environment_error``, and each failed trajectory has exactly one, so that the failures but ``lost_draw`` add up to
1 - success."""


def own_failures() -> dict[str, str]:
    """Keys of the labels that only one built-in environment has. Imports all of them."""
    return {f"failures.{label}": _share(meaning) for label, meaning in built_in_labels().items()}


COMPARISON: dict[str, str] = {
    "suite": "Name of the suite (its seed stream).",
    "environment": "Registered name of the environment.",
    "temperature": "Sampling temperature of both evaluations.",
    "policy_step_before": "Update count of the policy before.",
    "policy_step_after": "Update count of the policy after.",
    "prompts": "Number of prompts; prompts_256 of the first 256.",
    "trajectories": "Number of trajectories of each policy.",
    "success_before": "Success rate before (Wilson, clustered by prompt).",
    "success_after": "Success rate after (Wilson, clustered by prompt).",
    "success_difference": "After - before on the same prompts and luck (Agresti-Min, matched by prompt).",
    "return_before": "Mean return before (t, clustered by prompt).",
    "return_after": "Mean return after (t, clustered by prompt).",
    "return_difference": "After - before on the same prompts and luck (t, clustered by prompt).",
}
"""Keys of ``compare``. Success and return have ``_low`` and ``_high``, and all numbers from ``prompts`` on
come again with ``_256`` at the end for the first 256 prompts: ``success_difference_low_256``."""
