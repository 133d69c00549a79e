"""The model card (Mitchell et al. 2019) with the datasheet of its corpus (Gebru et al. 2021): a model's README.md.

    text = model_card(Card(name="law", recipe="bert", claims=claims, corpus=Datasheet(…)))
    text = with_figures(text, claims)        # the figures again from these claims; all other text stays

The card is a pure function of facts: it measures nothing and omits what is not known. Its figures are claims
(`claims.py`), rendered between two marks. Text outside the marks is the user's. In a card without marks (of Larvatus
0.1, or written by hand) the figures go before the limitations, or to the end.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from larvatus.core.run_identity import VERSION
from larvatus.core.tables import markdown_table
from larvatus.models.bundle.claims import COMMANDS, STATISTIC, Claim, Data

BEGIN = "<!-- figures: rendered from larvatus.json by `larvatus card`; your own text is kept before and after -->"
END = "<!-- end of figures -->"
BEFORE = "\n## Limitations\n"
"""Heading before which the figures go in a card without marks."""
RESULTS = "Held-out results"
LEAK_FLAGS = ("documents", "draws", "words", "masks", "spans", "prefix", "suffix", "exact", "samples", "reference")
"""Settings of a leak audit that are flags of its command."""
STATISTICS = ("mean of seeds", "deviation")
NOTES: Mapping[str, str] = {
    "held-out text": "Masks and pairs are fixed, so figures compare.",
    "energy": "Estimates, not measured.",
}


@dataclass(frozen=True, kw_only=True)
class DatasheetSource:
    """A file or collection that text came from, as the user named it."""

    name: str
    bytes: int | None = None
    sha256: str | None = None
    documents: int | None = None
    language: str | None = None
    license: str | None = None


@dataclass(frozen=True, kw_only=True)
class Datasheet:
    """The corpus that a model was trained on."""

    documents: int
    tokens: int
    sentences: int | None = None
    words: int | None = None
    languages: Mapping[str, int] = field(default_factory=dict)
    """Documents by language; empty if unknown."""
    sources: Sequence[DatasheetSource] = ()
    sha256: str | None = None
    """Checksum of the corpus manifest, which lists the hash of every shard."""
    license: str | None = None
    skipped: int = 0
    """Number of records that could not be read and were skipped."""
    treatment: Sequence[str] = ()
    """What was filtered, removed or planted on purpose, with its settings, one line each."""


@dataclass(frozen=True, kw_only=True)
class Card:
    """The contents of a model card."""

    name: str
    recipe: str
    about: str = ""
    claims: Sequence[Claim] = ()
    """Sizes, training, results on held-out text."""
    corpus: Datasheet | None = None
    parent: str | None = None
    """The model that training started from."""
    license: str | None = None
    kind: str = "bidirectional encoder"
    """The kind of model, in a few words."""
    fills: bool = True
    """Whether there is a masked-LM head, in the model or in its generator."""
    generator: str | None = None
    """Folder of the generator that fills blanks, if the model itself does not."""
    mask: str = "[MASK]"
    transformers: bool = True
    """Whether `transformers` loads the directory."""


def model_card(card: Card) -> str:
    """The complete README.md."""
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
        what = "a separate model; this one learned to detect which tokens it had replaced"
        lines += ["", f"Blanks are filled by the generator in `{card.generator}/`, {what}."]
    return "\n".join(lines)


def table(title: str, rows: Mapping[str, str | int | float], note: str = "") -> str:
    """A section with a table of two columns; empty if there are no rows."""
    if not rows:
        return ""
    cells = [[markdown_cell(name), markdown_cell(format_number(value))] for name, value in rows.items()]
    return "\n".join([f"## {title}", "", markdown_table(["", ""], cells), *(["", note] if note else [])])


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
        heads = ("source", "documents", "bytes", "language", "licence", "SHA-256")
        rows = [
            (s.name, s.documents, s.bytes, s.language, s.license, s.sha256 and f"`{s.sha256}`") for s in corpus.sources
        ]
        cells = [["" if value is None else markdown_cell(format_number(value)) for value in row] for row in rows]
        yield from ("", markdown_table(heads, cells))


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


def with_figures(text: str, claims: Sequence[Claim]) -> str:
    """The card with its figures rendered from these claims."""
    part = render_figures(claims)
    before, after = _around(text)
    return f"{before}{part}{after}"


def figures_section(text: str) -> str | None:
    """The section of figures with its marks; None if there are no marks."""
    start = text.find(BEGIN)
    end = text.find(END, start)
    return None if start < 0 or end < 0 else text[start : end + len(END)]


def without_marks(text: str) -> str:
    """A card without marks, for use inside another card: its figures become ordinary text."""
    return text.replace(f"{BEGIN}\n\n", "").replace(f"\n\n{END}", "").replace(BEGIN, "").replace(END, "")


def _around(text: str) -> tuple[str, str]:
    part = figures_section(text)
    if part is not None:
        before, _, after = text.partition(part)
        return before, after
    before, heading, after = text.partition(BEFORE)
    return f"{before.rstrip()}\n\n", f"\n{heading}{after}" if heading else "\n"


def render_figures(claims: Sequence[Claim]) -> str:
    """The section of figures with its marks, a function of the claims only."""
    sections = []
    for title in dict.fromkeys(COMMANDS.values()):
        mine = [claim for claim in claims if claim_section(claim) == title]
        if mine:
            sections.append("\n".join(_section(title, mine)))
    said = (
        "Every figure here is a claim in `larvatus.json`, with its command, settings, versions and the checksum of the "
        "model. `larvatus card DIR --verify` works them out again; how training went is recorded, and not run again."
    )
    sections.append("\n".join(_data(claims)))
    body = "\n\n".join(filter(None, [*sections, said if claims else "No figures are recorded of this model."]))
    return f"{BEGIN}\n\n{body}\n\n{END}"


def claim_section(claim: Claim) -> str:
    return RESULTS if STATISTIC in claim.settings else COMMANDS[claim.command]


def _section(title: str, claims: Sequence[Claim]) -> Iterator[str]:
    spread = {(claim.label, claim.settings[STATISTIC]): claim for claim in claims if STATISTIC in claim.settings}
    rows = [claim for claim in claims if STATISTIC not in claim.settings]
    statistics = [name for name in STATISTICS if any(of == name for _, of in spread)]
    intervals = any(claim.low is not None for claim in rows)
    heads = ["", "these weights" if statistics else "", *statistics]
    units = any(claim.unit for claim in rows)
    heads += (["95% interval"] if intervals else []) + (["resampled"] if units else [])
    heads += ["measured on"] if any(claim.data for claim in rows) else []
    table = []
    for claim in rows:
        over_seeds = [spread.get((claim.label, name)) for name in statistics]
        cells = [claim.label, format_claim(claim), *("" if each is None else format_claim(each) for each in over_seeds)]
        if intervals:
            cells.append(
                "" if claim.low is None else f"{format_number(claim.low)} to {format_number(claim.high or 0.0)}"
            )
        if units:
            cells.append(claim.unit)
        if "measured on" in heads:
            cells.append(", ".join(data.name for data in claim.data))
        table.append([markdown_cell(cell) for cell in cells])
    yield from (f"## {title}", "", markdown_table(heads, table))
    for note in dict.fromkeys(filter(None, (NOTES.get(claim.command) for claim in rows))):
        yield from ("", note)
    yield from _formulas(rows)
    for command in dict.fromkeys(_leak_command(claim) for claim in rows if claim.command == "audit leaks"):
        yield from ("", f"Measured by `{markdown_cell(command)}`.")


def _leak_command(claim: Claim) -> str:
    """The command that measured a figure of a leak audit, with its files, settings and seed."""
    flags = ("canaries",) if len(claim.data) == 1 else ("members", "held-out")
    words = [
        f"--{flag} {name}" for flag, data in zip(flags, claim.data, strict=False) for name in data.files or [data.name]
    ]
    for name in LEAK_FLAGS:
        value = claim.settings.get(name)
        if value not in (None, []):
            words.append(f"--{name} {','.join(map(str, value)) if isinstance(value, list | tuple) else value}")
    seed = [] if claim.seed is None else [f"--seed {claim.seed}"]
    return " ".join(["larvatus audit leaks", *words, *seed])


def _formulas(claims: Sequence[Claim]) -> Iterator[str]:
    """Formulas of estimates, and the values they use."""
    estimates = [claim for claim in claims if claim.estimate]
    for claim in estimates:
        yield from ("", f"{claim.metric} = {claim.estimate}.")
    if estimates:
        settings = sorted(estimates[0].settings.items())  # in the order of a file
        given = "; ".join(f"{name}: {format_number(value)}" for name, value in settings if value != "")
        yield from ("", f"Taken for it: {markdown_cell(given)}.")


def _data(claims: Sequence[Claim]) -> Iterator[str]:
    """Every data set once, with its checksum."""
    sets: dict[Data, None] = dict.fromkeys(data for claim in claims for data in claim.data)
    rows = [[markdown_cell(data.name), data.kind, f"`{markdown_cell(data.sha256)}`"] for data in sets]
    if rows:
        yield from ("## Data of these figures", "", markdown_table(["measured on", "kind", "SHA-256"], rows))


def format_claim(claim: Claim) -> str:
    """The value for people: four decimals of a score, four digits of anything else."""
    fraction = isinstance(claim.value, float) and (claim.command == "evaluate" or STATISTIC in claim.settings)
    return f"{claim.value:.4f}" if fraction else format_number(claim.value)


def format_number(value: object) -> str:
    """A number for people: counts with thousands separators, other numbers with four digits."""
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def markdown_cell(text: str) -> str:
    """A user's text as a cell: it can neither break the table nor end the section."""
    plain = text.replace("<!--", "<! --").replace("-->", "-- >").replace("|", "\\|")
    return " ".join(plain.split())
