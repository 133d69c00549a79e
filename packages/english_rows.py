"""Rows of text for the English model, and what a teacher says of their words and texts.

    documents = read_documents(Path("text"), Path("data"))
    rows = read_rows(documents, student="tok/tokenizer.json", teacher="all-mpnet-base-v2/tokenizer.json", workers=16)
    targets = teach(rows, "all-mpnet-base-v2/", words=62_000_000, device="cuda")

A document is cut into rows of at most 128 tokens (some of 512), at the end of a sentence where one is near. A word is
what stands between spaces: both tokenizers cut it in their own way, and its vector is the mean of the teacher's tokens
in it, at one layer or more. Vectors are standardised per dimension and kept as int8; that of a text is the mean of all
its tokens, as `sentence-transformers` computes it.
"""

from __future__ import annotations

import multiprocessing
import random
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from english_sentence_texts import document_groups, made_groups, pair_groups, some_edited
from english_text import read_texts, short_texts
from tokenizers import Tokenizer
from torch import Tensor

Ints = npt.NDArray[np.int64]
LENGTH, LONG = 128, 512
LAYERS = (8,)
"""Of the teacher: L in shapes."""
STEP = 4 / 127
"""Standard deviations in a unit of int8."""
WORD = re.compile(r"\S+")
BEGIN, END = 0, 2
"""The special tokens around a row."""
TEXT, EDITED = 0, 1
HELD_OUT = "held out"
"""The source of documents that are only measured on: nothing is made of them."""
LONG_SHARE, GROUPED_ARTICLES = 0.17, 0.6
"""Share of the documents in long rows, and of the articles whose sentences teach vectors."""


class Document(NamedTuple):
    """A document of a source (`english_text.py`), or the texts of a group, a line each."""

    source: str
    number: int
    text: str


class Text(NamedTuple):
    """A text, the document it is of, how long its rows are, and whether somebody wrote it so."""

    text: str
    group: int
    length: int = LENGTH
    kind: int = TEXT


def read_documents(text: Path, data: Path) -> Iterator[Document]:
    """All documents, and the groups of `english_sentence_texts.py`."""
    number = 0
    for source, documents in read_texts(text):
        for document in documents:
            yield Document(source, number, document)
            number += 1
    random_ = random.Random(1)
    for kind, groups in (("pairs", pair_groups(data, random_)), ("made", made_groups(random_))):
        for group in groups:
            yield Document(kind, number, "\n".join(group))
            number += 1


def texts_of(document: Document) -> Iterator[Text]:
    """The whole document, its short texts, and those that teach sentence vectors."""
    source, number, text = document
    lines, random_ = text.split("\n"), random.Random(number)
    if source in ("pairs", "made"):
        yield from _grouped(lines, number, random_, written=source == "pairs")
        return
    if source == HELD_OUT:
        yield Text(" ".join(lines), number)
        return
    yield Text(" ".join(lines), number, LONG if random_.random() < LONG_SHARE else LENGTH)
    yield from (Text(short, number) for short in short_texts(source, [text]))
    if not source.startswith("wiki") or random_.random() < GROUPED_ARTICLES:
        for group in document_groups(source, lines, random_):
            yield from _grouped(group, number, random_, written=True)


def _grouped(group: list[str], number: int, random_: random.Random, *, written: bool) -> Iterator[Text]:
    """Only whole sentences are masked; titles, keywords and edited sentences teach vectors."""
    for text in filter(None, dict.fromkeys(group)):
        whole = written and text[-1] in ".?!" and text[0].isupper()
        yield Text(text, number, kind=TEXT if whole else EDITED)
    if written:
        yield from (Text(text, number, kind=EDITED) for text in some_edited(group, random_) if text)


@dataclass(frozen=True)
class Rows:
    """Tokens of all rows, one after the other; a token's word is counted in its row, and −1 is of special tokens."""

    ids: npt.NDArray[np.uint16]
    words: npt.NDArray[np.int16]
    lengths: Ints
    word_counts: Ints
    groups: Ints
    kinds: Ints
    teacher_ids: npt.NDArray[np.uint16]
    teacher_words: npt.NDArray[np.int16]
    teacher_lengths: Ints


def cut(words: Ints, ends: npt.NDArray[np.bool_], room: int) -> Iterator[tuple[int, int]]:
    """First and last word (exclusive) of each row, by the tokens that words have and the sentences that end there."""
    first, edges = 0, np.concatenate([[0], np.cumsum(words)])
    while first < len(words):
        last = int(np.searchsorted(edges, edges[first] + room, side="right")) - 1
        if last <= first:  # a word that is longer than a row is left out
            first += 1
            continue
        if last < len(words):
            near = np.flatnonzero(ends[first + (last - first) // 2 : last])
            if len(near):
                last = first + (last - first) // 2 + int(near[-1]) + 1
        yield first, last
        first = last


_tokenizers: list[Tokenizer] = []


def _start(student: str, teacher: str) -> None:
    _tokenizers[:] = [Tokenizer.from_file(student), Tokenizer.from_file(teacher)]
    for tokenizer in _tokenizers:
        tokenizer.no_padding()
        tokenizer.no_truncation()
    _tokenizers[1].enable_truncation(LONG)


def _work(documents: list[Document]) -> list[npt.NDArray[Any]]:
    """The rows of some documents, as arrays in the order of `Rows`."""
    student, teacher = _tokenizers
    texts = [text for document in documents for text in texts_of(document)]
    clean = [" ".join(each.text.split()) for each in texts]
    ids: list[npt.NDArray[Any]] = []
    words: list[npt.NDArray[Any]] = []
    parts: list[tuple[str, Text]] = []
    counts: list[int] = []
    for text, each, encoded in zip(clean, texts, student.encode_batch(clean, add_special_tokens=False), strict=True):
        spans = [match.span() for match in WORD.finditer(text)]
        if not spans or not encoded.ids:
            continue
        starts = np.array([start for start, _ in spans])
        last_characters = np.array([end for _, end in encoded.offsets]) - 1
        word_N = np.searchsorted(starts, last_characters, side="right") - 1
        id_N = np.array(encoded.ids, np.uint16)
        of_words = np.bincount(word_N, minlength=len(spans))
        edges = np.concatenate([[0], np.cumsum(of_words)])
        ends = np.array([text[end - 1] in ".?!" or text[end - 2 : end] in ('."', ".'", '?"', '!"') for _, end in spans])
        for first, last in cut(of_words, ends, each.length - 2):
            low, high = int(edges[first]), int(edges[last])
            if high - low < 2:
                continue
            ids.append(np.concatenate([[BEGIN], id_N[low:high], [END]]).astype(np.uint16))
            words.append(np.concatenate([[-1], word_N[low:high] - first, [-1]]).astype(np.int16))
            parts.append((text[spans[first][0] : spans[last - 1][1]], each))
            counts.append(last - first)
    teacher_ids, teacher_words = [], []
    for (text, _), encoded in zip(parts, teacher.encode_batch([text for text, _ in parts]), strict=True):
        starts = np.array([match.start() for match in WORD.finditer(text)])
        place = np.searchsorted(starts, [start for start, _ in encoded.offsets], side="right") - 1
        place[np.array(encoded.special_tokens_mask) == 1] = -1
        teacher_ids.append(np.array(encoded.ids, np.uint16))
        teacher_words.append(place.astype(np.int16))
    return [
        _joined(ids, np.uint16),
        _joined(words, np.int16),
        np.array([len(row) for row in ids], np.int64),
        np.array(counts, np.int64),
        np.array([each.group for _, each in parts], np.int64),
        np.array([each.kind for _, each in parts], np.int64),
        _joined(teacher_ids, np.uint16),
        _joined(teacher_words, np.int16),
        np.array([len(row) for row in teacher_ids], np.int64),
    ]


def _joined(parts: list[npt.NDArray[Any]], dtype: type[Any]) -> npt.NDArray[Any]:
    return np.concatenate(parts) if parts else np.zeros(0, dtype)


def _chunks(documents: Iterable[Document], characters: int = 400_000) -> Iterator[list[Document]]:
    chunk: list[Document] = []
    size = 0
    for document in documents:
        chunk.append(document)
        size += len(document.text)
        if size > characters:
            yield chunk
            chunk, size = [], 0
    yield chunk


def read_rows(documents: Iterable[Document], *, student: str, teacher: str, workers: int) -> Rows:
    with multiprocessing.Pool(workers, _start, (student, teacher)) as pool:
        parts = list(pool.imap(_work, _chunks(documents)))
    return Rows(*(np.concatenate(column) for column in zip(*parts, strict=True)))


@dataclass(frozen=True)
class Targets:
    """What the student should say of rows: −1 in `first` means that the teacher has not read a row."""

    words: Tensor  # [W, L, D] int8
    first: Tensor  # [R] where the words of a row begin
    texts: Tensor  # [R, S] unit vectors, float16; zeros of rows that were not read
    mean: Tensor  # [L, D]
    deviation: Tensor  # [L, D]
    axes: Tensor  # [D, S] the principal axes of texts


def teach(rows: Rows, teacher: str, *, words: int, size: int, device: str, seed: int = 5) -> Targets:
    """Let the teacher read rows at random, until that many words are read."""
    from transformers import AutoModel

    model = AutoModel.from_pretrained(teacher, dtype=torch.bfloat16).to(device).eval()
    turn = np.random.default_rng(seed).random(len(rows.lengths)) + 0.6 * (rows.lengths > 96)  # short texts first
    order = np.argsort(turn)
    order = order[: int(np.searchsorted(np.cumsum(rows.word_counts[order]), words, side="right"))]
    order = order[np.argsort(rows.teacher_lengths[order], kind="stable")]
    width, total = int(model.config.hidden_size), int(rows.word_counts[order].sum())
    first = np.full(len(rows.lengths), -1, np.int64)
    first[order] = np.cumsum(rows.word_counts[order]) - rows.word_counts[order]
    kept = torch.zeros(total, len(LAYERS), width, dtype=torch.int8, device=device)
    texts = torch.zeros(len(rows.lengths), width, dtype=torch.float16, device=device)
    starts = np.cumsum(rows.teacher_lengths) - rows.teacher_lengths
    ids = torch.from_numpy(rows.teacher_ids.astype(np.int32)).to(device)
    places = torch.from_numpy(rows.teacher_words).to(device)
    sample = np.sort(np.random.default_rng(seed + 1).choice(order, min(2_000, len(order)), replace=False))
    states = torch.cat(
        [state for part in np.array_split(sample, 20) for state, *_ in [_read(model, ids, places, part, rows, starts)]]
    )
    mean, deviation = states.mean(0), states.std(0)
    low = 0
    while low < len(order):
        longest = int(rows.teacher_lengths[order[min(low + 512, len(order) - 1)]])
        high = min(len(order), low + max(8, 98_304 // (longest + 8)))
        part = order[low:high]
        state_WLD, vector_BD, counts = _read(model, ids, places, part, rows, starts)
        begin = int(first[part[0]])
        scaled = ((state_WLD - mean) / deviation / STEP).round_().clamp_(-127, 127)
        kept[begin : begin + counts] = scaled.to(torch.int8)
        texts[torch.from_numpy(part).to(device)] = vector_BD.half()
        low = high
    some = texts[
        torch.from_numpy(np.random.default_rng(seed + 2).permutation(order)[:200_000].copy()).to(device)
    ].float()
    axes = torch.linalg.eigh(some.T @ some)[1][:, -size:]
    reduced = torch.cat([F.normalize(part.float() @ axes, dim=-1).half() for part in texts.split(200_000)])
    return Targets(kept, torch.from_numpy(first).to(device), reduced, mean, deviation, axes)


@torch.inference_mode()
def _read(model: Any, ids: Tensor, places: Tensor, part: Ints, rows: Rows, starts: Ints) -> tuple[Tensor, Tensor, int]:
    """[W, L, D] the words of some rows and [B, D] their texts."""
    device = ids.device
    length_B = torch.from_numpy(rows.teacher_lengths[part]).to(device)
    longest = -(-int(rows.teacher_lengths[part].max()) // 8) * 8
    column_L = torch.arange(longest, device=device)
    real_BL = column_L < length_B[:, None]
    at_BL = (torch.from_numpy(starts[part]).to(device)[:, None] + column_L).clamp(max=len(ids) - 1)
    input_BL = torch.where(real_BL, ids[at_BL].long(), torch.ones((), dtype=torch.long, device=device))
    states = model(input_ids=input_BL, attention_mask=real_BL.long(), output_hidden_states=True).hidden_states
    states_BTLD = torch.stack([states[layer] for layer in LAYERS], 2)
    counts = rows.word_counts[part]
    total = int(counts.sum())
    first_B1 = torch.from_numpy(np.cumsum(counts) - counts).to(device)[:, None]
    word_BL = places[at_BL].long()
    slot_BL = torch.where(real_BL & (word_BL >= 0), first_B1 + word_BL, total)
    sums = torch.zeros(total + 1, *states_BTLD.shape[2:], device=device)
    sums.index_add_(0, slot_BL.flatten(), states_BTLD.flatten(0, 1).float())
    number = torch.bincount(slot_BL.flatten(), minlength=total + 1).clamp(min=1)
    weights_BL1 = real_BL[..., None].float()
    vector_BD = (states[-1].float() * weights_BL1).sum(1) / weights_BL1.sum(1)
    return (sums / number[:, None, None])[:total], F.normalize(vector_BD, dim=-1), total
