"""What must hold of each kind of table: the rules of whole tables, and with them those of their trajectories."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa

from starpo.gates import measures
from starpo.gates.facts import Facts, Key
from starpo.gates.measures import (
    PER_TOKEN,
    column,
    differences,
    highest,
    infinite,
    lengths,
    lowest,
    not_finite,
    schema_problem,
)
from starpo.gates.quarantine import (
    FAULTS,
    NO_ROW,
    OF_SCORES,
    OF_TRAINING,
    OF_TURNS,
    describe,
    faults_of,
    quarantined,
)
from starpo.gates.rule import NOTHING, Breach, Limit, Rule, check, only

_MANY = (
    "So many faults have one cause: mend it, or raise gates.max_quarantined_share to go on without these "
    "trajectories."
)
_NO_ROW = (
    "A trajectory has no row where its environment failed at reset or its first prompt left no room for a response "
    "(agent.max_tokens_per_trajectory). "
)
_STALE = "Another policy than this iteration's played: look at the engine's weight sync, or remove the run."
_SPLIT = (
    "Training on this table would spoil the evaluation. Look at the environment's split (its first observation, or "
    "declared_split) and at the instances in the kept file."
)
_HELD_OUT = "Policies are compared prompt by prompt, so an evaluation can give up no row: mend the cause."
_BLOWN_UP = (
    "The update has blown up: fork an earlier iteration (run.fork_from) with a smaller learning rate or gradient_clip. "
    "A bound that is too tight for this task can be raised under gates.limits."
)


def _shape(kind: str) -> tuple[Rule, ...]:
    """What tells rows, policies and streams apart, in tables of every kind."""

    def problem(facts: Facts) -> str | None:
        return schema_problem(facts.table.schema, kind)

    of_turns = kind in {"turns", "updates"}
    key = "group, member and turn" if of_turns else "group and member"
    return (
        Rule(
            "schema_problem",
            f"the columns are those of a table of {kind}, in name, type and order",
            lambda facts: np.array([problem(facts)] + [None] * (facts.rows - 1), dtype=object),
            NOTHING,
            shape=True,
            found=lambda facts: f"that {problem(facts)}",
        ),
        Rule(
            "null_key",
            "every row has an iteration, a policy_step, a group and a member",
            measures.null_keys,
            NOTHING,
            shape=True,
        ),
        Rule(
            "difference", "a table is of one iteration, policy_step, stream and split", differences, NOTHING
        ),
        Rule(
            "occurrences",
            f"no two rows have the same {key}",
            measures.occurrences(of_turns=of_turns),
            only(1),
        ),
        Rule(
            "iteration",
            "the iteration is that of the file",
            column("iteration"),
            lambda expected: only(expected.iteration),
            every_save=False,
        ),
        Rule(
            "policy_step",
            "the weights' version is that of the iteration's policy",
            column("policy_step"),
            lambda expected: only(expected.policy_step),
            remedy=_STALE,
            every_save=False,
        ),
    )


def _few(faulty: Callable[[Facts], Mapping[Key, str]], remedy: str = "") -> Rule:
    """Not too many trajectories are at fault: at the first row, the share that is."""

    def total(facts: Facts) -> int:
        return len(facts.keys) + len(facts.missing)

    def found(facts: Facts) -> str:
        faults = faulty(facts)
        reasons = [reason for reason in dict.fromkeys(faults.values()) if reason in FAULTS]
        meanings = "; ".join(f"{reason}: expected that {FAULTS[reason]}" for reason in reasons)
        return f"{describe(faults, total(facts))} ({meanings})"

    return Rule(
        "faulty_share",
        "few trajectories are quarantined or without a row",
        lambda facts: facts.at(0, len(faulty(facts)) / total(facts)),
        lambda expected: None if (most := expected.max_quarantined_share) is None else Limit(high=most),
        remedy=remedy + _MANY,
        found=found,
    )


_TURNS = (
    *_shape("turns"),
    Rule("turn_jump", "a trajectory's turns are 0, 1, 2, … in this order", measures.turn_jumps, only(0)),
    Rule(
        "chain_start",
        "every turn says whether it starts a chain, and no first turn does, before which there is none",
        measures.odd_chain_starts,
        NOTHING,
    ),
    Rule(
        "unobserved",
        "every turn has an observation",
        lambda facts: facts.table["observation"].is_null().to_numpy(),
        only(False),
    ),
    Rule(
        "own_split",
        "every first observation belongs to the table's split",
        measures.foreign_splits,
        NOTHING,
        remedy=_SPLIT,
        every_save=False,
    ),
)

SUITES: dict[str, tuple[Rule, ...]] = {
    "rollouts": (
        *_TURNS,
        Rule("split", "the split is train", column("split"), only("train")),
        Rule(
            "member",
            "no member is numbered beyond rollout.group_size",
            column("member"),
            lambda expected: None if (size := expected.group_size) is None else Limit(0, size - 1),
        ),
        _few(lambda facts: faults_of(facts, OF_TRAINING), _NO_ROW),
        NO_ROW,
        *OF_TRAINING,
    ),
    "evaluation": (
        *_TURNS,
        Rule(
            "split",
            "the split is held out",
            column("split"),
            Limit(among=("validation", "test")),
        ),
        *(replace(rule, fault="", remedy=_HELD_OUT) for rule in OF_TURNS),
    ),
    "scored": (
        *_shape("scored"),
        Rule("return", "every return is a finite number", not_finite("return"), NOTHING),
        _few(lambda facts: quarantined(facts.table)),
        Rule(
            "kept_at_fault",
            "no quarantined trajectory is kept",
            lambda facts: facts.column("kept") & facts.column("quarantined"),
            only(False),
        ),
        Rule("kept_partly", "a group is kept or dropped as a whole", measures.kept_partly, only(0)),
        Rule(
            "unrewarded",
            "every turn has a reward",
            lambda facts: facts.column("turns") - facts.lengths("turn_rewards"),
            only(0),
        ),
        *(replace(rule, fault="", every_save=False) for rule in OF_SCORES),
        Rule(
            "group_std",
            "the spread of a group is not negative",
            column("group_std"),
            Limit(0),
        ),
    ),
    "updates": (
        *_shape("updates"),
        Rule("uneven", "all lists have an entry per token", measures.unevenness, only(0)),
        Rule("n_advantages", "every turn has a token", lengths("advantages"), Limit(1)),
        Rule("infinite", "the entries of all lists are finite", infinite(*PER_TOKEN), NOTHING),
        Rule(
            "largest_logprob",
            "the learner's log-probs are at most gates.quarantine.max_logprob",
            highest("learner_logprobs"),
            lambda expected: Limit(high=expected.quarantine.max_logprob),
            every_save=False,
        ),
        Rule(
            "smallest_ratio",
            "ratios are not negative",
            lowest("ratios"),
            Limit(0),
        ),
    ),
    "metrics": (
        Rule("value", "all metrics are finite", not_finite("value"), NOTHING, remedy=_BLOWN_UP),
        Rule(
            "outside",
            "every metric is within its bounds",
            measures.out_of_bounds,
            Limit(high=0),
            remedy=_BLOWN_UP,
            every_save=False,
        ),
    ),
}
"""What must hold, in the order in which it is asked."""


def check_table(table: pa.Table, kind: str) -> Breach | None:
    """The first breach that rejects a table of the kind, whatever is known of its run, or None."""
    if not table.num_rows:
        return None
    if kind == "turns":
        held_out = "split" in table.column_names and table["split"][0].as_py() != "train"
        return check(SUITES["evaluation" if held_out else "rollouts"], Facts(table))
    return check(SUITES.get(kind) or _shape(kind), Facts(table))
