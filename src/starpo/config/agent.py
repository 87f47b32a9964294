"""The harness around the policy."""

from __future__ import annotations

from pydantic import Field, model_validator

from starpo.config.prompt import PromptTemplates
from starpo.config.section import Section


class AgentConfig(Section):
    """The harness: how text goes in and actions come out. It is part of the policy."""

    UNWRITTEN = frozenset({"context_turns", "prompt"})

    think: bool = True
    """Ask for ``<think>…</think>`` before the answer and require it for a valid format."""
    prefill_think: bool = False
    """Put the opening ``<think>`` into the context instead of letting the policy sample it."""
    action_separator: str = Field("||", min_length=1)
    """Between actions inside ``<answer>``."""
    max_turns: int = Field(5, gt=0)
    """Generation spans per trajectory."""
    max_actions_per_turn: int = Field(5, gt=0)
    """Executed actions per turn; more are cut."""
    max_actions: int = Field(10, gt=0)
    """Executed actions per trajectory."""
    max_tokens_per_turn: int = Field(gt=0)
    """Sampled tokens per turn."""
    max_tokens_per_trajectory: int = Field(gt=0)
    """Context and sampled tokens of one chain, the engine's context length; a chain is the whole trajectory, or
    with ``context_turns`` one window of it. Where the next prompt leaves no room the trajectory ends (``length``)."""
    context_turns: int | None = Field(None, gt=0)
    """Earlier turns that a prompt repeats; with more behind it, it is the system message and the last of them.
    null: all."""
    prompt: PromptTemplates = PromptTemplates()
    """What the policy is told. In ``conf/`` and ``--params`` the name of a folder of ``conf/*/prompts/``; what is
    stored are its templates."""

    @model_validator(mode="after")
    def _turn_fits(self) -> AgentConfig:
        if self.max_tokens_per_turn >= self.max_tokens_per_trajectory:
            raise ValueError(
                f"max_tokens_per_turn = {self.max_tokens_per_turn} does not fit into "
                f"max_tokens_per_trajectory = {self.max_tokens_per_trajectory}; lower the first or raise the second"
            )
        if not self.think and self.prefill_think:
            raise ValueError("prefill_think = true needs think = true")
        return self
