"""What all tests share: a small corpus of real prose with its vocabulary, and runs over it that take a second.

A pytest plugin (see conftest.py), as are tiny.py and made_up.py.
"""

import contextlib
import gc
import importlib
import itertools
import os
import subprocess
import types
import warnings

import pytest
import torch
from hypothesis import HealthCheck, Phase, is_hypothesis_test, settings

from larvatus.data.corpus import build_corpus, processes
from larvatus.data.text.embedded import embedded_documents
from larvatus.data.text.vocabularies import WordPieceConfig, train_vocabulary
from larvatus.models.recipes import read_recipe
from larvatus.training.engine.reporter import Reporter
from larvatus.training.engine.settings import Budget, Runtime
from larvatus.training.pretraining.job import PretrainingJob
from larvatus.training.pretraining.prepare import PreparedCorpus
from larvatus.training.pretraining.run import train
from tests import warm

settings.register_profile(
    "house", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
settings.load_profile("house")
gc.disable()  # until the tests are collected: what is imported stays
EXAMPLES = float(os.environ.get("LARVATUS_EXAMPLES", "0.2"))
"""The share of its examples that hypothesis tries; `make proof` has it try them all."""
torch.set_num_threads(1)
warm.wait_for_no_disk()
if "LARVATUS_DEFENCE_OUT" not in os.environ:  # else each worker that reads a corpus imports for 0.7 s
    processes.subprocess = types.SimpleNamespace(**{**vars(subprocess), "Popen": warm.Popen})


def pytest_collection(session):
    """In a whole run the second worker imports the test modules from last to first: each compiles half of them."""
    config = session.config
    whole = [config.rootpath / path for path in config.args] == [config.rootpath / "tests"]
    if whole and getattr(config, "workerinput", {}).get("workerid") == "gw1":
        for path in sorted(config.rootpath.glob("tests/**/test_*.py"), reverse=True):
            # collection reports what a module raises, and that one is skipped for lack of a library
            with contextlib.suppress(Exception, pytest.skip.Exception), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                importlib.import_module(".".join(path.relative_to(config.rootpath).with_suffix("").parts))


STARTED_ONCE = ("tests/training/ranks/", "tests/faults/test_rank_faults.py")
"""Tests that share processes of their own. They run first: a worker that has ended takes tests from the end of the
other's, and would start the same processes."""


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: not item.nodeid.startswith(STARTED_ONCE))
    tests = {getattr(item.obj, "__func__", item.obj) for item in items if isinstance(item, pytest.Function)}
    for function in filter(is_hypothesis_test, tests):
        whole = getattr(function, "_hypothesis_internal_use_settings", settings.default)
        most = max(10, round(EXAMPLES * whole.max_examples))
        share = settings(whole, max_examples=most)
        if "LARVATUS_DEFENCE_OUT" in os.environ:  # it is expected to fail, and nobody reads for which example
            share = settings(share, phases=[Phase.explicit, Phase.generate], report_multiple_bugs=False)
        function._hypothesis_internal_use_settings = share


def pytest_collection_finish():
    gc.freeze()  # no collection looks through all that was imported
    gc.set_threshold(*warm.COLLECTED)
    gc.enable()


SMALL = (
    "model.layers=1",
    "model.hidden=32",
    "model.heads=2",
    "model.max_positions=64",
    "batch=16",
    "phases.0.length=32",
    "phases.1.length=48",
    "optimizer.rate=3e-3",
)


@pytest.fixture(scope="session")
def prepared(tmp_path_factory):
    """Forty documents of the embedded text as shards, and a few more held out, which each run reads often."""
    folder = tmp_path_factory.mktemp("corpus")
    documents = list(itertools.islice(embedded_documents("train"), 44))
    tokenizer = train_vocabulary((d.text for d in documents[:40]), WordPieceConfig(size=1200))
    build_corpus(documents[:40], tokenizer, folder / "train")
    build_corpus(documents[40:], tokenizer, folder / "valid")
    return PreparedCorpus(train=folder / "train", valid=folder / "valid")


@pytest.fixture
def small_recipe():
    def make(*settings, **kwargs):
        return read_recipe("bert", settings=[*SMALL, *settings], **kwargs)

    return make


@pytest.fixture
def run_small(prepared, small_recipe, tmp_path):
    """Train the small recipe in this process: run_small("name", steps=5, settings=[…], resume=True)."""

    def run(name, *, steps=4, settings=(), runtime=None, seed=0, console=None, **options):
        job = PretrainingJob(
            recipe=small_recipe(*settings),
            out=tmp_path / name,
            runtime=runtime or Runtime(),
            budget=Budget(steps=steps) if steps else Budget(),
            seed=seed,
            **options,
        )
        return train(job, lambda: prepared, Reporter(console))

    return run
