"""All commands: where each stands, in which panel of the help, and what it does in a sentence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup


@dataclass(frozen=True)
class Listed:
    """A command before it is imported."""

    place: str
    """``module:name`` of a function or of a `typer.Typer`."""
    panel: str
    help: str

    def load(self, name: str) -> Any:
        """The command itself."""
        module, _, attribute = self.place.partition(":")
        made = getattr(import_module(module), attribute)
        holder = typer.Typer(add_completion=False, rich_markup_mode="rich")
        holder.callback()(_nothing)
        if isinstance(made, typer.Typer):
            holder.add_typer(made, name=name, rich_help_panel=self.panel)
        else:
            holder.command(name, rich_help_panel=self.panel)(made)
        group: Any = typer.main.get_group(holder)
        return group.commands[name]


class Commands(Mapping[str, Any]):
    """Commands by name, each imported when it is first looked up."""

    def __init__(self, group: Lazy) -> None:
        self._group = group
        self._loaded: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._loaded:
            self._loaded[name] = self._group.loaded(name, self._group.table[name].load(name))
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._group.table)

    def __len__(self) -> int:
        return len(self._group.table)

    def __contains__(self, name: object) -> bool:
        return name in self._group.table


class Lazy(TyperGroup):
    """A group that knows its commands by a table."""

    table: ClassVar[Mapping[str, Listed]] = {}

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands: Any = Commands(self)

    def loaded(self, name: str, command: Any) -> Any:
        """What is done with a command once it is imported."""
        return command

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.table)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        with _only_listed(self):
            super().format_help(ctx, formatter)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        with _only_listed(self):
            return super().shell_complete(ctx, incomplete)


class _only_listed:
    """While this lasts, a group's commands are names with a sentence each."""

    def __init__(self, group: Lazy) -> None:
        self._group, self._commands = group, group.commands

    def __enter__(self) -> None:
        self._group.commands = {
            name: TyperCommand(name, help=listed.help, rich_help_panel=listed.panel, rich_markup_mode="rich")
            for name, listed in self._group.table.items()
        }

    def __exit__(self, *fault: object) -> None:
        self._group.commands = self._commands


def _nothing() -> None:
    pass


_START, _TEXT, _TRAIN = "Getting started", "Text", "Pretraining"
_WRITE = "Generation"
_USE, _TASKS, _VECTORS, _INSIDE = "Masked language model", "Tasks", "Vectors", "Inside a model"
_AUDIT = "Before it is shipped"
_SERVE = "For others"

COMMANDS = {
    "demo": Listed(
        "larvatus.interfaces.cli.commands.demo:demo",
        _START,
        "Use the packaged English model, if there is one; then learn a small BERT from Python's own documentation.",
    ),
    "doctor": Listed(
        "larvatus.interfaces.cli.commands.doctor:doctor", _START, "Versions, devices, kernels, free memory."
    ),
    "bench": Listed(
        "larvatus.interfaces.cli.commands.bench:bench",
        _START,
        "This machine's matrix ceiling, training, embedding, loader and memory, beside installed peers; or --grow.",
    ),
    "recipes": Listed("larvatus.interfaces.cli.commands.recipes:app", _START, "The published systems, one file each."),
    "tokenizer": Listed(
        "larvatus.interfaces.cli.commands.tokenizer:app",
        _TEXT,
        "Learn a vocabulary from text, and look at what it does.",
    ),
    "corpus": Listed(
        "larvatus.interfaces.cli.commands.corpus:app", _TEXT, "Check text; build, show and verify token shards."
    ),
    "pretrain": Listed(
        "larvatus.interfaces.cli.commands.pretrain:pretrain",
        _TRAIN,
        "Pretrain an encoder on your own text; vocabulary and shards are built beside the run, a built corpus is "
        "taken.",
    ),
    "compare": Listed(
        "larvatus.interfaces.cli.commands.compare:compare",
        _TRAIN,
        "Train several recipes on the same text under the same budget, and show them in one table and a plot.",
    ),
    "ablate": Listed(
        "larvatus.interfaces.cli.commands.compare:ablate",
        _TRAIN,
        "Repeat a published ablation on your own text: variants of one recipe, everything else equal.",
    ),
    "convert": Listed(
        "larvatus.interfaces.cli.commands.convert:convert",
        _TRAIN,
        "Write a model in another layout: ours or one of Hugging Face's. Heads without a place there are left out.",
    ),
    "card": Listed(
        "larvatus.interfaces.cli.commands.card:model_card",
        _TRAIN,
        "Render README.md from the claims in larvatus.json, add figures, or work all of them out again (--verify).",
    ),
    "export": Listed(
        "larvatus.interfaces.cli.commands.convert:app",
        _TRAIN,
        "Write a model for other programs: ONNX, checked against torch.",
    ),
    "fill": Listed(
        "larvatus.interfaces.cli.commands.fill:fill",
        _USE,
        "Fill the blanks of texts: the likeliest words, with their probabilities.",
    ),
    "score": Listed(
        "larvatus.interfaces.cli.commands.score:score",
        _USE,
        "Pseudo-log-likelihood of texts, by word; or accuracy on minimal pairs, by phenomenon.",
    ),
    "generate": Listed(
        "larvatus.interfaces.cli.commands.generate:generate",
        _WRITE,
        "Go on with texts, token after token: the likeliest, drawn, or by beam search (gpt, t5).",
    ),
    "data": Listed("larvatus.interfaces.cli.commands.data:app", _TASKS, "Labelled data for fine-tuning."),
    "finetune": Listed(
        "larvatus.interfaces.cli.commands.finetune:app",
        _TASKS,
        "Fine-tune a model on labelled examples, choose the best weights on held-out ones, calibrate, and save.",
    ),
    "prompt": Listed(
        "larvatus.interfaces.cli.commands.prompt:command",
        _TASKS,
        "Classify through a pattern with a blank: texts as they come, a table of methods (--data), or PET (--out).",
    ),
    "predict": Listed(
        "larvatus.interfaces.cli.commands.predict:predict",
        _TASKS,
        "Classify texts, tag words, find spans, answer questions, choose endings: labels, probabilities, characters, "
        "and how much of each text was read.",
    ),
    "evaluate": Listed(
        "larvatus.interfaces.cli.commands.evaluate:evaluate",
        _TASKS,
        "Masked loss, perplexity and accuracy on held-out text (--corpus), with fixed masks, so that models compare.",
    ),
    "embed": Listed(
        "larvatus.interfaces.cli.commands.embed:embed",
        _VECTORS,
        "Vectors of the words, sentences or documents of a corpus, with their text and place. After a kill: --resume.",
    ),
    "similar": Listed(
        "larvatus.interfaces.cli.commands.similar:app",
        _VECTORS,
        "Cosine between word instances, nearest instances in a corpus. TEXTS come first: the command is then `words`.",
    ),
    "map": Listed(
        "larvatus.interfaces.cli.commands.map:word_map",
        _VECTORS,
        "Instances of words in a corpus as points: a page to explore, a picture, a table. Near means used alike.",
    ),
    "senses": Listed(
        "larvatus.interfaces.cli.commands.senses:app",
        _VECTORS,
        "Word senses: vectors from tagged text, and the nearest sense of a word.",
    ),
    "isotropy": Listed(
        "larvatus.interfaces.cli.commands.isotropy:app",
        _INSIDE,
        "Anisotropy of a model's layers; standardised vectors (z-scores, by dimension).",
    ),
    "attention": Listed(
        "larvatus.interfaces.cli.commands.attention:app",
        _INSIDE,
        'What attention heads look at: larvatus attention "A sentence." --model DIR --out page.html',
    ),
    "audit": Listed(
        "larvatus.interfaces.cli.commands.audit:app",
        _AUDIT,
        "What a model learnt that it should not show: bias, leaks, toxicity.",
    ),
    "studio": Listed(
        "larvatus.interfaces.cli.commands.serve:studio",
        _SERVE,
        "Open a page to fill blanks, look inside, compare, label, teach and watch models. Ctrl-C ends it.",
    ),
    "serve": Listed(
        "larvatus.interfaces.cli.commands.serve:serve",
        _SERVE,
        "Serve every task of models: /v1/fill, /v1/embed, /v1/classify, …; /docs lists all. Ctrl-C ends it.",
    ),
}
