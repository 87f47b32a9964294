"""StarPO without a critic, the paper's baseline: GRPO, symmetric clip, KL; parameters: the preset of this name."""

from starpo.pipelines.training import training_pipeline as create_pipeline

__all__ = ["create_pipeline"]
