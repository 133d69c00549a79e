"""What may be chosen of a prompt: its pattern and the words of its labels.

PromptOptions(pattern="{text} It was {blank}.", verbaliser={"neg": ("terrible",), "pos": ("great",)})
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from larvatus.core.flags import Flag
from larvatus.core.settings import Settings
from larvatus.tasks.prompt.pattern import NULL
from larvatus.tasks.prompt.words import parse_verbaliser


class PromptOptions(Settings):
    """Of a prompt that is fine-tuned."""

    pattern: str = NULL
    """The text with a blank for the label's word, "{text} It was {blank}."; of pairs {first} and {second}; null: the
    text and a blank alone."""
    verbaliser: Annotated[
        Mapping[str, str | tuple[str, ...]], Flag("--verbaliser", metavar="LABEL=WORD", words=parse_verbaliser)
    ] = {}
    """The word of a label; repeatable, for each label, and for several words of one."""
