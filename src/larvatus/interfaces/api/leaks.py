"""Leaks of training text from a model, as one call.

audit_leaks("runs/mine", canaries="runs/mine/corpus", members="in.jsonl", held_out="out.jsonl", reference="runs/other")
split_members("texts/", out="half", seed=0)           # half/in.jsonl to train on, half/out.jsonl to hold out
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Unpack

from larvatus.core.arrays import Ints
from larvatus.core.errors import DataError, UsageError
from larvatus.core.outputs import check_directory, check_outputs, new_output, write_output
from larvatus.core.ranges import Count, Seed, ShareBetween, whole
from larvatus.core.rng import stream
from larvatus.core.settings import Flag, Settings
from larvatus.data.corpus.canaries import canaries_file, read_canaries
from larvatus.data.text.readers import Skipped, list_files, read_documents
from larvatus.evaluation.audit.leaks import LeakReport
from larvatus.evaluation.audit.leaks.exposure import ExposureOptions, exposures
from larvatus.evaluation.audit.leaks.extraction import (
    DocumentsTooShort,
    Extraction,
    ExtractionOptions,
    Tokens,
    extraction,
)
from larvatus.evaluation.audit.leaks.membership import Membership, membership
from larvatus.evaluation.audit.leaks.restoration import Restoration, RestorationOptions, restoration
from larvatus.evaluation.audit.masked_loss import MaskedLossOptions, Masks, SampledTexts, Words, sample_texts
from larvatus.evaluation.cards.claims import leak_claims
from larvatus.inference.cloze.likelihood import find_reader
from larvatus.inference.model import Model, load
from larvatus.interfaces.api.evaluation_claims import changed_reading
from larvatus.interfaces.settings import Texts, TextSettings, loaded_model, path_names, read_settings
from larvatus.models.bundle.checksums import model_digest
from larvatus.models.generation.generator import can_infill

if TYPE_CHECKING:
    from larvatus.interfaces.api.keywords import AuditLeaksKeywords, SplitMembersKeywords

IN, OUT = "in.jsonl", "out.jsonl"
Draws = Annotated[int, whole(1, 1_000)]
Spans = Annotated[int, whole(0, 1_000)]
RankedSecrets = Annotated[int, whole(1, 10**7)]
DrawnSecrets = Annotated[int, whole(100, 10**7)]


class LeakSettings(Settings):
    """How leaks are measured."""

    documents: Count = 1_000
    """Documents of --members, and of --held-out, that are sampled at random."""
    draws: Draws = 1
    """Samples of --documents members, no document in two; figures are of all of them, with the spread over samples."""
    words: Words = 100
    """Words of a document that are read, from its beginning."""
    masks: Masks = 10
    """Masks of a document; each hides 15% of the words."""
    spans: Spans = 3
    """Names, and as many numbers, that are masked in a document at most; 0: none are restored."""
    prefix: tuple[Tokens, ...] = ()
    """Tokens of a document that are given to models that write, such as 16,32,64 (50, or what fits)."""
    suffix: Tokens | None = None
    """Tokens after them that a model that writes must reproduce exactly (50, or what fits)."""
    exact: RankedSecrets = 10_000
    """Rank canaries among all secrets if there are at most this many; else among sampled ones."""
    samples: DrawnSecrets = 1_000
    """Secrets that are sampled for each canary from a larger space."""
    seed: Seed = 0
    """Seed of all samples and masks."""
    device: Annotated[str, Flag(offered=False)] = "auto"
    """Where models are loaded: auto, cpu or cuda."""


class LeakInputs(Settings):
    """Texts of a leak audit, and the file of the report."""

    canaries: Annotated[Path | None, Flag(metavar="DIR")] = None
    """The corpus that was built with --canaries, or its canaries.json."""
    members: Annotated[tuple[str, ...], Flag(metavar="PATH")] = ()
    """Text that the model was trained on; repeatable."""
    held_out: Annotated[tuple[str, ...], Flag(metavar="PATH")] = ()
    """Text of the same source that it was not trained on; repeatable."""
    out: Annotated[Path | None, Flag(metavar="FILE")] = None
    """The report as JSON."""
    overwrite: bool = False
    """Replace files that exist; never those that are read."""


def audit_leaks(
    model: str | Path | Model,
    *,
    canaries: str | Path | None = None,
    members: Texts | None = None,
    held_out: Texts | None = None,
    reference: str | Path | Model | None = None,
    out: str | Path | None = None,
    overwrite: bool = False,
    progress: Callable[[str, int], None] = lambda what, done: None,
    **settings: Unpack[AuditLeaksKeywords],
) -> LeakReport:
    """Measure leaks of training text: planted canaries, membership of documents, names and numbers.

    From a generative model (gpt, gpt2, t5), canaries and documents are also extracted by generation.

    Args:
        model: A model directory, a hub name, or a loaded model.
        canaries: The corpus that was built with canaries, or its `canaries.json`.
        members: Text that the model was trained on: files, directories or globs.
        held_out: Text of the same source that it was not trained on (`split_members`).
        reference: A model that was trained on neither, for the likelihood ratio.
        out: A JSON file for the report.
        overwrite: Replace it if it exists.
        progress: Called with what is read, and how many are done.
        **settings: `documents`, `draws`, `words`, `masks`, `spans`, `exact`, `samples`, `seed`, `device`; of models
            that write: `prefix`, `suffix`; how text is read: `split`, `on_bad`, `encoding`, `text` (column of tables).

    Returns:
        A report; printed, it is tables. `.exposure`, `.membership`, `.restoration` and `.extraction` are None where
        nothing was given for them, or the model has nothing to measure them with (see `.notes`).

    Example:
        >>> report = audit_leaks(model, members=texts, held_out="my_texts/", split="blank-line", spans=0, masks=1)
        Traceback (most recent call last):
        DataError: 1 held-out texts are too few to tell membership by; give 10 or more
    """
    chosen, reading = read_settings(settings, LeakSettings, TextSettings, function="audit_leaks")
    inputs = LeakInputs(
        canaries=None if canaries is None else Path(canaries),
        members=_paths(members),
        held_out=_paths(held_out),
        out=None if out is None else Path(out),
        overwrite=overwrite,
    )
    return run_leak_audit(model, inputs, chosen, reading, reference=reference, progress=progress)


def run_leak_audit(
    model: str | Path | Model,
    inputs: LeakInputs,
    chosen: LeakSettings,
    reading: TextSettings,
    *,
    reference: str | Path | Model | None = None,
    progress: Callable[[str, int], None] = lambda what, done: None,
) -> LeakReport:
    """Run `audit_leaks` from structs."""
    _check_given(inputs, reference)
    check_outputs(inputs.out, overwrite=inputs.overwrite, inputs=[*inputs.members, *inputs.held_out])
    planted = None if inputs.canaries is None else read_canaries(inputs.canaries)
    loaded = loaded_model(model, chosen.device)
    other = reference if isinstance(reference, Model | None) else load(reference, device=str(loaded.device))
    writing = _writing(loaded, chosen)
    exposure = None
    if planted is not None:
        options = ExposureOptions(exact=chosen.exact, samples=chosen.samples, seed=chosen.seed)
        exposure = exposures(loaded, planted, options, progress=lambda done: progress("canaries", done))
    parts: dict[str, Any] = {}
    if inputs.members:
        texts = _Texts.read(inputs, chosen, reading)
        parts = _Audit(loaded, other, chosen, writing, progress).of(texts)
    named = None if other is None else str(other.bundle.path)
    report = LeakReport(str(loaded.bundle.path), named, exposure, **parts)
    sources, said = _sources(inputs), _said(chosen, reading, other)
    report = replace(report, claims=leak_claims(report, loaded, sources=sources, settings=said, seed=chosen.seed))
    if inputs.out is not None:
        write_output(inputs.out, json.dumps(report.to_dict(), ensure_ascii=False, indent=2) + "\n")
    return report


def _check_given(inputs: LeakInputs, reference: str | Path | Model | None) -> None:
    """Refuse inputs that do not belong together."""
    if not (inputs.canaries or inputs.members or inputs.held_out):
        raise UsageError("nothing to audit; give canaries, or members and held_out")
    if bool(inputs.members) != bool(inputs.held_out):
        raise UsageError("membership is judged against other texts: give both members and held_out")
    if reference is not None and not inputs.members:
        raise UsageError("a reference model is for membership: give members and held_out, or leave it out")


def _writing(model: Model, chosen: LeakSettings) -> ExtractionOptions | None:
    """How documents are extracted; None of a model that does not write, which is refused where prefix or suffix is
    given."""
    given = chosen.prefix or chosen.suffix is not None
    if not given and not can_infill(model.network, model.tokenizer):
        return None
    return ExtractionOptions.fitting(model, chosen.prefix, chosen.suffix)


@dataclass(frozen=True, eq=False)
class _Texts:
    """Sampled documents."""

    members: tuple[str, ...]
    held_out: tuple[str, ...]
    draws: Ints | None
    """Which sample each member belongs to, where there are several."""
    notes: tuple[str, ...]

    @classmethod
    def read(cls, inputs: LeakInputs, chosen: LeakSettings, reading: TextSettings) -> _Texts:
        options = reading.reading()
        inside, outside = (
            sample_texts(read_documents(paths, options=options), most=most, words=chosen.words, seed=chosen.seed)
            for paths, most in (
                (inputs.members, chosen.documents * chosen.draws),
                (inputs.held_out, chosen.documents),
            )
        )
        known = set(inside.texts)
        held_out = tuple(text for text in outside.texts if text not in known)
        notes = _notes(inside, outside, len(outside.texts) - len(held_out))
        return cls(inside.texts, held_out, _samples(inside, chosen), notes)


@dataclass(frozen=True, eq=False)
class _Audit:
    """Measurements on documents."""

    model: Model
    reference: Model | None
    chosen: LeakSettings
    writing: ExtractionOptions | None
    progress: Callable[[str, int], None]

    def of(self, texts: _Texts) -> dict[str, Any]:
        """Membership, restoration and extraction on the same documents, as far as the model has heads for them."""
        reads = find_reader(self.model.network) is not None
        notes = texts.notes
        told, restored = None, None
        if self.writing is None or reads:
            told = self._membership(texts)
        else:
            notes += ("the model has no loss of a text: membership is not measured, and names are not restored",)
        if self.chosen.spans and reads:
            notes += ("the model reads left to right: masked names and numbers are not audited",)
        elif self.chosen.spans and told is not None:
            restored = self._restoration(texts)
        extracted, more = self._extraction(texts)
        return {"membership": told, "restoration": restored, "extraction": extracted, "notes": notes + more}

    def _membership(self, texts: _Texts) -> Membership:
        chosen = self.chosen
        return membership(
            self.model,
            texts.members,
            texts.held_out,
            MaskedLossOptions(masks=chosen.masks, words=chosen.words, seed=chosen.seed),
            reference=self.reference,
            draws=texts.draws,
            progress=lambda done: self.progress("texts", done),
        )

    def _restoration(self, texts: _Texts) -> Restoration:
        options = RestorationOptions(spans=self.chosen.spans, seed=self.chosen.seed)
        count = lambda done: self.progress("texts restored", done)  # noqa: E731
        return restoration(self.model, texts.members, texts.held_out, options, draws=texts.draws, progress=count)

    def _extraction(self, texts: _Texts) -> tuple[Extraction | None, tuple[str, ...]]:
        """Documents that are too short are an error only where the user said how long they must be."""
        if self.writing is None:
            return None, ()
        count = lambda done: self.progress("texts extracted", done)  # noqa: E731
        try:
            extracted = extraction(
                self.model, texts.members, texts.held_out, self.writing, draws=texts.draws, progress=count
            )
        except DocumentsTooShort as fault:
            if self.chosen.prefix or self.chosen.suffix is not None:
                raise
            return None, (f"no text is extracted: {fault}",)
        return extracted, ()


def _samples(inside: SampledTexts, chosen: LeakSettings) -> Ints | None:
    """Which sample each member belongs to; None where there is one."""
    if chosen.draws == 1:
        return None
    if len(inside.texts) < chosen.documents * chosen.draws:
        fits = len(inside.texts) // chosen.draws
        raise DataError(
            f"members have {len(inside.texts):,} documents, too few for {chosen.draws} samples of "
            f"{chosen.documents:,}; give fewer draws, or documents = {fits:,}"
        )
    return inside.split(chosen.draws)


def _notes(inside: SampledTexts, outside: SampledTexts, shared: int) -> tuple[str, ...]:
    notes = []
    if shared:
        notes.append(f"{shared:,} held-out texts are also training texts, and were skipped")
    if inside.short or outside.short:
        notes.append(f"skipped as too short: {inside.short:,} training and {outside.short:,} held-out documents")
    return tuple(notes)


def _sources(inputs: LeakInputs) -> dict[str, list[Any]]:
    """All files that were read."""
    planted = [] if inputs.canaries is None else [canaries_file(inputs.canaries)]
    texts = {"members": inputs.members, "held_out": inputs.held_out}
    return {"canaries": planted, **{name: list(list_files(paths)) for name, paths in texts.items() if paths}}


def _said(chosen: LeakSettings, reading: TextSettings, reference: Model | None) -> dict[str, dict[str, Any]]:
    """What figures depend on."""
    of_texts = {name: getattr(chosen, name) for name in ("documents", "draws", "words", "masks", "spans")}
    if chosen.prefix or chosen.suffix is not None:
        of_texts |= {"prefix": list(chosen.prefix), "suffix": chosen.suffix}
    if reference is not None:
        of_texts["reference"] = model_digest(Path(reference.bundle.path))
    if read := changed_reading(reading):
        of_texts["reading"] = read
    return {"canaries": {"exact": chosen.exact, "samples": chosen.samples}, "texts": of_texts}


def _paths(given: Texts | None) -> tuple[str, ...]:
    return () if given is None else tuple(path_names(given))


class SplitSettings(Settings):
    """How documents are split."""

    share: ShareBetween = 0.5
    """Share of the documents that are to be trained on."""
    seed: Seed = 0
    """Seed of the sample."""


def split_members(
    corpus: Texts,
    out: str | Path,
    *,
    overwrite: bool = False,
    skipped: Skipped | None = None,
    **settings: Unpack[SplitMembersKeywords],
) -> dict[str, int]:
    """Split documents at random into those to train on and those to hold out, so that membership can be audited later.

    Equal documents go together. Train on `in.jsonl`, and give both to `audit_leaks`.

    Args:
        corpus: Files, directories or globs of text.
        out: A directory for `in.jsonl` and `out.jsonl`.
        overwrite: Replace them if they exist.
        skipped: Counts what could not be read.
        **settings: `share`, `seed`; how text is read: `split`, `on_bad`, `encoding`, `text` (column of tables).

    Returns:
        How many documents each file has.

    Example:
        >>> sum(split_members(texts, folder / "half").values())
        60
    """
    chosen, reading = read_settings(settings, SplitSettings, TextSettings, function="split_members")
    return run_member_split(corpus, out, chosen, reading, overwrite=overwrite, skipped=skipped)


def run_member_split(
    corpus: Texts,
    out: str | Path,
    chosen: SplitSettings,
    reading: TextSettings,
    *,
    overwrite: bool,
    skipped: Skipped | None,
) -> dict[str, int]:
    """Run `split_members` from structs."""
    folder, paths = Path(out), path_names(corpus)
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file; name a directory")
    check_directory(folder, (IN, OUT), overwrite=overwrite, inputs=paths)
    folder.mkdir(parents=True, exist_ok=True)
    counts = {IN: 0, OUT: 0}
    inside: dict[str, bool] = {}
    with (
        new_output(folder / IN) as first,
        new_output(folder / OUT) as second,
        first.open("w", encoding="utf-8") as kept,
        second.open("w", encoding="utf-8") as rest,
    ):
        for number, document in enumerate(read_documents(paths, options=reading.reading(), skipped=skipped)):
            draw = bool(stream(chosen.seed, "audit split", 0, number).random() < chosen.share)
            drawn = inside.setdefault(document.text, draw)
            counts[IN if drawn else OUT] += 1
            record = {"text": document.text} | ({"language": document.language} if document.language else {})
            (kept if drawn else rest).write(json.dumps(record, ensure_ascii=False) + "\n")
        if not all(counts.values()):
            raise DataError(f"the text has {sum(counts.values())} documents, too few to split; give more")
    return counts
