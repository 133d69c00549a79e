"""Row 73: text edited between a kill and the next command is noticed by its hash, at every stage.

The edits keep size and time of the file. Where nothing was built from the text yet, all starts again, aloud; else the
run is refused by the name of what was edited, and continues once that is put back.
"""

from __future__ import annotations

import io
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.torch import load_file

from larvatus.data.corpus import Corpus
from tests.faults.begun import Begun, Call, edit
from tests.faults.test_runs import assert_bit_equal

Begin = Callable[..., Begun]


@pytest.mark.parametrize("at", ["training shards", "shards", "before a checkpoint", "checkpoint"])
def test_73_pretraining_refuses_text_that_was_edited_once_shards_stand(call: Call, begin: Begin, at: str) -> None:
    begun = begin("pretrain", at=at)
    (text,) = begun.inputs
    held = text.read_bytes()
    edit(text)
    for command in (begun.again, begun.command) if at != "checkpoint" else (begun.again,):
        code, _, complaint = call(*command)
        assert code == 5
        assert f"{text} was edited since; put it back, or choose another --out" in complaint
    text.write_bytes(held)
    if at == "before a checkpoint":
        code, said, complaint = call(*begun.again)
        assert (code, complaint) == (0, "")
        assert "no checkpoint yet: starting at step 0" in said


def test_73_a_vocabulary_of_edited_text_is_learnt_anew_aloud(call: Call, begin: Begin, tmp_path: Path) -> None:
    begun = begin("pretrain", at="vocabulary")
    edit(begun.inputs[0])
    code, said, _ = call(*begun.again)
    assert code == 0
    assert "text.txt was edited since: nothing was built from it yet, so this starts again" in said.replace("\n", "")
    assert "learning the vocabulary" in said
    fresh = [word if word != begun.kept else tmp_path / "fresh" for word in begun.command]
    assert call(*fresh)[0] == 0
    ours, theirs = (Corpus.open(out / "corpus" / "train").fingerprint for out in (begun.kept, tmp_path / "fresh"))
    assert ours == theirs
    assert_bit_equal(load_file(begun.kept / "model.safetensors"), load_file(tmp_path / "fresh" / "model.safetensors"))


LONG = [pytest.param(kind, marks=pytest.mark.proof) for kind in ("adapt", "compare")]


@pytest.mark.parametrize("kind", ["finetune", "embed", "index", "score", "corpus", *LONG])
def test_73_each_input_of_each_kind_of_run_is_noticed_when_it_was_edited(call: Call, begin: Begin, kind: str) -> None:
    """Text, held-out and old text, lists of words, labelled examples, pairs; settings of a model and its tokenizer."""
    begun = begin(kind)
    for path in begun.inputs:
        held = path.read_bytes()
        edit(path)
        code, _, complaint = call(*begun.again)
        assert code in (4, 5), (path, code, complaint)
        assert "--out" in complaint or "remove" in complaint or "--fork" in complaint, complaint
        path.write_bytes(held)
    assert call(*begun.again)[0] == 0  # with all put back it continues


def test_73_other_text_on_standard_input_is_refused(call: Call, begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = begin("pretrain", at="checkpoint")
    (text,) = begun.inputs
    shutil.rmtree(begun.kept)

    def piped(contents: bytes) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(contents)))
        return call(*("-" if word == text else word for word in begun.again))

    held = text.read_bytes()
    assert piped(held)[0] == 0
    code, _, complaint = piped(held.replace(b"wide", b"deep", 1))
    assert (code, "standard input holds other text" in complaint) == (5, True)
    assert piped(b"")[0] == 0  # what was kept is read again
    (begun.kept / "corpus" / "input.txt").write_bytes(held.replace(b"wide", b"deep", 1))
    code, _, complaint = piped(b"")
    assert (code, "input.txt does not match its checksum" in complaint) == (5, True)
