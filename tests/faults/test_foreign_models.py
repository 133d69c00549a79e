"""Hugging Face directories that are not loaded: pickled weights, remote code, architectures and heads unknown here.

Each is refused with exit code 5 and one line that says why and what to do, by every command and by `load`.
"""

import json
import os
import pickle

import pytest

import larvatus as lv
from larvatus.core.errors import ArtefactError


@pytest.fixture
def model(tmp_path, tiny_model, save_tiny):
    """A sound directory as from Hugging Face, to spoil."""
    directory = save_tiny(tmp_path / "m", tiny_model())
    (directory / "larvatus.json").unlink()
    return directory


def edit(directory, name="config.json", **fields):
    path = directory / name
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def refused(larvatus, model, *words):
    """By `load` and by the commands alike."""
    with pytest.raises(ArtefactError) as caught:
        lv.load(model)
    line = str(caught.value)
    out = model.parent / "out"
    for arguments in (("convert", model, out), ("fill", "the [MASK]", "--model", model)):
        code, said = larvatus(*arguments)
        assert (code, said) == (5, f"larvatus: {line}")
    for word in words:
        assert word in line
    assert not out.exists()


class Evil:
    """What runs a command when it is unpickled."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.system, (f"touch {self.marker}",)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "weights.ckpt"])
def test_pickled_weights_alone_are_refused_unread(larvatus, model, tmp_path, name):
    (model / "model.safetensors").unlink()
    (model / name).write_bytes(pickle.dumps(Evil(tmp_path / "ran")))
    refused(larvatus, model, f"{name} is pickled", "convert it", "save_pretrained")
    assert not (tmp_path / "ran").exists()


def test_pickled_weights_beside_safetensors_do_not_matter(model, tmp_path):
    (model / "pytorch_model.bin").write_bytes(pickle.dumps(Evil(tmp_path / "ran")))
    lv.load(model)
    assert not (tmp_path / "ran").exists()


def test_remote_code_is_refused_and_not_imported(larvatus, model, tmp_path):
    (model / "modeling_mine.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    edit(model, auto_map={"AutoModel": "modeling_mine.Mine"}, model_type="mine")
    refused(larvatus, model, "config.json: auto_map", "names code to load", "remove the field if the weights need none")
    assert not (tmp_path / "ran").exists()


def test_code_beside_a_model_that_needs_none_is_left_alone(model, tmp_path):
    (model / "modeling_mine.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    edit(model, "tokenizer_config.json", auto_map={"AutoTokenizer": ["modeling_mine.Mine", None]})
    lv.load(model)
    assert not (tmp_path / "ran").exists()


def test_an_unknown_model_type_names_those_there_are(larvatus, model):
    edit(model, model_type="nomic_qwk")
    refused(larvatus, model, "model_type 'nomic_qwk' is not supported; there are: ", "bert, distilbert, ", "mpnet")


def test_no_model_type_is_refused(larvatus, model):
    edit(model, model_type=None)
    refused(larvatus, model, "has no model_type")


def test_an_unknown_head_says_how_to_take_the_encoder_alone(larvatus, model):
    edit(model, architectures=["BertLMHeadModel"])
    refused(larvatus, model, "'BertLMHeadModel' is not one of BertForPreTraining", "AutoModel.from")


def test_no_config_is_refused(larvatus, model):
    (model / "config.json").unlink()
    refused(larvatus, model, "config.json is missing")


def test_a_file_is_not_a_model(larvatus, model):
    file = model.parent / "model.bin"
    file.write_bytes(b"PK")
    refused(larvatus, file, "model.bin is pickled")
