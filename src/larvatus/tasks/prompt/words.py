"""Verbalisers: which word at the blank stands for which label, checked against labels and vocabulary.

    config = verbaliser(tokenizer, pattern, labels=("neg", "pos"), words={"neg": ["terrible"], "pos": ["great"]})
    config.ids, config.sizes

A word that the vocabulary spells in several tokens has as many blanks. What it cannot spell is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from larvatus.core.errors import DataError, UsageError, did_you_mean
from larvatus.core.text_inputs import refuse_surrogates
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.models.heads.verbaliser import VerbaliserConfig
from larvatus.tasks.prompt.pattern import Pattern

LabelWords = Mapping[str, str | Sequence[str]]
"""Label → its word, or several."""


def parse_verbaliser(words: Sequence[str]) -> dict[str, Any]:
    """Of the command line: ``pos=great``, several times; of one label too."""
    by_label: dict[str, tuple[str, ...]] = {}
    for given in words:
        refuse_surrogates(given, "--verbaliser")
        label, equals, word = given.partition("=")
        if not (label and equals and word.strip()):
            raise UsageError(f"--verbaliser {given:.60} is not LABEL=WORD, such as pos=great")
        by_label[label] = (*by_label.get(label, ()), word)
    return {"verbaliser": by_label}


def words_by_label(words: LabelWords) -> dict[str, tuple[str, ...]]:
    """The words of each label."""
    if not isinstance(words, Mapping):
        raise UsageError(f'the words of labels are a mapping, such as {{"pos": "great"}}, not {type(words).__name__}')
    for label, word in words.items():
        several = [word] if isinstance(word, str) else word
        if not isinstance(several, Sequence) or not all(isinstance(each, str) for each in several):
            raise UsageError(f"the label {label!r:.40} has no word: give a string or a list of strings")
    return {label: (word,) if isinstance(word, str) else tuple(word) for label, word in words.items()}


def verbaliser(
    tokenizer: Tokenizer, pattern: Pattern, *, labels: Sequence[str], words: LabelWords, mask: int | None = None
) -> VerbaliserConfig:
    """The head's settings. `mask` is the token of a blank; None: the vocabulary's own."""
    chosen = words_by_label(words)
    _check_labels(labels, chosen)
    spaced = next(piece.spaced for piece in pattern.pieces if piece.slot == "blank")
    spelt = [
        (word, label, word_tokens(tokenizer, word, spaced=spaced))
        for label, name in enumerate(labels)
        for word in chosen[name]
    ]
    seen: dict[tuple[int, ...], tuple[str, int]] = {}
    for word, label, ids in spelt:
        if ids in seen:
            other, owner = seen[ids]
            same = "twice" if owner == label else f"the same as {other!r} of {labels[owner]}"
            raise UsageError(f"the word {word!r} of {labels[label]} is {same} in this vocabulary; give another")
        seen[ids] = word, label
    return VerbaliserConfig(
        labels=tuple(labels),
        pattern=pattern.source,
        words=tuple(word for word, _, _ in spelt),
        owners=tuple(label for _, label, _ in spelt),
        sizes=tuple(len(ids) for _, _, ids in spelt),
        ids=tuple(id for _, _, ids in spelt for id in ids),
        mask=tokenizer.mask_id if mask is None else mask,
        dense="none",
        dropout=0.0,
    )


def word_tokens(tokenizer: Tokenizer, word: str, *, spaced: bool) -> tuple[int, ...]:
    """The tokens of a word at a blank; refused where the vocabulary does not know it."""
    refuse_surrogates(word, "a word of the verbaliser")
    ids = tuple(tokenizer.encode_fast([f" {word}" if spaced else word])[0].tolist())
    unknown = tokenizer.id(tokenizer.special.unk)
    if not ids or unknown in ids:
        raise DataError(
            f"the vocabulary cannot spell {word!r}: it is {'nothing' if not ids else tokenizer.special.unk} there; "
            "give a word that it knows (larvatus tokenizer show says how a text is cut)"
        )
    return ids


def _check_labels(labels: Sequence[str], words: Mapping[str, Iterable[str]]) -> None:
    if not labels:
        raise UsageError("a prompt wants the words of its labels: --verbaliser LABEL=WORD, such as pos=great")
    if not words:
        raise UsageError(f"labels want words: --verbaliser {labels[0]}=WORD, one or more for each of {_some(labels)}")
    missing = [label for label in labels if not words.get(label)]
    if missing:
        raise UsageError(f"the label {missing[0]} has no word; give it one: --verbaliser {missing[0]}=WORD")
    for label in words:
        if label not in labels:
            near = did_you_mean(label, labels)
            raise UsageError(f"--verbaliser {label}: there is no such label{near}; there are {_some(labels)}")


def _some(labels: Sequence[str]) -> str:
    return ", ".join(labels[:8]) + (" …" if len(labels) > 8 else "")
