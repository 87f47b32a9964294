from starpo.pipelines.reward.pipeline import create_pipeline

__all__ = ["create_pipeline"]
