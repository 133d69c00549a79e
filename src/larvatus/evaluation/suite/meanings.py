"""Words in context compared with human judgements (WordNet senses, SCWS, WiC), and isotropy of the vectors.

    SensesPart(name="senses", title="Word senses", …).measure(work)
    SimilarityPart(name="wic", title="WiC", judgements="senses/wic.jsonl").measure(work)

Subwords are pooled by their mean. Unless layers are requested, those of `word_layers.py` are read; none is
selected by its score. The JSON has the scores of every layer for SCWS, WiC and isotropy.
"""

from __future__ import annotations

import math
import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from larvatus.evaluation.compare.word_similarity import (
    SimilarityEvaluation,
    SimilarityOptions,
    WordPair,
    evaluate_scws,
    evaluate_wic,
    read_wic,
    threshold_pairs,
)
from larvatus.evaluation.suite.part import (
    NotMeasured,
    PartResult,
    PartRun,
    SuiteFigure,
    SuitePart,
    finite_or_none,
    normal_interval,
)
from larvatus.inference.interpret.isotropy import IsotropyOptions, measure_isotropy
from larvatus.inference.senses.build import build_senses
from larvatus.inference.senses.evaluate import SetResult, difference_from, evaluate_set, paired_f1
from larvatus.inference.senses.inventory import SenseInventory
from larvatus.inference.senses.tagged import ReadingCounts, read_semcor
from larvatus.inference.senses.tagger import SenseTagger
from larvatus.inference.senses.wordnet import WordNet, unpack_wordnet
from larvatus.inference.vectors.layers import layers_label
from larvatus.inference.vectors.pooling import EmbedOptions
from larvatus.metrics.accuracy import wilson
from larvatus.metrics.ranking import spearman_interval
from larvatus.models.loaded import model_fingerprint

BY_SENTENCE = "by_sentence"
"""Key of the data for paired comparisons in the details of each set."""


def _condition(layers: str) -> str:
    """What a figure states of its layers: nothing of the last."""
    return "" if layers == "last" else layers_label(layers)


@dataclass(frozen=True, kw_only=True)
class SensesPart(SuitePart):
    file_fields: ClassVar = ("tagged", "wordnet")
    minds: ClassVar = ("layers",)
    tagged: str
    """SemCor."""
    wordnet: str
    sets: dict[str, str]
    """Files of the unified evaluation framework by name; existing ones are scored."""

    @property
    def may_read(self) -> tuple[str, ...]:
        gold = (path.replace(".data.xml", ".gold.key.txt") for path in self.sets.values())
        return (*self.sets.values(), *gold)

    def measure(self, work: PartRun) -> PartResult:
        layers = work.settings.layers or "last"
        there = {name: path for name, file in self.sets.items() if (path := work.data.find(file)) is not None}
        if not there:
            first = next(iter(self.sets.values()))
            raise NotMeasured(f"{work.data.root / first} is missing, and so are the other sets", short="file missing")
        wordnet = WordNet.open(unpack_wordnet(work.data.path(self.wordnet), work.folder / "wordnet"))
        inventory = self._inventory(work, wordnet)
        tagger = SenseTagger(work.bundle.network.encoder, work.bundle.tokenizer, inventory, wordnet)
        results = {name: evaluate_set(path, tagger) for name, path in there.items()}
        absent = [name for name in self.sets if name not in there]
        return PartResult(
            figures=[self._figure(name, result, layers) for name, result in results.items()],
            details={name: {**result.to_dict(), BY_SENTENCE: result.by_sentence} for name, result in results.items()},
            notes=(
                *(
                    f"{name}: {difference_from(result.above_most_frequent, 'the most frequent sense')}"
                    for name, result in results.items()
                ),
                *([f"{', '.join(absent)}: not measured, the files are missing"] if absent else []),
            ),
        )

    def between(self, first: Mapping[str, Any], second: Mapping[str, Any], system: str) -> list[str]:
        notes = []
        for name in self.sets:
            ours, theirs = (details.get(name, {}).get(BY_SENTENCE) for details in (first, second))
            if ours and theirs and ours.keys() == theirs.keys():
                notes.append(f"{name}: {difference_from(paired_f1(theirs, ours), system)}")
        return notes

    def _inventory(self, work: PartRun, wordnet: WordNet) -> SenseInventory:
        """Sense vectors, of an interrupted run or newly built."""
        kept, bundle, layers = work.folder / "vectors", work.bundle, work.settings.layers or "last"
        fingerprint = model_fingerprint(work.subject.path, bundle.tokenizer)
        if kept.exists():
            inventory = SenseInventory.load(kept)
            inventory.check_model(fingerprint, work.subject.label)
            if inventory.origin.layers == layers:
                return inventory
            shutil.rmtree(kept)
        reading = ReadingCounts()
        with work.reporter.counter("reading tagged text") as count:
            inventory = build_senses(
                bundle.network.encoder,
                bundle.tokenizer,
                read_semcor(work.data.path(self.tagged), wordnet, reading),
                EmbedOptions(unit="span", layers=layers, pool="mean"),
                wordnet=wordnet,
                reading=reading,
                model=(fingerprint, work.subject.label),
                progress=lambda reading: count(f"{reading.sentences:,} sentences of tagged text"),
            )
        inventory.save(kept)
        return inventory

    def _figure(self, name: str, result: SetResult, layers: str) -> SuiteFigure:
        score = result.score
        low, high = wilson(math.floor(score.right), score.total)
        return SuiteFigure(
            id=f"{self.name}/{name}",
            name=f"Senses, {name}",
            measure="F1",
            by=f"nearest sense vector of SemCor, with back-off; {layers_label(layers)}",
            value=score.f1,
            low=low,
            high=high,
            examples=score.total,
            conditions=_condition(layers),
            baselines={"most frequent sense": result.most_frequent.f1, "first sense": result.first_sense.f1},
        )


@dataclass(frozen=True, kw_only=True)
class SimilarityPart(SuitePart):
    """Cosines of two words in their contexts."""

    file_fields: ClassVar = ("judgements",)
    minds: ClassVar = ("layers",)
    judgements: str
    same_or_not: bool = False
    """WiC, with yes or no by a threshold; otherwise SCWS, with ratings by rank."""

    def measure(self, work: PartRun) -> PartResult:
        file, encoder = work.data.path(self.judgements), work.bundle.network.encoder
        asked = work.settings.layers or "last"
        judge: Callable[..., SimilarityEvaluation] = evaluate_wic if self.same_or_not else evaluate_scws
        result = judge(encoder, work.bundle.tokenizer, file, SimilarityOptions())
        score = {"last": result.scores[-1], **{each.layers: each for each in result.scores}}.get(asked)
        if score is None:
            (score,) = judge(encoder, work.bundle.tokenizer, file, SimilarityOptions(layers=(asked,))).scores
        baselines: dict[str, float] = {}
        scored = result.pairs
        if self.same_or_not:
            low, high = normal_interval(score.value, score.error or 0.0)
            answers = Counter(pair.rating for pair in read_wic(file) if isinstance(pair, WordPair))
            baselines = {"commonest answer": max(answers.values()) / answers.total()}
            scored -= threshold_pairs(result.pairs, SimilarityOptions())
        else:
            low, high = spearman_interval(score.value, result.pairs)
        by = "cosine above a threshold, fitted on half of the pairs" if self.same_or_not else "cosine against ratings"
        figure = SuiteFigure(
            id=self.name,
            name=self.title,
            measure="accuracy" if self.same_or_not else "Spearman",
            by=f"{by}; {layers_label(asked)}",
            value=finite_or_none(score.value),
            low=finite_or_none(low),
            high=finite_or_none(high),
            examples=scored,
            conditions=_condition(asked),
            baselines=baselines,
        )
        layers: dict[str, Any] = {each.layers: finite_or_none(each.value) for each in result.scores}
        return PartResult(figures=[figure], details={"by_layer": layers}, notes=result.notes)


@dataclass(frozen=True, kw_only=True)
class IsotropyPart(SuitePart):
    file_fields: ClassVar = ("text",)
    text: str

    def measure(self, work: PartRun) -> PartResult:
        bundle, path = work.bundle, str(work.data.path(self.text))
        report = measure_isotropy(bundle.network.encoder, bundle.tokenizer, [path], IsotropyOptions())
        last = report.layers[-1].plain
        low, high = normal_interval(last.expected, last.standard_error)
        figures = [
            SuiteFigure(
                id=f"{self.name}/cosine", name=self.title, measure="mean cosine", value=finite_or_none(last.expected),
                low=finite_or_none(low), high=finite_or_none(high), examples=report.instances, better=None,
                percent=False,
                by="cosine of two words of different passages; last layer; 0 is isotropic",
            ),
            SuiteFigure(
                id=f"{self.name}/isoscore", name=self.title, measure="IsoScore*", value=finite_or_none(last.isoscore),
                examples=report.instances, better=None, percent=False,
                by="share of directions that variance is spread over; last layer; 1 is isotropic",
            ),
        ]  # fmt: skip
        layers = [
            {
                "layer": layer.layer,
                "cosine": finite_or_none(layer.plain.expected),
                "isoscore": finite_or_none(layer.plain.isoscore),
            }
            for layer in report.layers
        ]
        return PartResult(figures=figures, details={"by_layer": layers, "passages": report.passages})
