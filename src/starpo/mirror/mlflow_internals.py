"""What the mirror needs of MLflow beyond its public interface, written for MLflow 3.17."""

from __future__ import annotations


def forget_stores() -> None:
    """Have MLflow open its stores anew: it keeps connections to a database that was deleted or replaced."""
    from mlflow.store.model_registry import sqlalchemy_store as registry_store  # noqa: PLC0415
    from mlflow.store.tracking import sqlalchemy_store as tracking_store  # noqa: PLC0415
    from mlflow.tracking._model_registry.registry import ModelRegistryStoreRegistry  # noqa: PLC0415
    from mlflow.tracking._tracking_service.registry import TrackingStoreRegistry  # noqa: PLC0415

    for cached in (TrackingStoreRegistry, ModelRegistryStoreRegistry):
        cached._get_store_with_resolved_uri.cache_clear()
    for module in (tracking_store, registry_store):
        engines = module.SqlAlchemyStore._engine_map
        while engines:
            engines.popitem()[1].dispose()
