"""Larvatus: bidirectional encoders from raw text.

    import larvatus as lv
    model = lv.pretrain("bert", corpus="texts/", out="runs/mine", size="tiny", minutes=10)
    model = lv.load("runs/mine")                        # a directory of ours or of `transformers`, or a hub name
    model = lv.load()                                   # the English model in the box, where it is installed
    model.fill("Please turn your [MASK] in.")[0].token
    model.embed(["the bank of the river"], unit="word", layers="last4")

What is here is the public interface; everything else may change. Names are loaded when they are first used, so that a
worker process which only reads text never loads torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from larvatus.forking import prepare_for_forks
from larvatus.waiting import wait_asleep

if TYPE_CHECKING:
    from larvatus.api import (
        ablate,
        audit_bias,
        audit_leaks,
        audit_toxicity,
        bench,
        build_corpus,
        build_index,
        build_senses,
        card,
        check_corpus,
        check_data,
        compare,
        contamination,
        convert,
        embed_files,
        evaluate,
        evaluate_suite,
        export_onnx,
        finetune,
        fit_standardiser,
        head_importance,
        measure_isotropy,
        pretrain,
        prompt,
        score_pairs,
        serve_models,
        split_members,
        train_tokenizer,
        transfer,
        verify_card,
    )
    from larvatus.audit.bias.report import BiasReport
    from larvatus.batch import TokenBatch
    from larvatus.client import Client
    from larvatus.cloze.results import Fill, Fills, JointFill
    from larvatus.cloze.scores import Score
    from larvatus.embed.nearest.nearest import Concordance
    from larvatus.embed.results import Vectors
    from larvatus.embed.similarity import Similarities
    from larvatus.embed.standardise.standardise import Standardiser
    from larvatus.errors import LarvatusError
    from larvatus.generation.results import Continuation, Generated
    from larvatus.model import Model, load
    from larvatus.prompting.results import PromptTable
    from larvatus.recipes import Recipe, read_recipe
    from larvatus.tasks.choose.results import Chosen
    from larvatus.tasks.estimators.text_classifier import TextClassifier
    from larvatus.tasks.estimators.word_tagger import WordTagger
    from larvatus.tasks.results import Answer, Classified, Entity, Spanned, Tagged
    from larvatus.tasks.write.results import Written
    from larvatus.text.tokenizer import Tokenizer
    from larvatus.version import VERSION as __version__

wait_asleep()  # before torch is loaded
prepare_for_forks()

__all__ = [
    "Answer",
    "BiasReport",
    "Chosen",
    "Classified",
    "Client",
    "Concordance",
    "Continuation",
    "Entity",
    "Fill",
    "Fills",
    "Generated",
    "JointFill",
    "LarvatusError",
    "Model",
    "PromptTable",
    "Recipe",
    "Score",
    "Similarities",
    "Spanned",
    "Standardiser",
    "Tagged",
    "TextClassifier",
    "TokenBatch",
    "Tokenizer",
    "Vectors",
    "WordTagger",
    "Written",
    "__version__",
    "ablate",
    "audit_bias",
    "audit_leaks",
    "audit_toxicity",
    "bench",
    "build_corpus",
    "build_index",
    "build_senses",
    "card",
    "check_corpus",
    "check_data",
    "compare",
    "contamination",
    "convert",
    "embed_files",
    "evaluate",
    "evaluate_suite",
    "export_onnx",
    "finetune",
    "fit_standardiser",
    "head_importance",
    "load",
    "measure_isotropy",
    "pretrain",
    "prompt",
    "read_recipe",
    "score_pairs",
    "serve_models",
    "split_members",
    "train_tokenizer",
    "transfer",
    "verify_card",
]

_HOMES = {
    "Answer": "larvatus.tasks.results",
    "BiasReport": "larvatus.audit.bias.report",
    "Chosen": "larvatus.tasks.choose.results",
    "Classified": "larvatus.tasks.results",
    "Client": "larvatus.client",
    "Concordance": "larvatus.embed.nearest.nearest",
    "Continuation": "larvatus.generation.results",
    "Entity": "larvatus.tasks.results",
    "Fill": "larvatus.cloze.results",
    "Fills": "larvatus.cloze.results",
    "Generated": "larvatus.generation.results",
    "JointFill": "larvatus.cloze.results",
    "LarvatusError": "larvatus.errors",
    "Model": "larvatus.model",
    "PromptTable": "larvatus.prompting.results",
    "Recipe": "larvatus.recipes",
    "Score": "larvatus.cloze.scores",
    "Similarities": "larvatus.embed.similarity",
    "Spanned": "larvatus.tasks.results",
    "Standardiser": "larvatus.embed.standardise.standardise",
    "Tagged": "larvatus.tasks.results",
    "TextClassifier": "larvatus.tasks.estimators.text_classifier",
    "TokenBatch": "larvatus.batch",
    "Tokenizer": "larvatus.text.tokenizer",
    "Vectors": "larvatus.embed.results",
    "WordTagger": "larvatus.tasks.estimators.word_tagger",
    "Written": "larvatus.tasks.write.results",
    "ablate": "larvatus.api",
    "audit_bias": "larvatus.api",
    "audit_leaks": "larvatus.api",
    "audit_toxicity": "larvatus.api",
    "bench": "larvatus.api",
    "build_corpus": "larvatus.api",
    "build_index": "larvatus.api",
    "build_senses": "larvatus.api",
    "card": "larvatus.api",
    "check_corpus": "larvatus.api",
    "check_data": "larvatus.api",
    "compare": "larvatus.api",
    "contamination": "larvatus.api",
    "convert": "larvatus.api",
    "embed_files": "larvatus.api",
    "evaluate": "larvatus.api",
    "evaluate_suite": "larvatus.api",
    "export_onnx": "larvatus.api",
    "finetune": "larvatus.api",
    "fit_standardiser": "larvatus.api",
    "head_importance": "larvatus.api",
    "load": "larvatus.model",
    "measure_isotropy": "larvatus.api",
    "pretrain": "larvatus.api",
    "prompt": "larvatus.api",
    "read_recipe": "larvatus.recipes",
    "score_pairs": "larvatus.api",
    "serve_models": "larvatus.api",
    "split_members": "larvatus.api",
    "train_tokenizer": "larvatus.api",
    "transfer": "larvatus.api",
    "verify_card": "larvatus.api",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("larvatus.version").VERSION
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'larvatus' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
