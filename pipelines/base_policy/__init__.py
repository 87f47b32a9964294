from starpo.pipelines.base_policy.pipeline import create_pipeline

__all__ = ["create_pipeline"]
