"""Names that people give their columns: what is text, a pair of texts, a label, an id. Case and marks do not count."""

from __future__ import annotations

PAIRS = (
    ("premise", "hypothesis"),
    ("sentence1", "sentence2"),
    ("question1", "question2"),
    ("question", "sentence"),
    ("question", "context"),
    ("question", "passage"),
    ("query", "passage"),
    ("query", "document"),
    ("texta", "textb"),
    ("text1", "text2"),
    ("sentencea", "sentenceb"),
    ("senta", "sentb"),
    ("sent1", "sent2"),
    ("1string", "2string"),
    ("s1", "s2"),
    ("first", "second"),
    ("text", "pair"),
)
TEXTS = (
    *("text", "sentence", "content", "review", "body", "comment", "tweet", "message", "utterance", "document"),
    *("abstract", "description", "headline", "title", "string", "query", "question", "reviewbody", "reviewtext"),
)
LABELS = (
    *(
        "goldlabel",
        "label",
        "labels",
        "class",
        "classes",
        "category",
        "categories",
        "target",
        "gold",
        "score",
        "quality",
    ),
    *(
        "similarity",
        "similarityscore",
        "relatednessscore",
        "entailmentjudgment",
        "isduplicate",
        "sentiment",
        "polarity",
    ),
    *("rating", "stars", "topic", "topics", "intent", "emotion", "emotions", "acceptability", "labeltext", "y"),
)
IDS = ("id", "ids", "index", "idx", "guid", "pairid", "uid", "rowid", "exampleid", "sentid")
WORDS = ("tokens", "words", "token", "word")
TAGS = ("tags", "nertags", "postags", "chunktags", "ner", "upos", "pos", "labels", "label", "tag")
KNOWN = frozenset([*(name for pair in PAIRS for name in pair), *TEXTS, *LABELS, *IDS, *WORDS, *TAGS])


def plain(name: str) -> str:
    """Letters and digits alone, in lower case.

    >>> plain("#1 String"), plain("gold_label")
    ('1string', 'goldlabel')
    """
    return "".join(char for char in name.lower() if char.isalnum())


def first_of(wanted: tuple[str, ...], columns: tuple[str, ...]) -> str | None:
    """The column whose name comes first in a list of wanted ones."""
    named = {plain(column): column for column in reversed(columns)}
    return next((named[name] for name in wanted if name in named), None)
