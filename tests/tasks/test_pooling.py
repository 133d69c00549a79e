"""What stands for a text over a frozen encoder: the pooling that a sentence encoder was trained with, or the mean."""

from __future__ import annotations

import dataclasses
import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import larvatus as lv
from larvatus.core.errors import ArtefactError
from larvatus.models.bundle.directory import load_bundle
from larvatus.models.bundle.sentence_modules import read_pooling
from larvatus.models.heads import ClassificationConfig
from larvatus.tasks.classify.options import pooling_of
from larvatus.tasks.classify.task import ClassifyTask
from tests import made_up as made
from tests.made_up import QUICK, Call

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import sentence_transformers.models as parts
    import transformers


@pytest.fixture
def sentence_encoder(tiny_directory: Path, tmp_path: Path) -> Any:
    """A function that makes the tiny model a package of `sentence-transformers` with a pooling of theirs."""

    def make(mode: str) -> Path:
        directory = tmp_path / f"encoder-{mode}"
        shutil.copytree(tiny_directory, directory)
        (directory / "1_Pooling").mkdir()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            parts.Pooling(16, pooling_mode=mode).save(str(directory / "1_Pooling"))
        modules = [
            {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
            {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
        ]
        (directory / "modules.json").write_text(json.dumps(modules))
        return directory

    return make


@pytest.mark.parametrize("mode", ["cls", "mean", "max", "weightedmean"])
def test_the_pooling_that_sentence_transformers_saved_is_read(sentence_encoder: Any, mode: str) -> None:
    assert read_pooling(sentence_encoder(mode)) == mode
    assert load_bundle(sentence_encoder("lasttoken")).pooling == "lasttoken"


def test_the_older_way_of_writing_it_is_read_and_what_is_broken_is_refused(sentence_encoder: Any) -> None:
    directory = sentence_encoder("cls")
    path = directory / "1_Pooling" / "config.json"
    flags = {"word_embedding_dimension": 16, "pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}
    path.write_text(json.dumps(flags))
    assert read_pooling(directory) == "mean"
    path.write_text(json.dumps(flags | {"pooling_mode_max_tokens": True}))
    assert read_pooling(directory) == "mean+max"
    path.unlink()
    with pytest.raises(ArtefactError, match=r"names the pooling '1_Pooling', but there is no 1_Pooling/config\.json"):
        load_bundle(directory)
    (directory / "modules.json").write_text("{}")
    with pytest.raises(ArtefactError, match="is not a list of modules"):
        read_pooling(directory)


def test_what_is_read_of_a_text_by_what_learns(tiny_directory: Path) -> None:
    plain = load_bundle(tiny_directory)
    mean = dataclasses.replace(plain, pooling="mean")
    asked: dict[str, Any] = {"labels": ("a", "b"), "family": "cls"}
    assert pooling_of(plain, trained="head", **asked).pool == "mean"
    assert pooling_of(plain, trained="all", **asked).pool == "cls"  # as `transformers` has it
    assert pooling_of(mean, trained="all", **asked).pool == "cls"
    assert pooling_of(dataclasses.replace(plain, pooling="max"), trained="head", **asked).pool == "max"
    assert pooling_of(dataclasses.replace(plain, pooling="cls"), trained="head", **asked).pool == "cls"
    assert pooling_of(mean, trained="head", asked="cls", **asked).pool == "cls"
    other = pooling_of(dataclasses.replace(plain, pooling="weightedmean"), trained="head", **asked)
    assert (other.pool, "weightedmean" in other.why) == ("mean", True)
    own = dataclasses.replace(plain, objectives=(ClassificationConfig(labels=("a", "b"), pool="cls"),))
    head = ClassifyTask().head_in(own)
    assert pooling_of(own, trained="head", head=head, **asked).pool == "cls"  # its head was made for that
    assert pooling_of(own, trained="head", head=head, labels=("c", "d"), family="cls").pool == "mean"


@pytest.mark.parametrize(
    ("more", "says", "pool"),
    [
        (("--trained", "head"), "the mean of its tokens, as this sentence encoder was trained", "mean"),
        (("--trained", "head", "--pool", "cls"), "[CLS], as requested", "cls"),
        ((), "[CLS], as classifiers of its family", "cls"),
    ],
)
def test_the_pooling_is_said_saved_and_used_again(
    finetune: Call, sentence_encoder: Any, tmp_path: Path, more: tuple[str, ...], says: str, pool: str
) -> None:
    train, out, encoder = made.classes(tmp_path / "train.jsonl"), tmp_path / "out", sentence_encoder("mean")
    code, said, err = finetune("classify", "--train", train, "--out", out, *QUICK, *more, model=encoder)
    assert (code, err) == (0, "")
    assert f"pooling: a text is read by {says}" in said
    model = lv.load(out)
    (config,) = model.bundle.objectives
    assert isinstance(config, ClassificationConfig)
    assert (config.pool, config.dense) == (pool, "none" if pool == "mean" else "tanh")
    if pool == "mean":  # from the vectors of `transformers`, through the weights that were saved
        theirs = transformers.BertModel.from_pretrained(encoder).eval()
        cut = transformers.AutoTokenizer.from_pretrained(encoder)
        ids = torch.tensor([cut.convert_tokens_to_ids(["[CLS]", "the", "river", "bank", "[SEP]"])])
        with torch.inference_mode():
            mean = theirs(ids).last_hidden_state[0].mean(0)
            head = model.network.heads["classification"]
            scores = head.classifier(mean) / config.temperature  # the pooler was made for [CLS]: it is left out
        answer: Any = model.predict("the river bank")
        np.testing.assert_allclose(list(answer.probabilities.values()), torch.softmax(scores, -1), atol=1e-5)
