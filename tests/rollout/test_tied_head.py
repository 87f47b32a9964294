"""Tied embeddings in vLLM on the CPU: the packed output head must follow, and the sync proof must notice if not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> dict[str, float | str]:
    """What ``tied_head.py`` measured; vLLM starts comfortably only once per process."""
    from transformers import LlamaConfig, LlamaForCausalLM

    directory = tmp_path_factory.mktemp("tied")
    LlamaForCausalLM(
        LlamaConfig(
            vocab_size=300,
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=2,
            head_dim=32,
            max_position_embeddings=128,
            tie_word_embeddings=True,
        )
    ).save_pretrained(directory)
    script = Path(__file__).with_name("tied_head.py")
    done = subprocess.run([sys.executable, script, directory], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    line = next(line for line in done.stdout.splitlines() if line.startswith("RESULT "))
    return json.loads(line.removeprefix("RESULT "))


def test_a_tied_head_follows_new_weights(result: dict[str, float]) -> None:
    assert result["at_start"] < 1e-4
    assert result["repacked"] < 1e-4
    assert result["moved"] > 0.1, "the new weights were really new"


def test_a_stale_head_is_caught_by_the_sync_proof(result: dict[str, float | str]) -> None:
    assert float(result["stale"]) > 0.1
    assert "the engine does not serve the new weights" in str(result["message"])
