"""Parameters: layers and their precedence, one message per mistake, names of runs, sources of stages."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from builders import raised_message
from projects import ITERATIONS, SOURCE

from starpo.algorithms.estimators import AdvantageBatch
from starpo.algorithms.gae import Advantages
from starpo.algorithms.group import broadcast_to_tokens
from starpo.algorithms.needs import needs
from starpo.app.config_loader import ConfigLoader
from starpo.app.parameters import merge, resolve_parameters
from starpo.app.preflight import _warn_of_cheap_silence, check_before_work, check_environment
from starpo.config.identity import fingerprint, flatten
from starpo.config.parameters import Parameters, parse_parameters
from starpo.config.resolved import Resolved, Source
from starpo.errors import UserError
from starpo.settings import CONFIG_LOADER_ARGS
from starpo.store.sources import newest_source

ENVIRONMENTS = sorted(path.name for path in (SOURCE / "conf").iterdir() if list(path.glob("parameters*.yml")))


UNFILTERED = {"filter.keep_ratio": 1.0, "filter.keep_zero_spread": True}


def undeclared(batch: AdvantageBatch) -> Advantages:
    """A user's estimator that needs nothing."""
    returns = broadcast_to_tokens(batch.returns(), batch.mask)
    return Advantages(returns, returns)


@needs(group=True)
def of_a_group(batch: AdvantageBatch) -> Advantages:
    """A user's estimator that says it compares the members of a group."""
    return undeclared(batch)


def one_number(batch: AdvantageBatch) -> Advantages:
    """A user's estimator with a mistake."""
    return Advantages(torch.zeros(1), torch.zeros(1))


def reads_values(batch: AdvantageBatch) -> Advantages:
    """A user's estimator that reads the critic's values and does not say so."""
    return Advantages(-batch.values, batch.values)


def configured(env: str | None = None) -> dict[str, Any]:
    """The project's own parameters, as Kedro loads them."""
    chosen = None if env == "base" else env
    loader = ConfigLoader(conf_source=str(SOURCE / "conf"), env=chosen, **CONFIG_LOADER_ARGS)
    return dict(loader["parameters"])


SMOKE_CONFIG = configured("smoke")


def nested(dotted: dict[str, Any]) -> dict[str, Any]:
    """``{"run.seed": 1}`` to ``{"run": {"seed": 1}}``, as ``--params`` does."""
    tree: dict[str, Any] = {}
    for key, value in dotted.items():
        node = tree
        *path, last = key.split(".")
        for part in path:
            node = node.setdefault(part, {})
        node[last] = value
    return tree


def resolved(
    root: Path, *, pipeline: str = "train_starpo_s", env: str | None = "smoke", **dotted: Any
) -> Resolved:
    return resolve_parameters(configured(env), pipeline, nested(dotted.pop("params", {})), root)


def complaint(root: Path, **params: Any) -> str:
    """Message about ``params`` on top of the smoke configuration."""

    def check() -> None:
        check_before_work(root, resolved(root, params=params))

    return raised_message(UserError, check)


def refusal(given: dict[str, Any]) -> str:
    """Message about ``given`` on top of the smoke configuration, where its sections are read."""
    merge(config := copy.deepcopy(SMOKE_CONFIG), given)
    return raised_message(UserError, lambda: parse_parameters(config))


@pytest.mark.parametrize("env", ENVIRONMENTS)
def test_every_configuration_in_the_project_is_valid(tmp_path: Path, env: str) -> None:
    presets = configured(env)["presets"]
    for pipeline in presets:
        found = resolved(tmp_path, env=env, pipeline=pipeline)
        assert isinstance(found.parameters, Parameters)


@pytest.mark.parametrize("env", ["paper", "paper_3b", "paper_7b", "paper_webshop"])
def test_a_step_of_the_paper_has_32_trajectories_whatever_the_filter_keeps(env: str) -> None:
    values = configured(env)
    drawn = values["rollout"]["groups"] * values["rollout"]["group_size"]
    rows, epochs = values["learner"]["rows_per_step"], values["learner"]["epochs"]
    assert (drawn / rows, drawn * values["filter"]["keep_ratio"] / rows, epochs) == (4, 1, 1)


@pytest.mark.parametrize("env", ["paper_3b", "paper_7b", "paper_webshop"])
def test_what_the_paper_says_once_holds_for_its_other_sizes_and_tasks(env: str) -> None:
    written = yaml.safe_load((SOURCE / "conf" / env / "parameters.yml").read_text())
    assert "algorithm" not in written and "rollout" not in written
    here, paper, base = configured(env), configured("paper"), configured("base")
    assert (here["algorithm"], here["rollout"]) == (paper["algorithm"], paper["rollout"])
    assert here["algorithm"] != base["algorithm"] and here["rollout"] != base["rollout"]


@pytest.mark.parametrize("env", ["paper_3b", "paper_7b"])
def test_the_larger_models_differ_from_the_paper_in_what_their_size_needs(env: str) -> None:
    paper, larger = flatten(configured("paper")), flatten(configured(env))
    changed = {".".join(key) for key in paper.keys() | larger.keys() if paper.get(key) != larger.get(key)}
    assert changed - {"engine.tensor_parallel_size"} == {
        "base_policy.path",
        "learner.micro_batch_tokens",
        "learner.offload_optimizer",
        "learner.zero_stage",
        "run.checkpoint_every",
        "run.keep_last",
    }


def test_the_paper_s_webshop_is_the_3b_model_with_nine_turns_of_one_action() -> None:
    model, shop = flatten(configured("paper_3b")), flatten(configured("paper_webshop"))
    changed = {".".join(key) for key in model.keys() | shop.keys() if model.get(key) != shop.get(key)}
    assert changed == {
        "environment.name",
        "agent.max_turns",
        "agent.max_actions_per_turn",
        "agent.max_actions",
        "agent.max_tokens_per_trajectory",
        "learner.micro_batch_tokens",
        "evaluation.generalisation",
    }
    agent = configured("paper_webshop")["agent"]
    assert (agent["max_turns"], agent["max_actions"], agent["max_tokens_per_trajectory"]) == (9, 9, 15000)


def test_an_agent_without_a_window_is_stored_and_named_as_if_there_were_none(tmp_path: Path) -> None:
    whole = resolved(tmp_path)
    assert "context_turns" not in whole.raw["agent"]
    assert whole.names["base"] == "base-bandit-ccafa6a78eea", "runs and studies on disk have this policy"
    cut = resolved(tmp_path, params={"agent.context_turns": 2})
    assert cut.raw["agent"]["context_turns"] == 2
    assert cut.names["base"] != whole.names["base"]
    assert type(cut.parameters.agent).model_validate(cut.raw["agent"]).context_turns == 2


def test_a_window_without_a_turn_is_refused(tmp_path: Path) -> None:
    assert "agent.context_turns" in complaint(tmp_path, **{"agent.context_turns": 0})


def test_every_preset_belongs_to_a_pipeline_and_the_other_way_round() -> None:
    pipelines = {path.name for path in (SOURCE / "pipelines").glob("train_*") if path.is_dir()}
    assert set(configured()["presets"]) == pipelines


def test_precedence_rises_from_base_over_env_and_preset_to_params(tmp_path: Path) -> None:
    config = configured("smoke")
    assert config["run"]["iterations"] == ITERATIONS != configured("base")["run"]["iterations"]
    config["presets"]["train_starpo_s"]["run"] = {"iterations": 7, "seed": 3}
    preset = resolve_parameters(config, "train_starpo_s", {}, tmp_path)
    assert (preset.parameters.run.iterations, preset.parameters.run.seed) == (7, 3)
    given = resolve_parameters(config, "train_starpo_s", {"run": {"iterations": 8}}, tmp_path)
    assert (given.parameters.run.iterations, given.parameters.run.seed) == (8, 3)
    assert config["run"]["iterations"] == ITERATIONS, "the caller's dict is untouched"


def test_null_clears_the_arguments_of_a_lower_layer(tmp_path: Path) -> None:
    assert resolved(tmp_path).parameters.environment.arguments == {}
    assert resolved(tmp_path, env="base").parameters.environment.arguments["coordinates"] is True


def test_merging_goes_key_by_key_and_copies() -> None:
    base = {"a": {"b": 1, "c": 2}, "d": [1]}
    over = {"a": {"b": 3}, "d": [2], "e": {"f": 4}}
    merge(base, over)
    assert base == {"a": {"b": 3, "c": 2}, "d": [2], "e": {"f": 4}}
    over["e"]["f"] = 5
    assert base["e"] == {"f": 4}


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"rollout.grups": 3}, ["rollout.grups", "unknown parameter", "groups"]),
        ({"nonsense": 3}, ["nonsense", "unknown parameter", "rollout"]),
        ({"filter.keep_ratio": 0}, ["filter.keep_ratio = 0", "greater than 0"]),
        ({"agent.action_separator": ""}, ["agent.action_separator = ''", "at least 1 character"]),
        ({"filter.keep_ratio": 1.5}, ["filter.keep_ratio = 1.5", "less than or equal to 1"]),
        ({"run.iterations": 0}, ["run.iterations = 0", "greater than 0"]),
        ({"run.name": "../evil"}, ["run.name", "../evil"]),
        ({"run.name": "base-mine"}, ["base-mine", "belong to base policies"]),
        ({"learner.zero_stage": 4}, ["learner.zero_stage = 4", "0, 1, 2 or 3"]),
        ({"engine.kind": "tgi"}, ["engine.kind = 'tgi'", "'vllm' or 'transformers'"]),
        (
            {"rollout.group_size": 1, "algorithm.estimator": "grpo"} | UNFILTERED,
            ["group_size = 1", "'grpo'", "raise group_size"],
        ),
        ({"rollout.group_size": 1}, ["group_size = 1", "keep_ratio"]),
        ({"rollout.group_size": 1, "filter.keep_ratio": 1.0}, ["group_size = 1", "keep_zero_spread = true"]),
        (
            {"algorithm.estimator_parameters.gamma": 1.5},
            ["'gae' with gamma = 1.5", "gamma must be in [0, 1]"],
        ),
        (
            {"algorithm.estimator": "grpo", "algorithm.estimator_parameters.singletons": "mean"},
            ["'grpo'", "singletons must be one of raw, zero"],
        ),
        ({"algorithm.policy_loss_parameters.dual_clip": 0.5}, ["'ppo'", "dual_clip must be above 1"]),
        ({"algorithm.estimator": "test_config:one_number"}, ["test_config:one_number", "got shape (1,)"]),
        ({"algorithm.estimator": "test_config:reads_values"}, ["test_config:reads_values", "NoneType"]),
        ({"algorithm.kl_target": 0.1}, ["kl_target = 0.1 with kl_coefficient = 0", "0.001"]),
        ({"algorithm.kl_target": 0.1, "algorithm.kl_coefficient": 0.01}, ["kl_horizon = None", "10000"]),
        ({"algorithm.kl_horizon": 100}, ["kl_target = None with kl_horizon = 100"]),
        (
            {"algorithm.kl_estimator": "k1", "algorithm.kl_coefficient": 0.01},
            ["kl_estimator = 'k1'", "kl_in = reward"],
        ),
        ({"algorithm.kl_in": "both"}, ["algorithm.kl_in = 'both'", "'loss' or 'reward'"]),
        ({"algorithm.aggregation": "seq-mean-token-sum-norm"}, ["needs length_norm", "max_tokens_per_turn"]),
        ({"algorithm.length_norm": 100}, ["length_norm = 100 has no effect", "token-mean"]),
        ({"algorithm.importance_cap": 2.0}, ["importance_cap = 2", "old_logprobs = recompute"]),
        (
            {"algorithm.importance_cap": 2.0, "learner.old_logprobs": "recompute", "rollout.top_p": 0.9},
            ["importance_cap", "top_p = 0.9"],
        ),
        ({"rollout.top_p": 0.9}, ["top_p = 0.9", "old_logprobs = recompute or top_p = 1"]),
        ({"rollout.temperature": 0.005}, ["rollout.temperature = 0.005", "greater than or equal to 0.01"]),
        ({"algorithm.response_mask": False}, ["response_mask = false", "old_logprobs = recompute"]),
        ({"filter.mode": "threshold"}, ["mode = 'threshold' with keep_ratio = 0.5", "keep_ratio = 1"]),
        (
            {"filter.resample.min_kept_groups": 1} | UNFILTERED,
            ["resample with keep_ratio = 1", "resample = null"],
        ),
        (
            {"filter.resample.min_kept_groups": 33},
            ["min_kept_groups = 33", "rollout.groups = 64", "keeps 32 at most"],
        ),
        (
            {"reward.terms.format_penalty.penalty": -1},
            ["reward.terms.format_penalty", "must not be negative"],
        ),
        (
            {"reward.terms.overlong": {"max_tokens": 16, "buffer": 20}},
            ["reward.terms.overlong", "buffer must be in 1..max_tokens (16)"],
        ),
        (
            {"reward.terms.overlong": {"max_tokens": 64, "buffer": 20}},
            ["beyond max_tokens - buffer = 44", "max_tokens_per_turn = 16 never"],
        ),
        ({"agent.max_tokens_per_turn": 64}, ["max_tokens_per_turn = 64", "max_tokens_per_trajectory = 64"]),
        ({"agent.think": False, "agent.prefill_think": True}, ["prefill_think", "think = true"]),
        ({"evaluation.final": ["nowhere"]}, ["nowhere", "validation"]),
        (
            {"base_policy.path": "/nowhere/model"},
            ["base_policy.path", "/nowhere/model", "config.json is missing"],
        ),
        ({"environment.name": "chess"}, ["environment", "'chess'", "bandit"]),
        ({"environment.arguments": {"speed": 3}}, ["environment", "unknown argument 'speed'", "low_reward"]),
        ({"evaluation.suites.test.environment": "chess"}, ["evaluation.suites.test", "'chess'"]),
        ({"algorithm.estimator": "gea"}, ["advantage estimator 'gea'", "gae"]),
        ({"algorithm.estimator_parameters.lamda": 1}, ["'lamda'", "lam"]),
        ({"algorithm.policy_loss": "ppo2"}, ["policy loss 'ppo2'", "ppo"]),
        ({"reward.terms.luck": {}}, ["reward term 'luck'", "environment"]),
        (
            {"reward.terms.format_penalty.penalty": True},
            ["reward.terms.format_penalty.penalty = True", "should be a valid number"],
        ),
        ({"reward.normalize.method": "median"}, ["reward.normalize.method = 'median'", "'asym_clip'"]),
        (
            {"reward.terms": {"environment": None, "format_penalty": None}},
            ["reward: terms: all are switched off"],
        ),
        (
            {"monitor.indicators.return_std.metric": "retrun_std"},
            ["monitor.indicators.return_std.metric", "'retrun_std'", "near it: return_std"],
        ),
        ({"engine.device": "cuda"}, ["engine.device", "no GPU"]),
        ({"run.fork_from": "nobody@0003"}, ["nobody", "no policy here"]),
        ({"run.fork_from": "nobody@latest"}, ["nobody", "has no policy"]),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_mistake_is_named_with_its_value_and_what_is_allowed(
    tmp_path: Path, params: dict[str, Any], expected: list[str]
) -> None:
    if params.get("engine.device") == "cuda" and torch.cuda.is_available():
        pytest.skip("there is a GPU")
    message = complaint(tmp_path, **params)
    for part in expected:
        assert part in message, message


def test_all_mistakes_are_listed_at_once(tmp_path: Path) -> None:
    message = complaint(tmp_path, **{"filter.keep_ratio": 0, "run.iterations": -1, "rollout.grups": 3})
    assert len(message.splitlines()) == 5, message


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_no_number_of_any_section_may_be_infinite_or_none(tmp_path: Path, value: float) -> None:
    plain = flatten(resolved(tmp_path).parameters.model_dump())
    numbers = [
        ".".join(key)
        for key, held in plain.items()
        if isinstance(held, float) and "parameters" not in key[-2]
    ]
    assert len(numbers) > 20
    for key in numbers:
        assert key in complaint(tmp_path, **{key: value})


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
@pytest.mark.parametrize("place", ["", ".deep", ".deep.0"])
@pytest.mark.parametrize(
    "key",
    [
        "environment.arguments",
        "environment.mixture.0.arguments",
        "evaluation.suites.test.arguments",
        "algorithm.estimator_parameters",
        "algorithm.policy_loss_parameters",
    ],
)
def test_no_number_among_free_arguments_may_be_infinite_or_none(key: str, place: str, value: float) -> None:
    free = {"mine": {"": value, ".deep": {"deep": value}, ".deep.0": {"deep": [value]}}[place]}
    given: dict[str, Any] = nested({key: free})
    if "mixture" in key:
        given = {
            "environment": {
                "arguments": None,
                "mixture": [{"name": "bandit", "weight": 1, "arguments": free}],
            }
        }
    if "suites" in key:
        given["evaluation"]["suites"]["test"]["environment"] = "bandit"
    message = refusal(given)
    assert f"  {key}.mine{place} = {value}: Input should be a finite number" in message


@pytest.mark.parametrize("value", [True, False])
def test_no_truth_value_is_taken_for_a_number_of_any_section(value: bool) -> None:
    plain = flatten(parse_parameters(SMOKE_CONFIG).model_dump())
    numbers = {
        ".".join(key)
        for key, held in plain.items()
        # What functions take is any value, and refused by them.
        if isinstance(held, int | float)
        and not isinstance(held, bool)
        and "parameters" not in key[-2]
        and key[:2] != ("reward", "terms")
    }
    assert len(numbers) > 70
    listed = {
        "evaluation.temperatures": [value],
        "learner.actor.betas": [value, 0.9],
        "agent.context_turns": value,
        "algorithm.value_clip": value,
    }
    for key, given in (dict.fromkeys(numbers, value) | listed).items():
        message = refusal(nested({key: given}))
        assert f"  {key}" in message, key
        assert f" = {value}: " in message, key
        # Where 0 or 1 is out of range as well, the range is what is said.
        assert "true and false are no numbers" in message or "Input should be " in message, key


def test_truth_values_stay_where_they_are_meant() -> None:
    given = nested({"environment.arguments.any": [True, {"deep": False}], "agent.think": False})
    merge(config := copy.deepcopy(SMOKE_CONFIG), given)
    parsed = parse_parameters(config)
    assert parsed.environment.arguments == {"any": [True, {"deep": False}]}
    assert parsed.agent.think is False


@pytest.mark.parametrize("key", ["run.seed", "evaluation.seed", "base_policy.seed", "learner.lora.seed"])
def test_a_seed_is_one_word_of_a_seed_sequence(key: str) -> None:
    merge(config := copy.deepcopy(SMOKE_CONFIG), nested({key: 2**32 - 1}))
    parse_parameters(config)
    for value in (-1, 2**32, 10**40):
        assert f"{key} = {value}: Input should be" in refusal(nested({key: value}))


@pytest.mark.parametrize("estimator", ["gae", "reinforce_plus_plus", "test_config:undeclared"])
def test_group_size_one_is_allowed_where_it_makes_sense(tmp_path: Path, estimator: str) -> None:
    params = {"rollout.group_size": 1, "algorithm.estimator": estimator} | UNFILTERED
    found = resolved(tmp_path, params=params)
    check_before_work(tmp_path, found)
    assert found.parameters.rollout.group_size == 1


def test_a_users_estimator_may_declare_that_it_compares_members(tmp_path: Path) -> None:
    params = {"rollout.group_size": 1, "algorithm.estimator": "test_config:of_a_group"} | UNFILTERED
    assert "compares the members of a group" in complaint(tmp_path, **params)


def test_an_adaptive_penalty_in_the_reward_and_a_correction_are_accepted_together(tmp_path: Path) -> None:
    params = {
        "algorithm.kl_in": "reward",
        "algorithm.kl_estimator": "k1",
        "algorithm.kl_coefficient": 0.01,
        "algorithm.kl_target": 0.05,
        "algorithm.kl_horizon": 10000,
        "algorithm.importance_cap": 2.0,
        "learner.old_logprobs": "recompute",
        "filter.resample": {"min_kept_groups": 32, "max_rounds": 2},
        "reward.terms.overlong": {"max_tokens": 16, "buffer": 4, "penalty": 0.5},
    }
    check_before_work(tmp_path, resolved(tmp_path, params=params))


@pytest.mark.parametrize(
    ("params", "warned"),
    [
        ({}, "penalty = 0.1 is not above the 0.5 "),
        ({"reward.terms.format_penalty.penalty": 0.5}, "penalty = 0.5 is not above the 0.5 "),
        ({"reward.terms.format_penalty.penalty": 0.6}, ""),
        ({"agent.max_actions_per_turn": 3, "reward.terms.format_penalty.penalty": 0.3}, "not above the 0.3 "),
        ({"reward.terms.environment.scale": 0.1}, ""),
        ({"reward.terms.environment.scale": 2.0}, "not above the 1 "),
        ({"environment.name": "frozen_lake"}, ""),
        ({"environment.name": "webshop_easy", "agent.max_actions_per_turn": 1}, ""),
        ({"environment.name": "bandit", "reward.terms.format_penalty.penalty": 0.0}, ""),
    ],
)
def test_a_penalty_for_saying_nothing_below_the_price_of_acting_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, params: dict[str, Any], warned: str
) -> None:
    sokoban = {"environment.name": "sokoban_paper", "agent.max_actions_per_turn": 5, "agent.max_actions": 10}
    check_before_work(tmp_path, resolved(tmp_path, params=sokoban | params))
    said = [
        record.getMessage() for record in caplog.records if "saying nothing can pay" in record.getMessage()
    ]
    assert len(said) == bool(warned)
    assert warned in "".join(said)
    assert all(record.levelname == "WARNING" for record in caplog.records)


@pytest.mark.parametrize("env", ["paper", "base", "webshop"])
def test_of_the_configurations_that_of_the_paper_has_a_cheap_silence(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, env: str
) -> None:
    parameters = resolved(tmp_path, env=env).parameters
    _warn_of_cheap_silence(parameters, check_environment("environment", parameters.environment))
    assert ("saying nothing can pay" in caplog.text) is (env == "paper")


def test_a_mixture_weighs_the_price_of_acting_as_its_member_is_weighed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    members = [
        {"name": "sokoban", "weight": 1.0, "reward_scale": 0.1},
        {"name": "sokoban", "weight": 1.0, "label": "dear"},
        {"name": "frozen_lake", "weight": 1.0},
    ]
    params = {"environment.mixture": members, "environment.arguments": None, "agent.max_actions_per_turn": 5}
    check_before_work(tmp_path, resolved(tmp_path, params=params))
    assert "in 'dear'" in caplog.text
    assert caplog.text.count("saying nothing can pay") == 1


def test_the_default_name_is_pipeline_environment_and_seed(tmp_path: Path) -> None:
    assert resolved(tmp_path).names["name"] == "train_starpo_s-bandit-seed0"
    assert resolved(tmp_path, params={"run.seed": 7}).names["name"] == "train_starpo_s-bandit-seed7"
    assert resolved(tmp_path, params={"run.name": "mine"}).parameters.run.name == "mine"


def test_runs_share_a_base_policy_exactly_if_it_would_be_the_same(tmp_path: Path) -> None:
    def base(**params: Any) -> str:
        return resolved(tmp_path, params=params).names["base"]

    shared = base()
    assert base(**{"run.seed": 9, "run.name": "other", "learner.epochs": 3, "rollout.groups": 4}) == shared
    for params in ({"base_policy.seed": 1}, {"agent.think": False}, {"environment.name": "bandit_reversed"}):
        assert base(**params) != shared


def policy_folder(root: Path, run: str, iteration: int) -> None:
    folder = root / "data" / "06_models" / run / f"policy_{iteration:04d}"
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(b"")
    (folder / "manifest.json").write_text(
        f'{{"schema_version": 2, "files": {{}}, "run": "{run}", "weights_in": "policy_{iteration:04d}"}}'
    )


def table_file(root: Path, layer: str, run: str, iteration: int) -> None:
    folder = root / "data" / layer / run
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"iter_{iteration:04d}.parquet").write_bytes(b"")


def test_a_stage_works_on_what_run_source_names(tmp_path: Path) -> None:
    policy_folder(tmp_path, "a-bandit-run", 3)
    policy_folder(tmp_path, "a-bandit-run", 12)
    given = resolved(tmp_path, pipeline="rollout", params={"run.source": "a-bandit-run@0003"})
    latest = resolved(tmp_path, pipeline="rollout", params={"run.source": "a-bandit-run@latest"})
    newest = resolved(tmp_path, pipeline="rollout")
    assert given.names["name"] == "rollout-a-bandit-run-0003"
    assert (given.names["source_iteration"], given.names["source_next"]) == ("0003", "0004")
    assert latest.names["source_iteration"] == newest.names["source_iteration"] == "0012"


def test_an_update_needs_scores_and_their_policy(tmp_path: Path) -> None:
    for iteration in (1, 2):
        table_file(tmp_path, "03_scored", "a-bandit-run", iteration)
    policy_folder(tmp_path, "a-bandit-run", 1)
    assert resolved(tmp_path, pipeline="update").names["source_iteration"] == "0001"


@pytest.mark.parametrize(
    ("pipeline", "remedy"),
    [("rollout", "base_policy"), ("evaluate", "base_policy"), ("reward", "rollout"), ("update", "reward")],
)
def test_a_stage_without_a_source_names_the_stage_to_run_first(
    tmp_path: Path, pipeline: str, remedy: str
) -> None:
    message = raised_message(UserError, lambda: resolved(tmp_path, pipeline=pipeline))
    assert f"`kedro run --pipeline={remedy}`" in message
    assert "bandit" in message
    config = configured("smoke")
    under = raised_message(UserError, lambda: resolve_parameters(config, pipeline, {}, tmp_path, "smoke"))
    assert f"`kedro run --env=smoke --pipeline={remedy}`" in under


def test_the_newest_source_of_a_users_environment_is_found_under_the_name_of_its_runs(tmp_path: Path) -> None:
    folder = tmp_path / "data/02_rollouts/train_starpo_s-lakes-Frozen-seed0"
    folder.mkdir(parents=True)
    (folder / "iter_0002.parquet").touch()
    found = newest_source(tmp_path, "rollouts", "lakes:Frozen")
    assert found == Source("train_starpo_s-lakes-Frozen-seed0", 2)


def test_a_badly_written_source_is_refused(tmp_path: Path) -> None:
    def ask() -> Resolved:
        return resolved(tmp_path, pipeline="rollout", params={"run.source": "run@soon"})

    assert "expected RUN@ITERATION" in raised_message(UserError, ask)


def test_nodes_get_every_section_whole(tmp_path: Path) -> None:
    found = resolved(tmp_path)
    assert parse_parameters(found.raw) == found.parameters
    assert set(found.raw) == set(Parameters.model_fields)


def test_flatten_and_fingerprint_do_not_depend_on_order() -> None:
    assert flatten({"a": {"b": 1, "c": {}}, "d": [1]}) == {("a", "b"): 1, ("a", "c"): {}, ("d",): [1]}
    assert fingerprint({"a": 1, "b": 2}) == fingerprint({"b": 2, "a": 1})
    assert fingerprint({"a": 1}) != fingerprint({"a": 2})
