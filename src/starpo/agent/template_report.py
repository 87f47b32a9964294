"""What a model's chat template does to a conversation, checked before anything is trained on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from starpo.agent.template import BOTH, FIRST, REPLY, SYSTEM, USER, ChatTemplate, rendered, thought_survives

_THINK = "<think>"


@dataclass(frozen=True)
class TemplateReport:
    """Findings about one tokenizer's chat template."""

    name: str
    """The tokenizer."""
    history_is_prefix: bool
    """A later turn leaves the text of earlier ones as it was, apart from thoughts."""
    keeps_thoughts: bool
    """Earlier replies keep their ``<think>`` part."""
    turn_end: str
    """Token that the template puts after a reply."""
    stops: tuple[str, ...]
    """Tokens that end a turn while sampling."""
    default_system: str | None
    """System message that the template makes up where none is given; None: none."""
    before_system: str
    """Text before a given system message: its header and what the template adds."""
    generation_prompt: str | None
    """Text that asks for a reply; None: the template has none, and the header of a reply is used."""
    contents_are_safe: bool
    """A message that spells the turn end does not end the turn."""

    @property
    def opens_thought(self) -> bool:
        """Whether the generation prompt itself begins a thought."""
        return self.generation_prompt is not None and _THINK in self.generation_prompt

    def concerns(self) -> list[str]:
        """What a researcher should know before training with this template; empty if there is nothing."""
        found = []
        if not self.history_is_prefix:
            found.append("it rewrites earlier turns; trajectories keep them as they were sampled")
        if not self.keeps_thoughts:
            found.append("it strips earlier thoughts; trajectories keep them")
        if self.generation_prompt is None:
            found.append("it has no generation prompt; the header of a reply is put before each one")
        if self.opens_thought:
            found.append("its generation prompt opens <think>, so a reply starts inside the thought")
        if not self.contents_are_safe:
            found.append("a message that spells the turn end would end the turn")
        return found

    def short(self) -> str:
        """One line, and a second one where there are concerns."""
        history = "kept" if self.history_is_prefix and self.keeps_thoughts else "rewritten"
        system = "none" if self.default_system is None else f"{_cut(self.default_system)!r}, replaced by ours"
        line = (
            f"chat template: history {history}, a turn ends with {' or '.join(self.stops)}, "
            f"default system prompt {system}"
        )
        return "\n".join(
            [line, *(f"  note: {'; '.join(concerns)}" for concerns in [self.concerns()] if concerns)]
        )

    def rows(self) -> list[tuple[str, str]]:
        """Everything, as (question, answer)."""
        return [
            ("model", self.name),
            ("history stays a prefix", _yes(self.history_is_prefix)),
            ("earlier thoughts stay", _yes(self.keeps_thoughts)),
            ("after a reply", repr(self.turn_end)),
            ("stops sampling", ", ".join(map(repr, self.stops))),
            ("before a system message", repr(self.before_system)),
            ("default system prompt", "none" if self.default_system is None else repr(self.default_system)),
            ("generation prompt", "none" if self.generation_prompt is None else repr(self.generation_prompt)),
            ("contents cannot forge a turn", _yes(self.contents_are_safe)),
            *(("note", concern) for concern in self.concerns()),
        ]


def inspect_template(tokenizer: Any) -> TemplateReport:
    """Take the template apart and describe it. Raises ``UserError`` where nothing can be trained with it."""
    template = ChatTemplate.of(tokenizer)
    opening, asked = rendered(tokenizer, FIRST, prompt=False), rendered(tokenizer, FIRST)
    before, rest = asked.split(SYSTEM)
    history = rendered(tokenizer, BOTH).split(REPLY)[0]
    prompt = asked[len(opening) :] if asked.startswith(opening) and asked != opening else None
    ends = tuple(str(tokenizer.convert_ids_to_tokens(token)) for token in template.stop_ids)
    return TemplateReport(
        name=str(tokenizer.name_or_path),
        history_is_prefix=history.startswith(asked),
        keeps_thoughts=thought_survives(tokenizer),
        turn_end=str(tokenizer.convert_ids_to_tokens(template.turn_end)),
        stops=ends,
        default_system=_default_system(tokenizer, before, rest.split(USER)[0]),
        before_system=before,
        generation_prompt=prompt,
        contents_are_safe=not set(template.content("".join(ends))) & set(template.stop_ids),
    )


def _default_system(tokenizer: Any, before: str, after: str) -> str | None:
    """The system message that stands between ``before`` and ``after`` where none was given."""
    start = rendered(tokenizer, [FIRST[1]]).split(USER)[0]
    if not start.startswith(before) or not start.endswith(after) or len(start) < len(before) + len(after):
        return None
    return start[len(before) : len(start) - len(after)] or None


def _cut(text: str, length: int = 40) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


def _yes(flag: bool) -> str:
    return "yes" if flag else "no"
