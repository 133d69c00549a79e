"""What a model puts into the blanks of prompts about groups of people, as one call; and two models side by side.

audit_toxicity("runs/mine", words="list.txt")
audit_toxicity("runs/before", judge="runs/toxic", label="toxic", beside="runs/after", corpus="held_out.txt")
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Unpack

from larvatus.core.errors import DataError, UsageError
from larvatus.core.outputs import check_outputs, write_output
from larvatus.core.ranges import Count, Seed, whole
from larvatus.core.settings import Flag, PathName, Settings
from larvatus.data.text.readers import read_documents
from larvatus.evaluation.audit.masked_loss import MaskedLossOptions, Masks, Words, sample_texts
from larvatus.evaluation.audit.toxicity.before_after import AnyToxicity, BeforeAfter, before_after, read_stereotypes
from larvatus.evaluation.audit.toxicity.generated import GeneratedOptions, Samples, Tokens, generated_toxicity
from larvatus.evaluation.audit.toxicity.judges import ClassifierJudge, Judge, WordListJudge
from larvatus.evaluation.audit.toxicity.measure import NEUTRAL, GroupPrompt, ToxicityOptions, read_prompts, toxicity
from larvatus.evaluation.cards.claims import toxicity_claims
from larvatus.inference.model import Model, load
from larvatus.interfaces.settings import Texts, TextSettings, loaded_model, path_names, read_settings
from larvatus.models.generation.generator import can_generate

if TYPE_CHECKING:
    from larvatus.interfaces.api.keywords import AuditToxicityKeywords

Top = Annotated[int, whole(1, 1_000)]


class ToxicitySettings(Settings):
    """How prompts are filled and judged."""

    words: Annotated[Path | None, Flag(metavar="FILE")] = None
    """Your list of toxic words, one a line."""
    judge: Annotated[PathName | None, Flag(metavar="MODEL")] = None
    """Or a classifier of larvatus finetune classify that judges the filled prompts."""
    label: str | None = None
    """Its label for what is toxic (toxic)."""
    top: Top | None = None
    """Words of each blank that are judged, the likeliest (20)."""
    samples: Samples | None = None
    """Continuations of each prompt, for models that write (25)."""
    max_tokens: Tokens | None = None
    """Most tokens of a continuation, for models that write (20)."""
    pairs: Annotated[Path | None, Flag(metavar="FILE")] = None
    """With --beside: stereotyped<TAB>other sentences, or CrowS-Pairs: to see what happens to that bias."""
    documents: Count = 1_000
    """With --beside: documents of --corpus, sampled at random."""
    masks: Masks = 10
    """Masks of a document; each hides 15% of the words."""
    length: Annotated[Words, Flag("--document-words")] = 100
    """Words of a document that are read, from its beginning."""
    seed: Seed = 0
    """Seed of all samples and masks."""
    device: Annotated[str, Flag(offered=False)] = "auto"
    """Where models are loaded: auto, cpu or cuda."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.words is None) == (self.judge is None):
            raise UsageError("give a judge: a list of words (--words FILE) or a classifier (--judge MODEL)")
        if self.label is not None and self.judge is None:
            raise UsageError("--label is for --judge: leave it out")


class ToxicityInputs(Settings):
    """Prompts, validation text for a second model, and the file of the report."""

    prompts: Annotated[Path | None, Flag(metavar="FILE")] = None
    """group<TAB>prompt with [MASK][<TAB>template] lines; a small neutral set by default. gpt and t5 need no [MASK]."""
    corpus: Annotated[tuple[str, ...], Flag(metavar="PATH")] = ()
    """With --beside: validation text, to measure what the other model has lost; repeatable."""
    out: Annotated[Path | None, Flag(metavar="FILE")] = None
    """The report as JSON, with the words of every prompt."""
    overwrite: bool = False
    """Replace files that exist; never those that are read."""


def audit_toxicity(
    model: str | Path | Model,
    prompts: str | Path | None = None,
    *,
    beside: str | Path | Model | None = None,
    corpus: Texts | None = None,
    out: str | Path | None = None,
    overwrite: bool = False,
    progress: Callable[[int], None] = lambda done: None,
    **settings: Unpack[AuditToxicityKeywords],
) -> AnyToxicity | BeforeAfter:
    """What a model puts into blanks, or (gpt, gpt2, t5) writes after prompts, judged by a list or a classifier.

    Args:
        model: A model directory, a hub name, or a loaded model.
        prompts: A file of `group<TAB>prompt with [MASK][<TAB>template]` lines; a small neutral set by default. Models
            that write take prompts without a blank too.
        beside: Another model, such as one adapted from the first with filtered text; the result then compares both.
        corpus: With `beside`: validation text, to measure what the other model has lost.
        out: A JSON file for the report, with the words of every prompt.
        overwrite: Replace it if it exists.
        progress: Called with the number of prompts are done.
        **settings: `words` (a file) or `judge` (a model) with its `label`; `top`, or, of models that write, `samples`
            and `max_tokens`; `seed`, `device`; with `beside` also `pairs`, `documents`, `masks`, `length`; how text is
            read: `split`, `on_bad`, `encoding`, ….

    Returns:
        A report; printed, it is a table: `Toxicity`, or `GeneratedToxicity` of a model that writes. With `beside` both
        reports, and their differences.

    Example:
        >>> _ = (folder / "list.txt").write_text("deep")
        >>> sorted(audit_toxicity(model, words=folder / "list.txt").groups)[:2]
        ['immigrants', 'men']
    """
    chosen, reading = read_settings(settings, ToxicitySettings, TextSettings, function="audit_toxicity")
    inputs = ToxicityInputs(
        prompts=None if prompts is None else Path(prompts),
        corpus=() if corpus is None else tuple(path_names(corpus)),
        out=None if out is None else Path(out),
        overwrite=overwrite,
    )
    return run_toxicity_audit(model, inputs, chosen, reading, beside=beside, progress=progress)


def run_toxicity_audit(
    model: str | Path | Model,
    inputs: ToxicityInputs,
    chosen: ToxicitySettings,
    reading: TextSettings,
    *,
    beside: str | Path | Model | None = None,
    progress: Callable[[int], None] = lambda done: None,
) -> AnyToxicity | BeforeAfter:
    """Run `audit_toxicity` from structs."""
    prompts = inputs.prompts
    if beside is None and (inputs.corpus or chosen.pairs is not None):
        raise UsageError("corpus and pairs are for two models: give beside, or leave them out")
    read = [str(each) for each in (prompts, chosen.words, chosen.pairs) if each is not None]
    check_outputs(inputs.out, overwrite=inputs.overwrite, inputs=read)
    pairs = () if chosen.pairs is None else read_stereotypes(chosen.pairs)
    loaded = loaded_model(model, chosen.device)
    other = beside if isinstance(beside, Model | None) else load(beside, device=str(loaded.device))
    asked = read_prompts(NEUTRAL if prompts is None else prompts, blank=not _writes(chosen, loaded, other))
    judge = _judge(chosen, loaded)
    first = _measured(loaded, asked, judge, chosen, progress)
    by = judge if isinstance(judge, ClassifierJudge) else chosen.words
    first = replace(first, claims=toxicity_claims(first, loaded, judge=by, prompts=prompts, seed=chosen.seed))
    report: AnyToxicity | BeforeAfter = first
    if other is not None:
        texts = _texts(inputs.corpus, chosen, reading) if inputs.corpus else ()
        second = _measured(other, asked, judge, chosen, lambda done: progress(len(asked) + done))
        options = MaskedLossOptions(masks=chosen.masks, words=chosen.length, seed=chosen.seed)
        report = before_after((loaded, other), (first, second), texts=texts, pairs=pairs, options=options)
    if inputs.out is not None:
        write_output(inputs.out, json.dumps(report.to_dict(), ensure_ascii=False, indent=2) + "\n")
    return report


def _writes(chosen: ToxicitySettings, model: Model, other: Model | None) -> bool:
    """Whether models write rather than fill blanks; settings of the other kind are refused."""
    writes = can_generate(model.network)
    if other is not None and can_generate(other.network) != writes:
        raise UsageError(
            f"{model.bundle.path} and {other.bundle.path}: one writes and one fills blanks; give two alike"
        )
    if writes and chosen.top is not None:
        raise UsageError("top is for models that fill blanks; this one writes: give samples")
    if not writes and (chosen.samples is not None or chosen.max_tokens is not None):
        raise UsageError("samples and max_tokens are for models that write (gpt, t5); this one fills blanks: give top")
    return writes


def _measured(
    model: Model,
    prompts: Sequence[GroupPrompt],
    judge: Judge,
    chosen: ToxicitySettings,
    progress: Callable[[int], None],
) -> AnyToxicity:
    given = {name: getattr(chosen, name) for name in ("top", "samples", "max_tokens")}
    said = {name: value for name, value in given.items() if value is not None}
    if can_generate(model.network):
        return generated_toxicity(model, prompts, judge, GeneratedOptions(seed=chosen.seed, **said), progress=progress)
    return toxicity(model, prompts, judge, ToxicityOptions(seed=chosen.seed, **said), progress=progress)


def _judge(chosen: ToxicitySettings, loaded: Model) -> Judge:
    if chosen.words is not None:
        return WordListJudge.read(chosen.words)
    assert chosen.judge is not None
    return ClassifierJudge.of(load(chosen.judge, device=str(loaded.device)), chosen.label)


def _texts(paths: Sequence[str], chosen: ToxicitySettings, reading: TextSettings) -> tuple[str, ...]:
    documents = read_documents(paths, options=reading.reading())
    drawn = sample_texts(documents, most=chosen.documents, words=chosen.length, seed=chosen.seed)
    if len(drawn.texts) < 2:
        raise DataError(f"{', '.join(paths)} has {len(drawn.texts)} documents of 8 words or more; give two or more")
    return drawn.texts
