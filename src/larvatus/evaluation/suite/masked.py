"""Parts that mask tokens: masked tokens of held-out text, and minimal pairs by pseudo-log-likelihood.

    MaskedPart(name="masked", title="Masked words", text="text/en_wiki.valid.txt").measure(work)
    MinimalPairsPart(name="blimp", title="BLiMP", pairs="blimp.jsonl").measure(work)

Of held-out text, 15% of each sequence of 128 tokens is predicted, 80/10/10, with the same masks for every model. A
tenth of the predicted tokens is shown unchanged (80/10/10), and a model that has learned to copy gets them for free. So
there are two accuracies: over all predicted tokens, with a copying baseline, and over positions that show `[MASK]`.
Loss and accuracy per token compare models with one vocabulary. Word-level masked NLL (`evaluation/compare/word_nll.py`)
compares any models.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from larvatus.data.corpus.packing import ContiguousConfig
from larvatus.data.corruption import MaskingConfig
from larvatus.data.text.readers import read_documents
from larvatus.evaluation.compare.languages import TextSetup, copy_baseline, evaluate_text, open_text
from larvatus.evaluation.compare.minimal_pairs import MinimalPair, PairRun, read_pairs
from larvatus.evaluation.compare.word_nll import MaskedPassages, WordNLL, measure_word_nll
from larvatus.evaluation.suite.part import NotMeasured, PartResult, PartRun, SuiteFigure, SuitePart, normal_interval
from larvatus.metrics.accuracy import Accuracy, wilson
from larvatus.models.loaded import settings_hash
from larvatus.training.engine.settings import Runtime
from larvatus.training.pretraining.evaluation import HeldOutScores

ROW = 128
TOKENS, QUICK_TOKENS = 1_048_576, 131_072
LONGEST = 512
"""Longest input in tokens for word-level masked NLL, whose passages have at most 64 words."""


@dataclass(frozen=True, kw_only=True)
class MaskedPart(SuitePart):
    file_fields: ClassVar = ("text",)
    minds: ClassVar = ("quick",)
    text: str

    def measure(self, work: PartRun) -> PartResult:
        work.need_masked_head()
        bundle, path = work.bundle, str(work.data.path(self.text))
        longest = bundle.model.max_positions
        masking = MaskingConfig(rate=0.15, mask=0.8, random=0.1, keep=0.1, replacement="uniform")
        how = TextSetup(ContiguousConfig(dressed=True), masking, min(ROW, longest))
        exact = Runtime.here(device=work.subject.device, precision="fp32", compile=False)
        tokens = QUICK_TOKENS if work.settings.quick else TOKENS
        with tempfile.TemporaryDirectory() as folder:
            corpus = open_text([path], bundle.tokenizer, Path(folder) / "corpus")
            held_out = evaluate_text(bundle, corpus, runtime=exact, tokens=tokens, how=how)
            blanks = evaluate_text(bundle, corpus, runtime=exact, tokens=tokens, how=how, only_masked=True)
            copied = copy_baseline(corpus, how, tokens=tokens, microbatch=exact.microbatch)
        if held_out.words not in held_out.scores:
            raise NotMeasured(f"{self.text} gave nothing to predict", short="nothing to predict")
        passages = MaskedPassages.of(read_documents([path]))
        room = bundle.tokenizer.template.single.text_length(min(LONGEST, longest))
        words = measure_word_nll(bundle.network, bundle.tokenizer, passages, room=room)
        figures = [*self._of_tokens(held_out, copied), self._of_blanks(blanks)]
        figures += self._of_words(words, passages) if words is not None else []
        details: dict[str, Any] = {"tokens": held_out.tokens, "vocabulary": bundle.tokenizer.size, "row": how.length}
        if words is not None:
            details |= {
                "bits_a_character": words.bits,
                "pieces_a_word": words.pieces,
                "passages": passages.fingerprint,
            }
        return PartResult(figures=figures, details=details)

    def _of_blanks(self, held_out: HeldOutScores) -> SuiteFigure:
        score = held_out.scores[held_out.words]
        low, high = wilson(round(score.accuracy * score.count), score.count)
        right = held_out.guess_accuracy
        return SuiteFigure(
            id=f"{self.name}/blanks", name="Masked tokens", measure="accuracy at [MASK]", value=score.accuracy,
            by=f"the places that show [MASK]: 80% of the masked tokens, rows of {ROW}",
            low=low, high=high, examples=score.count, better=None,
            baselines={} if right is None else {"commonest token": right},
        )  # fmt: skip

    def _of_tokens(self, held_out: HeldOutScores, copied: float) -> list[SuiteFigure]:
        score = held_out.scores[held_out.words]
        low, high = wilson(round(score.accuracy * score.count), score.count)
        by = f"15% of the tokens, 80/10/10 (a tenth is shown unchanged), fixed masks, rows of {ROW}"
        right, loss = held_out.guess_accuracy, held_out.guess_loss
        return [
            SuiteFigure(
                id=f"{self.name}/accuracy", name="Masked tokens", measure="accuracy, 80/10/10", by=by,
                value=score.accuracy, low=low, high=high, examples=score.count, better=None,
                baselines={**({} if right is None else {"commonest token": right}), "copying": copied},
            ),
            SuiteFigure(
                id=f"{self.name}/loss", name="Masked tokens", measure="nats a token", by=by, value=score.loss,
                examples=score.count, better=None, percent=False,
                baselines={} if loss is None else {"unigram": loss},
            ),
        ]  # fmt: skip

    def _of_words(self, score: WordNLL, passages: MaskedPassages) -> list[SuiteFigure]:
        by = f"15% of the words masked in {len(passages.passages):,} passages; any vocabulary"
        low, high = normal_interval(score.loss, score.error)
        right = wilson(round(score.accuracy * score.words), score.words)
        return [
            SuiteFigure(
                id=f"{self.name}/words", name="Masked words", measure="nats a word", by=by, value=score.loss, low=low,
                high=high, examples=score.words, better="lower", percent=False,
            ),
            SuiteFigure(
                id=f"{self.name}/words-right", name="Masked words", measure="accuracy", by=by, value=score.accuracy,
                low=right[0], high=right[1], examples=score.words,
                baselines={f"always {passages.guess[0]!r}": passages.guess[1]},
            ),
        ]  # fmt: skip


FIRST = 100
"""Pairs per set in a quick run."""
SET, PHENOMENON = "UID", "linguistics_term"


@dataclass(frozen=True, kw_only=True)
class MinimalPairsPart(SuitePart):
    file_fields: ClassVar = ("pairs",)
    minds: ClassVar = ("quick",)
    pairs: str

    def measure(self, work: PartRun) -> PartResult:
        work.need_masked_head()
        pairs = read_pairs([str(work.data.path(self.pairs))])
        if work.settings.quick:
            pairs = first_of_each_set(pairs)
        total = len(pairs)
        out = work.folder / "scores.jsonl"
        parts = out.with_name(out.name + ".parts")
        with work.reporter.bar(words="scoring pairs", total=total, every_s=30, goes=True) as bar:
            run = PairRun(
                work.bundle.network,
                work.bundle.tokenizer,
                pairs,
                name=work.subject.label,
                progress=lambda done: bar.show(done, f"{done:,} of {total:,} pairs"),
            )
            identity = {"model": work.subject.contents, "tokenizer": settings_hash(work.bundle.tokenizer)}
            result = run.to_file(out, identity, resume=True, overwrite=not parts.exists())
        subset = f"first {FIRST} pairs of each set" if work.settings.quick else "all pairs"
        figures = [self._figure("", self.title, result.overall, subset)]
        figures += [
            self._figure(name, name.replace("_", " "), share, subset)
            for name, share in sorted(result.by.get(PHENOMENON, {}).items())
        ]
        by_set = {name: dataclasses.asdict(share) for name, share in result.by.get(SET, {}).items()}
        return PartResult(figures=figures, details={"ties": result.ties, "by_set": by_set})

    def _figure(self, phenomenon: str, name: str, share: Accuracy, subset: str) -> SuiteFigure:
        return SuiteFigure(
            id=f"{self.name}/{phenomenon}" if phenomenon else self.name,
            name=name,
            measure="accuracy",
            by="good sentence more likely than bad; pseudo-log-likelihood, ties wrong",
            value=share.share,
            low=share.low,
            high=share.high,
            examples=share.total,
            baselines={} if phenomenon else {"chance": 0.5},
            detail=bool(phenomenon),
            conditions=subset,
        )


def first_of_each_set(pairs: Sequence[MinimalPair], first: int = FIRST) -> list[MinimalPair]:
    """The first pairs of each set, in the order of the file."""
    seen: Counter[str] = Counter()
    chosen = []
    for pair in pairs:
        name = pair.groups.get(SET, "")
        seen[name] += 1
        if seen[name] <= first:
            chosen.append(pair)
    return chosen
