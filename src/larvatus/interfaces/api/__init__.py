"""What the commands do, from Python: each is one call, and its settings are those of the command.

    import larvatus as lv

    model = lv.pretrain("bert", corpus="judgments/", out="runs/law", size="small", minutes=30)
    tagger = lv.finetune("tag", model, train=frame, dev="dev.conll", crf=True)      # a DataFrame, a list, a file
    scores = lv.evaluate(tagger, data="test.conll")
    table = lv.compare(["bert", "roberta"], corpus="judgments/", out="runs/compare", size="tiny", steps=1_000)

`larvatus.inference.model` holds what a loaded model can do; it imports none of this.
"""

from larvatus.inference.model.onnx import export_onnx
from larvatus.interfaces.api.auditing_bias import audit_bias
from larvatus.interfaces.api.benchmarking import bench
from larvatus.interfaces.api.cards import card, verify_card
from larvatus.interfaces.api.comparing import ablate, compare
from larvatus.interfaces.api.corpora import build_corpus, check_corpus, contamination, train_tokenizer
from larvatus.interfaces.api.evaluating import evaluate
from larvatus.interfaces.api.finetuning import check_data, finetune
from larvatus.interfaces.api.interpretation import fit_standardiser, head_importance, measure_isotropy
from larvatus.interfaces.api.leaks import audit_leaks, split_members
from larvatus.interfaces.api.pairs import score_pairs
from larvatus.interfaces.api.pretraining import convert, pretrain
from larvatus.interfaces.api.prompting import prompt
from larvatus.interfaces.api.searching import index_documents, search
from larvatus.interfaces.api.serving import serve_models
from larvatus.interfaces.api.suite import evaluate_suite
from larvatus.interfaces.api.toxicity import audit_toxicity
from larvatus.interfaces.api.transferring import transfer
from larvatus.interfaces.api.vectors import build_index, build_senses, embed_files

__all__ = [
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
    "measure_isotropy",
    "pretrain",
    "prompt",
    "score_pairs",
    "search",
    "serve_models",
    "split_members",
    "train_tokenizer",
    "transfer",
    "verify_card",
]
