from starpo.pipelines.update.pipeline import create_pipeline

__all__ = ["create_pipeline"]
