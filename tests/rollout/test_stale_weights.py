"""An engine one update behind at the paper's learning rate: its log-probs pass, its weights do not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

TRANSPOSED = ("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj")
CASES = [("llama", "bfloat16"), ("qwen2_tied", "float32")]
"""Each value of family, precision and tied embeddings once: the engine's start takes longest."""
#: nats, on two implementations of attention
ROUNDING = {"float32": 1e-4, "bfloat16": 0.1}


@pytest.fixture(scope="module", params=CASES, ids="-".join)
def result(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What ``stale_weights.py`` measured; vLLM starts comfortably only once per process."""
    from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

    family, dtype = request.param
    shape = {
        "vocab_size": 300,
        "hidden_size": 128,
        "intermediate_size": 256,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 128,
        "tie_word_embeddings": family.endswith("tied"),
    }
    directory = tmp_path_factory.mktemp(family)
    if family.startswith("qwen2"):
        Qwen2ForCausalLM(Qwen2Config(**shape)).save_pretrained(directory)
    else:
        LlamaForCausalLM(LlamaConfig(**shape)).save_pretrained(directory)
    return measured(directory, dtype) | {"tied": family.endswith("tied"), "dtype": dtype}


def measured(directory: Path, dtype: str) -> dict[str, Any]:
    script = Path(__file__).with_name("stale_weights.py")
    done = subprocess.run(
        [sys.executable, script, directory, dtype], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    line = next(line for line in done.stdout.splitlines() if line.startswith("RESULT "))
    return json.loads(line.removeprefix("RESULT "))


def test_fresh_weights_pass_and_every_tensor_is_compared(result: dict[str, Any]) -> None:
    assert result["at_start"] == []
    assert result["loaded"] == []


def test_a_stale_engine_passes_the_log_probs_and_fails_the_weights(result: dict[str, Any]) -> None:
    assert result["stale_log_probs"] < 0.5
    assert result["stale_message"].startswith(
        f"after the weight sync {len(result['stale'])} tensors in the engine differ from the learner's, "
        f"the first is {result['stale'][0]}: "
    )
    # Norms of one and biases of zero: 1 + 1e-6 rounds back to 1 in bfloat16.
    matrices = {name for name in result["single"] if "norm" not in name}
    assert matrices <= set(result["stale"])


def test_one_stale_tensor_is_the_one_that_is_named(result: dict[str, Any]) -> None:
    for name, differing in result["single"].items():
        if "norm" in name and result["dtype"] == "bfloat16":
            assert differing == [], "1 + 1e-6 is 1 in bfloat16: nothing is stale"
        elif name == "model.embed_tokens.weight" and result["tied"]:
            assert differing == [name, f"lm_head.weight (tied to {name})"]
        else:
            assert differing == [name]


def test_a_tied_head_that_keeps_its_old_packed_copy_is_named(result: dict[str, Any]) -> None:
    expected = ["lm_head.weight (tied to model.embed_tokens.weight)"] if result["tied"] else []
    assert result["without_repacking"] == expected
    assert ("the engine does not serve the new weights" in result["without_repacking_message"]) is result[
        "tied"
    ]


def test_log_probs_follow_new_weights_a_tied_head_s_packed_copy_among_them(result: dict[str, Any]) -> None:
    assert result["at_start_log_probs"] < ROUNDING[result["dtype"]]
    assert result["moved"] > 0.5, "the new weights were really new"
    assert result["far_log_probs"] < ROUNDING[result["dtype"]]


def test_a_tensor_that_was_not_sent_is_reported_as_not_compared(result: dict[str, Any]) -> None:
    assert "model.norm.weight" in result["missing"]
    assert len(result["missing"]) == 5


def test_weights_that_vllm_holds_in_another_form_are_named_and_raise_no_alarm(tmp_path: Path) -> None:
    """GPT-2's are stored transposed, the square ones among them with the shape that vLLM holds."""
    from transformers import GPT2Config, GPT2LMHeadModel

    shape = {"vocab_size": 300, "n_embd": 128, "n_layer": 1, "n_head": 4, "n_positions": 128}
    GPT2LMHeadModel(GPT2Config(**shape, bos_token_id=1, eos_token_id=2)).save_pretrained(tmp_path)
    result = measured(tmp_path, "float32")
    layers = {f"transformer.h.0.{name}.weight" for name in TRANSPOSED}
    assert set(result["at_start"]) == set(result["loaded"]) == layers
    assert "transformer.wte.weight" in result["stale"]
    assert not layers & set(result["stale"])
