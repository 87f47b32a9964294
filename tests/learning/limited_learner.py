"""Run by ``test_out_of_memory.py`` in a process of its own: an update under ``RLIMIT_AS``.

Prints one JSON object. Usage: ``python limited_learner.py FOLDER``.
"""

from __future__ import annotations

import gc
import json
import resource
import sys
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from builders import algorithm, learner_config
from learner_peak import random_batch, random_policy
from transformers import LlamaConfig

from starpo.learning.host import LearnerHost
from starpo.learning.learner import Learner, UpdateResult

ROWS, LENGTH = 16, 64
TOKENS = ROWS * LENGTH
#: Little to compute, much to remember: a logit for each of 8,192 tokens.
SHAPE = LlamaConfig(
    vocab_size=8192,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=1,
    num_attention_heads=1,
    num_key_value_heads=1,
    tie_word_embeddings=False,
)


def peak_virtual() -> int:
    """Bytes of address space that the process has had at most."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmPeak")).split()[1]) * 1024


def main(folder: Path) -> dict[str, Any]:
    policy, batch = random_policy(folder, SHAPE), random_batch(ROWS, LENGTH)
    algo = algorithm(estimator="grpo")

    def attempt(tokens: int) -> tuple[Learner, UpdateResult]:
        config = learner_config(micro_batch_tokens=tokens, rows_per_step=ROWS)
        return LearnerHost().update(policy, batch, config, algo, temperature=1.0, seed=0)

    expected = attempt(TOKENS // 2)[0].weights()
    needs_half = peak_virtual()
    gc.collect()
    assert "update_retries" not in attempt(TOKENS)[1].metrics
    needs_all = peak_virtual()
    gc.collect()
    allowed = (needs_half + needs_all) // 2
    resource.setrlimit(resource.RLIMIT_AS, (allowed, allowed))
    actor, result = attempt(TOKENS)
    weights = actor.weights()
    return {
        "needs_half": needs_half,
        "needs_all": needs_all,
        "allowed": allowed,
        "retries": result.metrics.get("update_retries"),
        "equal": all(torch.equal(weights[name], expected[name]) for name in expected),
    }


if __name__ == "__main__":
    print("RESULT " + json.dumps(main(Path(sys.argv[1]))))  # noqa: T201
