"""The tokenizer of each family as `transformers` has it, learnt from Python's documentation, and models with it."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from tests.bundle.families import FAMILIES
from tests.bundle.theirs import transformers

SIZE = 400
BERT = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
ROBERTA = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]


@cache
def prose() -> tuple[str, ...]:
    """Paragraphs of Python's own documentation."""
    return tuple(" ".join(part.split()) for part in topics["debugger"].split("\n\n"))


def _learnt(model: Any, trainer: Any, splitter: Any) -> dict[str, Any]:
    """The trained model as JSON."""
    library = Tokenizer(model)
    library.pre_tokenizer = splitter
    library.train_from_iterator(prose(), trainer)
    state: dict[str, Any] = json.loads(library.to_str())
    return state["model"]


@cache
def _wordpiece(specials: tuple[str, ...], unknown: str) -> dict[str, int]:
    trainer = trainers.WordPieceTrainer(vocab_size=SIZE, special_tokens=[*specials], show_progress=False)
    vocabulary: dict[str, int] = _learnt(
        models.WordPiece(unk_token=unknown), trainer, pre_tokenizers.BertPreTokenizer()
    )["vocab"]
    return vocabulary


@cache
def _bytes(specials: tuple[str, ...]) -> dict[str, Any]:
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=SIZE, special_tokens=[*specials], initial_alphabet=alphabet, show_progress=False
    )
    return _learnt(models.BPE(), trainer, pre_tokenizers.ByteLevel(add_prefix_space=False))


@cache
def _unigram(specials: tuple[str, ...], unknown: str) -> list[tuple[str, float]]:
    trainer = trainers.UnigramTrainer(
        vocab_size=SIZE, special_tokens=[*specials], unk_token=unknown, show_progress=False
    )
    splitter = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    return [tuple(entry) for entry in _learnt(models.Unigram(), trainer, splitter)["vocab"]]


def _modern() -> Any:
    """ModernBERT's has no class of its own: byte-level BPE with BERT's names and template."""
    learnt = _bytes(tuple(BERT))
    library = Tokenizer(models.BPE(learnt["vocab"], [tuple(pair) for pair in learnt["merges"]]))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    library.add_special_tokens(BERT)
    library.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[(name, library.token_to_id(name)) for name in ("[CLS]", "[SEP]")],
    )
    names = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), BERT, strict=True))
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=library, model_input_names=["input_ids", "attention_mask"], **names
    )


def their_tokenizer(family: str) -> Any:
    """A tokenizer of the class that `transformers` gives the family."""
    if family == "modernbert":
        return _modern()
    if family in ("bert", "electra", "distilbert"):
        return transformers.BertTokenizer(vocab=_wordpiece(tuple(BERT), "[UNK]"))
    if family == "mpnet":
        return transformers.MPNetTokenizer(vocab=_wordpiece(("<s>", "<pad>", "</s>", "[UNK]", "<mask>"), "[UNK]"))
    if family == "roberta":
        learnt = _bytes(tuple(ROBERTA))
        return transformers.RobertaTokenizer(vocab=learnt["vocab"], merges=[tuple(pair) for pair in learnt["merges"]])
    if family == "albert":
        names = ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")
        return transformers.AlbertTokenizer(vocab=_unigram(names, "<unk>"))
    assert family == "xlm-roberta"
    return transformers.XLMRobertaTokenizer(vocab=_unigram(tuple(ROBERTA), "<unk>"))


def their_model(directory: Path, family: str, kind: str, labels: tuple[str, ...] = (), **fields: Any) -> Path:
    """A model of a family with random weights and its own tokenizer, both saved by `transformers`."""
    tokenizer, (name, _, sizes) = their_tokenizer(family), FAMILIES[family]
    if labels:
        fields |= {"id2label": dict(enumerate(labels)), "label2id": {label: n for n, label in enumerate(labels)}}
    config = getattr(transformers, f"{name}Config")(
        vocab_size=len(tokenizer), **{**sizes, "pad_token_id": tokenizer.pad_token_id, **fields}
    )
    with torch.random.fork_rng():
        torch.manual_seed(7)
        model = getattr(transformers, f"{name}{kind}")(config)
        for parameter in model.parameters():  # biases and norms too, so that nothing is equal for being left out
            if parameter.requires_grad:
                torch.nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return directory
