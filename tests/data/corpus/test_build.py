"""Building: exact, the same bytes whatever the workers, resumed after a kill; and what stands in the way is named."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from larvatus.core import files, rng
from larvatus.core.errors import ArtefactError, DataError, LarvatusError, UsageError
from larvatus.data.corpus import build as build_module
from larvatus.data.corpus import processes
from larvatus.data.corpus.build import BuildOptions, build_corpus
from larvatus.data.corpus.format import CorpusCounts
from larvatus.data.corpus.sources import cut_text, units
from larvatus.data.corpus.store import Corpus
from larvatus.data.text.readers import Document, ReadOptions
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.data.text.vocabularies import ByteBPEConfig, train_vocabulary
from larvatus.data.text.words import split_sentences
from tests import warm
from tests.data.corpus.made_up import SMALL, made_up_text

ROOT = Path(__file__).parents[3]


def contents(path: Path) -> dict[str, str]:
    """Checksums of all that is visible in a corpus directory, and nothing may be left over."""
    assert not [p.name for p in path.iterdir() if p.name.startswith(".") and p.name != ".lock"]
    found = sorted(p for p in path.rglob("*") if p.is_file() and p.name not in (".lock", "journal.jsonl"))
    return {str(p.relative_to(path)): files.sha256(p) for p in found}


def with_(**changes: object) -> BuildOptions:
    return dataclasses.replace(SMALL, **changes)  # type: ignore[arg-type]


def test_the_shards_hold_what_the_tokenizer_says_sentence_by_sentence(corpus: Corpus, text_file: Path) -> None:
    tokenizer = corpus.tokenizer
    documents = text_file.read_text().strip().split("\n\n")
    sentences = [split_sentences(document) for document in documents]
    encodings = [tokenizer.encode(sentence) for document in sentences for sentence in document]
    block = corpus.block(range(len(corpus.chunks)))
    assert block.ids.tolist() == [int(i) for encoding in encodings for i in encoding.ids]
    assert np.diff(block.sentences).tolist() == [len(encoding.ids) for encoding in encodings]
    ends = np.cumsum([len(document) for document in sentences])
    assert block.sentences[ends].tolist() == block.documents[1:].tolist()
    starts = [np.diff(encoding.words, prepend=-1) != 0 for encoding in encodings]
    assert block.words.tolist() == np.concatenate(starts).tolist()
    counts = CorpusCounts(
        documents=400,
        sentences=len(encodings),
        words=int(sum(map(np.sum, starts))),
        tokens=len(block.ids),
        text_bytes=sum(len(document.encode()) for document in documents),
    )
    assert corpus.manifest.counts == counts
    assert corpus.manifest.languages == {"en": counts}
    batch = corpus.batch(1)
    assert batch.column("source")[0].as_py() == str(text_file)
    assert text_file.read_text().splitlines()[batch.column("line")[0].as_py() - 1].strip()


def test_byte_level_sentences_keep_the_space_between_them(tmp_path: Path) -> None:
    """Else a model would learn that after a full stop no word has the space which text will have there."""
    text = "The river was deep. The bank was wide.\n\nThe end came. 河很深。岸很宽。"
    tokenizer = train_vocabulary([text * 3], ByteBPEConfig(size=280))
    build_corpus([Document(text, "a", 1, "en"), Document("The river.", "b", 1, "en")], tokenizer, tmp_path / "c")
    block = Corpus.open(tmp_path / "c").block([0])
    assert len(block.sentences) - 1 > 4
    flat = " ".join(text.split())  # of white space between sentences, a space is left
    assert tokenizer.decode(block.ids) == flat + "The river."
    assert tokenizer.decode(block.ids[: block.sentences[1]]) == "The river was deep."
    assert tokenizer.decode(block.ids[block.sentences[1] : block.sentences[2]]) == " The bank was wide."
    assert block.words[block.sentences[:-1]].all()


def test_the_same_text_gives_the_same_bytes_whatever_the_workers(
    corpus: Corpus, text_file: Path, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    summary = build_corpus([text_file], tokenizer, tmp_path / "three", with_(workers=3))
    assert contents(summary.path) == contents(corpus.path)
    assert summary.counts == corpus.manifest.counts
    assert (summary.resumed, summary.unchanged) == (0, False)


@pytest.mark.proof
def test_a_killed_build_goes_on_and_ends_with_the_same_bytes(
    corpus: Corpus, text_file: Path, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    """SIGKILL at random moments; the last time with other workers, in this process."""
    out = tmp_path / "corpus"
    command = [sys.executable, str(Path(__file__).with_name("killed_build.py")), str(text_file), str(out)]
    environment = dict(os.environ) | {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    stood: list[int] = []
    for attempt in range(2):
        process = warm.Popen(command, env=environment)
        journal = out / "journal.jsonl"
        while process.poll() is None and (lines_of(journal) < attempt + 2):
            time.sleep(0.005)
        time.sleep(float(rng.stream(5, "kill", attempt).random()) * 0.1)
        process.kill()
        process.wait()
        stood.append(lines_of(journal) - 1)
    assert 1 <= stood[0] <= stood[1] < len(corpus.manifest.shards), "it was killed on the way"
    (out / ".00007.arrow.tmp-99999999").write_bytes(b"stale")
    said: list[str] = []
    summary = build_corpus([text_file], tokenizer, out, with_(workers=3, notice=said.append))
    assert summary.resumed == stood[1]
    assert said == [f"{out}: continuing after {stood[1]} finished shards"]
    assert contents(out) == contents(corpus.path)


def lines_of(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


@pytest.fixture
def unfinished(corpus: Corpus, text_file: Path, tokenizer: Tokenizer, tmp_path: Path) -> Path:
    """A build that stopped when its second shard was under way."""
    out = tmp_path / "unfinished"

    class Stop(Exception):
        pass

    def stop(counts: CorpusCounts) -> None:
        if counts.tokens > corpus.manifest.shards[0].tokens * 1.5:
            raise Stop

    with pytest.raises(Stop):
        build_corpus([text_file], tokenizer, out, with_(progress=stop))
    assert lines_of(out / "journal.jsonl") == 2
    assert not list(out.glob(".*.tmp-*")), "an orderly end leaves nothing half-written"
    return out


def test_a_torn_journal_and_a_shard_without_a_line_are_taken_in_stride(
    corpus: Corpus, unfinished: Path, text_file: Path, tokenizer: Tokenizer
) -> None:
    with (unfinished / "journal.jsonl").open("ab") as file:
        file.write(b'{"shard": {"file": "0000')
    (unfinished / "00001.arrow").write_bytes(b"renamed, but not noted")
    (unfinished / "00077.arrow").write_bytes(b"from who knows where")
    build_corpus([text_file], tokenizer, unfinished, SMALL)
    assert contents(unfinished) == contents(corpus.path)


def test_a_damaged_shard_of_an_unfinished_build_is_built_again_and_said(
    corpus: Corpus, unfinished: Path, text_file: Path, tokenizer: Tokenizer
) -> None:
    (unfinished / "00000.arrow").write_bytes(b"damaged")
    said: list[str] = []
    build_corpus([text_file], tokenizer, unfinished, with_(notice=said.append))
    assert "00000.arrow does not match its checksum" in said[0]
    assert "built again" in said[0]
    assert contents(unfinished) == contents(corpus.path)


def test_going_on_with_other_settings_text_or_tokenizer_is_refused(
    unfinished: Path, text_file: Path, tmp_path: Path, tokenizer: Tokenizer
) -> None:
    before = contents(unfinished)
    with pytest.raises(ArtefactError, match=r"unfinished.*sentences 'library', now 'newline'.*another --out"):
        build_corpus([text_file], tokenizer, unfinished, with_(sentences="newline"))
    other = tmp_path / "river.txt"
    other.write_text(made_up_text(400, seed=9))
    with pytest.raises(ArtefactError, match="unfinished corpus of other text"):
        build_corpus([other], tokenizer, unfinished, SMALL)
    library = json.loads(tokenizer.library.to_str())
    library["model"]["vocab"]["zebra"] = len(library["model"]["vocab"])
    wider = Tokenizer.from_library(type(tokenizer.library).from_str(json.dumps(library)))
    with pytest.raises(ArtefactError, match="another tokenizer"):
        build_corpus([text_file], wider, unfinished, SMALL)
    assert contents(unfinished) == before


def test_a_finished_corpus_is_left_alone_and_another_is_refused(
    corpus: Corpus, text_file: Path, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    out = Path(shutil.copytree(corpus.path, tmp_path / "copy"))
    times = {p.name: p.stat().st_mtime_ns for p in out.glob("[!.]*")}
    summary = build_corpus([text_file], tokenizer, out, with_(workers=2))
    assert summary.unchanged
    assert summary.counts == corpus.manifest.counts
    assert {p.name: p.stat().st_mtime_ns for p in out.glob("[!.]*")} == times
    with pytest.raises(ArtefactError, match=r"holds a corpus built with other settings \(language 'en', now 'de'\)"):
        build_corpus([text_file], tokenizer, out, with_(language="de"))
    more = tmp_path / "more.txt"
    more.write_text("The river was old.")
    with pytest.raises(ArtefactError, match="of other text"):
        build_corpus([text_file, more], tokenizer, out, SMALL)
    (out / "00001.arrow").unlink()
    with pytest.raises(DataError, match=r"00001\.arrow is missing"):
        build_corpus([text_file], tokenizer, out, SMALL)


def test_documents_may_be_given_instead_of_paths(tokenizer: Tokenizer, tmp_path: Path) -> None:
    def documents() -> Iterator[Document]:
        for i, text in enumerate(made_up_text(60).split("\n\n")):
            yield Document(text=text, source="made up", line=i, language="sw" if i % 3 else None)

    summary = build_corpus(documents(), tokenizer, tmp_path / "corpus", SMALL)
    assert summary.counts.documents == 60
    assert {name: counts.documents for name, counts in summary.languages.items()} == {"en": 20, "sw": 40}
    assert build_corpus(list(documents()), tokenizer, tmp_path / "corpus", SMALL).unchanged
    corpus = Corpus.open(tmp_path / "corpus")
    for number, chunk in enumerate(corpus.chunks):  # each of one language
        assert set(corpus.batch(number).column("language").to_pylist()) == {chunk.language}


def test_only_one_may_build_in_a_directory(text_file: Path, tokenizer: Tokenizer, tmp_path: Path) -> None:
    with (
        files.locked(tmp_path / "corpus"),
        pytest.raises(ArtefactError, match=rf"another run \(pid {os.getpid()}\)"),
    ):
        build_corpus([text_file], tokenizer, tmp_path / "corpus", SMALL)


def test_a_directory_of_other_files_is_refused(text_file: Path, tokenizer: Tokenizer, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(ArtefactError, match=r"holds other files \(thesis\.tex …\); choose another --out"):
        build_corpus([text_file], tokenizer, tmp_path, SMALL)


@pytest.mark.parametrize("text", ["", "\n\n \n", "\u200b\u200b\n\n\u200b"], ids=["empty", "blank", "no tokens"])
def test_nothing_to_build_from_is_one_clear_line(tokenizer: Tokenizer, tmp_path: Path, text: str) -> None:
    (tmp_path / "empty.txt").write_text(text)
    with pytest.raises(DataError, match=r"no text in .*empty\.txt.*give files that hold some"):
        build_corpus([tmp_path / "empty.txt"], tokenizer, tmp_path / "corpus", SMALL)
    (tmp_path / "text.txt").write_text("The river was wide.")
    build_corpus([tmp_path / "text.txt"], tokenizer, tmp_path / "corpus", SMALL)  # the failed one is not in the way


def test_what_is_skipped_is_counted_by_reason(tokenizer: Tokenizer, tmp_path: Path) -> None:
    lines = [{"text": "The river was wide."}, {"text": "  "}, {"body": 3}, {"text": "\u200b"}, {"text": "It was old."}]
    (tmp_path / "a.jsonl").write_text("\n".join(json.dumps(line) for line in lines) + "\n{broken\n")
    summary = build_corpus(
        [tmp_path / "a.jsonl"], tokenizer, tmp_path / "corpus", with_(reading=ReadOptions(on_bad="skip"))
    )
    assert summary.counts.documents == 2
    assert summary.skipped == {"blank": 1, "broken JSON": 1, "missing text": 1, "no tokens": 1}
    with pytest.raises(DataError, match=r"a\.jsonl:3: "):
        build_corpus([tmp_path / "a.jsonl"], tokenizer, tmp_path / "other", SMALL)


def test_a_long_document_is_cut_into_parts_and_is_one_document_still(tokenizer: Tokenizer, tmp_path: Path) -> None:
    (tmp_path / "novel.txt").write_text("Men sat by. " + "The river was wide and old. " * 2000 + "\n\nA boat went by.")
    summary = build_corpus([tmp_path / "novel.txt"], tokenizer, tmp_path / "corpus", SMALL)
    corpus = Corpus.open(tmp_path / "corpus")
    assert summary.counts.documents == 2
    assert summary.counts.sentences == 2002
    assert len(corpus.chunks) > 5
    assert corpus.batch(3).column("document").to_pylist() == [0, 0]
    assert corpus.batch(3).column("part").to_pylist() == [6, 7]
    assert corpus.block(range(len(corpus.chunks))).numbers.tolist() == [0, 1], "parts in a row are joined again"
    assert corpus.block([4, 2, 3]).numbers.tolist() == [0, 0]


def test_parts_make_up_the_text_and_end_where_it_pauses() -> None:
    text = "One two. " * 30 + "\n\n" + "Three four five. " * 30 + "x" * 200
    parts = list(cut_text(text, 100))
    assert "".join(parts) == text
    assert max(map(len, parts)) <= 100
    assert all(part.endswith((" ", "\n")) for part in parts[:-3])


def test_a_word_of_megabytes_takes_linear_time(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """FAULTS 22: time for four times the text is about four times, not sixteen."""
    seconds = []
    for i, size in enumerate((500_000, 2_000_000)):
        documents = [
            Document(text="x" * size, source="long", line=1),
            Document(text="Old men sat.", source="s", line=1),
        ]
        begun = time.process_time()
        build_corpus(documents, tokenizer, tmp_path / str(i), BuildOptions(workers=1, shard_bytes=1 << 20))
        seconds.append(time.process_time() - begun)
    assert seconds[1] < 10 * max(seconds[0], 0.05)


def test_literal_special_tokens_are_text(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """FAULTS 23."""
    documents = [Document(text="The [MASK] was [SEP] wide [CLS].", source="s", line=1)] * 2
    build_corpus(documents, tokenizer, tmp_path / "corpus", SMALL)
    ids = Corpus.open(tmp_path / "corpus").block([0]).ids
    special = {tokenizer.mask_id, tokenizer.sep_id, tokenizer.cls_id, tokenizer.padding_id}
    assert not special & set(ids.tolist())
    assert "mask" in tokenizer.decode(ids.tolist())


def test_a_lone_surrogate_is_named_by_place(tokenizer: Tokenizer, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"made up:17: a lone surrogate"):
        build_corpus([Document(text="a \ud800 b", source="made up", line=17)], tokenizer, tmp_path / "corpus", SMALL)


def test_units_depend_on_the_text_alone() -> None:
    documents = [Document(text="word " * n, source="s", line=n) for n in (1, 500, 30, 3000, 2)]
    found = list(units(documents, language="en", size=1000))
    assert [unit.number for unit in found] == list(range(len(found)))
    assert "".join(piece.text for unit in found for piece in unit.pieces) == "".join(d.text for d in documents)
    assert found[-1].documents == 5
    assert all(sum(len(piece.text) for piece in unit.pieces) <= 2000 for unit in found)


def test_a_killed_worker_is_named(
    text_file: Path, tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[int] = []

    class Watched(processes.Workers):  # type: ignore[type-arg]
        def __init__(self, *args: object, **kwargs: object) -> None:
            super().__init__(*args, **kwargs)  # type: ignore[arg-type]
            started.extend(self.pids)

    def kill(counts: CorpusCounts) -> None:
        while started:
            os.kill(started.pop(), signal.SIGKILL)

    monkeypatch.setattr(processes, "Workers", Watched)
    says = r"corpus worker \(pid \d+\) was killed \(SIGKILL.*run the same command again"
    with pytest.raises(LarvatusError, match=says):
        build_corpus([text_file], tokenizer, tmp_path / "corpus", with_(workers=2, progress=kill))


def test_no_workers_is_refused(text_file: Path, tokenizer: Tokenizer, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--workers 1"):
        build_corpus([text_file], tokenizer, tmp_path / "corpus", with_(workers=0))


def test_a_path_that_is_not_there_is_named_before_anything_is_made(tokenizer: Tokenizer, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere\.txt does not exist"):
        build_corpus([tmp_path / "nowhere.txt"], tokenizer, tmp_path / "corpus", SMALL)
    assert not (tmp_path / "corpus").exists()


def test_a_full_disk_is_named_and_finished_shards_stay(
    text_file: Path, tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish: Callable[..., object] = build_module.ShardWriter.finish
    done: list[object] = []

    def full(writer: object) -> object:
        if done:
            raise ArtefactError("no space left to write 00001.arrow")
        done.append(writer)
        return finish(writer)

    monkeypatch.setattr(build_module.ShardWriter, "finish", full)
    with pytest.raises(ArtefactError, match="no space left"):
        build_corpus([text_file], tokenizer, tmp_path / "corpus", SMALL)
    monkeypatch.undo()
    assert build_corpus([text_file], tokenizer, tmp_path / "corpus", SMALL).resumed == 1
