"""GRPO plus a comparison of turns that start from the same state; its parameters are the preset of this name."""

from starpo.pipelines.training import training_pipeline as create_pipeline

__all__ = ["create_pipeline"]
