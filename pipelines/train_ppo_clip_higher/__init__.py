"""train_starpo_ppo with the higher upper clip; its parameters are the preset of this name."""

from starpo.pipelines.training import training_pipeline as create_pipeline

__all__ = ["create_pipeline"]
