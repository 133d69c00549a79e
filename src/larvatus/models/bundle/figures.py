"""The part of a README.md that is rendered from claims, between two marks; text outside of them is the user's.

    text = with_figures(text, claims)        # the part between the marks is new, all else as it was
    said = figures_of(text)                  # what stands between them now

Where there are no marks (a card of Larvatus 0.1, or written by hand), the part goes before the limitations, or to the
end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from larvatus.models.bundle.claims import COMMANDS, STATISTIC, Claim, Data

BEGIN = "<!-- figures: rendered from larvatus.json by `larvatus card`; your own text is kept before and after -->"
END = "<!-- end of figures -->"
BEFORE = "\n## Limitations\n"
"""Heading that the figures stand before, in a card without marks."""
RESULTS = "Held-out results"
LEAK_FLAGS = ("documents", "draws", "words", "masks", "spans", "prefix", "suffix", "exact", "samples", "reference")
"""Settings of an audit of leaks that are flags of its command."""
STATISTICS = ("mean of seeds", "deviation")
NOTES: Mapping[str, str] = {
    "held-out text": "Masks and pairs are fixed, so figures compare.",
    "energy": "Estimates, not measured.",
}


def with_figures(text: str, claims: Sequence[Claim]) -> str:
    """The card with the figures of these claims."""
    part = render_figures(claims)
    before, after = _around(text)
    return f"{before}{part}{after}"


def figures_section(text: str) -> str | None:
    """What stands between the marks, marks included; None where there are none."""
    start = text.find(BEGIN)
    end = text.find(END, start)
    return None if start < 0 or end < 0 else text[start : end + len(END)]


def without_marks(text: str) -> str:
    """A card that is taken over into another: its figures are then text like any other."""
    return text.replace(f"{BEGIN}\n\n", "").replace(f"\n\n{END}", "").replace(BEGIN, "").replace(END, "")


def _around(text: str) -> tuple[str, str]:
    part = figures_section(text)
    if part is not None:
        before, _, after = text.partition(part)
        return before, after
    before, heading, after = text.partition(BEFORE)
    return f"{before.rstrip()}\n\n", f"\n{heading}{after}" if heading else "\n"


def render_figures(claims: Sequence[Claim]) -> str:
    """The part of the card, marks included: a function of the claims alone."""
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
    yield from (f"## {title}", "", f"| {' | '.join(heads)} |".replace("|  |", "| |").replace("|  |", "| |"))
    yield "| --- " * len(heads) + "|"
    for claim in rows:
        beside = [spread.get((claim.label, name)) for name in statistics]
        cells = [claim.label, format_claim(claim), *("" if other is None else format_claim(other) for other in beside)]
        if intervals:
            cells.append(
                "" if claim.low is None else f"{format_number(claim.low)} to {format_number(claim.high or 0.0)}"
            )
        if units:
            cells.append(claim.unit)
        if "measured on" in heads:
            cells.append(", ".join(data.name for data in claim.data))
        yield "| " + " | ".join(map(markdown_cell, cells)) + " |"
    for note in dict.fromkeys(filter(None, (NOTES.get(claim.command) for claim in rows))):
        yield from ("", note)
    yield from _formulas(rows)
    for command in dict.fromkeys(_leak_command(claim) for claim in rows if claim.command == "audit leaks"):
        yield from ("", f"Measured by `{markdown_cell(command)}`.")


def _leak_command(claim: Claim) -> str:
    """The command that measured a figure of an audit of leaks, with its files, settings and seed."""
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
    """How estimates are worked out, and from what."""
    estimates = [claim for claim in claims if claim.estimate]
    for claim in estimates:
        yield from ("", f"{claim.metric} = {claim.estimate}.")
    if estimates:
        settings = sorted(estimates[0].settings.items())  # in the order of a file
        given = "; ".join(f"{name}: {format_number(value)}" for name, value in settings if value != "")
        yield from ("", f"Taken for it: {markdown_cell(given)}.")


def _data(claims: Sequence[Claim]) -> Iterator[str]:
    """Each set of data once, with its checksum."""
    sets: dict[Data, None] = dict.fromkeys(data for claim in claims for data in claim.data)
    if sets:
        yield from ("## Data of these figures", "", "| measured on | kind | SHA-256 |", "| --- | --- | --- |")
    for data in sets:
        yield f"| {markdown_cell(data.name)} | {data.kind} | `{markdown_cell(data.sha256)}` |"


def format_claim(claim: Claim) -> str:
    """The value for people: four places of a score, four digits of anything else."""
    fraction = isinstance(claim.value, float) and (claim.command == "evaluate" or STATISTIC in claim.settings)
    return f"{claim.value:.4f}" if fraction else format_number(claim.value)


def format_number(value: object) -> str:
    """A figure for people: thousands apart, four digits of what is no count."""
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def markdown_cell(text: str) -> str:
    """What a user gave must neither break a table nor end the part."""
    plain = text.replace("<!--", "<! --").replace("-->", "-- >").replace("|", "\\|")
    return " ".join(plain.split())
