from starpo.pipelines.rescore.pipeline import create_pipeline

__all__ = ["create_pipeline"]
