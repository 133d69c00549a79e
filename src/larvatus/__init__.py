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

from larvatus.core.threads import prepare_for_forks, use_passive_waiting

if TYPE_CHECKING:
    from larvatus.core.batch import TokenBatch
    from larvatus.core.errors import LarvatusError
    from larvatus.core.version import VERSION as __version__
    from larvatus.data.text.tokenizer import Tokenizer
    from larvatus.evaluation.audit.bias.report import BiasReport
    from larvatus.inference.cloze.results import Fill, Fills, JointFill
    from larvatus.inference.cloze.scores import Score
    from larvatus.inference.model import Model, load
    from larvatus.inference.search.concordance import Concordance
    from larvatus.inference.search.passage_index import Index
    from larvatus.inference.search.results import SearchResults
    from larvatus.inference.vectors.results import Vectors
    from larvatus.inference.vectors.similarity import Similarities
    from larvatus.inference.vectors.standardise import Standardiser
    from larvatus.interfaces.api import (
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
        index_documents,
        measure_isotropy,
        pretrain,
        prompt,
        score_pairs,
        search,
        serve_models,
        split_members,
        train_tokenizer,
        transfer,
        verify_card,
    )
    from larvatus.interfaces.client import Client
    from larvatus.models.generation.results import Continuation, Generated
    from larvatus.models.recipes import Recipe, read_recipe
    from larvatus.tasks.choose.results import Chosen
    from larvatus.tasks.estimators.text_classifier import TextClassifier
    from larvatus.tasks.estimators.word_tagger import WordTagger
    from larvatus.tasks.few_shot.results import PromptTable
    from larvatus.tasks.results import Answer, Classified, Entity, Spanned, Tagged
    from larvatus.tasks.write.results import Written

use_passive_waiting()  # before torch is loaded
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
    "Index",
    "JointFill",
    "LarvatusError",
    "Model",
    "PromptTable",
    "Recipe",
    "Score",
    "SearchResults",
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
    "index_documents",
    "load",
    "measure_isotropy",
    "pretrain",
    "prompt",
    "read_recipe",
    "score_pairs",
    "search",
    "serve_models",
    "split_members",
    "train_tokenizer",
    "transfer",
    "verify_card",
]

_HOMES = {
    "Answer": "larvatus.tasks.results",
    "BiasReport": "larvatus.evaluation.audit.bias.report",
    "Chosen": "larvatus.tasks.choose.results",
    "Classified": "larvatus.tasks.results",
    "Client": "larvatus.interfaces.client",
    "Concordance": "larvatus.inference.search.concordance",
    "Continuation": "larvatus.models.generation.results",
    "Entity": "larvatus.tasks.results",
    "Fill": "larvatus.inference.cloze.results",
    "Fills": "larvatus.inference.cloze.results",
    "Generated": "larvatus.models.generation.results",
    "Index": "larvatus.inference.search.passage_index",
    "JointFill": "larvatus.inference.cloze.results",
    "LarvatusError": "larvatus.core.errors",
    "Model": "larvatus.inference.model",
    "PromptTable": "larvatus.tasks.few_shot.results",
    "Recipe": "larvatus.models.recipes",
    "Score": "larvatus.inference.cloze.scores",
    "SearchResults": "larvatus.inference.search.results",
    "Similarities": "larvatus.inference.vectors.similarity",
    "Spanned": "larvatus.tasks.results",
    "Standardiser": "larvatus.inference.vectors.standardise",
    "Tagged": "larvatus.tasks.results",
    "TextClassifier": "larvatus.tasks.estimators.text_classifier",
    "TokenBatch": "larvatus.core.batch",
    "Tokenizer": "larvatus.data.text.tokenizer",
    "Vectors": "larvatus.inference.vectors.results",
    "WordTagger": "larvatus.tasks.estimators.word_tagger",
    "Written": "larvatus.tasks.write.results",
    "ablate": "larvatus.interfaces.api",
    "audit_bias": "larvatus.interfaces.api",
    "audit_leaks": "larvatus.interfaces.api",
    "audit_toxicity": "larvatus.interfaces.api",
    "bench": "larvatus.interfaces.api",
    "build_corpus": "larvatus.interfaces.api",
    "build_index": "larvatus.interfaces.api",
    "build_senses": "larvatus.interfaces.api",
    "card": "larvatus.interfaces.api",
    "check_corpus": "larvatus.interfaces.api",
    "check_data": "larvatus.interfaces.api",
    "compare": "larvatus.interfaces.api",
    "contamination": "larvatus.interfaces.api",
    "convert": "larvatus.interfaces.api",
    "embed_files": "larvatus.interfaces.api",
    "evaluate": "larvatus.interfaces.api",
    "evaluate_suite": "larvatus.interfaces.api",
    "export_onnx": "larvatus.interfaces.api",
    "finetune": "larvatus.interfaces.api",
    "fit_standardiser": "larvatus.interfaces.api",
    "head_importance": "larvatus.interfaces.api",
    "index_documents": "larvatus.interfaces.api",
    "load": "larvatus.inference.model",
    "measure_isotropy": "larvatus.interfaces.api",
    "pretrain": "larvatus.interfaces.api",
    "prompt": "larvatus.interfaces.api",
    "read_recipe": "larvatus.models.recipes",
    "score_pairs": "larvatus.interfaces.api",
    "search": "larvatus.interfaces.api",
    "serve_models": "larvatus.interfaces.api",
    "split_members": "larvatus.interfaces.api",
    "train_tokenizer": "larvatus.interfaces.api",
    "transfer": "larvatus.interfaces.api",
    "verify_card": "larvatus.interfaces.api",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("larvatus.core.version").VERSION
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'larvatus' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
