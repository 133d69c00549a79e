"""A text in another language or script is noticed by the counts of the vocabulary; English and its names are not."""

from __future__ import annotations

import warnings

import pytest

from larvatus.core.errors import OtherLanguageWarning
from larvatus.data.text.other_language import looks_foreign, warn_of_other_language
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.data.text.vocabularies import ByteBPEConfig, UnigramConfig, WordPieceConfig, train_vocabulary

PROSE = (
    "The old house by the river was large and quiet, and nobody in the town had been there for many years. "
    "She asked him whether he would come back in the morning, but he said that he did not know what to do. "
    "When the children were in the garden, their mother looked out of the window and called them to come in. "
    "It is not easy to say what made the people of this place so different from those of the other side. "
)
ENGLISH = (
    "The children asked their mother what was in the old house.",
    "He did not come back to the town in the morning.",
    "When Svyatoslav looked out, the river was not there.",
    "THE OLD HOUSE BY THE RIVER WAS QUIET.",
    "Children Of The Town Asked What To Do With The Old House",
)
FOREIGN = (
    "Das kleine Mädchen ging jeden Tag durch den dunklen Wald zur Großmutter.",
    "La petite maison blanche se trouve près du grand jardin public.",
    "Маленький будинок стояв на березі великої річки.",
)


@pytest.fixture(scope="module", params=[ByteBPEConfig(size=600), WordPieceConfig(size=400), UnigramConfig(size=300)])
def tokenizer(request) -> Tokenizer:
    learnt = train_vocabulary([PROSE] * 20, request.param, allow_smaller=True)
    return Tokenizer.from_library(learnt.library, config=learnt.config, counts=learnt.counts * 1_000)


def test_other_languages_and_scripts_look_foreign_and_english_with_a_name_does_not(tokenizer):
    assert [looks_foreign(text, tokenizer) for text in FOREIGN] == [True] * 3
    assert [looks_foreign(text, tokenizer) for text in ENGLISH] == [False] * 5
    assert looks_foreign("Das Kleine Mädchen Ging Jeden Tag Durch Den Dunklen Wald", tokenizer)
    assert not looks_foreign("Das Haus", tokenizer)  # too short to say
    assert not looks_foreign("1984 + 17 = 2001 !", tokenizer)


def test_a_call_warns_once_and_one_odd_text_among_many_is_no_reason(tokenizer):
    with pytest.warns(OtherLanguageWarning, match="3 of 8 texts look foreign") as told:
        warn_of_other_language([*ENGLISH, *FOREIGN], tokenizer)
    assert len(told) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_other_language([*ENGLISH * 4, FOREIGN[0]], tokenizer)
        warn_of_other_language([["The", "old", "house"]], tokenizer)
        few = Tokenizer.from_library(tokenizer.library, config=tokenizer.config, counts=tokenizer.counts // 1_000)
        warn_of_other_language(FOREIGN, few)  # counts of little text say nothing
        warn_of_other_language(FOREIGN, Tokenizer.from_library(tokenizer.library, config=tokenizer.config))
