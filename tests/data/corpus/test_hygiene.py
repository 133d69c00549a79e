"""Corpus hygiene: what is noticed, held against naive computations and the libraries; what a filtered build holds."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import larvatus as lv
from larvatus.core import rng
from larvatus.core.errors import ArtefactError, DataError, LarvatusError, UsageError
from larvatus.data.bulk.executor import LocalExecutor
from larvatus.data.corpus.build import BuildOptions, build_corpus
from larvatus.data.corpus.canaries import draw_canaries, read_canaries
from larvatus.data.corpus.hygiene import first_pass
from larvatus.data.corpus.hygiene.filtering import Hygiene
from larvatus.data.corpus.hygiene.overlap import MinHashScheme, exact_repeats, near_repeats
from larvatus.data.corpus.hygiene.settings import HygieneSettings
from larvatus.data.corpus.hygiene.shingles import CHANCE, WORDS, ShingleCharacters, Sketch, hashed_words, n_grams
from larvatus.data.corpus.store import Corpus
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.training.pretraining.saving import build_datasheet
from tests.data.corpus.made_up import SMALL
from tests.data.corpus.test_build import contents
from tests.data.corpus.test_personal import PERSONAL

HERE = replace(SMALL, executor=LocalExecutor())


ENGLISH = [
    "the",
    "water",
    "of",
    "this",
    "river",
    "and",
    "those",
    "who",
    "live",
    "with",
    "it",
    "have",
    "never",
    "been",
    "so",
]


def words_of(seed: int, count: int) -> list[str]:
    """English words, every other one followed by a number, so that no two documents have much in common."""
    numbers = rng.stream(seed, "hygiene").integers(2_000, size=count).tolist()
    return [ENGLISH[number % 14] if at % 2 else f"{number}" for at, number in enumerate(numbers)]


def edited(words: list[str], share: float) -> list[str]:
    random = rng.stream(7, "edits", item=len(words))
    return [f"x{n}" if random.random() < share else word for n, word in enumerate(words)]


@pytest.fixture(scope="module")
def documents() -> list[str]:
    """60 that have nothing in common; then a copy, two edited copies, one in German, one with an address, two short."""
    plain = [" ".join(words_of(seed, 120)) + "." for seed in range(60)]
    near = [" ".join(edited(words_of(seed, 120), share)) for seed, share in ((5, 0.02), (6, 0.05))]
    german = "Der Bach fließt durch das Tal, und die Vögel singen am Morgen in den Bäumen, wie sie es immer taten."
    address = f"Please write to {PERSONAL['email']} if the parcel has not come by Monday of next week, or call us."
    return [*plain, plain[3], *near, german, address, "too short", "— ¶ § † ‡ • ◊ ¤ ° ± × ÷ ¬ ¦ a b c d e"]


@pytest.fixture(scope="module")
def text(documents: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hygiene") / "text.txt"
    path.write_text("\n\n".join(documents), encoding="utf-8")
    return path


# --- words, signatures, duplicates ---------------------------------------------------------------------------------


@settings(max_examples=40)
@given(st.lists(st.text("abAB é1,._語言\n", max_size=30), max_size=6), st.integers(1, 4))
def test_hashed_words_and_n_grams_equal_those_of_a_loop(texts: list[str], n: int) -> None:
    naive = [re.findall(r"[語言]|[^\W_語言]+", text.lower()) for text in texts]
    words = hashed_words(ShingleCharacters.of(texts))
    assert words.counts.tolist() == [len(each) for each in naive]
    flat = [word for each in naive for word in each]
    assert len(set(zip(flat, words.hashes.tolist(), strict=True))) == len(set(flat)) == len(set(words.hashes.tolist()))
    runs = [tuple(each[at : at + n]) for each in naive for at in range(len(each) - n + 1)]
    grams, counts = n_grams(words, n)
    assert counts.tolist() == [max(0, len(each) - n + 1) for each in naive]
    assert len(set(zip(runs, grams.tolist(), strict=True))) == len(set(runs)) == len(set(grams.tolist()))


def test_signatures_and_near_duplicates_are_those_of_datasketch(documents: list[str]) -> None:
    from datasketch import MinHash, MinHashLSH

    scheme = MinHashScheme.of(threshold=0.25, permutations=128)
    grams, counts = n_grams(hashed_words(ShingleCharacters.of(documents)), 3)
    signatures = scheme.signatures(grams, counts)
    index = MinHashLSH(num_perm=128, params=(scheme.bands, scheme.rows))
    theirs: dict[int, Any] = {}
    meet: dict[int, list[int]] = {}
    for number, part in enumerate(np.split(grams, np.cumsum(counts)[:-1])):
        theirs[number] = MinHash(num_perm=128, seed=1, hashfunc=int, scheme="affine32")
        theirs[number].update_batch((part >> np.uint64(32)).tolist())
        assert np.array_equal(signatures[number], theirs[number].hashvalues)
        if len(part):
            near = index.query(theirs[number])
            meet[number] = [each for each in near if theirs[each].jaccard(theirs[number]) >= 0.25]
            index.insert(number, theirs[number])
    ours = near_repeats(InMemory(signatures), scheme, np.ones(len(documents), bool))
    assert {number: first for number, first in enumerate(ours.tolist()) if first >= 0} == {
        number: min(others) for number, others in meet.items() if others
    }
    assert (ours >= 0).sum() == 3


class InMemory:
    def __init__(self, signatures: Any) -> None:
        self.all = signatures

    def __len__(self) -> int:
        return len(self.all)

    def blocks(self) -> Any:
        yield from np.array_split(self.all, 3)

    def rows(self, numbers: Any) -> Any:
        return self.all[numbers]


def test_an_exact_repeat_names_the_first_and_a_chain_is_not_cut_to_its_head() -> None:
    digests = np.array([[1, 2], [3, 4], [1, 2], [1, 5], [1, 2]], np.uint64)
    assert exact_repeats(digests).tolist() == [-1, -1, 0, -1, 0]
    chain = np.tile(np.arange(128, dtype=np.uint32), (3, 1))  # 0 ~ 1 ~ 2, but not 0 ~ 2
    chain[1, :70], chain[2, :70], chain[2, 70:] = 1_000, 1_000, 2_000
    scheme = MinHashScheme.of(threshold=0.4, permutations=128)
    assert near_repeats(InMemory(chain), scheme, np.ones(3, bool)).tolist() == [-1, 0, -1]


# --- checks and builds ---------------------------------------------------------------------------------------------


def test_a_check_counts_what_was_planted_and_shows_it_as_text(text: Path, documents: list[str], tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("parcel\nMonday\n")
    rows = [{"q": " ".join(words_of(9, 120)[20:40]), "id": 7}, {"q": "nobody wrote this " * 5}, {"q": "few words"}]
    (tmp_path / "test.jsonl").write_text("\n".join(map(json.dumps, rows)))
    hostile = tmp_path / "more.txt"
    hostile.write_text("</script><img src=x onerror=alert(1)> " + "and a parcel " * 9)
    page = tmp_path / "page.html"
    check = lv.check_corpus(
        [text, hostile],
        out=page,
        workers=1,
        against=[str(tmp_path / "test.jsonl")],
        word_list=tmp_path / "list.txt",
        filter=["exact", "near"],
    )
    counted = {name: reason.documents for name, reason in check.reasons.items()}
    assert counted == {
        **{"exact": 1, "near": 2, "overlap": 1, "language": 1},
        **{"words": 2, "length": 1, "characters": 1, "encoding": 0},
    }
    assert check.near["0.5"] == 2
    assert check.left_out == 3
    assert (check.personal["email"].places, check.personal["phone"].places) == (1, 0)
    assert PERSONAL["email"] not in json.dumps(check.to_dict())
    (shared,) = check.sets
    assert (shared.examples, shared.judged, shared.shared, shared.mostly) == (3, 2, 1, 1)
    example = check.reasons["exact"].examples[0]
    assert (example.place, example.repeats) == (f"{text}:121", f"{text}:7")
    assert "<img" not in page.read_text()
    assert "onerror=alert" in page.read_text()


def stays(documents: list[str]) -> list[str]:
    """By hand: without the copy, the edited ones and what is too short, and without the address."""
    chosen = [each for number, each in enumerate(documents) if number not in (60, 61, 62, 65)]
    return [each.replace(PERSONAL["email"], "<email>") for each in chosen]


FILTERED = Hygiene(HygieneSettings(filter=("exact,near", "length"), personal="tag", sketch=True))


def test_a_filtered_build_holds_what_a_build_of_the_rest_holds(
    text: Path, documents: list[str], tokenizer: Tokenizer, tmp_path: Path
) -> None:
    rest = tmp_path / "rest.txt"
    rest.write_text("\n\n".join(stays(documents)))
    ours = build_corpus([text], tokenizer, tmp_path / "ours", replace(HERE, hygiene=FILTERED))
    build_corpus([rest], tokenizer, tmp_path / "theirs", HERE)
    assert ours.skipped == {"exact duplicates": 1, "near duplicates": 2, "too short or too long": 1}
    mine, other = (Corpus.open(tmp_path / name) for name in ("ours", "theirs"))
    both = [corpus.block(range(len(corpus.chunks))) for corpus in (mine, other)]
    assert np.array_equal(both[0].ids, both[1].ids)
    assert mine.manifest.hygiene["personal"] == {"handling": "tag", "counts": {"email": 1}}  # type: ignore[index]
    sheet = build_datasheet(mine)
    assert sheet.skipped == 0  # what was left out on purpose could be read
    assert list(sheet.treatment) == [
        (
            "left out of 67 documents: exact 1, length 1, near 2 (filter exact, near, length; near 0.25; shingle 3; "
            "least_words 5)"
        ),
        "personal data, replaced by tags: email 1",
    ]
    again = build_corpus([text], tokenizer, tmp_path / "ours", replace(HERE, hygiene=FILTERED))
    assert again.unchanged
    otherwise = replace(HERE, hygiene=Hygiene(HygieneSettings(filter=("near",))))
    with pytest.raises(ArtefactError, match="filtered otherwise"):
        build_corpus([text], tokenizer, tmp_path / "ours", otherwise)
    with pytest.raises(ArtefactError, match="other filters or canaries"):
        build_corpus([text], tokenizer, tmp_path / "ours", HERE)
    with pytest.raises(ArtefactError, match="no filters or canaries"):
        build_corpus([rest], tokenizer, tmp_path / "theirs", otherwise)
    (inside, outside) = ([" ".join(words_of(9, 120)[30:60])], ["never seen " * 20])
    for name, lines in (("in.txt", inside), ("out.txt", outside)):
        (tmp_path / name).write_text("\n".join(lines))
    told = lv.contamination(tmp_path / "ours", [tmp_path / "in.txt", tmp_path / "out.txt"])
    assert [each.share for each in told] == [1.0, 0.0]


class Killed(Exception):
    pass


def test_a_build_stopped_in_either_pass_goes_on_and_ends_with_the_same_bytes(
    text: Path, tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_pass, "PART_BLOCKS", 2)
    canaries = draw_canaries(4, repeats=(1, 3), seed=3)
    hygiene = replace(FILTERED, canaries=canaries)
    small = replace(HERE, shard_bytes=10_000, hygiene=hygiene)
    build_corpus([text], tokenizer, tmp_path / "unbroken", small)

    def after(count: int) -> Callable[..., None]:
        left = iter(range(count))

        def call(*_: object) -> None:
            if next(left, None) is None:
                raise Killed

        return call

    measured: list[int] = []
    out = tmp_path / "broken"
    for options in (replace(small, checked=after(4)), replace(small, progress=after(5))):
        with pytest.raises(Killed):
            build_corpus([text], tokenizer, out, options)
        measured.append(len(list(out.glob("filter.parts/*.npy"))))
    assert measured == [2, 0], "it was stopped within the first pass, then within the second"
    assert not (out / "canaries.json").exists()
    summary = build_corpus([text], tokenizer, out, small)
    assert summary.resumed > 0
    assert contents(out) == contents(tmp_path / "unbroken")
    written = read_canaries(out)
    assert written == canaries

    changed = tmp_path / "changed.txt"
    changed.write_text(text.read_text() + "\n\nOne document more than there was, of many words.")
    begun = tmp_path / "begun"
    with pytest.raises(Killed):
        build_corpus([changed], tokenizer, begun, replace(small, progress=after(1)))
    changed.write_text(text.read_text())
    with pytest.raises(ArtefactError, match="other text"):
        build_corpus([changed], tokenizer, begun, small)


def test_canaries_are_planted_as_often_as_they_say(text: Path, tokenizer: Tokenizer, tmp_path: Path) -> None:
    out = tmp_path / "corpus"
    lv.build_corpus(
        text, tokenizer=tokenizer, out=out, workers=1, canaries=5, canary_repeats=(0, 1, 4), canary_digits=4
    )
    canaries = read_canaries(out)
    assert (canaries.space, canaries.planted, len(canaries.canaries)) == (10_000, 6, 5)
    corpus = Corpus.open(out)
    block = corpus.block(range(len(corpus.chunks)))
    whole = " ".join(map(str, block.ids.tolist()))
    for canary in canaries.canaries:
        ids = " ".join(str(int(number)) for number in tokenizer.encode(canary.text).ids)
        assert whole.count(ids) == canary.repeats
        assert canaries.text_of(canary.name, int(canary.secret)) == canary.text
    assert draw_canaries(5, repeats=(0, 1, 4), digits=4) == canaries


def test_a_sketch_forgets_nothing_and_seldom_errs(tmp_path: Path) -> None:
    texts = [" ".join(words_of(seed, 300)) for seed in range(20)]
    grams, _ = n_grams(hashed_words(ShingleCharacters.of(texts)), WORDS)
    sketch = Sketch.begin(tmp_path / "sketch", len(grams))
    sketch.add(texts)
    sketch.finish()
    opened = Sketch.open(tmp_path / "sketch")
    assert opened.holds(grams).all()
    other, counts = n_grams(hashed_words(ShingleCharacters.of([" ".join(words_of(99, 20_000))])), WORDS)
    assert abs(opened.holds(other).mean() - CHANCE) < 0.005
    assert opened.holds_runs(other, counts, 13)[0].sum() == 0


BAD = [
    ({"filter": ["nearly"]}, UsageError, "--filter nearly is no reason; did you mean near?"),
    ({"filter": ["overlap"]}, UsageError, "name it with --against FILE"),
    ({"filter": ["words"]}, UsageError, "name it with --word-list FILE"),
    ({"against": ["none.jsonl"]}, DataError, "none.jsonl"),
    ({"against": ["short.txt"]}, DataError, "no text of it has 13 words"),
    ({"against": ["empty.jsonl"]}, DataError, "is empty"),
    ({"word_list": "empty.jsonl"}, DataError, "holds no words"),
    ({"near": 0.0}, UsageError, "near = 0.0"),
    ({"region": ["UK"]}, UsageError, "--region UK is no country code"),
]


@pytest.mark.parametrize(("asked", "error", "said"), BAD)
def test_bad_settings_are_one_line(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: Any, error: type[LarvatusError], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("short.txt").write_text("a few words\n")
    Path("empty.jsonl").write_text("")
    with pytest.raises(error, match=re.escape(said)) as caught:
        lv.check_corpus(text, workers=1, **asked)
    assert "\n" not in str(caught.value)


def test_a_corpus_without_canaries_or_sketch_says_how_to_have_them(corpus: Corpus, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"holds no canaries .* --canaries 20"):
        read_canaries(corpus.path)
    with pytest.raises(DataError, match=r"has no sketch .* --sketch"):
        lv.contamination(corpus.path, "x.jsonl")
    with pytest.raises(UsageError, match="ask for 8 or more, not 5"):
        lv.contamination(corpus.path, "x.jsonl", words=5)
    with pytest.raises(UsageError, match=r"no \{name\} or no \{digits\}"):
        draw_canaries(1, format="A secret: {digits}")
    (tmp_path / "canaries.json").write_text('{"format": "x", "space": 10, "canaries": [], "seed": 0}')
    with pytest.raises(DataError, match="names no canaries"):
        read_canaries(tmp_path)
    assert BuildOptions().hygiene.asked is False
