"""The tags of a data set brought into the scheme that the model learns: read, checked, converted.

    train = convert_scheme(train, "BIO")            # IOB1 becomes BIO; I-PER after O is refused, with file and line

A sequence that its scheme forbids is a fault of the data, refused unless `repair` reads it as `conlleval` does: an
I-PER that nothing begins, begins.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from larvatus.core.errors import DataError
from larvatus.data.labelled.records import Dataset, TaggedExample
from larvatus.data.text.tag_schemes import LETTERS, Scheme, convert, detect_scheme, find_illegal, split_tag
from larvatus.data.text.tag_schemes import repair as repaired


def scheme_of(data: Dataset[TaggedExample]) -> Scheme:
    """The scheme that the tags are written in."""
    return detect_scheme([example.tags or () for example in data])


def convert_scheme(
    data: Dataset[TaggedExample], target: Scheme, *, source: Scheme | None = None, repair: bool = False
) -> Dataset[TaggedExample]:
    """The same entities in the scheme `target`; tags that spell none stay as they are."""
    source = source or scheme_of(data)
    if source == "none" or target == "none":
        if source != target:
            raise DataError(f"{data.source}: its tags are of the scheme {source}, and cannot be read as {target}")
        return data
    examples, mended = [], 0
    for example in data:
        tags = list(example.tags or ())
        illegal = find_illegal(tags, source)
        if illegal and not repair:
            raise DataError(
                f"{example.place}: word {illegal[0].index + 1} of the sentence that begins here is tagged "
                f"{illegal[0].message}; mend it, or --repair reads it as conlleval does"
            )
        if illegal:
            tags, mended = repaired(tags, source), mended + 1
        tags = convert(tags, source, target) if source != target else tags
        examples.append(dataclasses.replace(example, tags=tuple(tags)))
    notes = [*data.notes]
    if mended:
        notes.append(f"illegal tags of {mended:,} sentences mended")
    if source != target:
        notes.append(f"{source} read as {target}")
    return dataclasses.replace(data, examples=tuple(examples), notes=tuple(notes))


def all_tags(tags: Iterable[str], scheme: Scheme) -> tuple[str, ...]:
    """Every tag with which the scheme can spell the types that occur: an I-LOC for a B-LOC that always stood alone.

    >>> all_tags(["B-LOC", "O"], "BIO")
    ('O', 'B-LOC', 'I-LOC')
    """
    seen = set(tags)
    if scheme == "none":
        return tuple(sorted(seen))
    types = sorted({split_tag(tag, scheme)[1] for tag in seen} - {""})
    bare = "" in {tag.partition("-")[2] for tag in seen if tag != "O"}
    if bare:
        return tuple(letter for letter in LETTERS[scheme])
    return ("O", *(f"{letter}-{name}" for name in types for letter in LETTERS[scheme] if letter != "O"))
