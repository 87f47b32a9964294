"""What the policy is told: rules and format once, the state and the budget every turn."""

from __future__ import annotations

from starpo.config.agent import AgentConfig


def system_message(rules: str, agent: AgentConfig) -> str:
    """Rules of the environment and the answer format."""
    example = f"<answer>action {agent.action_separator} action</answer>"
    if agent.think:
        example = f"<think>your reasoning</think>{example}"
    return f"{rules}\nAt most {agent.max_actions_per_turn} actions per answer. Format: {example}"


_COMPLAINT = "Your last answer had no legal action.\n"
_STATE = "State:\n"
_BUDGET = "\nActions left: "


def user_message(observation: str, actions_left: int, *, previous_valid: bool = True) -> str:
    """The state before a turn; says so when the previous answer was not understood."""
    complaint = "" if previous_valid else _COMPLAINT
    return f"{complaint}{_STATE}{observation}{_BUDGET}{actions_left}"


def fixed_phrases(rules: str, agent: AgentConfig) -> list[str]:
    """Texts of the harness that never change: what a tokenizer made for it holds as single tokens."""
    lines = system_message(rules, agent).splitlines(keepends=True)
    tags = ["<think>", "</think>", "<answer>", "</answer>", f" {agent.action_separator} "]
    return [*lines, *tags, _COMPLAINT, _STATE, _BUDGET, "system\n", "user\n", "assistant\n"]
