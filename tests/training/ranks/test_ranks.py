"""1, 2 and 4 processes, replicated and sharded, learn the same, dropout included; any number of them resumes a run."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from larvatus.core.errors import UsageError
from larvatus.data.corpus import build_corpus
from larvatus.data.text.embedded import embedded_documents
from larvatus.data.text.vocabularies import CharactersConfig, UnigramConfig, train_vocabulary
from larvatus.interfaces.api.finetuning import finetune
from larvatus.models.bundle.directory import load_bundle
from larvatus.models.recipes import read_recipe
from larvatus.training.engine.parallel import should_shard
from larvatus.training.engine.ranks import Ranks
from larvatus.training.pretraining.job import PretrainingJob
from larvatus.training.pretraining.new_vocabulary import ROWS
from larvatus.training.pretraining.prepare import PreparedCorpus
from larvatus.training.pretraining.text_record import record_vocabulary
from larvatus.training.pretraining.token_transfer import RowTransfer, copies
from tests import warm
from tests.made_up import classes
from tests.patience import WATCHDOG_S
from tests.training.ranks.processes import launch
from tests.training.ranks.runs import RECIPES, finetuned, pretrain

STEPS, SAVED = 4, 2


def order(recipe: str, out: Path, prepared: PreparedCorpus, **more: Any) -> dict[str, Any]:
    return {"recipe": recipe, "out": str(out), "shards": str(prepared.train.parent), "steps": STEPS, **more}


def back_at(run: Path, step: int, to: Path) -> Path:
    """A copy of a run as it stood at a checkpoint."""
    shutil.copytree(run / "checkpoints" / f"step-{step:08d}", to / "checkpoints" / f"step-{step:08d}")
    return to


def adapting(parent: Path, out: Path, prepared: PreparedCorpus) -> dict[str, Any]:
    """A run in two stages, pulled to its start, in another vocabulary: the tokens of the old one, in reverse order."""
    size = load_bundle(parent).tokenizer.size
    (out / "vocabulary").mkdir(parents=True)
    RowTransfer.of(size, copies(np.arange(size)[::-1].copy())).write(out / "vocabulary" / ROWS)
    record_vocabulary(out / "vocabulary", {})
    return order("bert", out, prepared, embedding_share=0.5, stay=1.0, **{"from": str(parent)})


@pytest.fixture(scope="module")
def alone(prepared: PreparedCorpus, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("alone")
    runs = {
        name: pretrain(Ranks(), order(name, folder / name, prepared, save_every=SAVED))
        for name in ("bert", "electra", "modern")
    }
    runs["adapted"] = pretrain(Ranks(), adapting(folder / "bert", folder / "adapted", prepared))
    return folder, runs


@pytest.fixture(scope="module")
def labelled(tiny_directory: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("labelled")
    train, dev = classes(folder / "train.jsonl", 40), classes(folder / "dev.jsonl", 20, seed=1)
    return {"model": str(tiny_directory), "train": str(train), "dev": str(dev)}


@pytest.fixture(scope="module")
def two(
    alone: tuple[Path, dict[str, Any]],
    labelled: dict[str, str],
    prepared: PreparedCorpus,
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Path, dict[str, Any]]:
    """Two processes, started once for all tests of this file."""
    folder = tmp_path_factory.mktemp("two")
    back_at(alone[0] / "bert", SAVED, folder / "on")
    runs = {
        "bert": order("bert", folder / "bert", prepared, parallel="replicate", save_every=SAVED),
        "bert sharded": order(
            "bert", folder / "sharded", prepared, parallel="shard", save_every=SAVED, valid=True, evaluate_every=SAVED
        ),
        "electra sharded": order("electra", folder / "electra", prepared, parallel="shard"),
        "modern sharded": order("modern", folder / "modern", prepared, parallel="shard", save_every=SAVED),
        "on": order("bert", folder / "on", prepared, parallel="shard", resume=True),
        "adapted": adapting(alone[0] / "bert", folder / "adapted", prepared),
    }
    given = {"runs": list(runs.values()), "finetune": labelled}
    result = launch(2, "tests.training.ranks.runs:everything", given, folder / "out.json")
    return folder, {**result, "runs": dict(zip(runs, result["runs"], strict=True))}


@pytest.mark.parametrize("name", ["bert", "bert sharded", "electra sharded", "modern sharded", "adapted"])
def test_two_processes_learn_what_one_does(alone: Any, two: Any, name: str) -> None:
    expected, run = alone[1][name.partition(" ")[0]]["losses"], two[1]["runs"][name]
    assert len(expected) == STEPS
    assert run["losses"] == pytest.approx(expected, rel=1e-5)
    assert run["sharded"] == ("sharded" in name)


def test_each_rank_makes_its_share_alone(two: Any) -> None:
    """What it reads ahead is some steps, not blocks of the corpus; neither rank makes much more than the other."""
    first, second = two[1]["runs"]["bert"]["made"]
    assert 0.8 < first / second < 1.25
    assert first + second < (STEPS + 16) * 16 * 64


def test_directories_are_those_of_one_process(alone: Any, two: Any) -> None:
    for name, same in (("bert", "bert"), ("sharded", "bert"), ("adapted", "adapted")):
        one, other = alone[0] / same, two[0] / name
        assert {p.name for p in one.iterdir()} == {p.name for p in other.iterdir()}
        assert (one / "config.json").read_text() == (other / "config.json").read_text()
        weights, theirs = load_file(one / "model.safetensors"), load_file(other / "model.safetensors")
        assert weights.keys() == theirs.keys()
        for key, tensor in weights.items():
            torch.testing.assert_close(theirs[key], tensor, rtol=1e-3, atol=1e-5)


def test_one_process_goes_on_with_a_run_of_two(alone: Any, two: Any, prepared: PreparedCorpus, tmp_path: Path) -> None:
    for name, recipe in (("bert", "bert"), ("sharded", "bert"), ("modern", "modern")):
        back = back_at(two[0] / name, SAVED, tmp_path / name)
        run = pretrain(Ranks(), order(recipe, back, prepared, resume=True, valid=name == "sharded"))
        assert run["losses"] == pytest.approx(alone[1][recipe]["losses"][SAVED:], rel=1e-5)


def test_two_processes_go_on_with_a_run_of_one(alone: Any, two: Any) -> None:
    assert two[1]["runs"]["on"]["losses"] == pytest.approx(alone[1]["bert"]["losses"][SAVED:], rel=1e-5)


def test_memory_that_runs_out_on_one_rank_halves_the_microbatch_of_all(two: Any) -> None:
    memory = two[1]["memory"]
    assert memory["losses"] == memory["given"]
    assert memory["microbatch"] == 36


def test_gradients_are_those_of_one_process_and_lie_in_buckets(two: Any) -> None:
    """Of tied weights, of those that one rank alone reaches, and none of those that nobody does."""
    reduced = two[1]["reduced"]
    assert not reduced["failed"]
    assert reduced["apart"] < 1e-4
    assert reduced["with"] == reduced["alone"]
    assert reduced["flat"]


def test_a_rank_with_fewer_microbatches_takes_part_in_every_pass(two: Any) -> None:
    assert two[1]["uneven"]["sharded"] == pytest.approx(two[1]["uneven"]["alone"], rel=1e-5)


def test_fine_tuning_on_two_processes_learns_what_one_does(two: Any, labelled: dict[str, str]) -> None:
    assert two[1]["finetuned"] == pytest.approx(finetuned(Ranks(), labelled), rel=1e-5)


def test_weights_are_sharded_where_memory_is_short_on_any_rank(two: Any) -> None:
    assert two[1]["chosen"] == [False, True, False]


def test_what_cannot_be_sharded_is_refused_in_one_line() -> None:
    model = torch.nn.Linear(2, 2)
    with pytest.raises(UsageError, match=r"optimizer.type = adamw or muon, not lamb; give --parallel replicate"):
        should_shard("shard", ranks=Ranks(0, 2), model=model, optimizer="lamb", device="cpu")
    recipe = read_recipe("bert", size="tiny")
    with pytest.raises(UsageError, match=r"--parallel is one of auto, replicate, shard, not 'both'"):
        PretrainingJob(recipe=recipe, out=Path("run"), parallel="both")  # type: ignore[arg-type]
    assert not should_shard("shard", ranks=Ranks(), model=model, optimizer="lamb", device="cpu")


@pytest.mark.proof
def test_the_command_fine_tunes_on_two_processes_as_on_one(labelled: dict[str, str], tmp_path: Path) -> None:
    """One process shows and writes; the model is there for all; what was begun is refused as ever."""
    settings = {"epochs": 2, "batch": 8, "microbatch": 32}
    finetune(
        "classify",
        **labelled,
        out=tmp_path / "one",
        device="cpu",
        **settings,  # type: ignore[arg-type]
    )
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "larvatus"]
    given = {**labelled, "out": str(tmp_path / "two"), "device": "cpu", **settings}
    options = [word for name, value in given.items() for word in (f"--{name}", str(value))]

    def start() -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
        environment[warm.NESTED] = "all"
        call = [*command, "finetune", "classify", *options]
        return warm.run(call, env=environment, capture_output=True, text=True, timeout=WATCHDOG_S)

    done = start()
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("held out") == 1
    runs = [json.loads((tmp_path / name / "finetuning.json").read_text())["runs"][0] for name in ("one", "two")]
    losses = [[epoch["training_loss"] for epoch in run["history"]] for run in runs]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    weights, theirs = (load_file(tmp_path / name / "model.safetensors") for name in ("one", "two"))
    for key, tensor in weights.items():
        torch.testing.assert_close(theirs[key], tensor, rtol=1e-3, atol=1e-5)
    again = start()
    assert again.returncode != 0
    assert again.stderr.count("already holds a model or a run") == 1


@pytest.mark.proof
@pytest.mark.parametrize(("count", "steps"), [(2, (100, 15, 15)), (4, (25, 6, 6))])
def test_show_1_many_steps_on_one_two_and_four_processes(
    count: int, steps: tuple[int, ...], prepared: PreparedCorpus, tmp_path: Path
) -> None:
    """All recipes in one start of processes, most steps of the first; what goes wrong with more ranks shows early."""
    each = dict(zip(("bert", "electra", "gpt"), steps, strict=True))

    def asked(name: str, out: str, **more: Any) -> dict[str, Any]:
        return order(name, tmp_path / out, prepared, **more | {"steps": each[name], "save_every": each[name]})

    expected = {name: pretrain(Ranks(), asked(name, name))["losses"] for name in each}
    runs = [
        asked(name, f"{name}-{parallel}", parallel=parallel) for name in each for parallel in ("replicate", "shard")
    ]
    done = launch(count, "tests.training.ranks.runs:pretrain_several", runs, tmp_path / "out.json", timeout_s=900)
    for given, run in zip(runs, done, strict=True):
        assert len(run["losses"]) == given["steps"]
        assert run["losses"] == pytest.approx(expected[given["recipe"]], rel=1e-5), given
        assert run["sharded"] == (given["parallel"] == "shard")


@pytest.fixture(scope="module")
def shards(prepared: PreparedCorpus, tmp_path_factory: pytest.TempPathFactory) -> dict[str, PreparedCorpus]:
    """The vocabularies that some recipes need; the others take BERT's."""
    kinds = {
        "t5": UnigramConfig(size=400, frame="t5"),
        "xlnet": UnigramConfig(size=400, frame="xlnet"),
        "elmo": CharactersConfig(size=900),
    }
    documents = list(itertools.islice(embedded_documents("train"), 40))
    made = dict.fromkeys(RECIPES, prepared)
    for name, kind in kinds.items():
        folder = tmp_path_factory.mktemp(name)
        tokenizer = train_vocabulary((document.text for document in documents), kind)
        build_corpus(documents, tokenizer, folder / "train")
        made[name] = PreparedCorpus(train=folder / "train", valid=None)
    return made


@pytest.mark.proof
def test_every_recipe_learns_the_same_on_two_processes(shards: dict[str, PreparedCorpus], tmp_path: Path) -> None:
    runs = [
        order(name, tmp_path / f"{name}-{parallel}", shards[name], steps=3, parallel=parallel)
        for name in RECIPES
        for parallel in ("replicate", "shard")
    ]
    done = launch(2, "tests.training.ranks.runs:pretrain_several", runs, tmp_path / "out.json", timeout_s=900)
    alone = {name: pretrain(Ranks(), order(name, tmp_path / name, shards[name], steps=3))["losses"] for name in RECIPES}
    for given, run in zip(runs, done, strict=True):
        assert run["losses"] == pytest.approx(alone[given["recipe"]], rel=1e-5), given
