"""Directories of fine-tuned models, both ways: `…ForSequenceClassification` and `…ForTokenClassification`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch.testing import assert_close

from larvatus.batch import TrainingBatch
from larvatus.bundle.convert import convert_bundle
from larvatus.bundle.directory import Bundle, load_bundle, save_bundle
from larvatus.bundle.heads import natural_classification, natural_tagging, with_head
from larvatus.bundle.huggingface import layout_named
from larvatus.errors import ArtefactError
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
from tests.bundle.theirs import LIMIT, PROSE, TEXTS, equal_tensors, scramble, their_directory, transformers

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
    assert ours.std() > 0.05  # not equal for being nothing
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


AUTO = {
    "classification": transformers.AutoModelForSequenceClassification,
    "tagging": transformers.AutoModelForTokenClassification,
}
OURS: dict[str, dict[str, Any]] = {
    "classification": {"dropout": 0.25, "temperature": 1.5, "focal": 2.0, "class_weights": (1.0, 2.0, 0.5)},
    "tagging": {"dropout": 0.25, "temperature": 1.5, "scheme": "bio", "pool": "mean", "learn": "words"},
}


def save(directory: Path, bundle: Bundle) -> Path:
    save_bundle(
        directory,
        pretraining=bundle.pretraining,
        model_config=bundle.model,
        objective_configs=bundle.objectives,
        tokenizer=bundle.tokenizer,
        recipe=None,
        lineage={},
        card="# tiny\n",
        family=bundle.family,
    )
    return directory


def headed(parent: Bundle, head: str, **settings: Any) -> Bundle:
    """With a new head as the family has it, and weights that all differ from their defaults."""
    config: ClassificationConfig | TaggingConfig
    if head == "classification":
        config = ClassificationConfig(**{"labels": LABELS, **natural_classification(parent), **settings})
    else:
        config = TaggingConfig(**{"labels": LABELS, **natural_tagging(parent), **settings})
    ready, _ = with_head(parent, config, seed=1)
    scramble(ready.pretraining)
    return ready


def theirs_of(directory: Path, head: str) -> Any:
    """What `transformers` makes of a directory of ours, of which it must want nothing more and leave nothing out."""
    model, info = AUTO[head].from_pretrained(directory, output_loading_info=True)
    assert not any(info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs"))
    return model


@pytest.mark.parametrize("head", AUTO)
@pytest.mark.parametrize("family", FAMILIES)
def test_what_we_save_transformers_loads_with_equal_logits(
    tmp_path: Path, theirs: Make, family: str, head: str
) -> None:
    bundle = headed(load_bundle(theirs(family, "Model")[0]), head, **OURS[head])
    model = theirs_of(save(tmp_path / "ours", bundle), head)
    assert model.config.model_type == family
    assert model.config.id2label == dict(enumerate(LABELS))
    assert model.config.label2id == {label: number for number, label in enumerate(LABELS)}
    equal(bundle, model)
    back = load_bundle(tmp_path / "ours")
    assert (back.objectives, back.model, back.unused) == (bundle.objectives, bundle.model, ())
    equal_tensors(back.pretraining, bundle.pretraining)
    model.save_pretrained(tmp_path / "again")  # their hands keep our settings
    bundle.tokenizer.save(tmp_path / "again")
    again = load_bundle(tmp_path / "again")
    assert again.objectives == bundle.objectives
    equal_tensors(again.pretraining, bundle.pretraining)


@pytest.mark.parametrize(
    ("kind", "labels", "problem"),
    [
        ("classes", LABELS, "single_label_classification"),
        ("labels", LABELS, "multi_label_classification"),
        ("labels", ("toxic",), "multi_label_classification"),
        ("number", ("similarity",), "regression"),
    ],
)
def test_the_kind_of_labels_is_their_problem_type(
    tmp_path: Path, theirs: Make, kind: str, labels: tuple[str, ...], problem: str
) -> None:
    bundle = headed(load_bundle(theirs("bert", "Model")[0]), "classification", kind=kind, labels=labels)
    model = theirs_of(save(tmp_path / "ours", bundle), "classification")
    assert (model.config.problem_type, model.config.num_labels) == (problem, len(labels))
    assert load_bundle(tmp_path / "ours").objectives == bundle.objectives


@pytest.mark.parametrize(("labels", "kind"), [(("one",), "number"), (LABELS, "classes")])
def test_where_no_problem_type_is_said_it_is_as_transformers_takes_it(
    theirs: Make, labels: tuple[str, ...], kind: str
) -> None:
    (config,) = load_bundle(theirs("bert", "ForSequenceClassification", labels)[0]).objectives
    assert isinstance(config, ClassificationConfig)
    assert (config.kind, config.labels) == (kind, labels)


@pytest.mark.parametrize(
    ("family", "kind", "fields", "dropout"),
    [
        ("bert", "ForTokenClassification", {"hidden_dropout_prob": 0.3}, 0.3),
        ("bert", "ForTokenClassification", {"hidden_dropout_prob": 0.3, "classifier_dropout": 0.0}, 0.0),
        ("distilbert", "ForSequenceClassification", {"dropout": 0.3}, 0.2),
        ("distilbert", "ForSequenceClassification", {"seq_classif_dropout": 0.4}, 0.4),
        ("distilbert", "ForTokenClassification", {"dropout": 0.3, "seq_classif_dropout": 0.4}, 0.3),
        ("mpnet", "ForSequenceClassification", {"hidden_dropout_prob": 0.3}, 0.3),
        ("albert", "ForSequenceClassification", {"classifier_dropout_prob": 0.4}, 0.4),
        ("modernbert", "ForSequenceClassification", {"classifier_dropout": 0.4}, 0.4),
    ],
)
def test_dropout_is_read_where_each_family_has_it(
    theirs: Make, family: str, kind: str, fields: dict[str, Any], dropout: float
) -> None:
    directory, model = theirs(family, kind, **fields)
    (config,) = load_bundle(directory).objectives
    assert isinstance(config, ClassificationConfig | TaggingConfig)
    assert config.dropout == dropout
    last = [part.p for name, part in model.named_modules() if isinstance(part, torch.nn.Dropout)][-1]
    assert last == dropout


@pytest.mark.parametrize("pool", ["cls", "mean"])
def test_modernbert_pools_as_its_config_says(tmp_path: Path, theirs: Make, pool: str) -> None:
    directory, model = theirs("modernbert", "ForSequenceClassification", classifier_pooling=pool)
    bundle = load_bundle(directory)
    equal(bundle, model)
    assert natural_classification(bundle) == {"pool": pool, "dense": "gelu", "dense_norm": True}
    assert theirs_of(save(tmp_path / "ours", bundle), "classification").config.classifier_pooling == pool


@pytest.mark.parametrize(
    ("family", "head", "settings"),
    [
        ("bert", "classification", {"pool": "mean"}),
        ("bert", "classification", {"dense": "none"}),
        ("bert", "classification", {"dense": "gelu"}),
        ("roberta", "classification", {"mix": True}),
        ("modernbert", "classification", {"pool": "max"}),
        ("modernbert", "tagging", {"dense": "none"}),
        ("distilbert", "tagging", {"lstm": 5}),
        ("albert", "tagging", {"mix": True, "lstm": 5, "crf": True}),
    ],
)
def test_what_no_family_has_is_written_in_our_own_layout(
    tmp_path: Path, theirs: Make, family: str, head: str, settings: dict[str, Any]
) -> None:
    bundle = headed(load_bundle(theirs(family, "Model")[0]), head, **settings)
    directory = save(tmp_path / "ours", bundle)
    found = json.loads((directory / "config.json").read_text())["model_type"]
    assert found == ("electra" if settings == {"dense": "gelu"} else "larvatus")  # which is BERT but for that
    back = load_bundle(directory)
    assert back.objectives == bundle.objectives
    equal_tensors(back.pretraining, bundle.pretraining)
    assert not (directory / "crf.safetensors").exists()


# ── the CRF beside


def test_a_crf_stands_beside_and_comes_back(tmp_path: Path, theirs: Make) -> None:
    bundle = headed(load_bundle(theirs("bert", "Model")[0]), "tagging", crf=True, scheme="bio")
    directory = save(tmp_path / "ours", bundle)
    manifest = json.loads((directory / "larvatus.json").read_text())
    assert "crf.safetensors" in manifest["files"]
    equal(bundle, theirs_of(directory, "tagging"))
    back = load_bundle(directory)
    assert back.objectives == bundle.objectives
    equal_tensors(back.pretraining, bundle.pretraining)
    (config,) = back.objectives
    assert isinstance(config, TaggingConfig)
    _, taken = with_head(back, config, seed=1)
    assert "objectives.tagging.crf.transitions" in taken
    _, taken = with_head(back, TaggingConfig(labels=("x", "y", "z"), crf=True), seed=1)
    assert taken == ()


def test_a_crf_is_converted_with_its_model_and_goes_with_it(tmp_path: Path, theirs: Make) -> None:
    parent = load_bundle(theirs("bert", "Model")[0])
    bundle = headed(parent, "tagging", crf=True)
    source = save(tmp_path / "ours", bundle)
    native = convert_bundle(source, tmp_path / "native", to="larvatus")
    assert native.kept == ("tagging",)
    assert not (native.path / "crf.safetensors").exists()
    equal_tensors(load_bundle(native.path).pretraining, bundle.pretraining)
    again = convert_bundle(native.path, tmp_path / "bert", to="bert", dtype="bfloat16")
    assert again.architecture == "BertForTokenClassification"
    crf = "objectives.tagging.crf.transitions"
    found = load_bundle(again.path).pretraining.state_dict()[crf]
    assert torch.equal(found, bundle.pretraining.state_dict()[crf])
    save(source, headed(parent, "tagging"))
    assert not (source / "crf.safetensors").exists()
    load_bundle(source)


def test_a_crf_that_is_missing_or_does_not_fit_is_named(tmp_path: Path, theirs: Make) -> None:
    directory = save(tmp_path / "ours", headed(load_bundle(theirs("bert", "Model")[0]), "tagging", crf=True))
    path = directory / "crf.safetensors"
    kept = path.read_bytes()
    path.write_bytes(kept[:-4] + b"\0\0\0\0")
    with pytest.raises(ArtefactError, match=r"crf\.safetensors does not match its checksum"):
        load_bundle(directory)
    path.unlink()
    with pytest.raises(ArtefactError, match=r"crf\.safetensors is missing, though larvatus\.json lists it"):
        load_bundle(directory)
    (directory / "larvatus.json").unlink()
    with pytest.raises(ArtefactError, match=r"crf\.safetensors is missing, though config\.json says"):
        load_bundle(directory)
    save_file({"transitions": torch.zeros(3, 3), "start": torch.zeros(4)}, path)
    with pytest.raises(
        ArtefactError, match=r"crf\.safetensors does not fit .* missing: end; misshapen: start is \[4\]"
    ):
        load_bundle(directory)
    save_file({"transitions": torch.full((3, 3), torch.nan), "start": torch.zeros(3), "end": torch.zeros(3)}, path)
    with pytest.raises(ArtefactError, match=r"crf\.safetensors: tensor 'transitions' holds NaN"):
        load_bundle(directory)
    path.write_bytes(kept)
    load_bundle(directory)


# ── bad input

BAD: list[tuple[dict[str, Any], str]] = [
    ({"id2label": {"0": "a", "2": "b", "3": "c"}}, "id2label must name the classes 0, 1, 2"),
    ({"id2label": {}}, "id2label must name"),
    ({"id2label": {"0": "a", "1": "a", "2": "b"}}, "same name to two classes"),
    ({"id2label": ["a", "b", "c"]}, "Expected `object"),
    ({"id2label": {"0": 1, "1": 2, "2": 3}}, "Expected `str`"),
    ({"num_labels": 4}, "names 3 classes, but num_labels is 4"),
    ({"id2label": None, "num_labels": 10**9}, "num_labels = 1,000,000,000 is beyond any model"),
    ({"id2label": None, "num_labels": 2**21}, "num_labels = 2,097,152 is not a number of classes"),
    ({"id2label": None, "num_labels": 0}, "num_labels = 0 is not"),
    ({"label2id": {"bad": 2, "fair": 1, "good": 0}}, "another order"),
    ({"id2label": {str(number): f"c{number}" for number in range(4)}}, "misshapen: classifier.weight"),
    ({"id2label": None}, "misshapen"),
    ({"problem_type": "ranking"}, "problem_type"),
    ({"problem_type": "regression"}, "regression has one number"),
    ({"classifier_dropout": 3}, "dropout lies in"),
    ({"classifier_dropout": "much"}, "Expected `float`"),
    ({"larvatus_head": 3}, "larvatus_head"),
    ({"larvatus_head": {"heat": 3}}, "larvatus_head has 'heat'"),
    ({"larvatus_head": {"labels": ["x", "y"]}}, "larvatus_head has 'labels'"),
    ({"larvatus_head": {"temperature": 0}}, "temperature must be above 0"),
    ({"larvatus_head": {"class_weights": [1.0]}}, "3 classes, but 1 class weights"),
]


@pytest.mark.parametrize(("fields", "words"), BAD)
def test_a_head_that_is_described_badly_is_refused_in_one_line(
    theirs: Make, fields: dict[str, Any], words: str
) -> None:
    directory, _ = theirs("bert", "ForSequenceClassification")
    edit(directory, **fields)
    with pytest.raises(ArtefactError) as caught:
        load_bundle(directory)
    assert words in str(caught.value)
    assert str(directory) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_classes_without_names_are_numbered(theirs: Make) -> None:
    directory, model = theirs("bert", "ForSequenceClassification")
    edit(directory, id2label=None, label2id=None, num_labels=3)
    bundle = load_bundle(directory)
    (config,) = bundle.objectives
    assert isinstance(config, ClassificationConfig)
    assert config.labels == ("LABEL_0", "LABEL_1", "LABEL_2")
    equal(bundle, model)
    two, _ = theirs("bert", "ForTokenClassification", ("no", "yes"))
    edit(two, id2label=None, label2id=None)
    (tags,) = load_bundle(two).objectives
    assert isinstance(tags, TaggingConfig)
    assert tags.labels == ("LABEL_0", "LABEL_1")


def edit(directory: Path, **fields: Any) -> None:
    """Change fields of config.json; None takes one out."""
    path = directory / "config.json"
    changed = {**json.loads(path.read_text()), **fields}
    path.write_text(json.dumps({name: value for name, value in changed.items() if value is not None}))


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
