"""train_starpo_ppo without the KL penalty; its parameters are the preset of this name."""

from starpo.pipelines.training import training_pipeline as create_pipeline

__all__ = ["create_pipeline"]
