"""Tiny models of every family that has fine-tuned heads, saved by `transformers`, and theirs compared with ours."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.testing import assert_close

from larvatus.core.batch import TrainingBatch
from larvatus.core.errors import ArtefactError
from larvatus.data.text.special_tokens import encode_batch
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.models.bundle.directory import Bundle, load_bundle
from larvatus.models.bundle.new_heads import attach_head, default_head_settings
from larvatus.models.heads import Classification, ClassificationConfig, Tagging, TaggingConfig
from larvatus.models.network import Network
from larvatus.models.nn.device import on_device
from tests.models.bundle.theirs import LIMIT, TEXTS, edit_config, equal_tensors, scramble, theirs_from, transformers
from tests.tiny import save_model

Make = Callable[..., tuple[Path, Any]]
SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 20}
PLACES = {"max_position_embeddings": LIMIT}
FAMILIES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "bert": ("Bert", "wordpiece", SMALL | PLACES),
    "roberta": ("Roberta", "byte-bpe", SMALL | {"type_vocab_size": 1, "max_position_embeddings": LIMIT + 2}),
    "xlm-roberta": ("XLMRoberta", "unigram", SMALL | {"type_vocab_size": 1, "max_position_embeddings": LIMIT + 2}),
    "modernbert": ("ModernBert", "byte-bpe", SMALL | PLACES | {"pad_token_id": 1, "local_attention": 8}),
    "distilbert": (
        "DistilBert",
        "wordpiece",
        {"dim": 16, "n_layers": 2, "n_heads": 4, "hidden_dim": 20, **PLACES},
    ),
    "mpnet": ("MPNet", "unigram", SMALL | {"max_position_embeddings": LIMIT + 2}),
    "albert": ("Albert", "unigram", SMALL | PLACES | {"embedding_size": 8}),
    "electra": ("Electra", "wordpiece", SMALL | PLACES | {"embedding_size": 16}),
}
LABELS = ("bad", "fair", "good")
HEADS = {"ForSequenceClassification": "classification", "ForTokenClassification": "tagging"}


AUTO = {
    "classification": transformers.AutoModelForSequenceClassification,
    "tagging": transformers.AutoModelForTokenClassification,
}


@torch.no_grad()
def logits(network: Network, tokenizer: Tokenizer) -> torch.Tensor:
    """Scores of each text, or of each token."""
    tokens = on_device(encode_batch(tokenizer, TEXTS), "cpu")
    z_ND = network.encoder(tokens)
    (head,) = network.heads.values()
    batch = TrainingBatch(tokens=tokens, targets={})
    if isinstance(head, Tagging):
        return head.logits(z_ND, batch)
    assert isinstance(head, Classification)
    return head.logits(head.features(z_ND, batch), batch)


@torch.no_grad()
def their_logits(model: Any, tokenizer: Tokenizer, *, tokens: bool) -> torch.Tensor:
    """The same from `transformers`, padded."""
    batch = encode_batch(tokenizer, TEXTS)
    rows = torch.split(torch.from_numpy(batch.ids), batch.lengths.tolist())
    ids = torch.nn.utils.rnn.pad_sequence(list(rows), batch_first=True, padding_value=tokenizer.padding_id)
    real = ids != tokenizer.padding_id
    found: torch.Tensor = model.eval()(input_ids=ids, attention_mask=real.long()).logits
    return found[real] if tokens else found


def equal(bundle: Bundle, model: Any) -> None:
    tagging = "tagging" in bundle.network.objectives
    ours = logits(bundle.network, bundle.tokenizer)
    assert ours.std() > 0.05  # not equal for being nothing
    assert_close(ours, their_logits(model, bundle.tokenizer, tokens=tagging), rtol=1e-4, atol=1e-4)


def save(directory: Path, bundle: Bundle) -> Path:
    save_model(directory, bundle.network, bundle.tokenizer, bundle.objectives, family=bundle.family)
    return directory


def headed(parent: Bundle, head: str, **settings: Any) -> Bundle:
    """With a new head as the family has it, and weights that all differ from their defaults."""
    config: ClassificationConfig | TaggingConfig
    if head == "classification":
        config = ClassificationConfig(
            **{"labels": LABELS, **default_head_settings(parent, "classification"), **settings}
        )
    else:
        config = TaggingConfig(**{"labels": LABELS, **default_head_settings(parent, "tagging"), **settings})
    ready, _ = attach_head(parent, config, seed=1)
    scramble(ready.network)
    return ready


def theirs_of(directory: Path, head: str) -> Any:
    """What `transformers` makes of a directory of ours, of which it must want nothing more and leave nothing out."""
    return theirs_from(AUTO[head], directory)


def kept(bundle: Bundle, directory: Path) -> Bundle:
    """What a directory holds, which is the same head and the same tensors still."""
    again = load_bundle(directory)
    assert again.objectives == bundle.objectives
    equal_tensors(again.network, bundle.network)
    return again


def kept_by_them(bundle: Bundle, model: Any, directory: Path) -> Bundle:
    """A model of ours that `transformers` loaded and saved."""
    model.save_pretrained(directory)
    bundle.tokenizer.save(directory)
    return kept(bundle, directory)


def refused_in_one_line(directory: Path, words: str, **fields: Any) -> None:
    """Change fields of `config.json`: the directory is then refused; None takes a field out."""
    edit_config(directory, *(name for name, value in fields.items() if value is None), **fields)
    with pytest.raises(ArtefactError) as caught:
        load_bundle(directory)
    assert words in str(caught.value)
    assert str(directory) in str(caught.value)
    assert "\n" not in str(caught.value)
