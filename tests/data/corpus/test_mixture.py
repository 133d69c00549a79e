"""The mixture of languages: q of eq. 11.7, a sampler that follows it to a sentence, sequences of one language."""

from __future__ import annotations

import shutil
from collections import Counter
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from larvatus.core.checksummed import read_checksummed, write_checksummed
from larvatus.core.errors import DataError, RecipeError
from larvatus.data.corpus.build import BuildOptions, build_corpus
from larvatus.data.corpus.loader import Loader, LoaderOptions
from larvatus.data.corpus.mixture import ChunkPart, MixtureConfig, epoch_tokens, language_rows, mixture
from larvatus.data.corpus.packing import FullSentencesConfig, SentencePairsConfig
from larvatus.data.corpus.store import Corpus
from larvatus.data.text.readers import Document
from larvatus.data.text.tokenizer import Tokenizer
from tests.data.corpus.made_up import hide, made_up_text
from tests.data.corpus.test_loader import same

XLM_R = MixtureConfig(alpha=0.3)
DOCUMENTS = {"en": 300, "sw": 40, "ee": 6}
LETTER = {"en": "abcdefgh", "sw": "jklmnopq", "ee": "stuvwxyz"}  # no token is of two languages


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Loader, "block_tokens", 3000)


def documents() -> list[Document]:
    """Three languages, mixed; sentences of one letter a word."""
    random = np.random.default_rng(0)
    found = []
    for language, count in DOCUMENTS.items():
        for number in range(count):
            lines = [" ".join(random.choice(list(LETTER[language]), random.integers(1, 15))) for _ in range(5)]
            found.append(Document("\n".join(lines), "made up", number, language))
    return [found[i] for i in random.permutation(len(found))]


@pytest.fixture(scope="module")
def languages(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    out = tmp_path_factory.mktemp("languages") / "corpus"
    options = BuildOptions(workers=1, unit_characters=4000, shard_bytes=40_000, sentences="newline")
    build_corpus(documents(), tokenizer, out, options)
    return Corpus.open(out)


def loader(corpus: Corpus, mixture: MixtureConfig = XLM_R, **changes: Any) -> Loader:
    given = {"length": 48, "corruption": hide, "tokens": 1024, "seed": 3, "workers": 0} | changes
    reading = LoaderOptions(
        mixture=mixture, **{name: given.pop(name) for name in ("purpose", "language") if name in given}
    )
    return Loader(corpus, packing=given.pop("packing", FullSentencesConfig()), reading=reading, **given)


def plans(corpus: Corpus, mixture: MixtureConfig, epochs: int) -> list[list[list[ChunkPart]]]:
    maker = loader(corpus, mixture)._maker
    return [maker.plan(corpus, epoch) for epoch in range(epochs)]


# — eq. 11.7 —


@given(
    st.dictionaries(st.text("abc", min_size=1), st.integers(1, 10**9), min_size=1, max_size=8),
    st.floats(0, 1),
)
def test_q_is_equation_11_7(sentences: dict[str, int], alpha: float) -> None:
    total = 0
    for n in sentences.values():
        total += n
    below = 0.0
    for n in sentences.values():
        below += (n / total) ** alpha
    q = mixture(sentences, alpha)
    for name, n in sentences.items():
        assert q[name] == pytest.approx((n / total) ** alpha / below, rel=1e-12)
    assert sum(q.values()) == pytest.approx(1)
    repeats = MixtureConfig(alpha=alpha).repeats(sentences)
    assert sum(repeats[name] * n for name, n in sentences.items()) == pytest.approx(total)  # an epoch stays as large


def test_the_chapters_example_one_percent_becomes_twenty() -> None:
    assert mixture({"high": 99, "low": 1}, 0.3)["low"] == pytest.approx(0.20, abs=0.005)
    assert mixture({"high": 99, "low": 1}, 1.0) == {"high": 0.99, "low": 0.01}
    assert mixture({"high": 99, "low": 1, "none": 0}, 0.0) == {"high": 0.5, "low": 0.5}


@pytest.mark.parametrize("alpha", [-0.1, 1.1, 30, float("nan")])
def test_an_alpha_outside_0_and_1_is_refused(alpha: float) -> None:
    with pytest.raises(RecipeError, match=r"mixture.alpha = .* must lie between 0 and 1"):
        MixtureConfig(alpha=alpha)


# — the sampler —


def test_chunks_are_of_one_language_and_nothing_is_lost(languages: Corpus) -> None:
    assert {name: counts.documents for name, counts in languages.manifest.languages.items()} == DOCUMENTS
    assert languages.languages == ("ee", "en", "sw")
    found: Counter[str] = Counter()
    for number, chunk in enumerate(languages.chunks):
        assert set(languages.batch(number).column("language").to_pylist()) == {chunk.language}
        found[chunk.language] += len(languages.block([number]).sentences) - 1
    assert found == {name: 5 * count for name, count in DOCUMENTS.items()}
    texts = Counter(languages.tokenizer.decode(languages.tokenizer.encode(d.text).ids.tolist()) for d in documents())
    whole = languages.block(range(len(languages.chunks)))
    ends = zip(whole.documents[:-1].tolist(), whole.documents[1:].tolist(), strict=True)
    assert Counter(languages.tokenizer.decode(whole.ids[a:b].tolist()) for a, b in ends) == texts


@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.7])
def test_a_million_drawn_sentences_follow_q(languages: Corpus, alpha: float) -> None:
    """Counted from the plans of the loader; systematic draws lie nearer to q than independent ones would."""
    config = MixtureConfig(alpha=alpha)
    starts = [languages.block([k]).sentences[:-1] for k in range(len(languages.chunks))]
    wanted = mixture({name: 5 * count for name, count in DOCUMENTS.items()}, alpha)
    drawn: Counter[str] = Counter()
    maker, epoch = loader(languages, config)._maker, 0
    while drawn.total() < 1_000_000:
        for block in maker.plan(languages, epoch):
            for part in block:
                a, b = np.searchsorted(starts[part.chunk], (part.first, part.last))
                drawn[languages.chunks[part.chunk].language] += int(b - a)
        epoch += 1
    expected = {name: q * drawn.total() for name, q in wanted.items()}
    for name in wanted:
        assert drawn[name] == pytest.approx(expected[name], rel=1e-3)
    assert stats.chisquare([drawn[n] for n in wanted], list(expected.values())).pvalue > 0.9
    assert epoch == pytest.approx(1_000_000 / languages.sentences, rel=0.01)  # an epoch is as large as the corpus


def test_every_block_has_the_mixture(languages: Corpus) -> None:
    tokens = epoch_tokens(languages.manifest.languages, XLM_R)
    (plan,) = plans(languages, XLM_R, 1)
    assert len(plan) == round(sum(tokens.values()) / 3000) > 2
    for block in plan:
        taken: Counter[str] = Counter()
        for part in block:
            taken[languages.chunks[part.chunk].language] += part.last - part.first
        assert taken == pytest.approx({name: n / len(plan) for name, n in tokens.items()}, abs=1)


def test_no_text_of_a_language_comes_again_before_all_of_it_has_come(languages: Corpus) -> None:
    seen = [np.zeros(chunk.tokens, np.int64) for chunk in languages.chunks]
    for plan in plans(languages, XLM_R, 4):
        for part in (part for block in plan for part in block):
            seen[part.chunk][part.first : part.last] += 1
        for language in DOCUMENTS:
            counts = [seen[k] for k, chunk in enumerate(languages.chunks) if chunk.language == language]
            assert np.ptp(np.concatenate(counts)) <= 1
    orders = [[part.chunk for block in plan for part in block] for plan in plans(languages, XLM_R, 2)]
    assert orders[0] != orders[1]


@given(st.data())
@settings(max_examples=60)
def test_stretches_of_a_chunk_are_its_sentences_each_once(languages: Corpus, data: st.DataObject) -> None:
    chunk = data.draw(st.integers(0, len(languages.chunks) - 1))
    tokens = languages.chunks[chunk].tokens
    cuts = sorted({0, tokens, *data.draw(st.lists(st.integers(0, tokens), max_size=6))})
    whole = languages.block([chunk])
    parts = [languages.parts([ChunkPart(chunk, a, b)]) for a, b in pairwise(cuts)]
    assert np.concatenate([part.ids for part in parts]).tolist() == whole.ids.tolist()
    assert np.concatenate([part.words for part in parts]).tolist() == whole.words.tolist()
    sizes = np.concatenate([np.diff(part.sentences) for part in parts])
    assert sizes.tolist() == np.diff(whole.sentences).tolist()
    owners = [np.repeat(part.numbers, np.diff(part.documents)) for part in parts]
    assert np.concatenate(owners).tolist() == np.repeat(whole.numbers, np.diff(whole.documents)).tolist()
    joined = languages.parts([ChunkPart(chunk, a, b) for a, b in pairwise(cuts)])
    assert joined.ids.tolist() == whole.ids.tolist()
    assert joined.sentences.tolist() == whole.sentences.tolist()


# — the loader —


def language_of(corpus: Corpus) -> dict[int, str]:
    return {corpus.tokenizer.id(letter): name for name, letters in LETTER.items() for letter in letters}


@pytest.mark.parametrize("alpha", [0.3, 1.0])
def test_no_sequence_crosses_a_language(languages: Corpus, alpha: float) -> None:
    known = language_of(languages)
    seen: Counter[str] = Counter()
    several = 0
    for batch, cursor in loader(languages, MixtureConfig(alpha=alpha), corruption=None).steps():
        for row in np.split(batch.tokens.ids, np.cumsum(batch.tokens.lengths)[:-1]):
            (name,) = {known[i] for i in row.tolist() if i in known}
            seen[name] += len(row)
            several += (row == languages.tokenizer.sep_id).sum() > 1
        if cursor.epoch == 2:
            break
    assert set(seen) == set(DOCUMENTS)
    assert several > 20  # documents of one language do meet


def test_the_second_of_a_pair_is_of_the_same_language(languages: Corpus) -> None:
    known = language_of(languages)
    rows = 0
    for batch, cursor in loader(languages, packing=SentencePairsConfig(), corruption=None).steps():
        for row in np.split(batch.tokens.ids, np.cumsum(batch.tokens.lengths)[:-1]):
            assert len({known[i] for i in row.tolist() if i in known}) == 1
            rows += 1
        if cursor.epoch:
            break
    assert rows > 50


def test_workers_and_resumes_change_nothing(languages: Corpus) -> None:
    steps = list(islice(loader(languages).steps(), 40))
    assert steps[-1][1].epoch >= 1
    for (batch, cursor), (other, after) in zip(steps, islice(loader(languages, workers=2).steps(), 40), strict=True):
        assert same(batch, other)
        assert cursor == after
    for at in range(0, 39, 5):
        batch, after = next(loader(languages).steps(steps[at][1]))
        assert same(batch, steps[at + 1][0])
        assert after == steps[at + 1][1]


def test_copies_of_a_small_language_get_masks_of_their_own(languages: Corpus) -> None:
    """Its few sentences come many times in an epoch, never twice with the same two or more tokens hidden."""
    ids = {languages.tokenizer.id(letter) for letter in LETTER["ee"]}
    rows: Counter[tuple[int, ...]] = Counter()
    for batch, cursor in loader(languages, MixtureConfig(alpha=0.0), length=40).steps():
        for row in np.split(batch.tokens.ids, np.cumsum(batch.tokens.lengths)[:-1]):
            if ids & set(row.tolist()) and (row == languages.tokenizer.mask_id).sum() >= 2:
                rows[tuple(row.tolist())] += 1
        if cursor.epoch:
            break
    assert rows.total() > 15
    assert max(rows.values()) == 1


def test_one_language_gives_the_batches_it_always_gave(corpus: Corpus) -> None:
    for alpha in (0.0, 0.3):
        mixed = islice(loader(corpus, MixtureConfig(alpha=alpha)).steps(), 30)
        plain = islice(loader(corpus, MixtureConfig()).steps(), 30)
        assert all(same(a, b) and at == then for (a, at), (b, then) in zip(mixed, plain, strict=True))


def test_at_alpha_1_an_epoch_reads_each_chunk_once(languages: Corpus) -> None:
    (plan,) = plans(languages, MixtureConfig(), 1)
    parts = [part for block in plan for part in block]
    assert sorted(parts) == [ChunkPart(k, 0, chunk.tokens) for k, chunk in enumerate(languages.chunks)]


def test_one_language_of_several_is_read_alone(languages: Corpus) -> None:
    known = language_of(languages)
    alone = loader(languages, MixtureConfig(), corruption=None, purpose="valid", language="sw")
    ids = np.concatenate([batch.tokens.ids for batch in alone.evaluation()])
    assert {known[i] for i in ids.tolist() if i in known} == {"sw"}
    assert len([i for i in ids.tolist() if i in known]) == languages.manifest.languages["sw"].tokens
    with pytest.raises(DataError, match="no text in 'de'; it has ee, en, sw"):
        loader(languages, language="de")


# — corpora from before —


def old(corpus: Corpus, out: Path) -> Corpus:
    shutil.copytree(corpus.path, out)
    manifest = read_checksummed(out / "manifest.json", way="")
    for shard in manifest["shards"]:
        for chunk in shard["chunks"]:
            del chunk["language"]
    write_checksummed(out / "manifest.json", manifest)
    return Corpus.open(out)


def test_an_old_corpus_opens_and_only_its_mixture_is_refused(languages: Corpus, corpus: Corpus, tmp_path: Path) -> None:
    one, several = old(corpus, tmp_path / "one"), old(languages, tmp_path / "several")
    assert same(next(loader(one).steps())[0], next(loader(corpus).steps())[0])
    assert same(next(loader(one, language="en").steps())[0], next(loader(corpus).steps())[0])
    assert same(next(loader(several, MixtureConfig()).steps())[0], next(loader(languages, MixtureConfig()).steps())[0])
    assert (one.languages, several.languages) == (("en",), ())
    for changes in ({}, {"mixture": MixtureConfig(), "language": "sw"}):
        with pytest.raises(DataError, match="did not keep languages apart; rebuild with"):
            loader(several, **changes)


@pytest.mark.parametrize("language", ["de", "en"])
def test_chunks_that_say_another_language_than_the_manifest_are_refused(
    languages: Corpus, tmp_path: Path, language: str
) -> None:
    shutil.copytree(languages.path, tmp_path / "copy")
    manifest = read_checksummed(tmp_path / "copy" / "manifest.json", way="")
    chunks = [chunk for shard in manifest["shards"] for chunk in shard["chunks"]]
    next(chunk for chunk in chunks if chunk["language"] == "sw")["language"] = language
    write_checksummed(tmp_path / "copy" / "manifest.json", manifest)
    with pytest.raises(DataError, match="languages of its chunks are not those of the manifest"):
        Corpus.open(tmp_path / "copy")


def test_a_document_cut_over_units_is_counted_once_among_languages(tokenizer: Tokenizer, tmp_path: Path) -> None:
    text = made_up_text(300).replace("\n\n", " ")  # some units long
    given = [Document(text, "x", n, language) for n, language in enumerate(("sw", "en", "sw", "ee"))]
    for workers in (1, 2):
        options = BuildOptions(workers=workers, unit_characters=4000, shard_bytes=40_000)
        summary = build_corpus(given, tokenizer, tmp_path / str(workers), options)
        assert {name: counts.documents for name, counts in summary.languages.items()} == {"ee": 1, "en": 1, "sw": 2}
        assert summary.skipped == {}
    one, two = (Corpus.open(tmp_path / name) for name in ("1", "2"))
    assert one.fingerprint == two.fingerprint


def test_rows_of_the_report(languages: Corpus) -> None:
    rows = language_rows(languages.manifest.languages, 0.3)
    assert [row.language for row in rows] == ["en", "sw", "ee"]
    assert [row.q for row in rows] == list(mixture({n: 5 * c for n, c in DOCUMENTS.items()}, 0.3).values())
    assert all(row.fertility == 1 for row in rows)  # one letter a word
