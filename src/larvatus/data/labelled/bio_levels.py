"""BIO of several levels: a column of tags for each level of nesting, as GermEval 2014 has it.

    Universität   B-ORG   O
    von           I-ORG   O
    Tokio         I-ORG   B-LOC

Which columns are tags is seen in the file: those of nothing but O, B-… and I-… (or BIOES, IOB1); or it is said.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from larvatus.core.errors import DataError
from larvatus.data.labelled.conll import SAMPLE, layout_of, read_conll
from larvatus.data.labelled.problems import Problems, fault
from larvatus.data.labelled.records import TaggedExample, shown
from larvatus.data.labelled.span_records import SpannedWords
from larvatus.data.text.streams import numbered_lines
from larvatus.data.text.tag_schemes import Entity, Scheme, detect_scheme, find_illegal, read_leniently, write_tags

_TAG = re.compile(r"O|[BIESLU]-\S+")


def read_levels(
    name: str, *, word: int | None = None, tags: Sequence[int] | None = None, problems: Problems | None = None
) -> tuple[list[SpannedWords], str]:
    """The sentences of a file, and what was read as what. Columns are numbered from 1.

    Where neither is said, tags are the columns that look like it, and the word is the column before them.
    """
    columns = list(tags) if tags else tag_columns(name)
    word_column = word or max(1, min(columns) - 1)
    levels = [read_conll(name, word=word_column, tag=column, problems=problems)[0] for column in columns]
    whole = set.intersection(*({example.place for example in level} for level in levels))
    kept = [[example for example in level if example.place in whole] for level in levels]
    schemes = [detect_scheme([example.tags or () for example in level]) for level in kept]
    examples = []
    for sentence in zip(*kept, strict=True):
        spans = {
            entity
            for example, scheme in zip(sentence, schemes, strict=True)
            for entity in _entities(example, scheme, problems)
        }
        examples.append(SpannedWords(sentence[0].words, tuple(sorted(spans)), sentence[0].place))
    said = f"read as: word = column {word_column}, tags = column{'s' if len(columns) > 1 else ''} "
    return examples, said + ", ".join(map(str, columns))


def tag_columns(name: str) -> list[int]:
    """Columns, from 1, that hold tags and nothing else."""
    lines = [line for _, line in islice(numbered_lines(name), SAMPLE)]
    layout = layout_of(name, lines)
    rows = [cells for line in lines if line.strip() and len(cells := layout.cells(line)) == layout.width]
    columns = [n + 1 for n in range(layout.width) if all(_TAG.fullmatch(row[n].strip()) for row in rows)]
    if not columns:
        raise DataError(f"{shown(name)} has no column of tags (O, B-PER, I-PER …); say which they are")
    return columns


def _entities(example: TaggedExample, scheme: Scheme, problems: Problems | None) -> list[Entity]:
    tags = example.tags or ()
    for illegal in find_illegal(tags, scheme):
        message = f"word {illegal.index + 1} of the sentence that begins here is tagged {illegal.message}"
        fault(problems, "illegal tag, read as conlleval does", example.place, message)
    return read_leniently(tags, scheme)


def levels_of(example: SpannedWords) -> list[list[Entity]]:
    """Spans in levels of which none has two that share a word: outer ones first, as deep as must be."""
    levels: list[list[Entity]] = []
    for span in sorted(example.spans or (), key=lambda span: (span.start - span.end, span)):
        free = (level for level in levels if all(span.end <= other.start or other.end <= span.start for other in level))
        level = next(free, None)
        if level is None:
            levels.append([span])
        else:
            level.append(span)
    return levels


def level_lines(examples: Iterable[SpannedWords]) -> Iterator[str]:
    """Sentences as CoNLL columns, a column of BIO for each level; what `read_levels` reads."""
    levelled = [(example, levels_of(example)) for example in examples]
    depth = max((len(levels) for _, levels in levelled), default=1) or 1
    for example, levels in levelled:
        padded = [*levels, *([] for _ in range(depth - len(levels)))]
        columns = [write_tags(sorted(level), len(example.words), "BIO") for level in padded]
        for word, *tags in zip(example.words, *columns, strict=True):
            if "\t" in word or "\n" in word:
                raise DataError(f"{example.place}: word {word!r} holds a tab or a line break; CoNLL cannot write it")
            yield "\t".join([word, *tags])
        yield ""
