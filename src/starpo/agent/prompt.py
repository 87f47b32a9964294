"""What the policy is told: the templates of its harness, filled in.

Templates are Jinja in a sandbox: they reach the fields of :data:`starpo.config.prompt.FIELDS` and nothing else, no
other file and nothing random, so equal parameters give equal prompts.
"""

from __future__ import annotations

import functools
import traceback
from typing import Any

from jinja2 import StrictUndefined, Template, TemplateSyntaxError, meta, nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

from starpo.config.agent import AgentConfig
from starpo.config.prompt import FIELDS, PromptTemplates
from starpo.errors import UserError

_JINJA = ImmutableSandboxedEnvironment(
    undefined=StrictUndefined, keep_trailing_newline=True, trim_blocks=True, lstrip_blocks=True
)
_JINJA.globals.clear()
del _JINJA.filters["random"]

_OTHER_FILES = (nodes.Include, nodes.Import, nodes.FromImport, nodes.Extends)


def check_template(text: str, part: str, place: str) -> None:
    """Raise ``UserError`` where ``text`` is no template, names a field that ``part`` has not, or another file.

    Args:
        text: the template.
        part: ``system``, ``user`` or ``complaint``.
        place: file or parameter that holds it, for the message.
    """
    try:
        parsed = _JINJA.parse(text)
        named = meta.find_undeclared_variables(parsed)
    except TemplateSyntaxError as error:
        line = text.split("\n")[error.lineno - 1]
        raise UserError(
            f"{place}, line {error.lineno}: {error.message}\n  {error.lineno:>4} | {line}\n"
            "Correct it there; a template is Jinja (docs/prompts.md)."
        ) from None
    for node in parsed.find_all(_OTHER_FILES):
        raise UserError(
            f"{place}, line {node.lineno}: a template reaches no other file; write its text there"
        )
    for field in parsed.find_all(nodes.Name):
        if field.name in named - FIELDS[part].keys():
            raise UserError(
                f"{place}, line {field.lineno}: there is no field {field.name!r}; a {part} template may name "
                f"{', '.join(FIELDS[part])} (docs/prompts.md)"
            )


def check_prompt(prompt: PromptTemplates) -> None:
    """Raise ``UserError`` where one of the templates cannot be filled in."""
    for part in FIELDS:
        check_template(getattr(prompt, part), part, f"agent.prompt.{part}")


def system_message(rules: str, agent: AgentConfig) -> str:
    """Rules of the environment and the answer format."""
    return _filled(agent, "system", rules=rules)


def user_message(
    agent: AgentConfig,
    observation: str,
    actions_left: int,
    *,
    turn: int = 1,
    reward: float | None = None,
    previous_valid: bool = True,
) -> str:
    """The state before a turn.

    Args:
        agent: the harness.
        observation: the environment's text.
        actions_left: of the trajectory.
        turn: its number, from 1.
        reward: of the turn before; None: there was none.
        previous_valid: the previous answer was understood.
    """
    return _filled(
        agent,
        "user",
        observation=observation,
        actions_left=actions_left,
        turn=turn,
        reward=reward,
        complaint="" if previous_valid else _complaint(agent),
    )


def fixed_phrases(rules: str, agent: AgentConfig) -> list[str]:
    """Texts of the harness that never change: what a tokenizer made for it holds as single tokens."""
    lines = system_message(rules, agent).splitlines(keepends=True)
    tags = ["<think>", "</think>", "<answer>", "</answer>", f" {agent.action_separator} "]
    literals = [node.data for node in _JINJA.parse(agent.prompt.user).find_all(nodes.TemplateData)]
    return [*lines, *tags, _complaint(agent), *literals, "system\n", "user\n", "assistant\n"]


def _complaint(agent: AgentConfig) -> str:
    return _filled(agent, "complaint") + "\n"


def _filled(agent: AgentConfig, part: str, **fields: Any) -> str:
    """The template ``part`` of ``agent`` with its settings and ``fields``.

    Raises ``UserError`` where it does with them what cannot be done, such as taking the tenth line of three.
    """
    template = _compiled(getattr(agent.prompt, part), part)
    settings = {name: getattr(agent, name) for name in FIELDS[part] if name not in fields}
    try:
        return template.render(settings | fields)
    except Exception as error:  # a template is a program and raises what it likes
        lines = [each.lineno for each in traceback.extract_tb(error.__traceback__) if each.filename == part]
        place = f", line {lines[-1]}" if lines else ""
        raise UserError(
            f"prompt {agent.prompt.name!r}, template {part}{place}: {type(error).__name__}: {error}. "
            "Correct the template, or make it ask first whether a field is what it expects (docs/prompts.md)"
        ) from None


@functools.cache
def _compiled(text: str, part: str) -> Template:
    check_template(text, part, f"agent.prompt.{part}")
    code = _JINJA.compile(text, filename=part)
    return Template.from_code(_JINJA, code, {})
