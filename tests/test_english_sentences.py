"""The texts and batches of the English model's sentence adapter (packages/english_sentence*.py)."""

from __future__ import annotations

import json
import lzma
import random
import re
import runpy
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

import larvatus as lv

PACKAGES = Path(__file__).parents[1] / "packages"
READ = runpy.run_path(str(PACKAGES / "english_sentence_texts.py"))
MADE = runpy.run_path(str(PACKAGES / "english_sentences.py"))


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with lzma.open(path, "wt", encoding="utf-8") as file:
        file.write(text)


def test_groups_hold_what_belongs_together(tmp_path: Path) -> None:
    article = "Lake Tana is a lake of Ethiopia. It is the source of the Blue Nile. Its fish are eaten in the town. " * 3
    for number in (1, 2):
        write(tmp_path / f"text/en_wiki.{number}.txt.xz", f"{article}\nGeography\n\nShort.\n")
    for name in READ["TALK"]:
        write(tmp_path / name, "A: Good morning, what can I do for you?\nB: I would like to book a table.\n")
    write(tmp_path / "pairs/acl_title_abstract.tsv.xz", "Parsing trees\t" + "We parse trees with an encoder. " * 4)
    write(tmp_path / "pairs/medquad.tsv.xz", "What is flu?\t" + "Flu is an infection of the nose and the lungs. " * 3)
    write(tmp_path / "pairs/wikisplit.tsv.xz", "He sat , and he ate .\tHe sat . <::::> He ate .")
    squad = {"data": [{"paragraphs": [{"context": "The cat sat on the mat.", "qas": [{"question": "Who sat?"}]}]}]}
    for name in ("nyt", "reddit"):
        write(tmp_path / f"qa/squad_shifts/{name}_v1.0.json.xz", json.dumps(squad))
    groups = list(READ["groups"](tmp_path, 1))
    assert groups == list(READ["groups"](tmp_path, 1))
    first = groups[0]
    assert first[0] == "Lake Tana"
    assert "It is the source of the Blue Nile." in first
    assert ["He sat, and he ate.", "He sat.", "He ate."] in [group[:3] for group in groups]
    assert any(group[:2] == ["Who sat?", "The cat sat on the mat."] for group in groups)
    assert len(groups) > 38_000


def test_scenes_of_a_group_share_words() -> None:
    scenes = READ["Scenes"](PACKAGES / "english_scenes.toml", random.Random(2))
    for group in (scenes.scene_group() for _ in range(50)):
        words = [set(text.lower().rstrip(".").split()) for text in group]
        assert all(words[0] & other for other in words[1:]), group


def test_requests_are_filled_in_and_those_of_a_group_share_a_thing_or_an_aim() -> None:
    requests = READ["Requests"](PACKAGES / "english_requests.toml", random.Random(2))
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
    texts = MADE["Texts"](ids, np.cumsum(sizes) - sizes, sizes, np.arange(len(sizes)) // 3, 700, 24)
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
    cosine, divergence = MADE["loss"](s, t)
    total = 0.0
    for i in range(6):
        others = [j for j in range(6) if j != i]
        p, q = (torch.softmax(torch.stack([v[i] @ v[j] for j in others]) / 0.05, 0) for v in (t, s))
        total += float((p * (p / q).log()).sum()) / 6
    assert float(divergence) == pytest.approx(total, rel=1e-9)
    assert float(cosine) == pytest.approx(1 - float((s * t).sum()) / 6, rel=1e-12)


@pytest.mark.proof
def test_a_few_steps_come_nearer_to_the_teacher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few steps on a CPU: vectors come nearer to those of the teacher, which is the model with its own adapter."""
    words = re.findall(r"\w+", "the river bank was wide and the water deep so that nobody could swim in it")
    generator = random.Random(0)
    groups = [[" ".join(generator.sample(words, 6)) for _ in range(4)] for _ in range(60)]
    write(tmp_path / "groups.xz", "".join(json.dumps(group) + "\n" for group in groups))
    english = str(Path(lv.load().bundle.path))
    said: list[str] = []
    monkeypatch.setitem(MADE["main"].__globals__, "print", lambda *words, **_: said.append(" ".join(words)))
    given = ["x", str(tmp_path / "groups.xz"), "--teacher", english, "--out", str(tmp_path / "a.safetensors")]
    monkeypatch.setattr("sys.argv", [*given, "--steps", "12", "--rate", "0.1", "--tokens", "640", "--clusters", "2"])
    forward = MADE["LoRALinear"].forward
    try:
        MADE["main"]()
    finally:
        MADE["LoRALinear"].forward = forward
    tensors = MADE["read_tensors"](tmp_path / "a.safetensors")
    first, last = (float(line.split("KL ")[1]) for line in (said[0], said[-1]))
    assert last < 0.8 * first
    assert tensors["dense.weight"].shape == (512, 512)
    assert any(float(tensor.abs().max()) > 0 for name, tensor in tensors.items() if name.endswith(".b"))
