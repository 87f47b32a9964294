"""Evaluation as a stage."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial, update_wrapper
from typing import Any

from kedro.pipeline import Node, Pipeline, pipeline

from starpo.config.resolved import Resolved, Source
from starpo.pipelines.evaluate.nodes import (
    compare_policies,
    gather_summaries,
    judge_policy,
    play_suite,
    refer_suite,
)
from starpo.store.layout import Played, comparison_name, reference_name


def evaluation_stage(played: Played, iteration: int, policy: str) -> Pipeline:
    """One suite at one temperature: policy, the suite's reference -> turns and their seconds, summary, labels."""
    fixed = {"suite": played.suite, "temperature": played.temperature}
    shared = ["params:evaluation", "params:environment", "params:agent"]
    nodes = [
        Node(
            _fixed(play_suite, **fixed),
            inputs=["engine", "policy", *shared, "params:engine"],
            outputs=["turns", "seconds"],
            name="play",
        ),
        Node(
            _fixed(judge_policy, **fixed),
            inputs=["turns", "reference", "policy", *shared],
            outputs=["summary", "labels"],
            name="judge",
        ),
    ]
    return pipeline(
        nodes,
        inputs={"engine": "engine", "policy": policy, "reference": reference_name(played.suite)},
        parameters={name: name for name in (*shared, "params:engine")},
        namespace=played.entry(iteration),
    )


def reference_stage(suites: Iterable[str]) -> Pipeline:
    """The prompts alone: suite -> optimum and floor, once per run."""
    return Pipeline(
        [
            Node(
                _fixed(refer_suite, suite=suite),
                inputs=["params:evaluation", "params:environment", "params:agent"],
                outputs=reference_name(suite),
                name=f"refer_{suite}",
            )
            for suite in dict.fromkeys(suites)
        ]
    )


def comparison_stage(
    evaluations: Mapping[tuple[str, float], tuple[str, str]],
    output: str,
    between: tuple[str, str] | None = None,
) -> Pipeline:
    """(suite, temperature) -> the names of two evaluations, before and after; their paired differences."""
    tables = {
        f"{when}_{number}": f"{name}.turns"
        for number, names in enumerate(evaluations.values())
        for when, name in zip(("before", "after"), names, strict=True)
    }
    function = _fixed(compare_policies, labels=list(evaluations), between=between)
    node = Node(function, inputs=list(tables), outputs="comparison", name="compare_policies")
    return pipeline([node], inputs=tables, outputs={"comparison": output})


def create_pipeline(resolved: Resolved) -> Pipeline:
    """The stage alone, on the policy that ``run.source`` names: final and generalisation suites, every temperature.

    With ``evaluation.against`` a second policy plays them too, and the two are compared.
    """
    evaluation = resolved.parameters.evaluation
    source = resolved.source or Source("", 0)
    suites = dict.fromkeys([*evaluation.final, *evaluation.generalisation])
    due = [Played(suite, temperature) for suite in suites for temperature in evaluation.temperatures]
    parts: list[Pipeline | Node] = [reference_stage(suites)]
    parts += [evaluation_stage(each, source.iteration, "source_policy") for each in due]
    parts.append(
        Node(
            _fixed(gather_summaries, policy=str(source)),
            inputs=[f"{each.entry(source.iteration)}.summary" for each in due],
            outputs="evaluation_overview",
            name="gather_summaries",
        )
    )
    if (other := resolved.against) is not None:
        theirs = [replace(each, against=True) for each in due]
        parts += [evaluation_stage(each, other.iteration, "against_policy") for each in theirs]
        both = {
            (own.suite, own.temperature): (their.entry(other.iteration), own.entry(source.iteration))
            for own, their in zip(due, theirs, strict=True)
        }
        output = comparison_name(source.iteration)
        parts.append(comparison_stage(both, output, between=(str(other), str(source))))
    return Pipeline(parts)


def _fixed(function: Callable[..., Any], **arguments: object) -> Callable[..., Any]:
    """``function`` with arguments that are no catalog entries, under its own name."""
    return update_wrapper(partial(function, **arguments), function)
