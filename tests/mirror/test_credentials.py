"""Who signs in to MLflow's server, and that an address is given to MLflow without its password."""

from __future__ import annotations

from pathlib import Path

import pytest
from omegaconf import OmegaConf
from stored_run import begin_run

from starpo import redaction
from starpo.errors import UserError
from starpo.mirror.config import MlflowConfig
from starpo.mirror.credentials import FILE, password_in, signed_in
from starpo.mirror.live import LiveMirror
from starpo.redaction import redact
from starpo.store.layout import RunPaths

NAMES = ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN")


@pytest.fixture(autouse=True)
def nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is signed in, and no secret is known."""
    monkeypatch.setattr(redaction, "_known", set())
    for name in NAMES:
        monkeypatch.setenv(name, "")  # so that it is restored afterwards
        monkeypatch.delenv(name)


def signs() -> tuple[str | None, ...]:
    import os

    return tuple(os.environ.get(name) for name in NAMES)


def write(root: Path, text: str) -> None:
    (root / FILE).parent.mkdir(parents=True)
    (root / FILE).write_text(text)


def test_the_file_gives_user_and_password_or_a_token(tmp_path: Path) -> None:
    write(tmp_path, "mlflow: {username: ann, password: made-up-word}")
    assert signed_in(tmp_path, "http://server:5000") == "http://server:5000"
    assert signs() == ("ann", "made-up-word", None)
    assert redact("it is made-up-word") == "it is ***"


def test_a_token_may_come_from_the_process_environment_through_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MINE", "tok-en-made-up")
    OmegaConf.clear_resolver("oc.env")  # as Kedro's loader leaves it
    write(tmp_path, "mlflow: {token: '${oc.env:MINE}'}")
    signed_in(tmp_path, "https://server")
    assert signs() == (None, None, "tok-en-made-up")
    assert redact("Bearer tok-en-made-up") == "Bearer ***"


def test_the_environment_comes_before_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "mlflow: {username: ann, password: made-up-word}")
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "given-by-hand")
    signed_in(tmp_path, "http://server")
    assert signs() == (None, None, "given-by-hand")


def test_an_address_with_a_password_works_without_showing_it(tmp_path: Path) -> None:
    uri = "http://ann:made%2Fup@server:5000/path"
    assert password_in(uri) and not password_in("http://server:5000") and not password_in("sqlite:///a@b.db")
    assert signed_in(tmp_path, uri) == "http://server:5000/path"
    assert signs() == ("ann", "made/up", None)


def test_a_database_gets_the_credentials_of_the_file(tmp_path: Path) -> None:
    write(tmp_path, "mlflow: {username: ann, password: made/up}")
    uri = signed_in(tmp_path, "postgresql://db:5432/mlflow")
    assert uri == "postgresql://ann:made%2Fup@db:5432/mlflow"
    assert redact(uri) == "postgresql://ann:***@db:5432/mlflow"
    assert signed_in(tmp_path, "sqlite:////tmp/mlflow.db") == "sqlite:////tmp/mlflow.db"


@pytest.mark.parametrize(
    "text",
    [
        "mlflow: {usr: ann, password: made-up-word}",
        "mlflow: [made-up-word]",
        "mlflow: {password: 'made-up-word",
    ],
)
def test_a_mistake_in_the_file_is_told_without_what_it_holds(tmp_path: Path, text: str) -> None:
    write(tmp_path, text)
    with pytest.raises(UserError, match=r"credentials\.yml") as caught:
        signed_in(tmp_path, "http://server")
    assert "made-up-word" not in str(caught.value)


def test_a_password_in_the_configuration_is_said_once_with_where_it_belongs(tmp_path: Path) -> None:
    config = MlflowConfig.model_validate(
        {"server": {"mlflow_tracking_uri": "nonsense://ann:made-up-word@there"}}
    )
    live = LiveMirror(RunPaths(tmp_path, "lake"), config, lambda: begin_run(tmp_path), lambda _: None)
    live.begin()
    advice, failure = live.news
    assert "conf/local/credentials.yml" in advice and "nonsense://ann:***@there" in advice
    assert "made-up-word" not in advice + failure
