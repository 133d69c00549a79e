"""The tokenizer of each family as `transformers` has it, learnt from Python's documentation, and models with it."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

from larvatus.data.text.vocabularies import ByteBPEConfig, UnigramConfig, WordPieceConfig, train_vocabulary
from tests.models.bundle.families import FAMILIES
from tests.models.bundle.theirs import transformers

SIZE = 400
BERT = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
ROBERTA = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]


@cache
def prose() -> tuple[str, ...]:
    """Paragraphs of Python's own documentation."""
    return tuple(" ".join(part.split()) for part in topics["debugger"].split("\n\n"))


@cache
def _learnt(kind: type[Any]) -> tuple[list[str], dict[str, Any]]:
    """Pieces without special tokens, and the model: ours are the same every time, theirs differ from run to run."""
    tokenizer = train_vocabulary(prose(), kind(size=SIZE), allow_smaller=True)
    names = set(vars(tokenizer.special).values())
    return [piece for piece in tokenizer.tokens if piece not in names], json.loads(tokenizer.library.to_str())["model"]


def _wordpiece(specials: list[str]) -> dict[str, int]:
    return {piece: number for number, piece in enumerate([*specials, *_learnt(WordPieceConfig)[0]])}


def _bytes(specials: list[str]) -> dict[str, Any]:
    pieces, model = _learnt(ByteBPEConfig)
    merges = [tuple(pair) for pair in model["merges"]]
    return {"vocab": {piece: number for number, piece in enumerate([*specials, *pieces])}, "merges": merges}


def _unigram(specials: list[str]) -> list[tuple[str, float]]:
    pieces, model = _learnt(UnigramConfig)
    scores = dict(model["vocab"])
    return [*((name, 0.0) for name in specials), *((piece, scores[piece]) for piece in pieces)]


def _modern() -> Any:
    """ModernBERT's has no class of its own: byte-level BPE with BERT's names and template."""
    library = Tokenizer(models.BPE(**_bytes(BERT)))
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
        return transformers.BertTokenizer(vocab=_wordpiece(BERT))
    if family == "mpnet":
        return transformers.MPNetTokenizer(vocab=_wordpiece(["<s>", "<pad>", "</s>", "[UNK]", "<mask>"]))
    if family == "roberta":
        return transformers.RobertaTokenizer(**_bytes(ROBERTA))
    if family == "albert":
        return transformers.AlbertTokenizer(vocab=_unigram(["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]))
    assert family == "xlm-roberta"
    return transformers.XLMRobertaTokenizer(vocab=_unigram(ROBERTA))


def their_model(directory: Path, family: str, kind: str, labels: tuple[str, ...] = (), **fields: Any) -> Path:
    """A model of a family with random weights and its own tokenizer, both saved by `transformers`."""
    tokenizer, (name, _, sizes) = their_tokenizer(family), FAMILIES[family]
    if labels:
        fields |= {"id2label": dict(enumerate(labels)), "label2id": {label: n for n, label in enumerate(labels)}}
    config = getattr(transformers, f"{name}Config")(
        vocab_size=len(tokenizer), **{**sizes, "pad_token_id": tokenizer.pad_token_id, **fields}
    )
    with torch.random.fork_rng():
        torch.manual_seed(11)
        model = getattr(transformers, f"{name}{kind}")(config)
        for part, parameter in model.named_parameters():  # biases and norms too: nothing is equal for being left out
            if parameter.requires_grad:
                scale = parameter.ndim == 1 and part.endswith("weight")  # of a norm
                torch.nn.init.normal_(parameter, mean=2.0 if scale else 0.0, std=0.5)
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return directory
