"""What a run says before its work: what is read, what is trained, and in which languages nothing is held out.

for line in announced(job, corpus, valid, model=model, more=", layers computed again in the backward pass"): …
"""

from __future__ import annotations

from collections.abc import Iterator

from larvatus.core.errors import printable
from larvatus.data.corpus import Corpus
from larvatus.data.corpus.report import language_rows
from larvatus.models.network import Network
from larvatus.training.pretraining.job import Job


def announced(job: Job, corpus: Corpus, valid: Corpus | None, *, model: Network, more: str = "") -> Iterator[str]:
    """Two lines, and some more where there are several languages. `more` is said of how it is trained."""
    recipe = job.recipe
    yield (
        f"{printable(str(corpus.path))}: {corpus.documents:,} documents · {corpus.sentences:,} sentences"
        f" · {corpus.words:,} words"
        f" · vocabulary: {corpus.tokenizer.size:,} pieces, {corpus.tokens / max(corpus.words, 1):.2f} per word"
    )
    if len(corpus.manifest.languages) > 1:
        for row in language_rows(corpus.manifest.languages, recipe.mixture.alpha):
            yield f"  {row}"
    if without := languages_without(corpus, valid):
        yield f"no held-out text of {', '.join(without)}: not evaluated; give some with --valid PATH"
    parameters = sum(p.numel() for p in model.parameters())
    lengths = " then ".join(str(phase.length) for phase in recipe.phases)
    step = " then ".join(f"{recipe.batch * phase.length:,}" for phase in recipe.phases)
    yield (
        f"{recipe.name}: {parameters / 1e6:.1f}M parameters · length {lengths} · {step} tokens a step · "
        f"{job.runtime}{more}"
    )


def languages_without(corpus: Corpus, valid: Corpus | None) -> list[str]:
    """Languages that are trained on and not evaluated, where others are."""
    return [] if valid is None else sorted(corpus.manifest.languages.keys() - valid.manifest.languages)
