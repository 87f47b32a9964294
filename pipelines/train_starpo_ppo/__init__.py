"""StarPO with a critic, the paper's baseline: no filter, symmetric clip, KL; parameters: the preset of this name."""

from starpo.pipelines.training import training_pipeline as create_pipeline

__all__ = ["create_pipeline"]
