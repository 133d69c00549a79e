"""What a pretraining run prints before its work and about its steps, evaluations and checkpoints; `metrics.jsonl`.

for line in describe_run(job, corpus, valid, model=model, more=", layers computed again in the backward pass"): …
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

from larvatus.core.errors import printable
from larvatus.data.corpus import Corpus
from larvatus.data.corpus.format import CorpusCounts
from larvatus.data.corpus.mixture import REPLAYED, language_rows, new_languages
from larvatus.models.network import Network
from larvatus.training.engine.ranks import StragglerReport
from larvatus.training.engine.reporter import MetricsLog, Reporter, Throughput
from larvatus.training.pretraining.evaluation import HeldOutScores
from larvatus.training.pretraining.job import PretrainingJob
from larvatus.training.pretraining.step import StepReport


def describe_run(
    job: PretrainingJob, corpus: Corpus, valid: Corpus | None, *, model: Network, more: str = ""
) -> Iterator[str]:
    """Two lines, and some more where there are several languages. `more` describes how it is trained."""
    recipe = job.recipe
    languages = new_languages(corpus.manifest.languages)
    replayed = corpus.manifest.languages.get(REPLAYED, CorpusCounts())
    documents, sentences, words, tokens = (
        getattr(corpus, name) - getattr(replayed, name) for name in ("documents", "sentences", "words", "tokens")
    )
    yield (
        f"{printable(str(corpus.path))}: {documents:,} documents · {sentences:,} sentences · {words:,} words"
        f" · vocabulary: {corpus.tokenizer.size:,} tokens, {tokens / max(words, 1):.2f} per word"
    )
    if replayed.documents:
        yield f"  replayed text: {replayed.words:,} words, {recipe.mixture.replay_share:.0%} of the tokens of each step"
    if len(languages) > 1:
        for row in language_rows(languages, recipe.mixture.alpha):
            yield f"  {row}"
    if without := languages_not_evaluated(corpus, valid):
        yield f"no held-out text of {', '.join(without)}: not evaluated; give some with --valid PATH"
    parameters = sum(p.numel() for p in model.parameters())
    lengths = " then ".join(str(phase.length) for phase in recipe.phases)
    step = " then ".join(f"{recipe.batch * phase.length:,}" for phase in recipe.phases)
    yield (
        f"{recipe.name}: {parameters / 1e6:.1f}M parameters · length {lengths} · {step} tokens a step · "
        f"{job.runtime}{more}"
    )


def languages_not_evaluated(corpus: Corpus, valid: Corpus | None) -> list[str]:
    """Languages that are trained on and not evaluated, where others are."""
    return [] if valid is None else sorted(new_languages(corpus.manifest.languages).keys() - valid.manifest.languages)


LINE_EVERY_S = 10.0
BRIEF_EVERY_S = 300.0


class Monitor:
    """Callbacks for each step, each evaluation and each save."""

    def __init__(
        self,
        metrics: MetricsLog,
        reporter: Reporter,
        *,
        steps: int,
        start: int,
        flops: float,
        peak: float | None,
        brief: str | None = None,
    ) -> None:
        """`brief` is the name of one run of several: it shows a bar that goes away, or a line every five minutes."""
        self.metrics, self.reporter, self.steps, self._brief = metrics, reporter, steps, brief
        self._flops, self._peak = flops, peak
        self._speed = Throughput()
        self._paces = StragglerReport(metrics, reporter.warn)
        every_s = LINE_EVERY_S if brief is None else BRIEF_EVERY_S
        self._bar = reporter.bar(total=steps, done=start, every_s=every_s, goes=brief is not None)

    def __enter__(self) -> Self:
        self._bar.__enter__()
        return self

    def __exit__(self, *fault: object) -> None:
        self._bar.__exit__(*fault)

    def step(self, report: StepReport) -> None:
        step = report.step + 1
        speed = self._speed.per_second(report.tokens)
        mfu = speed * self._flops / self._peak if self._peak else None
        losses = {f"loss/{name}": value for name, value in report.losses.items()}
        values = {
            "loss": report.loss,
            **losses,
            "rate": report.rate,
            "gradient": report.gradient,
            "tokens/s": round(speed),
            "wait": round(report.wait, 6),
            "wait/share": round(report.wait_share, 4),
        }
        self.metrics.write("train", step, values | ({"mfu": round(mfu, 4)} if mfu else {}))
        parts = ", ".join(f"{name.partition('-')[0]} {value:.2f}" for name, value in report.losses.items())
        words = "" if self._brief is None else f"{self._brief}: "
        words += f"step {step:,}/{self.steps:,}  loss {report.loss:.2f} ({parts})  {_thousands(speed)} tokens/s"
        words += f"  MFU {mfu:.2f}" if mfu else ""
        last = step == self.steps and self._brief is None
        self._paces.look(step)
        self._bar.show(step, words, left=self._speed.left(self.steps - step), total=self.steps, last=last)

    def held_out(self, step: int, result: HeldOutScores, *, seen: int, seconds: float) -> None:
        """A point of the curve: after `seen` training tokens and `seconds` of training."""
        self._speed.pause()
        values = {"seen": seen, "seconds": round(seconds, 3), **_flat(result.to_dict())}
        self.metrics.write("valid", step, values)
        if self._brief is None:
            self.reporter.say(f"  held out at step {step:,}: {result}")

    def spike(self, step: int, line: str) -> None:
        """Report a loss spike; `step` is the step of the run after any rollback."""
        self._speed.pause()
        self.metrics.write("spike", step, {"said": line})
        self.reporter.warn(line)

    def saved(self, step: int, path: Path) -> None:
        self._speed.pause()
        self.metrics.write("saved", step, {"path": path.name})


def _thousands(number: float) -> str:
    return f"{number / 1000:,.0f}k" if number >= 10_000 else f"{number:,.0f}"


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat |= _flat(value, f"{prefix}{key}/") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat
