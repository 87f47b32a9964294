"""The episode loop with a scripted engine: limits, stop reasons, faulty environments, seeds."""

from __future__ import annotations

import hashlib
import io
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from builders import ScriptedEngine, agent, engine_config, plan, template_of

from starpo.agent.records import StopReason, Trajectory
from starpo.agent.template import ChatTemplate
from starpo.app.mistakes import user_mistake
from starpo.base_policy.tokenizer import build_tokenizer
from starpo.config.reward import FilterConfig
from starpo.environments.contract import ContractError
from starpo.rewards.bind import bind_terms
from starpo.rollout.episodes import play
from starpo.scoring.scoring import mark_kept, score_turns
from starpo.store.policies import Policy, load_tokenizer
from starpo.store.trajectory_table import trajectories_to_table

ADD = "<think>a</think><answer>Add</answer>"
ADD_THREE = "<think>a</think><answer>Add || Add || Add</answer>"
WAIT = "<think>a</think><answer>Wait</answer>"
HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> ChatTemplate:
    folder = tmp_path_factory.mktemp("tokenizer")
    build_tokenizer(["Count. count 1 coin 2"], ["<answer>"], vocabulary=300, directory=folder)
    return ChatTemplate.of(load_tokenizer(folder))


def counting(
    template: ChatTemplate,
    *texts: str,
    environment: str = "Counter",
    arguments: dict[str, Any] | None = None,
    groups: int = 1,
    group_size: int = 1,
    **limits: Any,
) -> tuple[list[Trajectory], ScriptedEngine]:
    """Episodes in one of the odd environments with the given replies."""
    engine = ScriptedEngine.saying(template, *texts)
    drawn = plan(
        environment=f"odd_environments:{environment}",
        arguments=arguments or {},
        groups=groups,
        group_size=group_size,
    )
    settings = {"max_tokens_per_turn": 200, "max_tokens_per_trajectory": 4000} | limits
    return play(engine, drawn, agent(**settings), template), engine


def test_the_turn_limit_truncates(template: ChatTemplate) -> None:
    ((trajectory,), _) = counting(template, WAIT, max_turns=3)
    assert trajectory.stop_reason is StopReason.TURN_LIMIT
    assert [turn.truncated for turn in trajectory.turns] == [False, False, True]
    assert not any(turn.terminated for turn in trajectory.turns)


def test_the_action_limit_truncates_and_cuts_the_last_answer(template: ChatTemplate) -> None:
    ((trajectory,), _) = counting(template, ADD_THREE, max_actions=5, max_actions_per_turn=3, max_turns=9)
    assert trajectory.stop_reason is StopReason.ACTION_LIMIT
    assert [turn.executed for turn in trajectory.turns] == [("Add",) * 3, ("Add",) * 2]
    assert [turn.reward for turn in trajectory.turns] == [3.0, 2.0]
    assert trajectory.turns[-1].truncated


def test_a_turn_without_an_action_costs_a_turn_and_no_action(template: ChatTemplate) -> None:
    ((trajectory,), _) = counting(template, "nothing", "nothing", ADD, max_turns=9, max_actions=1)
    assert [len(turn.executed) for turn in trajectory.turns] == [0, 0, 1]
    assert [turn.format_valid for turn in trajectory.turns] == [False, False, True]
    assert trajectory.stop_reason is StopReason.ACTION_LIMIT


def test_the_prompt_complains_after_an_answer_without_a_legal_action_only(template: ChatTemplate) -> None:
    ((trajectory,), _) = counting(template, "nothing", WAIT, WAIT, max_turns=3)
    complained = ["no legal action" in template.text(list(turn.context_ids)) for turn in trajectory.turns]
    assert complained == [False, True, False]


@pytest.mark.parametrize("limit", range(60, 400, 17))
def test_no_chain_is_longer_than_its_token_limit(template: ChatTemplate, limit: int) -> None:
    ((trajectory,), engine) = counting(
        template, WAIT, max_turns=99, max_actions=99, max_tokens_per_turn=50, max_tokens_per_trajectory=limit
    )
    assert all(len(chain.token_ids) <= limit for chain in trajectory.chains())
    assert all(
        len(prompt) + sampling.max_tokens <= limit
        for prompt, sampling in zip(engine.prompts, engine.samplings, strict=True)
    )
    assert trajectory.stop_reason is StopReason.LENGTH
    if trajectory.turns:
        assert trajectory.turns[-1].truncated


def test_after_another_end_of_sequence_the_turn_end_of_the_template_is_context(
    template: ChatTemplate,
) -> None:
    other = next(token for token in range(300) if token != template.turn_end)
    said = [*template.content(WAIT), other]
    engine = ScriptedEngine(lambda request: (said, True))
    (trajectory,) = play(
        engine,
        plan(groups=1, group_size=1),
        agent(max_tokens_per_turn=200, max_tokens_per_trajectory=4096),
        template,
    )
    first, second = trajectory.turns[:2]
    assert first.response_ids == tuple(said), "the ledger keeps what was sampled"
    assert second.context_ids[: len(template.reply_to_user)] == template.reply_to_user


def test_a_turn_out_of_tokens_says_so_and_is_parsed_all_the_same(template: ChatTemplate) -> None:
    ((trajectory,), _) = counting(template, WAIT + "x" * 100, max_tokens_per_turn=60, max_turns=1)
    (turn,) = trajectory.turns
    assert turn.stop_reason is StopReason.LENGTH
    assert len(turn.response_ids) == 60
    assert turn.executed == ("Wait",)


@pytest.mark.parametrize(("text", "won"), [(ADD, True), (WAIT, False)])
def test_the_environment_ends_an_episode_by_success_or_its_own_clock(
    template: ChatTemplate, text: str, won: bool
) -> None:
    ((trajectory,), _) = counting(template, text, environment="Finishing")
    (turn,) = trajectory.turns
    assert trajectory.stop_reason is StopReason.TERMINATED
    assert (turn.terminated, turn.truncated, turn.success) == (won, not won, won)


def test_actions_after_the_end_are_not_executed(template: ChatTemplate) -> None:
    ((trajectory,), _) = counting(template, ADD_THREE, environment="Finishing")
    assert trajectory.turns[0].actions == ("Add",) * 3
    assert trajectory.turns[0].executed == ("Add",)


def test_an_environment_that_raises_ends_its_own_episode_only_and_is_quarantined(
    template: ChatTemplate,
) -> None:
    # Requests: one per episode and turn. The second of four episodes waits and so meets the bug.
    trajectories, _ = counting(
        template, ADD, WAIT, ADD, environment="Crashing", groups=2, group_size=2, max_turns=2
    )
    assert [t.stop_reason for t in trajectories] == [
        StopReason.TURN_LIMIT,
        StopReason.ENVIRONMENT_ERROR,
        StopReason.TURN_LIMIT,
        StopReason.TURN_LIMIT,
    ]
    assert trajectories[1].error == "KeyError: 'a bug in the environment'"
    turns = trajectories_to_table(trajectories, policy_step=0, temperature=1.0, top_p=1.0)
    scored = score_turns(turns, bind_terms({"environment": {}}))
    marked = mark_kept(scored, FilterConfig(keep_ratio=1.0, keep_zero_spread=True)).to_pylist()
    assert [row["quarantined"] for row in marked] == [False, True, False, False]
    assert [row["kept"] for row in marked] == [True, False, True, True]
    assert marked[1]["reason"] == "environment_error"


def test_a_breach_of_contract_stops_the_run_naming_the_environment(template: ChatTemplate) -> None:
    with pytest.raises(ContractError, match=r"odd_environments:Lying.*step reward"):
        counting(template, ADD, environment="Lying")


@pytest.mark.parametrize("at", ["reset", "step"])
def test_an_observation_that_no_context_holds_is_the_environment_s_failure_and_costs_no_time(
    template: ChatTemplate, at: str
) -> None:
    before = time.process_time()
    trajectories, _ = counting(
        template,
        *((ADD,) if at == "reset" else (ADD, WAIT, ADD)),
        environment="Long",
        arguments={"at": at},
        groups=2,
        group_size=2,
        max_turns=2,
    )
    assert time.process_time() - before < 5, "tokenising it takes minutes"
    failed = [t for t in trajectories if t.stop_reason is StopReason.ENVIRONMENT_ERROR]
    others = [t for t in trajectories if t not in failed]
    assert failed and others
    assert {t.stop_reason for t in others} == {StopReason.TURN_LIMIT}
    for trajectory in failed:
        assert re.match(r"an observation of 1,048,\d{3} characters of environment 'odd_env", trajectory.error)
        assert f"instance seed {trajectory.instance_seed}, " in trajectory.error
        assert len(trajectory.turns) == (at == "step")
        assert all(len(turn.next_observation) < 100 for turn in trajectory.turns)


@pytest.mark.parametrize("at", ["reset", "step"])
@pytest.mark.parametrize(("how", "kind"), [("bytes", "of type bytes"), ("half", "halves of surrogate pairs")])
def test_an_observation_that_is_no_text_is_one_sentence_to_people(
    template: ChatTemplate, how: str, kind: str, at: str
) -> None:
    with pytest.raises(ContractError) as raised:
        counting(template, ADD, environment="Unwritten", arguments={"how": how, "at": at})
    said = user_mistake(raised.value)
    assert said is not None and re.match(r"environment '[\w:]*Unwritten': ", said)
    assert f"{at} observation" in said and kind in said and "Mend the environment" in said
    said.encode()


def test_members_share_the_instance_and_not_the_luck(template: ChatTemplate) -> None:
    trajectories, engine = counting(template, ADD, groups=3, group_size=4, max_turns=1)
    for group in range(3):
        members = [t for t in trajectories if t.address.group == group]
        assert len({t.turns[0].observation for t in members}) == 1
        assert len({t.turns[0].context_ids for t in members}) == 1
        assert len({t.instance_seed for t in members}) == 1
        assert len({t.dynamics_seed for t in members}) == 4
        assert len({t.turns[0].next_observation for t in members}) == 4, "the coin differs"
    assert len({t.turns[0].observation for t in trajectories}) == 3
    assert len({sampling.seed for sampling in engine.samplings}) == 12


def test_every_turn_has_its_own_sampling_seed_and_iterations_share_none(template: ChatTemplate) -> None:
    def seeds(**changes: Any) -> list[int]:
        engine = ScriptedEngine.saying(template, WAIT)
        play(
            engine,
            plan(environment="odd_environments:Counter", arguments={}, **changes),
            agent(max_tokens_per_turn=200, max_tokens_per_trajectory=4000),
            template,
        )
        return [sampling.seed for sampling in engine.samplings]

    assert len(set(seeds())) == 2 * 2 * 3
    assert seeds() == seeds()
    for other in ({"iteration": 1}, {"seed": 6}, {"stream": "test"}):
        assert not set(seeds()) & set(seeds(**other))


def test_a_first_prompt_that_is_too_long_gives_no_turn_and_no_request(template: ChatTemplate) -> None:
    ((trajectory,), engine) = counting(template, ADD, max_tokens_per_turn=5, max_tokens_per_trajectory=20)
    assert (trajectory.turns, trajectory.stop_reason, engine.prompts) == ([], StopReason.LENGTH, [])


def test_a_prefilled_thought_is_context_and_still_parsed(template: ChatTemplate) -> None:
    ((trajectory,), engine) = counting(
        template, "a</think><answer>Add</answer>", prefill_think=True, max_turns=2
    )
    prefill = tuple(template.content("<think>"))
    for turn in trajectory.turns:
        assert turn.context_ids[-len(prefill) :] == prefill
        assert turn.format_valid
    assert trajectory.chains()[0].token_ids == [*engine.prompts[-1], *trajectory.turns[-1].response_ids]


PLAY = """
import sys
from pathlib import Path
sys.path[:0] = {paths!r}
from test_episodes import digest_of_play
print(digest_of_play(Path(sys.argv[1])))
"""


def digest_of_play(directory: Path) -> str:
    """SHA-256 of the Parquet bytes of a small rollout with the reference engine."""
    from starpo.rollout.transformers_engine import TransformersEngine

    policy = Policy.open(directory)
    template = template_of(policy)
    engine = TransformersEngine(
        policy.model_directory, engine_config(), stop_ids=template.stop_ids, identity=policy.identity
    )
    table = trajectories_to_table(
        play(engine, plan(groups=3, group_size=4), agent(), template),
        policy_step=0,
        temperature=1.0,
        top_p=1.0,
    )
    return parquet_digest(table)


def parquet_digest(table: pa.Table) -> str:
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd")
    return hashlib.sha256(buffer.getvalue()).hexdigest()


@pytest.mark.slow
def test_the_same_plan_gives_the_same_table_in_another_process(tiny_policy: Policy, tmp_path: Path) -> None:
    script = tmp_path / "play.py"
    script.write_text(PLAY.format(paths=[str(HERE), str(HERE.parent)]))
    there = subprocess.run(
        [sys.executable, str(script), str(tiny_policy.directory)],
        env=os.environ | {"PYTHONHASHSEED": "77"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert there.stdout.split()[-1] == digest_of_play(tiny_policy.directory)
