"""Learning curves of runs as one picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from starpo.errors import UserError
from starpo.store.layout import suite_of
from starpo.store.run_tables import Run

#: (metric, label) of the training curves beside the evaluations.
PANELS = (("return_std", "in-group std of the return"), ("entropy", "token entropy, nats"))


def plot_runs(runs: Sequence[Run], path: Path) -> None:
    """Success on the periodic suites with 95 % intervals, success in training, and the Echo Trap indicators.

    Args:
        runs: drawn in one colour each; shorter ones end earlier.
        path: PNG, SVG or PDF file.

    Raises:
        UserError: a run has no iteration yet.
    """
    import matplotlib  # noqa: PLC0415

    matplotlib.use("Agg")
    from matplotlib import pyplot  # noqa: PLC0415

    figure, axes = pyplot.subplots(
        1, 1 + len(PANELS), figsize=(5 + 3.2 * len(PANELS), 3.6), layout="constrained"
    )
    for number, run in enumerate(runs):
        colour = f"C{number}"
        metrics = run.metrics()
        if metrics.empty:
            raise UserError(f"run {run.name!r} has no finished iteration to draw")
        smooth = metrics["success"].rolling(5, min_periods=1, center=True).mean()
        axes[0].plot(metrics["iteration"], smooth, color=colour, alpha=0.35, lw=1)
        periodic = run.parameters["evaluation"]["periodic"]
        summary = run.evaluation_summary()
        # The table's suites are folder names, such as validation-t0_5.
        shown = summary["suite"].map(suite_of).isin(periodic)
        for _, points in summary[shown].groupby("suite"):
            ordered = points.sort_values("iteration")
            axes[0].plot(ordered["iteration"], ordered["success"], "o-", color=colour, ms=3, label=run.name)
            axes[0].fill_between(
                ordered["iteration"],
                ordered["success_low"],
                ordered["success_high"],
                color=colour,
                alpha=0.15,
            )
        for axis, (name, _) in zip(axes[1:], PANELS, strict=True):
            if name in metrics:
                axis.plot(metrics["iteration"], metrics[name], color=colour, lw=1)
    axes[0].set(title="success (dots: held out, thin: training)", xlabel="iteration", ylim=(0, 1))
    axes[0].legend(fontsize=7, loc="lower right")
    for axis, (_, label) in zip(axes[1:], PANELS, strict=True):
        axis.set(title=label, xlabel="iteration")
    for axis in axes:
        axis.grid(alpha=0.3)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    pyplot.close(figure)
