"""Comparisons: each run is what pretraining alone would give, text is shared, and a stopped one continues."""

import io
import json
import os
import signal
import struct

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file

from larvatus.core.errors import ArtefactError, Preempted
from larvatus.evaluation.compare.compare import Comparison, as_dict, compare
from larvatus.evaluation.compare.plot import draw
from larvatus.evaluation.compare.results import as_table
from larvatus.evaluation.compare.runs import read_candidates
from larvatus.models.recipes import read_recipe, steps_of_phases
from larvatus.training.engine.reporter import Reporter, rich_table
from larvatus.training.engine.settings import Budget
from larvatus.training.pretraining.budget import known_steps
from larvatus.training.pretraining.job import PretrainingJob
from larvatus.training.pretraining.monitor import Monitor
from larvatus.training.pretraining.prepare import TextOptions, prepare
from larvatus.training.pretraining.run import train
from tests.evaluation.conftest import BERT, SMALL

QUIET = Reporter()
STEPS = 4


@pytest.fixture(scope="module")
def plan(texts, tmp_path_factory):
    """A function that makes one: bert, roberta, and a bert of one's own that hides more."""
    (texts / "more.toml").write_text('base = "bert"\n[corruption]\nrate = 0.3\n')

    def make(out, **more):
        names = f"bert,roberta,{texts / 'more.toml'}"
        candidates = read_candidates(names, settings=[*SMALL, *BERT, "more:phases.1.length=48"])
        given = {"corpus": [str(texts / "train.txt")], "valid": str(texts / "valid.txt"), "budget": Budget(steps=STEPS)}
        return Comparison(candidates=candidates, out=out, **{**given, **more})

    return make


@pytest.fixture(scope="module")
def compared(plan, tmp_path_factory):
    out = tmp_path_factory.mktemp("compared") / "out"
    return out, compare(plan(out), QUIET)


def weights(run):
    return load_file(run / "model.safetensors")


def timeless(results):
    """All that does not depend on how fast the machine was, where it was written, and where it was stopped."""
    plain = as_dict(results)
    return [{k: v for k, v in run.items() if k not in ("seconds", "path", "curve")} for run in plain["runs"]]


def test_a_run_of_a_comparison_equals_pretraining_alone_bit_for_bit(compared, plan, texts, tmp_path):
    out, results = compared
    for candidate in plan(out).candidates[:2]:
        alone = tmp_path / candidate.label
        job = PretrainingJob(recipe=candidate.recipe, out=alone, budget=Budget(steps=STEPS), seed=0)

        def build(recipe=candidate.recipe, alone=alone):
            corpus, valid = [str(texts / "train.txt")], str(texts / "valid.txt")
            return prepare(recipe, corpus, out=alone, valid=valid, options=TextOptions(), reporter=QUIET)

        held_out = train(job, build, QUIET)
        ours, theirs = weights(out / candidate.label), weights(alone)
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[name], theirs[name]) for name in ours)
        result = next(run for run in results.runs if run.label == candidate.label)
        last = held_out[candidate.recipe.phases[-1].length]
        assert {name: score.loss for name, score in result.objectives.items()} == {
            name: score.loss for name, score in last.scores.items()
        }
        assert result.gain == 1 - last.scores["masked-lm"].loss / last.guess_loss


def test_recipes_with_the_same_tokenizer_settings_share_vocabulary_and_shards(compared):
    out, results = compared
    kinds = sorted(folder.name.rpartition("-")[0] for folder in (out / "texts").iterdir())
    assert kinds == ["byte-bpe", "wordpiece"]
    bert, roberta, more = results.runs
    assert bert.tokenizer == more.tokenizer != roberta.tokenizer
    assert not (out / "bert" / "corpus").exists()


def test_the_table_has_every_measure_of_every_recipe(compared):
    out, results = compared
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(rich_table(as_table(results)))
    said = console.export_text()
    lines = {line[:26].strip(): line[26:].split() for line in said.splitlines() if line.startswith("  ")}
    assert said.startswith("the same budget for all: 4 steps")
    assert lines["steps"] == ["4", "4", "4"]
    assert lines["next-sentence right"][1] == "–"
    assert lines["masked-lm loss"] == [f"{run.objectives['masked-lm'].loss:.3f}" for run in results.runs]
    assert lines["words right"] == [f"{run.word_nll.accuracy:.1%}" for run in results.runs]
    assert lines["bits a character"] == [f"{run.word_nll.bits:.3f}" for run in results.runs]
    assert len({run.word_nll.words for run in results.runs}) == 1
    assert "note: vocabularies differ" in said
    assert "note: bert, more: lower-cased" in said
    assert "note: bert, roberta, more: only 4 steps" in said
    assert json.loads((out / "results.json").read_text()) == json.loads(json.dumps(as_dict(results)))


def test_the_curves_end_where_the_run_ended_and_are_drawn_as_png(compared, tmp_path):
    _, results = compared
    for run in results.runs:
        assert [point.step for point in run.curve] == [1, 2, 3, 4]
        assert [point.tokens for point in run.curve] == sorted({point.tokens for point in run.curve})
        assert run.curve[-1].tokens == run.tokens
        assert run.curve[-1].gain == run.gain
    path = tmp_path / "curves.png"
    assert draw(results, path)
    head = path.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", head[16:24]) == (1650, 720)


def test_a_stopped_comparison_goes_on_to_the_same_results(compared, plan, tmp_path, monkeypatch):
    """Stopped in the middle of the second run: the first is taken as it is, the second resumed."""
    out, seen, step = tmp_path / "out", [], Monitor.step

    def stopping(self, report):
        seen.append(report.step)
        if len(seen) == STEPS + 2:
            os.kill(os.getpid(), signal.SIGTERM)
        step(self, report)

    with monkeypatch.context() as patch:
        patch.setattr(Monitor, "step", stopping)
        with pytest.raises(Preempted, match=r"roberta, seed 0: SIGTERM stopped it; .*--resume continues"):
            compare(plan(out), QUIET)
    first = (out / "bert" / "model.safetensors").stat().st_mtime_ns
    assert not (out / "roberta" / "result.json").exists()
    results = compare(plan(out, resume=True), QUIET)
    assert (out / "bert" / "model.safetensors").stat().st_mtime_ns == first
    assert timeless(results) == timeless(compared[1])
    for ours, theirs in zip(results.runs, compared[1].runs, strict=True):  # a run asked to stop does not evaluate
        losses = {point.step: point.loss for point in theirs.curve}
        assert {point.step: point.loss for point in ours.curve}.items() <= losses.items()
        assert len(ours.curve) >= len(theirs.curve) - 1


def test_a_finished_run_is_checked_before_it_is_taken(compared, plan, tmp_path):
    out = tmp_path / "out"
    one = {"candidates": plan(out).candidates[:1]}
    given = plan(out)
    small = Comparison(**{**vars(given), **one, "budget": Budget(steps=1)})
    compare(small, QUIET)
    resumed = Comparison(**{**vars(small), "resume": True})
    compare(resumed, QUIET)
    path = out / "bert" / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(ArtefactError, match="does not match its checksum"):
        compare(resumed, QUIET)


def test_without_held_out_text_there_are_dashes_and_a_note_but_no_curve(plan, texts, tmp_path):
    built = plan(tmp_path / "first", budget=Budget(steps=1))
    one = Comparison(**{**vars(built), "candidates": built.candidates[:1], "seeds": (1, 2)})
    compare(one, QUIET)
    (shards,) = (tmp_path / "first" / "texts").iterdir()
    shards = shards / "corpus" / "train"
    again = Comparison(**{**vars(one), "corpus": [str(shards)], "valid": None, "out": tmp_path / "second"})
    results = compare(again, QUIET)
    assert [run.seed for run in results.runs] == [1, 2]
    assert (tmp_path / "second" / "bert-seed-2" / "model.safetensors").exists()
    assert not draw(results, tmp_path / "none.png")
    assert results.notes[0].startswith("no held-out text")
    assert {row.values["bert"] for row in results.rows() if row.group.startswith("same words")} == {None}


@pytest.mark.parametrize("tokens", [3_000, 50_000, 1_234_567])
@pytest.mark.parametrize("name", ["bert", "roberta", "spanbert", "modern"])
def test_a_budget_of_tokens_is_kept_to_within_a_step(name, tokens):
    recipe = read_recipe(name, settings=["batch=8", "phases.0.length=64"])
    steps = known_steps(recipe, Budget(tokens=tokens), 10**9)
    counts = steps_of_phases(recipe.phases, steps)
    seen = sum(n * recipe.batch * phase.length for n, phase in zip(counts, recipe.phases, strict=True))
    assert abs(seen - tokens) <= recipe.batch * max(phase.length for phase in recipe.phases) / 2
