"""What a policy is told, as templates, and the fields that these may name."""

from __future__ import annotations

from typing import Final

from starpo.config.section import Section

PROMPTS: Final = "_prompts"
"""Key beside the sections under which the loader puts the templates of ``conf/*/prompts/``, by name; a file of
parameters cannot hold it, for Kedro drops what begins with an underscore."""

_LIMITS: Final = {
    "think": "whether thoughts are asked for (`agent.think`)",
    "action_separator": "what stands between actions",
    "max_turns": "turns of a trajectory, at most",
    "max_actions_per_turn": "actions of an answer, at most",
    "max_actions": "actions of a trajectory, at most",
    "max_tokens_per_turn": "sampled tokens of an answer, at most",
}
"""Settings of the agent that a template may name, under their own names."""

FIELDS: Final[dict[str, dict[str, str]]] = {
    "system": {"rules": "the environment's rules", **_LIMITS},
    "user": {
        "observation": "the state before the turn",
        "actions_left": "actions that the trajectory has left",
        "turn": "number of the turn, from 1",
        "reward": "sum of the environment's rewards in the turn before; none in the first",
        "complaint": "`complaint.j2` as a line of its own where the last answer had no legal action, else empty",
        **_LIMITS,
    },
    "complaint": _LIMITS,
}
"""Per template the fields that it may name, with their meaning."""


class PromptTemplates(Section):
    """Jinja templates of the messages that a policy gets; the default is what the preset ``starpo`` says.

    A policy or a run that was stored without templates was shown these.
    """

    name: str = "starpo"
    """Name of the folder that they come from."""
    system: str = (
        "{{ rules }}\nAt most {{ max_actions_per_turn }} actions per answer. Format: "
        "{% if think %}<think>your reasoning</think>{% endif %}<answer>action {{ action_separator }} action</answer>"
    )
    """Said once, first."""
    user: str = "{{ complaint }}State:\n{{ observation }}\nActions left: {{ actions_left }}"
    """Said before every turn."""
    complaint: str = "Your last answer had no legal action."
    """What ``user`` may repeat after an answer without a legal action."""
