"""`larvatus senses build|tag|evaluate|show`: which sense of WordNet a word has in its context."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from larvatus.core.errors import DataError, UsageError
from larvatus.core.outputs import check_outputs
from larvatus.core.ranges import COUNT_OR_NONE, Weight
from larvatus.core.settings import Settings
from larvatus.core.tables import Column, Row, Table
from larvatus.data.bulk.row_files import Write, check_row_file, row_file
from larvatus.data.text.readers import Skipped, read_documents
from larvatus.inference.model import load
from larvatus.inference.senses.build import SenseEntry, describe_senses
from larvatus.inference.senses.evaluate import SetResult, difference_from, evaluate_set
from larvatus.inference.senses.inventory import SenseInventory
from larvatus.inference.senses.tagged import ReadingCounts, SenseSentence, gold_of, read_keys, read_unified
from larvatus.inference.senses.tagger import SenseOptions, SenseTaggedWord, SenseTagger, find_instances, find_tagged
from larvatus.inference.senses.wordnet import NAMES, WordNet
from larvatus.inference.vectors.layers import layers_label, layers_name
from larvatus.interfaces.api.vectors import SenseVectorSettings, run_sense_build
from larvatus.interfaces.cli.from_struct import Panel, from_structs, ranged
from larvatus.interfaces.cli.options import Device, Json, ModelName, Overwrite
from larvatus.interfaces.cli.output import ProgressReporter, Quiet, print_json, report_skipped, show_part
from larvatus.interfaces.settings import TextSettings
from larvatus.metrics.classification import sense_f1
from larvatus.models.bundle.model_names import HELP as PACKAGED
from larvatus.models.bundle.model_names import model_or_packaged

app = typer.Typer(
    no_args_is_help=True, help="Build sense vectors from tagged text, and tag words with the nearest sense."
)

Wordnet = Annotated[
    str | None,
    typer.Option("--wordnet", metavar="DIR", help="Folder of WordNet's database files [Debian's /usr/share/wordnet]."),
]
Senses = Annotated[str, typer.Option("--senses", metavar="DIR", help="Sense vectors, of larvatus senses build.")]
EVERY = "synset,hypernym,lexname,first-sense"


class LadderSettings(Settings):
    """How a sense is chosen."""

    backoff: str = EVERY
    """Steps for senses without tagged words, of synset, hypernym, lexname, first-sense; or none."""
    standardise: bool = False
    """Standardise vectors by the tagged words' mean and deviation."""
    discourse: bool = False
    """One sense per discourse: a lemma has the same in all of a document."""
    prior: Weight = 0.0
    """Weight of log P(sense | lemma) added to the cosine."""

    @property
    def options(self) -> SenseOptions:
        given = self.backoff
        steps: Any = () if given.strip() == "none" else tuple(step.strip() for step in given.split(","))
        return SenseOptions(backoff=steps, standardise=self.standardise, discourse=self.discourse, prior=self.prior)


Ladder = Annotated[LadderSettings, Panel("How a sense is chosen")]
Standardise = Annotated[
    bool, typer.Option("--standardise", help="Standardise vectors by the tagged words' mean and deviation.")
]


@app.command()
@from_structs
def build(
    corpus: Annotated[str, typer.Argument(metavar="SEMCOR", help="SemCor: a folder, or its .tar.xz.")],
    model: ModelName,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Directory for the sense vectors.")],
    vectors: Annotated[SenseVectorSettings, Panel("Which vectors")],
    wordnet: Wordnet = None,
    device: Device = "auto",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """A vector for each sense: the mean of the words that are tagged with it."""
    reading = ReadingCounts()
    with ProgressReporter("sentences") as bar:
        inventory = run_sense_build(
            model,
            corpus,
            vectors,
            out=out,
            wordnet=wordnet,
            device=device,
            progress=lambda so_far: bar.show(
                f"{so_far.sentences:,} sentences · {so_far.instances:,} tagged words · "
                f"{bar.rate(so_far.sentences):,.0f} sentences/s"
            ),
            reading=reading,
        )
    origin = inventory.origin
    summary = {
        "path": str(out),
        "senses": len(inventory),
        "layers": layers_name(origin.layers),
        "words": origin.instances,
        "sentences": origin.sentences,
        "unknown_tags": origin.unknown,
        "unknown_most": dict(reading.unknown.most_common(5)),
    }
    if as_json:
        print_json(summary)
        return
    some = ", ".join(f"{key} ({count:,})" for key, count in reading.unknown.most_common(3))
    of = "" if origin.layers == "last" else f", {layers_label(layers_name(origin.layers))}"
    print(f"{out}: {len(inventory):,} senses from {origin.instances:,} words of {origin.sentences:,} sentences{of}")
    if origin.unknown:
        print(f"skipped: {origin.unknown:,} tags that this WordNet has not: {some}, …")


@app.command()
@from_structs
def tag(
    texts: Annotated[list[str] | None, typer.Argument(metavar="[TEXT]...", help="Texts; - for standard input.")] = None,
    *,
    model: ModelName,
    senses: Senses,
    ladder: Ladder,
    wordnet: Wordnet = None,
    file: Annotated[
        list[str] | None,
        typer.Option("--file", help="Text, a table, or a .data.xml test set; repeatable."),
    ] = None,
    column: Annotated[
        str | None,
        typer.Option("--text", metavar="COLUMN", help="Column of tables that holds the text [guessed and reported]."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write results: .jsonl, .csv, .tsv or .parquet.")
    ] = None,
    overwrite: Overwrite = False,
    pos: Annotated[bool, typer.Option("--pos", help="Words have their part of speech: the/DET bank/NOUN.")] = False,
    device: Device = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per document.")] = False,
) -> None:
    """The senses of all words of a text that WordNet knows. Of a test set: a line of id and sense key for each word."""
    if not texts and not file:
        raise UsageError('nothing to tag; give a text, - for standard input, or --file: larvatus senses tag "a bank" …')
    check_outputs(out, overwrite=overwrite, inputs=[model, senses, *(file or ())])
    check_row_file(out)
    tagger = _tagger(model, senses, wordnet, ladder.options, device)
    plain = [name for name in file or () if not _is_test_set(name)]
    seen = len(file or ()) - len(plain)
    with row_file(out) if out is not None else nullcontext() as write:
        for name in filter(_is_test_set, file or ()):
            for word in tagger.tag_sentences(list(read_unified(name))):
                _give_word(word, write, as_json=as_json)
        for text, sentences in _documents(texts or (), plain, tagger, column, pos=pos):
            seen += 1
            words = tagger.tag_sentences(sentences)
            if write is not None:
                record, rows = _tagged(text, words)
                write(record, [{"document": seen, **row} for row in rows])
            elif as_json:
                print(json.dumps(_tagged(text, words)[0], ensure_ascii=False))
            else:
                _show_words(text, words, tagger.wordnet)
        if not seen:
            raise DataError("there is no text to tag: what was given is empty")


def _tagged(text: str, words: Sequence[SenseTaggedWord]) -> tuple[Row, list[Row]]:
    """The full record of a text, and a row for each word."""
    records = [word.to_dict() for word in words]
    rows = [{"word": record["text"], **{n: v for n, v in record.items() if n != "text"}} for record in records]
    return {"text": text, "words": records}, rows


def _give_word(word: SenseTaggedWord, write: Write | None, *, as_json: bool) -> None:
    """A word of a test set: to the file, as JSON, or as its id and key."""
    if write is not None:
        write(word.to_dict(), word.to_dicts())
    elif as_json:
        print(json.dumps(word.to_dict(), ensure_ascii=False))
    elif word.key:
        print(word.id, word.key)


def _show_words(text: str, words: Sequence[SenseTaggedWord], wordnet: WordNet) -> None:
    console = Console(soft_wrap=True, highlight=False)
    if words:
        show_part(console, _words_table(words, wordnet))
    else:
        console.print(Text(f"no word of this text is in WordNet: {text.strip()[:60]}"))


@app.command()
@from_structs
def evaluate(
    sets: Annotated[
        list[str], typer.Argument(metavar="FILES...", help=".data.xml files, with gold keys next to them.")
    ],
    ladder: Ladder,
    model: Annotated[
        str | None,
        typer.Option("--model", help=f"Model that the senses were built with; default: {PACKAGED}."),
    ] = None,
    senses: Annotated[str | None, typer.Option("--senses", metavar="DIR", help="Sense vectors.")] = None,
    wordnet: Wordnet = None,
    gold: Annotated[str | None, typer.Option("--gold", metavar="FILE", help="Gold keys, if one file is named.")] = None,
    keys: Annotated[
        str | None,
        typer.Option("--keys", metavar="FILE", help="Score these answers of any system; no model is needed."),
    ] = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Precision, recall and F1 on test sets of the unified evaluation framework, next to two baselines."""
    if gold and len(sets) > 1:
        raise UsageError("--gold is for one file; leave it out and put each set's gold keys next to it")
    if keys:
        if len(sets) > 1:
            raise UsageError("--keys are the answers to one file; name only that file")
        _score_keys(sets[0], gold, keys, as_json)
        return
    if not senses:
        raise UsageError("--senses is wanted, and the --model they were built with; or --keys, the answers of a system")
    tagger = _tagger(model_or_packaged(model), senses, wordnet, ladder.options, device)
    results = [evaluate_set(name, tagger, gold) for name in sets]
    if as_json:
        print_json([result.to_dict() for result in results])
    else:
        _show_results(results, Console(soft_wrap=True, highlight=False))


@app.command()
def show(
    word: Annotated[str, typer.Argument(help="A word or phrase, inflected or not.")],
    wordnet: Wordnet = None,
    senses: Annotated[str | None, typer.Option("--senses", metavar="DIR", help="Sense vectors.")] = None,
    nearest: Annotated[int, ranged(COUNT_OR_NONE, help="Number of nearest senses to show.")] = 3,
    standardise: Standardise = False,
    as_json: Json = False,
) -> None:
    """The senses of a word: gloss, how often each was tagged, and its nearest senses."""
    inventory = SenseInventory.load(senses) if senses else None
    entries = describe_senses(word, WordNet.open(wordnet), inventory, nearest=nearest, standardise=standardise)
    if as_json:
        print_json([entry.to_dict() for entry in entries])
    else:
        _show_entries(entries, Console(soft_wrap=True, highlight=False))


def _tagger(model: str, senses: str, wordnet: str | None, options: SenseOptions, device: str) -> SenseTagger:
    loaded = load(model, device=device)
    return loaded.senses(senses, wordnet=wordnet, options=options)


def _is_test_set(name: str) -> bool:
    return ".data.xml" in Path(name).name


def _documents(
    texts: Sequence[str], files: Sequence[str], tagger: SenseTagger, column: str | None, *, pos: bool
) -> Iterator[tuple[str, list[SenseSentence]]]:
    """Each text with its sentences; standard input is read as a file is."""
    given = ((text, "") for text in texts if text != "-")
    paths = [*(["-"] if "-" in texts else []), *files]
    skipped = Skipped()
    reading = TextSettings(text=column).reading()
    documents = read_documents(paths, options=reading, skipped=skipped) if paths else ()
    named = ((document.text, f"{document.source}:{document.line}: ") for document in documents)
    for text, where in chain(given, named):
        if pos:
            yield find_tagged(text, tagger.wordnet, where=where)
        else:
            yield text, find_instances(text, tagger.wordnet)
    report_skipped(skipped)


def _score_keys(name: str, gold: str | None, keys: str, as_json: bool) -> None:
    score = sense_f1(read_keys(gold or gold_of(name)), read_keys(keys))
    if as_json:
        print_json({"precision": score.precision, "recall": score.recall, "f1": score.f1, "answered": score.answered})
    else:
        print(
            f"P {score.precision:.1%}  R {score.recall:.1%}  F1 {score.f1:.1%}  ({score.answered:,} of {score.total:,})"
        )


def _words_table(words: Sequence[SenseTaggedWord], wordnet: WordNet) -> Table:
    rows = []
    for word in words:
        meaning = wordnet.synset(word.synset).definition if word.synset else ""
        cosine = "" if word.similarity is None else f"{word.similarity:.3f}"
        rows.append((word.text, word.key or "–", word.how or "–", cosine, meaning))
    names = ("word", "sense", "from", "cosine", "meaning")
    return Table([Column(name, right=name == "cosine", whole=name != "meaning") for name in names], rows)


def _show_results(results: Sequence[SetResult], console: Console) -> None:
    rows = []
    names = ("set", "words", "answered", "P", "R", "F1", "first sense", "most frequent")
    for result in results:
        score = result.score
        figures = [score.precision, score.recall, score.f1, result.first_sense.f1, result.most_frequent.f1]
        row = [result.name, f"{score.total:,}", f"{score.answered:,}", *(f"{100 * figure:.1f}" for figure in figures)]
        rows.append(row)
    show_part(console, Table(names, rows))
    for result in results:
        words = difference_from(result.above_most_frequent, "the most frequent sense")
        console.print(Text(f"{result.name}: {words}"))
    for result in results:
        rests = ", ".join(f"{how} {count:,} ({right / count:.1%})" for how, (count, right) in result.rungs.items())
        kinds = ", ".join(f"{NAMES[pos]} {100 * score.f1:.1f}" for pos, score in result.by_pos.items())  # type: ignore[index]
        console.print(Text(f"{result.name}: {kinds} · answers by rung (right): {rests}"))
        if result.unknown:
            console.print(Text(f"{result.name}: {result.unknown:,} gold keys are not in this WordNet"))


def _show_entries(entries: Sequence[SenseEntry], console: Console) -> None:
    for entry in entries:
        tagged = "" if entry.count is None else f" · {entry.count:,} tagged"
        rung = f" · vector by {entry.rung}" if entry.rung not in (None, "sense") else ""
        others = ", ".join(word.replace("_", " ") for word in entry.words)
        console.print(Text(f"{entry.key}  {entry.lexname}{tagged}{rung}", style="bold"))
        console.print(Text(f"    {others}: {entry.definition}"))
        if entry.nearest:
            console.print(Text("    near " + ", ".join(f"{key} {cosine:.2f}" for key, cosine in entry.nearest)))
