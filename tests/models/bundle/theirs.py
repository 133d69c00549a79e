"""Directories as `transformers` writes them, with random weights, and the comparison of their numbers with ours."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.testing import assert_close

from larvatus.data.text.special_tokens import encode_batch
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.models.bundle.directory import load_bundle
from larvatus.models.network import Network
from larvatus.models.nn.device import on_device
from tests.tiny import save_model

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import transformers

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

PROSE = "Please turn your homework in. The river was wide, and deep! A naïve café by the river's bank? " * 3
TEXTS = ["Please turn your homework in.", "the river", "", "The bank of a wide river, 山 and deep!", "was wide " * 40]
LIMIT = 256  # tokens; the longest of the texts has fewer
Scrambled = TypeVar("Scrambled", bound=torch.nn.Module)


def their_directory(path: Path, tokenizer: Tokenizer, name: str, **fields: Any) -> tuple[Path, Any]:
    """A model of class `name` with weights that all differ from their defaults, saved with our tokenizer."""
    family = name.removesuffix("Model").removesuffix("LMHead").partition("For")[0]
    config = getattr(transformers, f"{family}Config")(vocab_size=tokenizer.size, **fields)
    with torch.random.fork_rng():
        torch.manual_seed(5)
        theirs = getattr(transformers, name)(config)
        for parameter in theirs.parameters():  # biases and norms too, or a wrong name would not show
            if parameter.requires_grad:
                torch.nn.init.normal_(parameter, std=0.3)
    theirs.save_pretrained(path)
    tokenizer.save(path)
    return path, theirs.eval()


def scramble(network: Scrambled) -> Scrambled:
    """The same model with every parameter sampled again: norms and biases too, or a wrong name would not show."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.normal_(std=0.3, generator=generator)
    return network.eval()


@torch.no_grad()
def equal(network: Network, theirs: Any, tokenizer: Tokenizer) -> None:
    """Every hidden state and the logits of all tokens; theirs padded, ours not. Positions are left to each."""
    batch = encode_batch(tokenizer, TEXTS)
    rows = torch.split(torch.from_numpy(batch.ids), batch.lengths.tolist())
    ids = torch.nn.utils.rnn.pad_sequence(list(rows), batch_first=True, padding_value=tokenizer.padding_id)
    real = ids != tokenizer.padding_id
    answer = theirs.eval()(input_ids=ids, attention_mask=real.long(), output_hidden_states=True)
    states = network.encoder(on_device(batch, "cpu"), layers=range(network.encoder.depth + 1))
    assert states[-1].std() > 0.1  # not equal for being nothing
    for ours, other in zip(states, answer.hidden_states, strict=True):
        assert_close(ours, other[real], rtol=1e-4, atol=1e-4)
    if "masked-lm" in network.objectives:
        logits = network.heads["masked-lm"].logits(states[-1], network.encoder.embeddings.words.weight)
        assert_close(logits, answer.logits[real], rtol=1e-4, atol=1e-4)
    if "replaced-tokens" in network.objectives:
        assert_close(network.heads["replaced-tokens"].logits(states[-1]), answer.logits[real], rtol=1e-4, atol=1e-4)


def edit_config(directory: Path, *without: str, **fields: Any) -> None:
    """Change fields of `config.json`, and drop others."""
    path = directory / "config.json"
    config = json.loads(path.read_text()) | fields
    path.write_text(json.dumps({name: value for name, value in config.items() if name not in without}))


def edit_weights(directory: Path, change: Callable[[dict[str, Tensor]], dict[str, Tensor]]) -> None:
    path = directory / "model.safetensors"
    tensors = {name: tensor.clone() for name, tensor in load_file(path).items()}
    save_file(change(tensors), path, metadata={"format": "pt"})


def half(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.half() for name, tensor in tensors.items()}


def theirs_from(model: Any, directory: Path, **options: Any) -> Any:
    """What a class of `transformers` makes of a directory of ours: all its tensors are there, and no others."""
    theirs, info = model.from_pretrained(directory, output_loading_info=True, **options)
    assert not any(info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs"))
    return theirs


def read_by_both(directory: Path, network: Network, tokenizer: Tokenizer, model: Any) -> None:
    """What we save, a class of `transformers` reads with equal logits, and we with equal tensors."""
    save_model(directory, network, tokenizer)
    equal(network, theirs_from(model, directory), tokenizer)
    back = load_bundle(directory)
    assert back.model == network.encoder.config
    equal_tensors(network, back.network)


def equal_tensors(one: Network, other: Network) -> None:
    assert one.state_dict().keys() == other.state_dict().keys()
    for name, tensor in one.state_dict().items():
        assert torch.equal(tensor, other.state_dict()[name]), name
