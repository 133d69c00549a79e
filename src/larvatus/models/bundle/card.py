"""The model card (Mitchell et al. 2019) with the datasheet of its corpus (Gebru et al. 2021): a model's README.md.

    text = model_card(Card(name="law", recipe="bert", claims=claims, corpus=Datasheet(…)))

A pure function of facts: it measures nothing, and what it was not told it leaves out. Its figures are claims
(`claims.py`), and stand between two marks (`figures.py`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from larvatus.core.version import VERSION
from larvatus.models.bundle.claims import Claim
from larvatus.models.bundle.figures import RESULTS, claim_section, format_number, markdown_cell, render_figures


@dataclass(frozen=True, kw_only=True)
class DatasheetSource:
    """One file or collection that text came from, as the user named it."""

    name: str
    bytes: int | None = None
    sha256: str | None = None
    documents: int | None = None
    language: str | None = None
    license: str | None = None


@dataclass(frozen=True, kw_only=True)
class Datasheet:
    """What the model has read."""

    documents: int
    tokens: int
    sentences: int | None = None
    words: int | None = None
    languages: Mapping[str, int] = field(default_factory=dict)
    """Documents by language; empty where nobody said."""
    sources: Sequence[DatasheetSource] = ()
    sha256: str | None = None
    """Of the corpus manifest, which names the hash of every shard."""
    license: str | None = None
    skipped: int = 0
    """Records that could not be read and were left out."""
    treatment: Sequence[str] = ()
    """What was left out on purpose, removed or planted, and by which settings; a line each."""


@dataclass(frozen=True, kw_only=True)
class Card:
    """All that a model card can say."""

    name: str
    recipe: str
    about: str = ""
    claims: Sequence[Claim] = ()
    """Sizes, training, what was measured on held-out text."""
    corpus: Datasheet | None = None
    parent: str | None = None
    """The model that training went on from."""
    license: str | None = None
    kind: str = "bidirectional encoder"
    """What it is, in a word or two."""
    fills: bool = True
    """Whether there is a masked-LM head, the model's own or its generator's."""
    generator: str | None = None
    """The folder of the generator that fills blanks, where the model does not itself."""
    mask: str = "[MASK]"
    transformers: bool = True
    """Whether `transformers` can load the directory."""


def model_card(card: Card) -> str:
    """The whole README.md."""
    parts = [
        _front_matter(card),
        _introduction(card),
        _usage(card),
        render_figures(card.claims),
        _datasheet(card.corpus),
        _limitations(card),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _front_matter(card: Card) -> str:
    languages = sorted(card.corpus.languages) if card.corpus else []
    fills = card.fills and card.generator is None  # `transformers` looks for the head in the directory itself
    tags = ["larvatus", card.recipe, *(["fill-mask"] if fills else [])]
    lines = ["---"]
    if languages:
        lines += ["language:", *(f"- {json.dumps(language, ensure_ascii=False)}" for language in languages)]
    if card.license:
        lines.append(f"license: {json.dumps(card.license, ensure_ascii=False)}")
    lines.append(f"library_name: {'transformers' if card.transformers else 'larvatus'}")
    if fills:
        lines.append("pipeline_tag: fill-mask")
    if card.parent:
        lines.append(f"base_model: {json.dumps(card.parent, ensure_ascii=False)}")
    return "\n".join([*lines, "tags:", *(f"- {json.dumps(tag, ensure_ascii=False)}" for tag in tags), "---"])


def _introduction(card: Card) -> str:
    about = f" {card.about.rstrip('.')}." if card.about else ""
    parent = f" Training went on from `{card.parent}`." if card.parent else ""
    return (
        f"# {card.name}\n\nA {card.kind}, pretrained with "
        f"the recipe `{card.recipe}` of Larvatus {VERSION}.{about}{parent} "
        "The whole recipe, the lineage and the checksum of every file are in `larvatus.json`."
    )


def _usage(card: Card) -> str:
    lines = ["## How to use it", "", "```python", "import larvatus as lv", ""]
    lines.append(f"model = lv.load({json.dumps(card.name)})")
    if card.fills:
        lines.append(f'for fill in model.fill("The {card.mask} was read aloud."):')
        lines.append("    print(fill.token, fill.probability)")
    lines.append("```")
    if card.transformers:
        auto = "AutoModelForPreTraining" if card.generator else "AutoModelForMaskedLM" if card.fills else "AutoModel"
        lines += [
            "",
            f"`transformers` loads the directory too: `{auto}.from_pretrained`, `AutoTokenizer.from_pretrained`.",
        ]
    else:
        lines += ["", "No architecture of `transformers` expresses this model; only Larvatus loads it."]
    if card.generator:
        what = "a model of its own; this one learnt to tell which tokens it had replaced"
        lines += ["", f"Blanks are filled by the generator in `{card.generator}/`, {what}."]
    return "\n".join(lines)


def table(title: str, rows: Mapping[str, str | int | float], note: str = "") -> str:
    if not rows:
        return ""
    lines = [f"## {title}", "", "| | |", "| --- | --- |"]
    lines += [f"| {markdown_cell(name)} | {markdown_cell(format_number(value))} |" for name, value in rows.items()]
    return "\n".join([*lines, "", note] if note else lines)


def _datasheet(corpus: Datasheet | None) -> str:
    if corpus is None:
        return "## Corpus\n\nNothing is recorded of the text that this model has read."
    return "\n".join(["## Corpus", "", *_datasheet_lines(corpus)])


def _datasheet_lines(corpus: Datasheet) -> Iterator[str]:
    sizes = {name: getattr(corpus, name) for name in ("documents", "sentences", "words", "tokens")}
    yield " · ".join(f"{format_number(count)} {name}" for name, count in sizes.items() if count is not None) + "."
    if corpus.skipped:
        yield f"{format_number(corpus.skipped)} records could not be read and were skipped."
    yield from (f"\n{line[:1].upper()}{line[1:]}." for line in corpus.treatment)
    yield ""
    if corpus.languages:
        counts = ", ".join(f"{name} {format_number(count)}" for name, count in corpus.languages.items())
        yield f"Languages (documents): {counts}."
    else:
        yield "Languages: not recorded."
    yield f"Licence of the text, as given: {corpus.license or 'none was given'}."
    if corpus.sha256:
        yield f"SHA-256 of the corpus manifest: `{corpus.sha256}`."
    if corpus.sources:
        yield from ("", "| source | documents | bytes | language | licence | SHA-256 |", "| --- " * 6 + "|")
    for s in corpus.sources:
        cells = (s.name, s.documents, s.bytes, s.language, s.license, s.sha256 and f"`{s.sha256}`")
        yield "| " + " | ".join("" if value is None else markdown_cell(format_number(value)) for value in cells) + " |"


def _limitations(card: Card) -> str:
    lines = [
        "## Limitations",
        "",
        "- It has read only the text described above, and repeats its gaps, its errors and its biases.",
        "- Measure it on your own text before decisions rest on it.",
        "- It was trained to fit words into contexts, not to state facts; a likely word is not a true one.",
        "- Rare passages of the corpus may be recoverable from the weights; do not publish a model of private text.",
    ]
    if not any(claim_section(claim) == RESULTS for claim in card.claims):
        lines.append("- Nothing was measured on held-out text.")
    return "\n".join(lines)
