"""A judge behind a real HTTP server of the test's own: scores, replies that are kept, and every way to fail."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from builders import raised_message
from judged import trajectory, turn

from starpo.errors import UserError
from starpo.rewards.bind import bind_terms
from starpo.rewards.total import Scores, score
from starpo.rewards.trajectory import Trajectory

Answer = Callable[[dict[str, Any]], tuple[int, bytes]]

JUDGED = trajectory(turn(thought="The goal is down."), turn(thought="Hm.", executed=("Down",)))


def saying(text: Any) -> tuple[int, bytes]:
    return 200, json.dumps({"choices": [{"message": {"role": "assistant", "content": text}}]}).encode()


class Endpoint:
    """An OpenAI-compatible server; remembers requests."""

    def __init__(self) -> None:
        self.answer: Answer = lambda request: saying("Score: 5")
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                endpoint.requests.append(request)
                endpoint.headers.append(dict(self.headers))
                endpoint.paths.append(self.path)
                status, body = endpoint.answer(request)
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/v1"

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    served = Endpoint()
    yield served
    served.close()


@pytest.fixture
def rubric(tmp_path: Path) -> Path:
    file = tmp_path / "rubric.txt"
    file.write_text("A good thought is true and short.\n")
    return file


def judge(
    endpoint: Endpoint, rubric: Path, judged: Trajectory = JUDGED, folder: Path | None = None, **changes: Any
) -> Scores:
    """What a new judge says, all trajectories shown before."""
    parameters = {"url": endpoint.url, "model": "wise", "rubric": str(rubric), "attempts": 1} | changes
    terms = bind_terms({"judge": parameters}, folder)
    terms["judge"].prepare([judged])
    return score(judged, (), terms)


def test_each_turn_is_scored_by_the_rubric_from_0_to_1(endpoint: Endpoint, rubric: Path) -> None:
    endpoint.answer = lambda request: saying(
        "I first thought score: 2.\nScore: 10"
        if "goal is down" in request["messages"][1]["content"]
        else "**Score: 2.5**"
    )
    found = judge(endpoint, rubric, weight=2)
    assert (found.values["judge"].tolist(), found.missing) == ([2, 0.5], {})
    assert set(endpoint.paths) == {"/v1/chat/completions"}
    system, user = next(each for each in endpoint.requests if "Hm." in str(each))["messages"]
    assert system["content"].startswith("A good thought is true and short.\n\n")
    assert "from 0 to 10" in system["content"]
    for part in (JUDGED.turns[1].observation, "Hm.", "Actions: Down"):
        assert part in user["content"]
    assert endpoint.requests[0]["model"] == "wise"
    assert endpoint.requests[0]["temperature"] == 0


def test_a_whole_trajectory_is_scored_on_its_last_turn(endpoint: Endpoint, rubric: Path) -> None:
    found = judge(endpoint, rubric, per="trajectory", lowest=-5, highest=5)
    assert found.values["judge"].tolist() == [0, 1]
    (request,) = endpoint.requests
    assert "The goal is down." in request["messages"][1]["content"]
    assert "Hm." in request["messages"][1]["content"]
    assert judge(endpoint, rubric, trajectory(), per="trajectory").values["judge"].tolist() == []


def test_a_request_is_asked_once_and_its_reply_kept(endpoint: Endpoint, rubric: Path, tmp_path: Path) -> None:
    first = judge(endpoint, rubric, folder=tmp_path / "kept")
    assert len(endpoint.requests) == 2
    endpoint.close()
    again = judge(endpoint, rubric, folder=tmp_path / "kept")
    assert again.values["judge"].tolist() == first.values["judge"].tolist() == [0.5, 0.5]
    files = list((tmp_path / "kept" / "judge").iterdir())
    assert sorted(len(each.stem) for each in files) == [64, 64]
    assert {json.loads(each.read_text())["reply"] for each in files} == {"Score: 5"}


def test_equal_turns_are_one_request_and_another_rubric_is_another(
    endpoint: Endpoint, rubric: Path, tmp_path: Path
) -> None:
    twins = trajectory(turn(thought="a"), turn(thought="a"))
    judge(endpoint, rubric, trajectory(twins.turns[0]), tmp_path)
    judge(endpoint, rubric, trajectory(twins.turns[0]), tmp_path)
    assert len(endpoint.requests) == 1
    rubric.write_text("A good thought is long.")
    judge(endpoint, rubric, trajectory(twins.turns[0]), tmp_path)
    assert len(endpoint.requests) == 2


def test_a_damaged_reply_on_disk_is_asked_for_again(endpoint: Endpoint, rubric: Path, tmp_path: Path) -> None:
    judge(endpoint, rubric, folder=tmp_path)
    for file in (tmp_path / "judge").iterdir():
        file.write_text(file.read_text()[:10])
    assert judge(endpoint, rubric, folder=tmp_path).values["judge"].tolist() == [0.5, 0.5]
    assert len(endpoint.requests) == 4


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ((500, b"oops"), "HTTP 500 Internal Server Error"),
        ((404, b"no such model"), "HTTP 404 Not Found"),
        ((200, b"<html>"), "the answer is no chat completion (JSONDecodeError"),
        ((200, b"{}"), "the answer is no chat completion (KeyError"),
        ((200, b"[]"), "the answer is no chat completion (TypeError"),
        (saying(None), "the reply's content is None, no text"),
        (saying("Splendid!"), "the reply names no score: Splendid!"),
        (saying("Score: 11"), "the score 11 is not from 0 to 10"),
    ],
)
def test_a_failed_call_is_a_missing_score_with_its_reason(
    endpoint: Endpoint, rubric: Path, answer: tuple[int, bytes], reason: str
) -> None:
    endpoint.answer = lambda request: answer
    found = judge(endpoint, rubric)
    assert found.values["judge"].tolist() == [0, 0]
    assert found.missing["judge"].keys() == {0, 1}
    assert found.missing["judge"][0].startswith(reason)


def test_an_endpoint_that_is_gone_or_silent_is_a_missing_score(endpoint: Endpoint, rubric: Path) -> None:
    def late(request: dict[str, Any]) -> tuple[int, bytes]:
        time.sleep(1.5)
        return saying("Score: 5")

    endpoint.answer = late
    found = judge(endpoint, rubric, timeout_seconds=0.2)
    assert "timed out" in found.missing["judge"][0]
    endpoint.close()
    assert "refused" in judge(endpoint, rubric).missing["judge"][0]


def test_what_may_pass_is_tried_again(endpoint: Endpoint, rubric: Path) -> None:
    answers = iter([(503, b""), saying("Score: 10")])
    endpoint.answer = lambda request: next(answers)
    found = judge(endpoint, rubric, trajectory(JUDGED.turns[0]), attempts=2)
    assert found.values["judge"].tolist() == [1]
    endpoint.answer = lambda request: (401, b"")
    judge(endpoint, rubric, trajectory(JUDGED.turns[1]), attempts=3)
    assert len(endpoint.requests) == 3, "a refusal is final"


def test_after_failures_in_a_row_no_more_are_sent(endpoint: Endpoint, rubric: Path) -> None:
    endpoint.answer = lambda request: (500, b"")
    many = trajectory(*[turn(thought=str(number)) for number in range(20)])
    found = judge(endpoint, rubric, many, parallel=1, give_up_after=3)
    assert len(endpoint.requests) == 3
    assert found.missing["judge"][19] == "not asked: the 3 requests before failed"


def test_a_failure_is_not_kept(endpoint: Endpoint, rubric: Path, tmp_path: Path) -> None:
    endpoint.answer = lambda request: (500, b"")
    judge(endpoint, rubric, folder=tmp_path)
    endpoint.answer = lambda request: saying("Score: 10")
    assert judge(endpoint, rubric, folder=tmp_path).values["judge"].tolist() == [1, 1]


def test_requests_go_out_side_by_side(endpoint: Endpoint, rubric: Path) -> None:
    together = threading.Barrier(4, timeout=20)

    def answer(request: dict[str, Any]) -> tuple[int, bytes]:
        together.wait()
        return saying("Score: 5")

    endpoint.answer = answer
    judged = trajectory(*[turn(thought=str(number)) for number in range(4)])
    assert judge(endpoint, rubric, judged, parallel=4).values["judge"].tolist() == [0.5] * 4


def test_the_key_comes_from_the_environment_and_goes_nowhere_else(
    endpoint: Endpoint, rubric: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUDGE_KEY", "open-sesame")
    judge(endpoint, rubric, folder=tmp_path, key_variable="JUDGE_KEY")
    assert endpoint.headers[0]["Authorization"] == "Bearer open-sesame"
    assert not any("open-sesame" in each.read_text() for each in (tmp_path / "judge").iterdir())
    judge(endpoint, rubric)
    assert "Authorization" not in endpoint.headers[-1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"url": "localhost:8000"},
            "reward.terms.judge: url = 'localhost:8000' must begin with http:// or https://",
        ),
        ({"rubric": "nowhere.txt"}, "reward.terms.judge: rubric = 'nowhere.txt' cannot be read"),
        (
            {"key_variable": "NO_SUCH_KEY"},
            "key_variable = 'NO_SUCH_KEY': this environment variable is not set",
        ),
        ({"lowest": 10}, "lowest (10) must be below highest (10)"),
        ({"parallel": 0}, "parallel must be above 0, got 0"),
        ({"per": "token"}, "reward.terms.judge.per = 'token': input should be 'turn' or 'trajectory'"),
        ({"rubric": 3}, "reward.terms.judge.rubric = 3: input"),
    ],
)
def test_a_judge_that_cannot_be_set_up_is_one_sentence(
    rubric: Path, changes: dict[str, Any], message: str
) -> None:
    parameters = {"url": "http://127.0.0.1:1/v1", "model": "wise", "rubric": str(rubric)} | changes
    assert message in raised_message(UserError, lambda: bind_terms({"judge": parameters}))
