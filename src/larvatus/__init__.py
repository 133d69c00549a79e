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
    from larvatus.core.run_identity import VERSION as __version__
    from larvatus.data.text.tokenizer import Tokenizer
    from larvatus.evaluation.audit.bias.report import BiasReport
    from larvatus.evaluation.features.results import SparseFeatures
    from larvatus.evaluation.vectors.mteb_encoder import MtebEncoder
    from larvatus.inference.cloze.results import Fill, Fills, JointFill, Score
    from larvatus.inference.model import Model, load
    from larvatus.inference.model.onnx import export_onnx
    from larvatus.inference.search.concordance import Concordance
    from larvatus.inference.search.passage_index import Index
    from larvatus.inference.search.results import SearchResults
    from larvatus.inference.vectors.similarity import Similarities
    from larvatus.inference.vectors.standardise import Standardiser
    from larvatus.inference.vectors.vectors import Vectors
    from larvatus.interfaces.api.auditing_bias import audit_bias
    from larvatus.interfaces.api.benchmarking import bench
    from larvatus.interfaces.api.cards import card, verify_card
    from larvatus.interfaces.api.causes import knockout, train_features
    from larvatus.interfaces.api.comparing import ablate, compare
    from larvatus.interfaces.api.corpora import build_corpus, check_corpus, contamination, train_tokenizer
    from larvatus.interfaces.api.distilling import distil_static
    from larvatus.interfaces.api.evaluating import evaluate, transfer
    from larvatus.interfaces.api.explaining import measure_faithfulness, train_lens
    from larvatus.interfaces.api.finetuning import check_data, finetune
    from larvatus.interfaces.api.interpretation import fit_standardiser, head_importance, measure_isotropy
    from larvatus.interfaces.api.leaks import audit_leaks, split_members
    from larvatus.interfaces.api.planning import plan
    from larvatus.interfaces.api.pretraining import convert, pretrain
    from larvatus.interfaces.api.probing import amnesic_probe, probe
    from larvatus.interfaces.api.prompting import prompt
    from larvatus.interfaces.api.searching import index_documents, search
    from larvatus.interfaces.api.serving import serve_models
    from larvatus.interfaces.api.suite import evaluate_suite
    from larvatus.interfaces.api.text_evaluation import score_pairs
    from larvatus.interfaces.api.toxicity import audit_toxicity
    from larvatus.interfaces.api.vectors import build_index, build_senses, embed_files
    from larvatus.interfaces.client import Client
    from larvatus.models.generation.generate import Continuation, Generated
    from larvatus.models.recipes import Recipe, read_recipe
    from larvatus.tasks.choose.encode import Chosen
    from larvatus.tasks.estimators import TextClassifier, WordTagger
    from larvatus.tasks.few_shot.results import PromptTable
    from larvatus.tasks.results import Answer, Classified, Entity, Spanned, Tagged
    from larvatus.tasks.write.encode import Written

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
    "MtebEncoder",
    "PromptTable",
    "Recipe",
    "Score",
    "SearchResults",
    "Similarities",
    "Spanned",
    "SparseFeatures",
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
    "amnesic_probe",
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
    "distil_static",
    "embed_files",
    "evaluate",
    "evaluate_suite",
    "export_onnx",
    "finetune",
    "fit_standardiser",
    "head_importance",
    "index_documents",
    "knockout",
    "load",
    "measure_faithfulness",
    "measure_isotropy",
    "plan",
    "pretrain",
    "probe",
    "prompt",
    "read_recipe",
    "score_pairs",
    "search",
    "serve_models",
    "split_members",
    "train_features",
    "train_lens",
    "train_tokenizer",
    "transfer",
    "verify_card",
]

_NAMES = {
    "core.batch": "TokenBatch",
    "core.errors": "LarvatusError",
    "data.text.tokenizer": "Tokenizer",
    "evaluation.audit.bias.report": "BiasReport",
    "evaluation.features.results": "SparseFeatures",
    "evaluation.vectors.mteb_encoder": "MtebEncoder",
    "inference.cloze.results": "Fill Fills JointFill Score",
    "inference.model": "Model load",
    "inference.model.onnx": "export_onnx",
    "inference.search.concordance": "Concordance",
    "inference.search.passage_index": "Index",
    "inference.search.results": "SearchResults",
    "inference.vectors.similarity": "Similarities",
    "inference.vectors.standardise": "Standardiser",
    "inference.vectors.vectors": "Vectors",
    "interfaces.api.auditing_bias": "audit_bias",
    "interfaces.api.benchmarking": "bench",
    "interfaces.api.cards": "card verify_card",
    "interfaces.api.causes": "knockout train_features",
    "interfaces.api.comparing": "ablate compare",
    "interfaces.api.corpora": "build_corpus check_corpus contamination train_tokenizer",
    "interfaces.api.distilling": "distil_static",
    "interfaces.api.evaluating": "evaluate transfer",
    "interfaces.api.explaining": "measure_faithfulness train_lens",
    "interfaces.api.finetuning": "check_data finetune",
    "interfaces.api.interpretation": "fit_standardiser head_importance measure_isotropy",
    "interfaces.api.leaks": "audit_leaks split_members",
    "interfaces.api.planning": "plan",
    "interfaces.api.pretraining": "convert pretrain",
    "interfaces.api.probing": "amnesic_probe probe",
    "interfaces.api.prompting": "prompt",
    "interfaces.api.searching": "index_documents search",
    "interfaces.api.serving": "serve_models",
    "interfaces.api.suite": "evaluate_suite",
    "interfaces.api.text_evaluation": "score_pairs",
    "interfaces.api.toxicity": "audit_toxicity",
    "interfaces.api.vectors": "build_index build_senses embed_files",
    "interfaces.client": "Client",
    "models.generation.generate": "Continuation Generated",
    "models.recipes": "Recipe read_recipe",
    "tasks.choose.encode": "Chosen",
    "tasks.estimators": "TextClassifier WordTagger",
    "tasks.few_shot.results": "PromptTable",
    "tasks.results": "Answer Classified Entity Spanned Tagged",
    "tasks.write.encode": "Written",
}
"""Public names, by the module that defines them."""
_MODULES = {name: f"larvatus.{module}" for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("larvatus.core.run_identity").VERSION
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'larvatus' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
