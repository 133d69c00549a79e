"""What the commands do, from Python: each is one call, and its settings are those of the command.

    import larvatus as lv

    model = lv.pretrain("bert", corpus="judgments/", out="runs/law", size="small", minutes=30)
    tagger = lv.finetune("tag", model, train=frame, dev="dev.conll", crf=True)      # a DataFrame, a list, a file
    scores = lv.evaluate(tagger, data="test.conll")
    table = lv.compare(["bert", "roberta"], corpus="judgments/", out="runs/compare", size="tiny", steps=1_000)

`larvatus.model` holds what a loaded model can do; it imports none of this.
"""

from larvatus.api.evaluating import evaluate
from larvatus.api.pretraining import ablate, compare, convert, pretrain
from larvatus.api.tasks import finetune
from larvatus.api.text import build_corpus, train_tokenizer
from larvatus.api.vectors import embed_files

__all__ = [
    "ablate",
    "build_corpus",
    "compare",
    "convert",
    "embed_files",
    "evaluate",
    "finetune",
    "pretrain",
    "train_tokenizer",
]
