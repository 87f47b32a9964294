"""train_starpo_ppo trained on context tokens too, an ablation; its parameters are the preset of this name."""

from starpo.pipelines.training import training_pipeline as create_pipeline

__all__ = ["create_pipeline"]
