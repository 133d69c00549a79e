"""Held-out text, from files to shards: not in the vocabulary, not counted, not next to training text, and always there.

Documents are made up. Every sentence has a number of its own (``n0417``), which is read back from the decoded shards.
"""

import io
import random
import re

import pytest
from rich.console import Console

from larvatus.core.errors import ArtefactError
from larvatus.data.corpus import Corpus
from larvatus.data.text.languages import LanguagePath
from larvatus.data.text.readers import ReadOptions
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.models.recipes import read_recipe
from larvatus.training.engine.reporter import Reporter
from larvatus.training.engine.settings import Budget
from larvatus.training.pretraining import prepare as preparation
from larvatus.training.pretraining.job import PretrainingJob
from larvatus.training.pretraining.prepare import TextOptions, held_out_documents, prepare
from larvatus.training.pretraining.run import train
from tests.shared import SMALL

FILES = TextOptions(reading=ReadOptions(split="file"))
WORDS = (
    "the",
    "river",
    "under",
    "stone",
    "bridge",
    "carried",
    "old",
    "boats",
    "and",
    "grain",
    "to",
    "market",
    "autumn",
)
LENGTH = 48  # of the longest sequence of SMALL
GAP = LENGTH * 8


def sentences(count, *, first=0, words=WORDS, seed=0):
    draw = random.Random(seed)
    return [
        f"The n{number:04d} {' '.join(draw.choices(words, k=draw.randint(4, 12)))}."
        for number in range(first, first + count)
    ]


def recipe(size=120, name="bert", *more):
    return read_recipe(name, settings=[*SMALL, f"tokenizer.size={size}", *more])


def built(folder, corpus, *, options=FILES, valid=None, chosen=None):
    """Prepare the text; what was said, and the shards."""
    console = Console(record=True, file=io.StringIO(), width=300)
    prepared = prepare(
        chosen or recipe(),
        [str(path) if not isinstance(path, LanguagePath) else path for path in corpus],
        out=folder,
        valid=valid,
        options=options,
        reporter=Reporter(console),
    )
    return console.export_text(), prepared


def numbers(shards):
    """The numbers of the sentences that stand in the shards, language by language, in order."""
    corpus, found = Corpus.open(shards), {}
    for number, chunk in enumerate(corpus.chunks):
        text = corpus.tokenizer.library.decode(corpus.block([number]).ids.tolist(), skip_special_tokens=False)
        found.setdefault(chunk.language, []).extend(int(digits) for digits in re.findall(r"n(\d{4})", text))
    return found


def write_documents(folder, lists):
    folder.mkdir(parents=True)
    for number, document in enumerate(lists):
        (folder / f"{number:03d}.txt").write_text(" ".join(document) + "\n")
    return folder


@pytest.mark.parametrize("documents", [1, 5, 60])
def test_few_documents_have_held_out_passages_a_gap_away_from_all_training_text(documents, tmp_path):
    per_document = 900 // documents
    lists = [sentences(per_document, first=k * per_document, seed=k) for k in range(documents)]
    text = [sentence for document in lists for sentence in document]
    said, prepared = built(tmp_path / "run", [write_documents(tmp_path / "text", lists)])
    trained, held_out = set(numbers(prepared.train)["en"]), set(numbers(prepared.valid)["en"])
    assert held_out
    assert not trained & held_out
    starts = [sum(len(sentence) + 1 for sentence in text[:k]) for k in range(len(text) + 1)]
    for number in held_out:  # a naive look at the distance of each pair, in characters
        for other in trained:
            low, high = min(number, other), max(number, other)
            assert starts[high] - (starts[low] + len(text[low])) >= GAP - 2
    share = sum(len(text[n]) for n in held_out) / starts[-1]
    assert 0.01 < share < 0.03
    assert 1 - sum(len(text[n]) for n in trained | held_out) / starts[-1] < 0.1  # gaps are no waste
    assert "held out: " in said
    assert f"the {GAP} before and after" in said


def test_every_fiftieth_document_is_held_out_and_enters_neither_vocabulary_nor_counts(tmp_path):
    """`zyzzyva` stands in held-out documents alone, whose letters stand nowhere else; `harvest` once in each."""
    lists = [
        [
            *sentences(3, first=3 * k, seed=k),
            "The zyzzyva zyzzyva zyzzyva saw a harvest." if k % 50 == 49 else "A harvest.",
        ]
        for k in range(150)
    ]
    folder = write_documents(tmp_path / "text", lists)
    _, prepared = built(tmp_path / "run", [folder])
    assert numbers(prepared.valid)["en"] == [3 * k + i for k in (49, 99, 149) for i in range(3)]
    tokenizer = Tokenizer.load(tmp_path / "run" / "vocabulary")
    assert not [piece for piece in tokenizer.tokens if "z" in piece or "y" in piece]
    assert tokenizer.counts[tokenizer.unk_id] == 0
    assert tokenizer.counts[tokenizer.id("harvest")] == 147
    assert tokenizer.counts.sum() == Corpus.open(prepared.train).tokens


def test_a_word_of_held_out_passages_alone_is_not_in_the_vocabulary(tmp_path):
    """First see which sentences are held out, then put the word there, at the same length."""
    text = sentences(900)
    _, before = built(tmp_path / "first", [write_documents(tmp_path / "a", [text])])
    held_out = set(numbers(before.valid)["en"])
    apart = set(range(900)) - held_out - set(numbers(before.train)["en"])
    for number in held_out | apart:  # words of equal length: every sentence stays in its place
        text[number] = re.sub(r"(?<= )[a-z]{5}(?=[ .])", "zyzzy", text[number])
    assert sum("zyzzy" in text[number] for number in held_out) > 5
    _, after = built(tmp_path / "second", [write_documents(tmp_path / "b", [text])])
    assert set(numbers(after.valid)["en"]) == held_out
    tokenizer = Tokenizer.load(tmp_path / "second" / "vocabulary")
    assert not [piece for piece in tokenizer.tokens if "z" in piece]
    assert tokenizer.counts.sum() == Corpus.open(after.train).tokens


def test_each_language_is_split_by_its_own_text_and_those_without_held_out_text_are_named(tmp_path):
    parts = {"de": (900, 1), "ee": (20, 4), "sw": (900, 150)}  # sentences, documents
    corpus = []
    for place, (language, (count, documents)) in enumerate(parts.items()):
        own = sentences(count, first=2000 * place)
        lists = [own[k::documents] for k in range(documents)]
        corpus.append(LanguagePath(language, str(write_documents(tmp_path / language, lists))))
    console = Console(record=True, file=io.StringIO(), width=300)
    chosen, out = recipe(), tmp_path / "run"

    def texts():
        return prepare(chosen, corpus, out=out, valid=None, options=FILES, reporter=Reporter(console))

    train(PretrainingJob(recipe=chosen, out=out, budget=Budget(steps=1)), texts, Reporter(console))
    said = console.export_text()
    assert "no held-out text of ee: not evaluated; give some with --valid PATH" in said
    assert "sw: every fiftieth of 150 documents" in said
    held_out = numbers(out / "corpus" / "valid")
    assert set(held_out) == {"de", "sw"}
    assert all(number < 1000 for number in held_out["de"])
    assert len(numbers(out / "corpus" / "train")["ee"]) == 20


def test_held_out_text_of_one_document_does_not_stop_a_run_on_sentence_pairs(tmp_path):
    """It used to: at the first evaluation, for want of a second document to draw random sentences from."""
    folder = write_documents(tmp_path / "text", [sentences(300, first=300 * k) for k in range(2)])
    (tmp_path / "valid.txt").write_text(" ".join(sentences(40, first=2000)))
    out, quiet, chosen = tmp_path / "run", Reporter(), recipe()

    def texts():
        return prepare(chosen, [str(folder)], out=out, valid=str(tmp_path / "valid.txt"), options=FILES, reporter=quiet)

    results = train(PretrainingJob(recipe=chosen, out=out, budget=Budget(steps=2)), texts, quiet)
    assert {name for result in results.values() for name in result.scores} == {"masked-lm"}


def test_too_little_text_is_said_with_what_is_needed(tmp_path):
    said, prepared = built(
        tmp_path / "run", [write_documents(tmp_path / "text", [sentences(60)])], chosen=recipe(size=90)
    )
    assert prepared.valid is None
    assert re.search(r"held out: nothing \([\d,]+ characters; 9,216 are needed\)", said)
    assert "give some with --valid PATH" in said
    assert len(numbers(prepared.train)["en"]) == 60


def test_text_without_full_stops_is_held_out_as_well(tmp_path):
    """One sentence of 60,000 characters, with a number every few words."""
    folder = write_documents(tmp_path / "text", [[sentence.lower().rstrip(".") for sentence in sentences(900)]])
    _, prepared = built(tmp_path / "run", [folder])
    trained, held_out = set(numbers(prepared.train)["en"]), set(numbers(prepared.valid)["en"])
    assert held_out
    assert min(abs(a - b) for a in trained for b in held_out) > 3


def test_the_same_passages_are_the_text_of_the_word_level_metric(tmp_path):
    """`compare` hides words of the text that the shards hold out."""
    folder = write_documents(tmp_path / "text", [sentences(900)])
    _, prepared = built(tmp_path / "run", [folder])
    documents = held_out_documents([str(folder)], out=tmp_path / "run", valid=None, options=FILES)()
    read = [int(digits) for document in documents for digits in re.findall(r"n(\d{4})", document.text)]
    assert read == numbers(prepared.valid)["en"]


def test_preparation_that_was_stopped_goes_on_to_the_same_shards(tmp_path, monkeypatch):
    folder = write_documents(tmp_path / "text", [sentences(300, first=300 * k) for k in range(3)])
    _, whole = built(tmp_path / "whole", [folder])
    build = preparation.build_corpus

    def stopping(documents, tokenizer, out, options):
        if out.name == "valid":
            raise KeyboardInterrupt
        return build(documents, tokenizer, out, options)

    with monkeypatch.context() as patch:
        patch.setattr(preparation, "build_corpus", stopping)
        with pytest.raises(KeyboardInterrupt):
            built(tmp_path / "stopped", [folder])
    said, resumed = built(tmp_path / "stopped", [folder])
    assert "learning the vocabulary" not in said
    for ours, theirs in ((resumed.train, whole.train), (resumed.valid, whole.valid)):
        assert Corpus.open(ours).fingerprint == Corpus.open(theirs).fingerprint


def test_text_that_was_edited_after_its_vocabulary_was_learnt_is_noticed(tmp_path, monkeypatch):
    """Before any shard stands, the vocabulary is learnt again; after, the run is refused."""
    folder = write_documents(tmp_path / "text", [sentences(900)])
    build, path = preparation.build_corpus, folder / "000.txt"

    def stopping(documents, tokenizer, out, options):
        if not edited or out.name == "valid":
            raise KeyboardInterrupt
        return build(documents, tokenizer, out, options)

    edited = False
    with monkeypatch.context() as patch:
        patch.setattr(preparation, "build_corpus", stopping)
        with pytest.raises(KeyboardInterrupt):
            built(tmp_path / "run", [folder])
        assert Tokenizer.load(tmp_path / "run" / "vocabulary").id("river") is not None
        path.write_text(path.read_text().replace("river", "fjord"))
        edited = True
        with pytest.raises(KeyboardInterrupt):
            built(tmp_path / "run", [folder])
    pieces = Tokenizer.load(tmp_path / "run" / "vocabulary").tokens
    assert "fjord" in pieces
    assert "river" not in pieces
    path.write_text(path.read_text().replace("fjord", "brook"))
    with pytest.raises(ArtefactError, match="choose another --out"):
        built(tmp_path / "run", [folder])
