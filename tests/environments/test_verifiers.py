"""The adapter against the real ``verifiers`` library, which needs an environment of its own: make test-verifiers."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

pytest.importorskip(
    "verifiers.v1", reason="verifiers does not go with this project's pins: make test-verifiers"
)

from starpo.environments.contract import check_environment
from starpo.environments.registry import make

TASKSET = """
from verifiers import v1 as vf


class SumData(vf.TaskData):
    answer: str


class SumTask(vf.Task[SumData]):
    @vf.reward
    async def right(self, trace) -> float:
        return float(trace.last_reply == self.data.answer)

    @vf.reward(weight=0.5)
    async def short(self, trace) -> float:
        return float(len(trace.last_reply) <= 3)


class Config(vf.TasksetConfig):
    highest: int = 30


class Sums(vf.Taskset[SumTask, Config]):
    def load(self):
        for a in range(self.config.highest):
            for b in range(10):
                data = SumData(prompt=f"{a} + {b} = ?", system_prompt="Add.", answer=str(a + b))
                yield SumTask(data, self.config.task)


__all__ = ["Sums"]
"""


@pytest.fixture(scope="module", autouse=True)
def taskset(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("tasksets")
    (folder / "tiny_sums.py").write_text(TASKSET)
    sys.path.insert(0, str(folder))
    yield
    sys.path.remove(str(folder))


def test_a_taskset_keeps_the_contract_and_its_rewards_are_its_own() -> None:
    env = make("verifiers", taskset="tiny_sums", return_range=[0.0, 1.5])
    check_environment(env)
    prompts = set()
    for seed in range(10):
        text, _ = env.reset(seed=seed)
        system, question = text.split("\n\n")
        assert system == "Add."
        prompts.add(question)
        a, b = (int(number) for number in question.removesuffix(" = ?").split(" + "))
        answer = str(a + b)
        assert env.match_action(f" {answer} ") == answer
        _, reward, terminated, _, info = env.step(answer)
        assert (reward, terminated, info["success"]) == (1.5, True, True)
        assert info["rewards"] == {"right": 1.0, "short": 0.5}
        assert env.reset(seed=seed)[0] == text
        _, reward, *_, info = env.step("a long wrong answer")
        assert (reward, info["success"]) == (0.0, False)
    assert len(prompts) > 5


def test_configuration_and_rows_choose_what_is_asked() -> None:
    env = make("verifiers", taskset="tiny_sums", configuration={"highest": 1}, rows=2)
    assert {env.reset(seed=seed)[0] for seed in range(20)} == {"Add.\n\n0 + 0 = ?", "Add.\n\n0 + 1 = ?"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"taskset": "no_such_taskset"}, "taskset is 'no_such_taskset'"),
        ({"taskset": "tiny_sums", "configuration": {"speed": 1}}, "taskset is 'tiny_sums': .*speed"),
    ],
)
def test_a_wrong_taskset_is_named(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=f"(?s){message}"):
        make("verifiers", **arguments)
