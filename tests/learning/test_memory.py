"""The estimate of memory: exact counts from a configuration, ZeRO, offloading, adapters, and a measured peak."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from builders import raised_message
from projects import SOURCE
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config

from starpo.app.config_loader import ConfigLoader
from starpo.app.parameters import merge
from starpo.app.preflight import _check_memory
from starpo.config.learner import LoraConfig
from starpo.config.parameters import Parameters, parse_parameters
from starpo.errors import UserError
from starpo.learning.memory import MemoryEstimate, _activations, estimate_memory
from starpo.learning.model_shape import ModelShape
from starpo.settings import CONFIG_LOADER_ARGS

GIB = 2**30
#: The published configurations of Qwen2.5: hidden, intermediate, layers, heads, key heads, tied, parameters.
QWEN = {
    "0.5B": (896, 4864, 24, 14, 2, True, 494_032_768),
    "3B": (2048, 11008, 36, 16, 2, True, 3_085_938_688),
    "7B": (3584, 18944, 28, 28, 4, False, 7_615_616_512),
}


def qwen(size: str) -> Qwen2Config:
    hidden, intermediate, layers, heads, key_heads, tied, _ = QWEN[size]
    return Qwen2Config(
        vocab_size=152_064 if size == "7B" else 151_936,
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=key_heads,
        tie_word_embeddings=tied,
    )


def parameters(env: str = "paper", **sections: dict[str, Any]) -> Parameters:
    loader = ConfigLoader(conf_source=str(SOURCE / "conf"), env=env, **CONFIG_LOADER_ARGS)
    raw = dict(loader["parameters"])
    raw.pop("presets")
    merge(raw, sections)
    return parse_parameters(raw)


def estimate(
    size: str, env: str = "paper", *, gib: float = 80, ranks: int = 1, **sections: Any
) -> MemoryEstimate:
    return estimate_memory(
        ModelShape.of(qwen(size)),
        parameters(env, **sections),
        on_gpu=True,
        device_memory=int(gib * GIB),
        host_memory=512 * GIB,
        ranks=ranks,
    )


def item(found: MemoryEstimate, name: str) -> tuple[float, float]:
    (one,) = [each for each in found.items if each.name.startswith(name)]
    return one.device, one.host


@pytest.mark.parametrize("size", QWEN)
def test_parameters_are_counted_from_the_configuration_alone(size: str) -> None:
    shape = ModelShape.of(qwen(size))
    assert shape.parameters == QWEN[size][-1]
    assert (shape.head == 0) is QWEN[size][-2]


def test_adapters_are_counted_as_peft_makes_them() -> None:
    from starpo.learning.lora import attach

    config = LlamaConfig(
        vocab_size=300,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
    )
    for targets in ("all-linear", ["q_proj", "down_proj"]):
        lora = LoraConfig(rank=3, target_modules=targets)
        model = LlamaForCausalLM(config)
        attach(model, lora, role="actor")
        trained = sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
        assert ModelShape.of(config).adapter(lora) == trained


def test_full_fine_tuning_in_bfloat16_costs_sixteen_bytes_a_weight_and_zero_splits_them() -> None:
    count = QWEN["0.5B"][-1]
    alone = estimate("0.5B")
    assert item(alone, "actor: weights") == (2 * count, 0)
    assert item(alone, "actor: gradients") == (2 * count, 0)
    assert item(alone, "actor: optimizer") == (12 * count, 0)
    two = estimate("0.5B", ranks=2)
    assert item(two, "actor: optimizer") == (6 * count, 0)
    assert item(two, "actor: weights") == (2 * count, 0), "stage 2 keeps whole weights"
    split = estimate("0.5B", ranks=2, learner={"zero_stage": 3})
    assert item(split, "actor: weights") == (count, 0)


def test_an_offloaded_optimizer_lies_on_the_host() -> None:
    found = estimate("3B", "paper_3b")
    assert item(found, "actor: optimizer (host)") == (0, 12 * QWEN["3B"][-1])


def test_adapters_leave_one_frozen_base_for_actor_and_critic() -> None:
    full = estimate("7B")
    lora = estimate("7B", learner={"lora": {"rank": 64}})
    assert not full.fits
    assert lora.fits
    assert item(lora, "critic: weights")[0] < 0.1 * item(lora, "actor: weights")[0]
    assert item(lora, "actor: optimizer")[0] < 0.1 * item(full, "actor: optimizer")[0]


def test_a_sleeping_engine_and_the_learner_s_activations_take_turns() -> None:
    asleep, awake = estimate("0.5B"), estimate("0.5B", engine={"sleep": False})
    saved = awake.device - asleep.device
    assert saved == pytest.approx(item(awake, "activations")[0])
    assert asleep.host > awake.host, "level 1 keeps the engine's weights on the host"


@pytest.mark.parametrize(
    ("size", "env", "gib", "fits"),
    [
        ("0.5B", "paper", 40, True),
        ("0.5B", "paper", 16, False),
        ("3B", "paper_3b", 80, True),
        ("3B", "paper_3b", 24, False),
        ("7B", "paper_7b", 80, False),
    ],
)
def test_the_paper_s_sizes_fit_where_their_configuration_says(
    size: str, env: str, gib: float, fits: bool
) -> None:
    assert estimate(size, env, gib=gib).fits is fits


@pytest.mark.parametrize(
    ("turns", "tokens", "checkpointed", "kept"),
    [(None, 15000, 4.7, 60.1), (4, 8300, 3.0, 33.7), (3, 6700, 2.6, 27.4), (2, 5000, 2.2, 20.7)],
)
def test_activations_follow_the_length_of_the_window(
    turns: int | None, tokens: int, checkpointed: float, kept: float
) -> None:
    """The table in docs/webshop.md."""
    window = {"context_turns": turns, "max_tokens_per_trajectory": tokens}
    shape = ModelShape.of(qwen("3B"))
    for checkpointing, expected in ((True, checkpointed), (False, kept)):
        learner = {"micro_batch_tokens": 1, "gradient_checkpointing": checkpointing}
        needed = _activations(shape, parameters("paper_webshop", agent=window, learner=learner)) / GIB
        assert needed == pytest.approx(expected, abs=0.05), "a chain is never divided, whatever the budget"
    assert estimate("3B", "paper_webshop", agent=window, learner={"micro_batch_tokens": tokens}).fits


def test_a_7b_model_fits_two_gpus_with_stage_3() -> None:
    assert estimate("7B", "paper_7b", gib=80, ranks=2).fits


def test_the_kv_cache_holds_as_many_trajectories_as_heads_and_context_allow() -> None:
    found, chosen = estimate("0.5B"), parameters()
    one = chosen.agent.max_tokens_per_trajectory * 24 * (2 * 2 * 64) * 2
    assert found.sequences == item(found, "engine: KV cache")[0] // one
    assert found.sequences > chosen.engine.max_sequences
    small = estimate("0.5B", engine={"gpu_memory_utilization": 0.01})
    assert small.sequences == 0
    assert not small.fits, "vLLM would refuse to start"


def test_a_model_that_cannot_fit_is_refused_with_a_table_and_the_ways_out(tmp_path: Path) -> None:
    config = qwen("7B")
    config.hidden_size *= 32
    config.intermediate_size *= 32
    config.architectures = ["Qwen2ForCausalLM"]
    config.save_pretrained(tmp_path)
    chosen = parameters(
        base_policy={"path": str(tmp_path)}, learner={"device": "cpu"}, engine={"device": "cpu"}
    )
    message = raised_message(UserError, lambda: _check_memory(chosen))
    assert "do not fit into this machine" in message
    for part in ("actor: weights", "needed", "there", "learner.lora", "micro_batch_tokens"):
        assert part in message


@pytest.mark.slow
@pytest.mark.parametrize("checkpointing", [pytest.param(False, marks=pytest.mark.nightly), True])
def test_the_estimate_is_near_the_measured_peak_of_a_learner(tmp_path: Path, checkpointing: bool) -> None:
    """25 million parameters in float32 on the CPU, in a process of its own."""
    script = Path(__file__).with_name("learner_peak.py")
    done = subprocess.run(
        [sys.executable, script, tmp_path, str(int(checkpointing))],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    line = next(line for line in done.stdout.splitlines() if line.startswith("RESULT "))
    result = json.loads(line.removeprefix("RESULT "))
    assert 1 / 1.5 < result["estimated"] / result["measured"] < 1.5, result
