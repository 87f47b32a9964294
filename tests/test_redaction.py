"""Secrets are hidden in text, logs and what is printed."""

from __future__ import annotations

import base64
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from starpo import redaction
from starpo.app.terminal.quiet import log_to_file, native_output_to
from starpo.redaction import keep_secret, redact, redact_file


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction, "_known", set())


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("GET http://ann:pa55@host:80/x failed", "GET http://ann:***@host:80/x failed"),
        ("ssh://:pa55@host and s3://ann:p@55:w@bucket", "ssh://:***@host and s3://ann:***@bucket"),
        ("url = 'https://ann:pa55@host/data.dvc'", "url = 'https://ann:***@host/data.dvc'"),
        ("https:/ann:pa55@host/model: no such folder", "https:/ann:***@host/model: no such folder"),
        ("http://host:5000/a@b", "http://host:5000/a@b"),
        ("sqlite:////tmp/mlflow.db", "sqlite:////tmp/mlflow.db"),
        ("ann@host", "ann@host"),
    ],
)
def test_a_password_in_an_address_is_hidden_and_nothing_else(text: str, shown: str) -> None:
    assert redact(text) == shown


def test_a_known_secret_is_hidden_in_every_form() -> None:
    keep_secret("made up/word", "ann")
    signed = base64.b64encode(b"ann:made up/word").decode()
    assert redact(f"made up/word made%20up%2Fword Basic {signed}") == "*** *** Basic ***"


def test_a_short_word_is_no_secret_outside_an_address() -> None:
    keep_secret("a")
    keep_secret("")
    assert redact("a banana at http://ann:a@host") == "a banana at http://ann:***@host"


def test_secrets_of_the_process_environment_are_known_by_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_TOKEN", "made-up-word")
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false-false")
    assert redact("made-up-word false-false") == "*** false-false"


def test_the_log_hides_them_in_messages_and_tracebacks(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_text("left over: http://ann:earlier@host\n")
    handler = log_to_file(log)
    try:
        try:
            raise ValueError("http://ann:pa55word@host")
        except ValueError:
            logging.getLogger("dvc.remote").exception("pull from %s", "ssh://ann:pa55word@data")
    finally:
        logging.getLogger().removeHandler(handler)
        handler.close()
    text = log.read_text()
    assert "pa55word" not in text and "earlier" not in text
    assert "pull from ssh://ann:***@data" in text and "ValueError: http://ann:***@host" in text


def test_what_other_programs_print_is_overwritten_in_the_log(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_text("earlier line é\n")
    keep_secret("geheimnis-ä")
    with native_output_to(log):
        os.write(1, "native é http://ann:pa55word@host\n".encode())
        subprocess.run([sys.executable, "-c", "print('child geheimnis-\\u00e4')"], check=True)
    assert log.read_text() == f"earlier line é\nnative é http://ann:********@host\nchild {'*' * 12}\n"
    redact_file(tmp_path / "missing")
