"""Identity and length of a run."""

from __future__ import annotations

from pydantic import Field

from starpo.config.section import Section, Seed


class RunConfig(Section):
    """Identity and length of a run."""

    name: str | None = Field(None, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=200)
    """Folder name of the run in every data layer; null: ``<pipeline>-<environment>-seed<seed>``."""
    seed: Seed = 0
    """Root of every random draw."""
    study: str | None = Field(None, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=200)
    """Study that the run is part of: its runs are nested together in MLflow."""
    iterations: int = Field(gt=0)
    """Number of rollout-update iterations; may grow on an existing run."""
    source: str | None = None
    """What a stage run alone works on: ``RUN@STEP``, ``RUN@latest``; null: the newest there is."""
    fork_from: str | None = None
    """``RUN@ITERATION``: start from that run's learner state instead of the base policy."""
    checkpoint_every: int = Field(1, gt=0)
    """Iterations between complete learner states on disk."""
    keep_last: int = Field(2, gt=0)
    """Complete learner states kept; older ones keep their manifest only. Evaluated policies are kept as models."""
    threads: int | None = Field(None, gt=0)
    """CPU threads of torch and vLLM; null: all cores. Models below a million parameters run faster on one."""
    step_limit_seconds: float | None = Field(None, gt=0)
    """Seconds without an engine step, a micro-batch or a node's begin or end after which the process is taken for hung
    and ends with exit status 75; longer than loading the model takes; null: never. May change on an existing run."""
    max_skipped: int = Field(5, gt=0)
    """Stop after this many iterations in a row in which every group was filtered."""
