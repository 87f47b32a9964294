"""train_starpo_ppo with advantages over turns first, then over tokens; its parameters are the preset of this name."""

from starpo.pipelines.training import training_pipeline as create_pipeline

__all__ = ["create_pipeline"]
