"""Old learner states make room for new ones."""

from __future__ import annotations

from kedro.framework.hooks import hook_impl

from starpo.app.hooks.run_record import RunRecordHooks
from starpo.store.layout import Layer, parse_entry


class RetentionHooks:
    """Prunes old states once the next one is complete."""

    def __init__(self, run: RunRecordHooks) -> None:
        self._run = run

    @hook_impl
    def after_dataset_saved(self, dataset_name: str) -> None:
        """Keep the last states, evaluated policies, and the one that the monitor may go back to."""
        entry = parse_entry(dataset_name)
        if entry is None or entry.kind != "policy":
            return
        from starpo.store.retention import evaluated_iterations, prune, stored_policies  # noqa: PLC0415

        current = self._run.resolved.parameters
        models = self._run.paths.folder(Layer.MODELS)
        good = None
        if current.monitor.action == "roll_back":
            good = stored_policies(models)[-1].monitor.get("good")
        evaluated = set(evaluated_iterations(current))
        prune(models, keep_last=current.run.keep_last, keep_models=evaluated, keep_state=good)
