"""One whole training step of the paper's shape on one GPU: rollout, reward and filter, update, weight sync.

    .venv/bin/python benchmarks/gpu_step.py --model models/Qwen2.5-0.5B-Instruct --output gpu_step.json
    .venv/bin/python benchmarks/gpu_step.py --output gpu_step.json          random weights of Qwen2.5-0.5B's shape
    .venv/bin/python benchmarks/gpu_step.py --reduced                       a toy on the CPU: does it all still run?

The pipelines' own nodes with conf/paper: 8 prompts x 16 trajectories, 5 turns, and every turn is made 400 tokens
long (nothing stops the sampling), whatever the policy says. Once with all groups, once keeping 25 % of them; the
paper's figure 7 shows about 70 s and 24 s a step. Needs no network and, on one GPU, less than ten minutes.
"""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import json
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from update_shapes import load_model

from starpo.agent.template import ChatTemplate
from starpo.app.parameters import merge, resolve_parameters
from starpo.base_policy.tokenizer import build_tokenizer
from starpo.base_policy.warm_start import harness_of
from starpo.config.parameters import Parameters
from starpo.environments.registry import make
from starpo.learning.host import LearnerHost
from starpo.pipelines.reward.nodes import filter_groups, score_trajectories
from starpo.pipelines.rollout.nodes import generate_rollouts
from starpo.pipelines.update.nodes import update_policy
from starpo.rollout.host import EngineHost, Serving
from starpo.rollout.vllm_engine import VLLMEngine
from starpo.store.policies import Policy, load_tokenizer
from starpo.store.policy_state import PolicyState, contiguous

ROOT = Path(__file__).resolve().parents[1]
PUBLISHED_SECONDS = {"all groups": 70.0, "25 % of the groups": 24.0}
#: Groups without spread are kept: random text earns every member the same.
FILTERS = {
    "all groups": {"keep_ratio": 1.0, "keep_zero_spread": True},
    "25 % of the groups": {"keep_ratio": 0.25, "keep_zero_spread": True},
}
REDUCED = {
    "run": {"threads": 1},
    "agent": {"max_turns": 2, "max_tokens_per_turn": 16, "max_tokens_per_trajectory": 2048},
    "engine": {"dtype": "float32", "max_sequences": 16},
    "rollout": {"groups": 4, "group_size": 2},
    "learner": {"dtype": "float32", "zero_stage": 0, "micro_batch_tokens": 2048},
}


class EndlessHost(EngineHost):
    """An engine that nothing stops before a turn's tokens are used up."""

    def _start(self, policy: Policy, config: Any, agent: Any) -> Serving:
        engine = VLLMEngine(
            policy.model_directory,
            config,
            context=agent.max_tokens_per_trajectory,
            stop_ids=(),
            identity=policy.identity,
        )
        return Serving(engine, ChatTemplate.of(policy.tokenizer()))


def main() -> None:
    """Run both settings, print and store what they took."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "--model", help="directory of Qwen2.5-0.5B-Instruct; default: random weights of its shape"
    )
    parser.add_argument(
        "--steps", type=int, default=3, help="steps of each setting; the first is not counted"
    )
    parser.add_argument("--reduced", action="store_true", help="a toy shape on the CPU")
    parser.add_argument("--output", type=Path, help="JSON file for all measurements")
    options = parser.parse_args()
    if not options.reduced and not torch.cuda.is_available():
        parser.error("torch sees no GPU; --reduced runs a toy shape on the CPU")
    with tempfile.TemporaryDirectory() as scratch:
        record = measure(options, Path(scratch))
    if options.output:
        options.output.write_text(json.dumps(record, indent=1))


def measure(options: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    """All measurements, with what they were made on."""
    settings = {name: parameters(options.reduced, filter) for name, filter in FILTERS.items()}
    some = next(iter(settings.values()))
    started = time.perf_counter()
    policy = first_policy(options.model, options.reduced, some, scratch)
    engine, learner = EndlessHost(), LearnerHost()
    record: dict[str, Any] = {
        "model": options.model or ("tiny" if options.reduced else "random weights of Qwen2.5-0.5B's shape"),
        "reduced": options.reduced,
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else platform.machine(),
        "versions": {name: version(name) for name in ("torch", "transformers", "deepspeed")},
        "settings": {},
    }
    for name, chosen in settings.items():
        steps = []
        for _ in range(options.steps):
            policy, seconds = step(engine, learner, policy, chosen, scratch)
            steps.append(seconds)
            print(name, json.dumps(seconds), flush=True)
        counted = steps[1:] or steps
        mean = sum(seconds["step"] for seconds in counted) / len(counted)
        record["settings"][name] = {"steps": steps, "mean_step_seconds": mean}
        against = "" if options.reduced else f", published about {PUBLISHED_SECONDS[name]:.0f} s"
        print(f"{name}: {mean:.1f} s a step{against}", flush=True)
    record["seconds_in_all"] = time.perf_counter() - started
    engine.close()
    learner.close()
    return record


def parameters(reduced: bool, filter: dict[str, Any]) -> Parameters:
    """conf/base with conf/paper, the preset of StarPO-S and ``filter`` on top."""
    from kedro.config import OmegaConfigLoader  # noqa: PLC0415

    from starpo.settings import CONFIG_LOADER_ARGS  # noqa: PLC0415

    loader = OmegaConfigLoader(conf_source=str(ROOT / "conf"), env="paper", **CONFIG_LOADER_ARGS)
    runtime: dict[str, Any] = {"run": {"name": "gpu-step"}, "filter": filter}
    # The made-up tokenizer spells a longer prompt out in bytes.
    merge(runtime, {"agent": {"prompt": "starpo"}})
    # Complete states are not part of a step: they are written every checkpoint_every iterations.
    merge(runtime, {"run": {"checkpoint_every": 1 << 20, "iterations": 1 << 21}})
    if reduced:
        merge(runtime, REDUCED)
    return resolve_parameters(loader["parameters"], "train_starpo_s", runtime, ROOT).parameters


def first_policy(model: str | None, reduced: bool, chosen: Parameters, scratch: Path) -> Policy:
    """The model as a policy whose configuration names no token that ends a sampling."""
    files = scratch / "files"
    if model is None:
        environment = make(chosen.environment.name, **chosen.environment.arguments)
        build_tokenizer([environment.rules], environment.action_names, vocabulary=400, directory=files)
        weights = load_model("tiny" if reduced else "qwen")
        weights.resize_token_embeddings(max(len(load_tokenizer(files)), weights.config.vocab_size))
        weights.config.save_pretrained(files)
    else:
        files.mkdir()
        for file in Path(model).iterdir():
            if file.suffix in {".json", ".jinja", ".txt", ".model"}:
                (files / file.name).write_bytes(file.read_bytes())
        weights = load_model(model)
    (files / "generation_config.json").write_text("{}")
    config = json.loads((files / "config.json").read_text())
    (files / "config.json").write_text(json.dumps(config | {"eos_token_id": None, "bos_token_id": None}))
    directory = scratch / "gpu-step" / "policy_0000"
    PolicyState(
        run="gpu-step",
        iteration=0,
        policy_step=0,
        status="imported",
        counters={"actor_steps": 0, "critic_steps": 0, "skipped": 0},
        model_files=files,
        harness=harness_of(chosen.environment, chosen.agent),
        weights=contiguous(dict(weights.named_parameters())),
        weights_in=directory.name,
    ).write(directory)
    return Policy.open(directory)


def run_node(node: Callable[..., Any], chosen: Parameters, **data: Any) -> Any:
    """Call a node with ``data`` and, as the pipelines do, the parameter sections that it names."""
    named = [p.name for p in inspect.signature(node).parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    return node(**data, **{name: getattr(chosen, name) for name in named if name not in data})


def step(
    engine: EngineHost, learner: LearnerHost, policy: Policy, chosen: Parameters, scratch: Path
) -> tuple[Policy, dict[str, float]]:
    """One iteration. The next policy's weights are written afterwards, in time that does not count."""
    clock = [time.perf_counter()]

    def lap() -> float:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        clock.append(time.perf_counter())
        return clock[-1] - clock[-2]

    rollouts = run_node(generate_rollouts, chosen, host=engine, policy=policy)
    seconds = {"rollout": lap()}
    returns = run_node(score_trajectories, chosen, rollouts=rollouts)
    scored = run_node(filter_groups, chosen, returns=returns)
    seconds["reward_and_filter"] = lap()
    state, _, metrics = run_node(
        update_policy,
        chosen,
        engine_host=engine,
        learner_host=learner,
        policy=policy,
        rollouts=rollouts,
        scored=scored,
    )
    seconds["update_and_sync"] = lap()
    seconds["step"] = clock[-1] - clock[0]
    names = ("seconds_update", "seconds_sync", "rollout_tokens", "trained_tokens", "trained_trajectories")
    names += ("padding_share", "shared_token_share", "turns_mean", "sync_difference")
    seconds |= {name: metrics[name] for name in names}
    if torch.cuda.is_available():
        seconds["gpu_peak_gib"] = torch.cuda.max_memory_allocated() / 2**30
        seconds["gpu_used_gib"] = (torch.cuda.mem_get_info()[1] - torch.cuda.mem_get_info()[0]) / 2**30
    directory = scratch / "gpu-step" / f"policy_{state.iteration:04d}"
    dataclasses.replace(state, parts={}).write(directory)
    shutil.rmtree(policy.directory)
    return Policy.open(directory), seconds


if __name__ == "__main__":
    main()
