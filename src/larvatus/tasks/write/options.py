"""What may be chosen of text to text: the prefix, the words of labels, how much is written.

WriteOptions(prefix="sst2 sentence:", label_words={"0": "negative", "1": "positive"})
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from larvatus.core.errors import UsageError
from larvatus.core.flags import Flag
from larvatus.core.ranges import Count
from larvatus.core.settings import Settings
from larvatus.core.text_inputs import refuse_surrogates


def parse_label_words(words: Sequence[str]) -> dict[str, Any]:
    """Of the command line: ``0=negative``, once for each label."""
    by_label: dict[str, str] = {}
    for given in words:
        refuse_surrogates(given, "--label-word")
        label, equals, word = given.partition("=")
        if not (label and equals and word.strip()):
            raise UsageError(f"--label-word {given:.60} is not LABEL=WORD, such as 0=negative")
        if label in by_label:
            raise UsageError(f"--label-word gives {label} two words; give one")
        by_label[label] = word
    return {"label_words": by_label}


class WriteOptions(Settings):
    """Of text to text."""

    prefix: Annotated[str, Flag(metavar="TEXT")] = ""
    """What stands before every text, such as "sst2 sentence:"; it tells the model what to do."""
    label_words: Annotated[Mapping[str, str], Flag("--label-word", metavar="LABEL=WORD", words=parse_label_words)] = {}
    """What is written for a label of the data, such as 0=negative; repeatable. Default: the label itself."""
    max_tokens: Count | None = None
    """Tokens to write at most; default: one and a half times the longest target in training."""

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_surrogates(self.prefix, "the prefix")
        words = list(self.label_words.values())
        for word in words:
            if words.count(word) > 1:
                raise UsageError(f"two labels have the word {word!r}, and could not be told apart; give each its own")
