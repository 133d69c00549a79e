"""Domain- and task-adaptive pretraining (Gururangan et al. 2020): continue from a model, on text of your own.

    larvatus pretrain --from bert-base/ --corpus my_texts/ --out runs/mine --add-words 500 --old embedded

The text is encoded with the model's own vocabulary, longer by the requested words, or with another one
(`new_vocabulary.py`). Text of the model's old domain (`--old`, or held-out replayed text) and validation text of the
new one are evaluated before and after (`domains.py`).

    adapted_recipe(load_bundle("runs/base"))                 its own recipe, from `larvatus.json`
    adapted_recipe(load_bundle("bert-base"))                 no such file: the packaged recipe that is nearest to it
    adapted_recipe(load_bundle("bert-base"), "spanbert")     the named recipe

Model and vocabulary are fixed: a setting that contradicts them is refused, but for dropout. Packaged recipes are made
for training from scratch; to continue, batch and rate are limited to those of task-adaptive pretraining (appendix of
the paper: 256 sequences, 1e-4), unless `--set` changes them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec
from msgspec import Struct

from larvatus.core.checksummed import read_checksummed, write_checksummed
from larvatus.core.errors import RecipeError, UsageError
from larvatus.core.files import sha256
from larvatus.data.corpus import Corpus, is_corpus
from larvatus.data.corruption import check_mask
from larvatus.data.text.counting import count_ids, count_words
from larvatus.data.text.embedded import embedded_documents
from larvatus.data.text.extend import Extension, NewUnits, extend, frequent_units, listed_units
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.data.text.vocabularies import TokenizerConfig
from larvatus.models.bundle.directory import Bundle
from larvatus.models.bundle.manifest import NAME as MANIFEST
from larvatus.models.network import tag
from larvatus.models.recipes import Recipe, edited_recipe, parse_recipe, read_recipe, recipe_names, recipe_table
from larvatus.training.engine.reporter import Reporter
from larvatus.training.pretraining.job import InitialModel, ParentModel, PretrainingJob
from larvatus.training.pretraining.new_vocabulary import BEFORE, EXTENSION, clear_attempt, read_rows, read_summary
from larvatus.training.pretraining.prepare import (
    CorpusBuilder,
    Documents,
    PreparedCorpus,
    TextDomain,
    VocabularySource,
    held_out_shards,
    longest,
    unextended_path,
)
from larvatus.training.pretraining.replay import ReplayText
from larvatus.training.pretraining.text_record import EMBEDDED, has_intact_files

MOST_SEQUENCES, HIGHEST_RATE = 256, 1e-4
PLANNED = ("batch", "rate")
FREE = ("dropout", "attention_dropout")
"""Settings of a model that may change while it is trained on."""

Table = dict[str, Any]


@dataclass(frozen=True)
class AdaptedRecipe:
    recipe: Recipe
    why: str
    """Where the way of training comes from, in a user's words."""
    free: frozenset[str] = frozenset()
    """What a plan may choose (`plan.py`): "batch" and "rate", as far as no recipe and no setting was given."""


def adapted_recipe(
    bundle: Bundle,
    name: str | None = None,
    *,
    size: str | None = None,
    settings: Sequence[str] = (),
    vocabulary: Tokenizer | Literal["new"] | None = None,
) -> AdaptedRecipe:
    """The recipe that continues from a model directory.

    `vocabulary`: another one, or "new" for one that is learned; by default the directory's.
    """
    where, named = name or str(bundle.path / MANIFEST), name is not None
    if name is not None:
        table, why = recipe_table(read_recipe(name)), f"as the recipe {name} says"
    elif bundle.recipe is not None:
        table, why = dict(bundle.recipe), "as in its own recipe"
    else:
        name = where = _nearest(bundle)
        table, why = recipe_table(read_recipe(name)), f"as the recipe {name} says, the nearest to it"
    learned = vocabulary == "new"
    tokenizer = bundle.tokenizer if vocabulary is None or isinstance(vocabulary, str) else vocabulary
    table = _of_this_model(table, bundle, tokenizer)
    table.get("mixture", {}).pop("replay", None)  # of the parent's own run
    if name is not None and not name.endswith(".toml"):
        why += _gentler(table)
    try:
        recipe = edited_recipe(
            _with_kind(table, settings) if learned else table, size=size, settings=settings, where=where
        )
    except RecipeError as fault:
        if name is None:
            raise RecipeError(f"{fault}; or name a recipe: larvatus pretrain bert --from {bundle.path} …") from None
        raise
    _refuse_contradictions(recipe, bundle, None if learned else tokenizer)
    if not learned:
        check_mask(recipe.corruption, tokenizer.id(tokenizer.special.mask))
    return AdaptedRecipe(recipe, why, frozenset() if named else _free_of(settings))


def _free_of(settings: Sequence[str]) -> frozenset[str]:
    """Fields that a plan may choose: those that no setting fixes; with a chosen rate, only the batch."""
    said = {setting.partition("=")[0].strip() for setting in settings}
    if "batch" in said:
        return frozenset()
    return frozenset({"batch"} if said & {"optimizer.rate", "optimizer.muon_rate", "optimizer.type"} else PLANNED)


def _with_kind(table: Table, settings: Sequence[str]) -> Table:
    """The table with the requested kind of vocabulary: of another kind, only the size stays."""
    kinds = [setting.partition("=")[2].strip() for setting in settings if setting.startswith("tokenizer.type")]
    if not kinds or kinds[-1] == table["tokenizer"]["type"]:
        return table
    kept = {name: value for name, value in table["tokenizer"].items() if name == "size"}
    return {**table, "tokenizer": {**kept, "type": kinds[-1]}}


def _of_this_model(table: Table, bundle: Bundle, tokenizer: Tokenizer) -> Table:
    """The recipe's table with the model of the directory, and a vocabulary."""
    vocabulary = _described(tokenizer, table.get("tokenizer"))
    model = msgspec.to_builtins(bundle.model)
    return {**msgspec.json.decode(msgspec.json.encode(table)), "model": model, "tokenizer": vocabulary}


def _described(tokenizer: Tokenizer, told: Any) -> Any:
    """A vocabulary in the recipe's words, as far as it is known from the outside."""
    kinds = {tag(config): config for config in get_args(TokenizerConfig)}
    if tokenizer.kind not in kinds:
        return told
    table = dict(told) if isinstance(told, dict) and told.get("type") == tokenizer.kind else {"type": tokenizer.kind}
    facts = {"size": tokenizer.size, "lowercase": tokenizer.lowercase}
    return table | {name: value for name, value in facts.items() if name in kinds[tokenizer.kind].__struct_fields__}


def _gentler(table: Table) -> str:
    """Hold batch and rate of a packaged recipe to what suits continuing; what was changed, in words."""
    said = []
    if table["batch"] > MOST_SEQUENCES:
        said.append(f"batch {table['batch']:,} → {MOST_SEQUENCES}")
        table["batch"] = MOST_SEQUENCES
    optimizer = table["optimizer"]
    if optimizer["rate"] > HIGHEST_RATE:
        said.append(f"rate {optimizer['rate']:g} → {HIGHEST_RATE:g}")
        if optimizer["type"] == "muon":  # its matrices learn as much more slowly
            optimizer["muon_rate"] *= HIGHEST_RATE / optimizer["rate"]
        optimizer["rate"] = HIGHEST_RATE
    return f" ({', '.join(said)}, as for task-adaptive pretraining; --set overrides it)" if said else ""


def _refuse_contradictions(recipe: Recipe, bundle: Bundle, tokenizer: Tokenizer | None) -> None:
    """Refuse settings of the model, or of a vocabulary that is read, that contradict it."""
    asked = {"model": recipe.model, "tokenizer": recipe.tokenizer}
    there = {
        "model": msgspec.to_builtins(bundle.model),
        "tokenizer": None if tokenizer is None else _described(tokenizer, None),
    }
    for part, settings in asked.items():
        known = there[part]
        for field, value in msgspec.to_builtins(settings).items():
            if (
                known is not None
                and field in known
                and value != known[field]
                and not (part == "model" and field in FREE)
            ):
                free = " and ".join(f"model.{name}" for name in FREE)
                raise UsageError(
                    f"{part}.{field} = {value} contradicts --from {bundle.path}, where it is {known[field]}; "
                    f"leave it (or --size) out: of the model, {free} alone can be set"
                )


def _nearest(bundle: Bundle) -> str:
    """The packaged recipe whose architecture, vocabulary and objectives differ least from the directory's."""
    distances = []
    for name in recipe_names():
        table = recipe_table(read_recipe(name))
        try:
            parse_recipe(_of_this_model(table, bundle, bundle.tokenizer), where=name)
        except RecipeError:  # it cannot be trained with this model: two segments wanted, and it has none
            continue
        distances.append((_distance(read_recipe(name), bundle), name))
    if not distances:
        raise RecipeError(f"no packaged recipe can train {bundle.path}; name a TOML file of your own")
    return min(distances)[1]


def _distance(recipe: Recipe, bundle: Bundle) -> int:
    theirs, ours = _traits(bundle.model), _traits(recipe.model)
    missing = object()
    distance = sum(1 for field in {*ours, *theirs} if theirs.get(field, missing) != ours.get(field, missing))
    distance += int(tag(recipe.tokenizer) != bundle.tokenizer.kind)
    heads = {tag(config) for config in bundle.objectives}
    wanted = {tag(config) for config in recipe.objectives}
    return distance + (len(heads ^ wanted) if heads else 0)


def _traits(model: Struct) -> Table:
    """What kind of model it is, whatever its size: words as they are, numbers as present or not."""
    fields = {name: getattr(model, name) for name in model.__struct_fields__ if name not in FREE}
    return {name: value if isinstance(value, str) else bool(value) for name, value in fields.items()}


@dataclass(frozen=True)
class ParentVocabulary:
    """The vocabulary of the model that a run continues from, with the requested words."""

    origin: ParentModel
    add_words: Sequence[str] = ()
    """Numbers of words to learn, and files of words."""
    replay: ReplayText | None = None

    def __post_init__(self) -> None:
        for given in self.add_words:
            if _number(given) is None and not Path(given).is_file():
                raise UsageError(f"--add-words {given} is neither a number nor a file of words")
            if (number := _number(given)) is not None and number < 1:
                raise UsageError(f"--add-words needs a number above 0 or a file of words, not {given}")

    @property
    def identity(self) -> dict[str, Any]:
        words = [given if _number(given) is not None else sha256(Path(given).resolve()) for given in self.add_words]
        return {"from": self.origin.fingerprint, "add_words": words}

    def check(self, tokenizer: Tokenizer, corpus: Path) -> None:
        if self.replay is not None:
            raise UsageError(f"{corpus} is built already, so no text can be mixed in; give the text itself")
        if self.add_words:
            raise UsageError(
                f"{corpus} is built already, so its vocabulary cannot be extended; give the text itself, "
                "or leave out --add-words"
            )
        if tokenizer.fingerprint != self.origin.bundle.tokenizer.fingerprint:
            raise UsageError(
                f"{corpus} was built with another vocabulary than that of {self.origin.path}; give the text itself, "
                f"or build it again: larvatus corpus build … --tokenizer {self.origin.path}"
            )

    def make(self, documents: Documents, folder: Path, reporter: Reporter) -> None:
        tokenizer = self.origin.bundle.tokenizer
        clear_attempt(folder)
        if tokenizer.counts is not None and not self.add_words:
            tokenizer.save(folder)
            return
        reporter.say("counting the words of the text …")
        words = count_words((document.text for document in documents()), tokenizer.library)
        if tokenizer.counts is None:  # of another text than the model's, but the only one there is
            tokenizer = dataclasses.replace(tokenizer, counts=count_ids(words, tokenizer.library, tokenizer.size))
        extension = self._extended(tokenizer, words, reporter)
        if extension is None:
            tokenizer.save(folder)
            return
        longer = extension.tokenizer
        assert longer.counts is not None
        dataclasses.replace(longer, counts=longer.counts + count_ids(words, longer.library, longer.size)).save(folder)
        tokenizer.save(folder / BEFORE)
        write_checksummed(folder / EXTENSION, {"first": extension.first, "parts": extension.parts})

    def before(self, folder: Path) -> Tokenizer | None:
        return Tokenizer.load(folder / BEFORE) if has_intact_files(folder, f"{BEFORE}/") else None

    def _extended(self, tokenizer: Tokenizer, words: list[tuple[str, int]], reporter: Reporter) -> Extension | None:
        units: dict[str, None] = {}
        for given in self.add_words:
            number = _number(given)
            chosen: NewUnits = (
                listed_units(Path(given), tokenizer) if number is None else frequent_units(words, tokenizer, number)
            )
            units |= dict.fromkeys(chosen.units)
            if str(chosen):
                reporter.say(f"--add-words {given}: {chosen}")
        if not units:
            if self.add_words:
                reporter.say("no word is to be added: the vocabulary stays as it is")
            return None
        extension = extend(tokenizer, list(units))
        shown = ", ".join(tokenizer.readable(unit).lstrip("Ġ▁") for unit in islice(units, 8))
        others = len(extension.parts) - len(units)
        on_the_way = f" and {others:,} pieces that they need" if others > 0 else ""
        reporter.say(
            f"added to the {tokenizer.size:,} pieces of the vocabulary: {len(units):,} words{on_the_way}: "
            f"{shown}{' …' if len(units) > 8 else ''}",
        )
        return extension


@dataclass(frozen=True)
class AdaptedTexts:
    """What `prepare` makes, but with the vocabulary of a model; and the domains to compare."""

    vocabulary: VocabularySource
    prepare: partial[PreparedCorpus]
    """`prepare.prepare` with all that it needs but a vocabulary."""
    old: str | None = None
    """Text of the domain that the model comes from."""

    def __call__(self) -> PreparedCorpus:
        prepared = self.prepare(vocabulary=self.vocabulary)
        out: Path = self.prepare.keywords["out"]
        domains = []
        for name, path in (("new", prepared.valid), ("old", self._old(prepared.train, out))):
            if path is not None:
                twin = unextended_path(path) if is_corpus(unextended_path(path)) else path
                domains.append(TextDomain(name=name, path=path, before=twin))
        return dataclasses.replace(prepared, domains=tuple(domains))

    def _old(self, train: Path, out: Path) -> Path | None:
        """Shards of the old domain; of the embedded text, the part that is never trained on."""
        replay = self.vocabulary.replay
        source = self.old or (None if replay is None else replay.path)
        if source is None:
            return None
        build = CorpusBuilder(
            Corpus.open(train, verify=False).tokenizer,
            self.prepare.keywords["options"],
            sources=[source],
            reporter=self.prepare.keywords["reporter"],
            before=self.vocabulary.before(out / "vocabulary"),
        )
        if self.old is None and replay is not None:
            documents = list(replay.held_out(length=longest([self.prepare.args[0]])))
            return build(lambda: documents, out / "corpus" / "old") if documents else None
        if self.old == EMBEDDED:
            return build(lambda: embedded_documents("valid"), out / "corpus" / "old")
        return held_out_shards(self.old, out / "corpus" / "old", build=build, flag="--old")


def read_extension(out: Path) -> tuple[int, list[list[int]]]:
    """First new id, and the old pieces of each new one, of the run in `out`; nothing where nothing was added."""
    folder = out / "vocabulary"
    if not has_intact_files(folder, EXTENSION):
        return 0, []
    extension = read_checksummed(folder / EXTENSION, way="choose another --out")
    return int(extension["first"]), [list(map(int, parts)) for parts in extension["parts"]]


def start_model(job: PretrainingJob, origin: ParentModel) -> InitialModel:
    """The weights of step 0 of a run that continues from a model, in the vocabulary of the run."""
    first, parts = read_extension(job.out)
    return origin.start(job.recipe, seed=job.seed, first=first, parts=parts, rows=read_rows(job.out))


def parent_lineage(origin: ParentModel | None, out: Path) -> dict[str, object]:
    """Lineage: the model that the run in `out` went on from, and its own lineage; nothing where there is none."""
    if origin is None:
        return {}
    about = {"directory": str(origin.path), "sha256": origin.fingerprint, "lineage": origin.bundle.lineage}
    changed = {"new vocabulary": summary} if (summary := read_summary(out)) else {}
    return {"parent": {**about, "added pieces": len(read_extension(out)[1]), **changed}}


def _number(given: str) -> int | None:
    try:
        return int(given)
    except ValueError:
        return None
