"""Chat templates as token pieces, without ever decoding and re-encoding.

A template is rendered once with marker strings in place of the contents. The text between the markers is glue
(role headers, turn ends); it is tokenised with special tokens, contents are tokenised without them, so text
from the environment or the policy cannot forge a turn.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from starpo.errors import UserError

#: Contents that no template has of its own.
SYSTEM, USER, REPLY, NEXT = "\x02SYS\x03", "\x02USR\x03", "\x02RPL\x03", "\x02NXT\x03"
#: The messages before a first reply, and those before a second one.
FIRST = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": USER}]
BOTH = [*FIRST, {"role": "assistant", "content": REPLY}, {"role": "user", "content": NEXT}]


#: Characters that a tokenizer's normalizer makes one of, at most: NFC composes a letter and three accents.
_SHRINKING = {"NoneType": 1, "NFC": 4}


@dataclass(frozen=True)
class ChatTemplate:
    """Glue of one model's chat template, as token ids."""

    before_system: tuple[int, ...]
    """Up to the system message."""
    system_to_user: tuple[int, ...]
    """Between the system and the first user message."""
    user_to_reply: tuple[int, ...]
    """From the end of a user message to where the policy writes."""
    reply_to_user: tuple[int, ...]
    """From the end of a reply to the next user message; starts with the turn end that the policy may sample."""
    stop_ids: tuple[int, ...]
    """Tokens that end a turn."""
    keeps_history: bool
    """False if the model's own template would rewrite earlier turns; the ledger keeps them all the same."""
    tokenizer: Any
    """Hugging Face tokenizer that encodes contents."""

    @classmethod
    def of(cls, tokenizer: Any) -> ChatTemplate:
        """Take a tokenizer's chat template apart. Raises ``UserError`` where it has none or hides contents."""
        if not getattr(tokenizer, "chat_template", None):
            raise UserError(
                f"{tokenizer.name_or_path}: the tokenizer has no chat template; "
                "use an instruction-tuned model or add a chat_template to tokenizer_config.json"
            )
        opening, whole = rendered(tokenizer, FIRST), rendered(tokenizer, BOTH)
        try:
            before, rest = opening.split(SYSTEM)
            middle, after_user = rest.split(USER)
            history, tail = whole.split(REPLY)
            between = tail.split(NEXT)[0]
        except ValueError:
            raise UserError(
                f"{tokenizer.name_or_path}: its chat template drops or repeats messages; "
                "system, user and assistant messages must each appear once"
            ) from None
        if opening == rendered(tokenizer, FIRST, prompt=False) and history.startswith(opening):
            # No generation prompt: the header of a reply is what stands before one in a conversation.
            after_user, opening = history.split(USER)[1], history
        pieces = (tuple(_with_specials(tokenizer, text)) for text in (before, middle, after_user, between))
        before_system, system_to_user, user_to_reply, reply_to_user = pieces
        if not reply_to_user:
            raise UserError(f"{tokenizer.name_or_path}: nothing in the chat template ends an assistant turn")
        stops = {reply_to_user[0]}
        if tokenizer.eos_token_id is not None:
            stops.add(tokenizer.eos_token_id)
        keeps = thought_survives(tokenizer) and history == opening
        return cls(
            before_system,
            system_to_user,
            user_to_reply,
            reply_to_user,
            stop_ids=tuple(sorted(stops)),
            keeps_history=keeps,
            tokenizer=tokenizer,
        )

    @cached_property
    def longest_token(self) -> int | None:
        """Characters that a token stands for at most; None where a single one may stand for any number of them."""
        backend = getattr(self.tokenizer, "backend_tokenizer", None)
        if backend is None:
            return None
        fuses = getattr(backend.model, "unk_token", None) and not getattr(
            backend.model, "byte_fallback", False
        )
        shrinks = _SHRINKING.get(type(backend.normalizer).__name__)
        return None if fuses or shrinks is None else shrinks * max(map(len, self.tokenizer.get_vocab()))

    @property
    def turn_end(self) -> int:
        """The token that the template puts after a reply."""
        return self.reply_to_user[0]

    def content(self, text: str) -> list[int]:
        """Ids of message text; special tokens written in it stay plain text."""
        backend = getattr(self.tokenizer, "backend_tokenizer", None)
        if backend is None:
            return list(self.tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True))
        # The same without transformers' bookkeeping, which costs ten times the encoding of a short text.
        backend.encode_special_tokens = True
        return list(backend.encode(text, add_special_tokens=False).ids)

    def system(self, text: str) -> list[int]:
        """Ids of the system message and what stands between it and the first user message."""
        return [*self.before_system, *self.content(text), *self.system_to_user]

    def user(self, text: str) -> list[int]:
        """Ids of a user message and the header of the reply to it."""
        return [*self.content(text), *self.user_to_reply]

    def after_reply(self, *, turn_end_sampled: bool) -> tuple[int, ...]:
        """Ids between a reply and the next user message; a turn end that the policy sampled is not repeated."""
        return self.reply_to_user[1:] if turn_end_sampled else self.reply_to_user

    def opening(self, system: str, user: str) -> list[int]:
        """Ids of the first context: system message, first user message, reply header."""
        return [*self.system(system), *self.user(user)]

    def text(self, ids: list[int]) -> str:
        """Text of sampled ids, for parsing and display only; turn ends are left out."""
        kept = [token for token in ids if token not in self.stop_ids]
        return str(self.tokenizer.decode(kept, skip_special_tokens=False, clean_up_tokenization_spaces=False))


def _with_specials(tokenizer: Any, text: str) -> list[int]:
    return list(tokenizer.encode(text, add_special_tokens=False))


def rendered(tokenizer: Any, messages: list[dict[str, str]], *, prompt: bool = True) -> str:
    """Text of ``messages`` in the tokenizer's template, with the generation prompt after it if ``prompt``.

    Raises ``UserError`` where the template refuses them, as some do a system message.
    """
    try:
        return str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=prompt))
    except Exception as error:  # templates are programs and raise what they like
        roles = ", ".join(message["role"] for message in messages)
        raise UserError(
            f"{tokenizer.name_or_path}: its chat template refuses the messages {roles} ({error}); "
            "use a model with system messages or change chat_template in tokenizer_config.json"
        ) from None


def thought_survives(tokenizer: Any) -> bool:
    """Whether an earlier turn's ``<think>`` part is still rendered once a later turn follows."""
    reply = {"role": "assistant", "content": "<think>\x02THT\x03</think>\x02ANS\x03"}
    return "\x02THT\x03" in rendered(tokenizer, [*FIRST, reply, BOTH[-1]])
