"""A small byte-level tokenizer with the harness's fixed phrases as single tokens, in ChatML.

Bytes cover every text. Board symbols and digits stay single tokens; words of the environment are merged by BPE;
whole sentences of the prompt are tokens of their own, so that a first prompt is about 40 tokens.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

TURN_START, TURN_END, PADDING = "<|im_start|>", "<|im_end|>", "<|pad|>"

CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

#: Words may merge (with the blank before and a capital first letter); capitals alone, digits and symbols are cells.
_WORDS = Regex(r" ?[A-Z]?[a-z]+|[^a-z]")


def build_tokenizer(
    texts: Iterable[str], phrases: Iterable[str], *, vocabulary: int, directory: Path
) -> None:
    """Train on ``texts`` and save as a Hugging Face tokenizer in ``directory``.

    ``phrases`` become single tokens wherever they occur; ``vocabulary`` bounds bytes, merges and specials.
    """
    from transformers import PreTrainedTokenizerFast  # noqa: PLC0415

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(_WORDS, "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[PADDING, TURN_START, TURN_END],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
        min_frequency=2,
    )
    tokenizer.train_from_iterator(sorted(set(texts)), trainer)
    tokenizer.add_tokens(
        [
            AddedToken(phrase, normalized=False, special=False)
            for phrase in sorted(set(phrases))
            if len(phrase) > 1
        ]
    )
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=TURN_END, pad_token=PADDING, clean_up_tokenization_spaces=False
    )
    wrapped.chat_template = CHATML
    wrapped.save_pretrained(directory)
