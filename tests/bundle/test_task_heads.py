"""Directories of fine-tuned models, both ways: `…ForSequenceClassification` and `…ForTokenClassification`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.testing import assert_close

from larvatus.batch import TrainingBatch
from larvatus.bundle.directory import Bundle, load_bundle
from larvatus.bundle.heads import natural_classification, natural_tagging, with_head
from larvatus.bundle.huggingface import layout_named
from larvatus.nn.device import on_device
from larvatus.objectives import (
    Classification,
    ClassificationConfig,
    MaskedLMConfig,
    NextSentenceConfig,
    Pretraining,
    Tagging,
    TaggingConfig,
)
from larvatus.text.inputs import inputs
from larvatus.text.tokenizer import Tokenizer
from larvatus.text.vocabulary import ByteBPEConfig, UnigramConfig, WordPieceConfig, train_vocabulary
from tests.bundle.theirs import LIMIT, PROSE, TEXTS, their_directory, transformers

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


@pytest.fixture(scope="module")
def tokenizers() -> dict[str, Tokenizer]:
    kinds = (WordPieceConfig(size=90), ByteBPEConfig(size=290), UnigramConfig(size=60))
    made = [train_vocabulary([PROSE], kind, allow_smaller=True) for kind in kinds]
    return {tokenizer.kind: tokenizer for tokenizer in made}


@pytest.fixture
def theirs(tmp_path: Path, tokenizers: dict[str, Tokenizer]) -> Make:
    """A function that has `transformers` save a model of a family: `theirs("bert", "ForTokenClassification", …)`."""

    def make(family: str, kind: str, labels: tuple[str, ...] = LABELS, **fields: Any) -> tuple[Path, Any]:
        name, vocabulary, sizes = FAMILIES[family]
        if kind in HEADS:
            fields["id2label"] = dict(enumerate(labels))
            fields["label2id"] = {label: number for number, label in enumerate(labels)}
        return their_directory(tmp_path / "theirs", tokenizers[vocabulary], f"{name}{kind}", **sizes, **fields)

    return make


@torch.no_grad()
def logits(pretraining: Pretraining, tokenizer: Tokenizer) -> torch.Tensor:
    """Scores of each text, or of each token."""
    tokens = on_device(inputs(tokenizer, TEXTS), "cpu")
    z_ND = pretraining.encoder(tokens)
    (head,) = pretraining.heads.values()
    if isinstance(head, Tagging):
        return head.logits(z_ND, tokens.lengths)
    assert isinstance(head, Classification)
    return head.logits(head.features(z_ND, TrainingBatch(tokens=tokens, targets={})))


@torch.no_grad()
def their_logits(model: Any, tokenizer: Tokenizer, *, tokens: bool) -> torch.Tensor:
    """The same from `transformers`, padded."""
    batch = inputs(tokenizer, TEXTS)
    rows = torch.split(torch.from_numpy(batch.ids), batch.lengths.tolist())
    ids = torch.nn.utils.rnn.pad_sequence(list(rows), batch_first=True, padding_value=tokenizer.pad_id)
    real = ids != tokenizer.pad_id
    found: torch.Tensor = model.eval()(input_ids=ids, attention_mask=real.long()).logits
    return found[real] if tokens else found


def equal(bundle: Bundle, model: Any) -> None:
    tagging = "tagging" in bundle.pretraining.objectives
    ours = logits(bundle.pretraining, bundle.tokenizer)
    assert ours.std() > 0.1  # not equal for being nothing
    assert_close(ours, their_logits(model, bundle.tokenizer, tokens=tagging), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", HEADS)
@pytest.mark.parametrize("family", FAMILIES)
def test_what_transformers_saves_we_load_with_equal_logits(theirs: Make, family: str, kind: str) -> None:
    directory, model = theirs(family, kind)
    bundle = load_bundle(directory)
    assert bundle.family == family
    (config,) = bundle.objectives
    assert isinstance(config, ClassificationConfig if kind == "ForSequenceClassification" else TaggingConfig)
    assert config.labels == LABELS
    equal(bundle, model)


# ── a new head on a model that is there

PARENTS = {
    "bert": ("ForPreTraining", "ForMaskedLM", "Model"),
    "roberta": ("ForMaskedLM", "Model"),
    "modernbert": ("ForMaskedLM",),
    "distilbert": ("ForMaskedLM",),
    "mpnet": ("Model",),
    "albert": ("ForPreTraining", "Model"),
    "electra": ("ForPreTraining", "Model"),
}


@pytest.mark.parametrize(("family", "kind"), [(family, kind) for family in PARENTS for kind in PARENTS[family]])
def test_a_new_head_takes_over_what_transformers_does(theirs: Make, family: str, kind: str) -> None:
    directory, _ = theirs(family, kind)
    parent = load_bundle(directory)
    for config, auto in (
        (
            ClassificationConfig(labels=LABELS, **natural_classification(parent)),
            transformers.AutoModelForSequenceClassification,
        ),
        (TaggingConfig(labels=LABELS, **natural_tagging(parent)), transformers.AutoModelForTokenClassification),
    ):
        ready, taken = with_head(parent, config, seed=1)
        model, info = auto.from_pretrained(directory, num_labels=3, output_loading_info=True)
        for name, tensor in ready.pretraining.state_dict().items():
            if not name.startswith("objectives."):
                continue
            (other,) = layout_named(family).theirs(name)
            assert (name in taken) == (other not in info["missing_keys"]), name
            if name in taken:
                assert torch.equal(tensor, model.state_dict()[other])
    assert ready.objectives == (config,)


def test_the_pooler_is_spare_until_a_head_wants_it(theirs: Make) -> None:
    directory, model = theirs("bert", "Model")
    parent = load_bundle(directory)
    assert parent.unused == ("bert.pooler.dense.bias", "bert.pooler.dense.weight")
    assert torch.equal(parent.spare["bert.pooler.dense.weight"], model.pooler.dense.weight)
    before = {name: tensor.clone() for name, tensor in parent.pretraining.state_dict().items()}
    ready, taken = with_head(parent, ClassificationConfig(labels=LABELS), seed=3)
    assert taken == ("objectives.classification.dense.bias", "objectives.classification.dense.weight")
    with torch.no_grad():  # what is trained now is a copy
        for parameter in ready.pretraining.parameters():
            parameter += 1
    assert all(torch.equal(before[name], tensor) for name, tensor in parent.pretraining.state_dict().items())
    assert torch.equal(parent.spare["bert.pooler.dense.weight"], model.pooler.dense.weight)


def test_what_is_new_is_drawn_by_the_seed_and_its_name(theirs: Make) -> None:
    parent = load_bundle(theirs("bert", "ForMaskedLM")[0])
    config = ClassificationConfig(labels=LABELS)
    one, same, other = (
        with_head(parent, config, seed=seed)[0].pretraining.heads["classification"] for seed in (1, 1, 2)
    )
    assert torch.equal(one.classifier.weight, same.classifier.weight)
    assert not torch.equal(one.classifier.weight, other.classifier.weight)
    built = Pretraining.build(parent.model, (config,), parent.architecture.vocabulary, seed=1)
    assert torch.equal(one.classifier.weight, built.heads["classification"].classifier.weight)


@pytest.mark.parametrize("kind", HEADS)
def test_a_head_for_the_same_labels_is_taken_over_whole(theirs: Make, kind: str) -> None:
    directory, model = theirs("bert", kind)
    parent = load_bundle(directory)
    (config,) = parent.objectives
    ready, taken = with_head(parent, config, seed=1)
    assert f"objectives.{HEADS[kind]}.classifier.weight" in taken
    equal(ready, model)
    renamed = type(config)(labels=("x", "y", "z"))
    fresh, taken = with_head(parent, renamed, seed=1)
    assert all("classifier" not in name for name in taken)
    head = fresh.pretraining.heads[HEADS[kind]]
    assert not torch.equal(head.classifier.weight, parent.pretraining.heads[HEADS[kind]].classifier.weight)


def test_a_tagger_passes_no_classifier_on_to_texts(theirs: Make) -> None:
    parent = load_bundle(theirs("bert", "ForTokenClassification")[0])
    assert with_head(parent, ClassificationConfig(labels=LABELS), seed=1)[1] == ()


def test_a_model_of_our_own_layout_has_the_heads_of_the_family_it_is_like(
    tmp_path: Path, tiny_model: Any, save_tiny: Any
) -> None:
    plain, heads = (MaskedLMConfig(), NextSentenceConfig()), (MaskedLMConfig(), NextSentenceConfig(pooler=False))
    raw = load_bundle(save_tiny(tmp_path / "raw", tiny_model(objectives=heads), heads))
    assert raw.family == "larvatus"
    assert natural_classification(raw) == {"pool": "cls", "dense": "tanh", "dense_norm": False}
    config = ClassificationConfig(labels=LABELS, **natural_classification(raw))
    assert with_head(raw, config, seed=1)[1] == ()
    pooled = load_bundle(save_tiny(tmp_path / "pre", tiny_model(objectives=plain, norm="pre"), plain))
    assert natural_classification(pooled)["dense"] == "tanh"
    assert with_head(pooled, config, seed=1)[0].objectives == (config,)
