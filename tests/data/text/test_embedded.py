"""The embedded prose: enough of it, the same each time, and prose."""

from __future__ import annotations

import itertools

import pytest

from larvatus.data.text import embedded
from larvatus.data.text.embedded import embedded_documents, prose


def test_there_is_enough_and_it_splits_in_two():
    everything, train, valid = (list(embedded_documents(part)) for part in ("all", "train", "valid"))
    assert 1_200_000 < sum(len(document.text) for document in everything) < 4_000_000
    assert len(train) + len(valid) == len(everything)
    assert 0.02 < len(valid) / len(everything) < 0.09
    assert not {document.source for document in train} & {document.source for document in valid}
    assert everything == list(embedded_documents())
    assert everything[0].source == "python:topics/assert"
    assert any(document.source == "python:argparse.py" for document in everything)
    assert not any("/test" in document.source or "site-packages" in document.source for document in everything)


def test_no_paragraph_comes_twice_and_little_of_it_is_code():
    paragraphs = [paragraph for document in embedded_documents() for paragraph in document.text.split("\n\n")]
    assert len(paragraphs) == len(set(paragraphs))
    assert not any(paragraph.startswith((">>>", "...")) for paragraph in paragraphs)
    assert sum(":class:" in paragraph or "``" in paragraph for paragraph in paragraphs) < 0.001 * len(paragraphs)
    assert sum(paragraph.count(" = ") for paragraph in paragraphs) < 0.01 * len(paragraphs)


def test_markup_tables_and_code_are_dropped():
    text = """Return a :class:`Thing`, as ``list`` or *tuple*, from the `docs <http://x>`_ of it.

    Heading
    =======

    >>> thing = Thing()
    42

    +-----+-----+
    | a   | b   |
    +-----+-----+

    A second paragraph is
    wrapped over two lines.

    x = 1; y = compute(x)
    """
    assert prose(text) == [
        "Return a Thing, as list or tuple, from the docs of it.",
        "A second paragraph is wrapped over two lines.",
    ]


def test_a_signal_in_the_midst_of_reading_leaves_out_nothing_later(monkeypatch):
    """Documents are made as they are asked for; what interrupts the making does not look like their end."""
    whole = [document.source for document in itertools.islice(embedded_documents(), 60)]
    with monkeypatch.context() as patch:
        patch.setattr(embedded, "_KEPT", embedded._Kept())
        patch.setattr(embedded, "prose", interrupted_after(40))
        reading = embedded_documents()
        with pytest.raises(KeyboardInterrupt):
            list(reading)
        patch.setattr(embedded, "prose", prose)
        assert [document.source for document in itertools.islice(embedded_documents(), 60)] == whole


def interrupted_after(count):
    left = itertools.count(count, -1)

    def read(text):
        if next(left) == 0:
            raise KeyboardInterrupt
        return prose(text)

    return read
