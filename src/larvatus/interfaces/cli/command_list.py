"""All commands: their modules, their groups in the help, and one sentence each.

A command's module is imported when the command runs. Help and shell completion need only this list; a test compares its
sentences with the commands' own help.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup


@dataclass(frozen=True)
class CommandEntry:
    """A command before it is imported."""

    place: str
    """``module:name`` of a function or of a `typer.Typer`, in `commands/`."""
    panel: str
    help: str

    @property
    def module(self) -> str:
        return f"larvatus.interfaces.cli.commands.{self.place.partition(':')[0]}"

    def load(self, name: str) -> Any:
        """The command itself."""
        made = getattr(import_module(self.module), self.place.partition(":")[2])
        holder = typer.Typer(add_completion=False, rich_markup_mode="rich")
        holder.callback()(lambda: None)
        if isinstance(made, typer.Typer):
            holder.add_typer(made, name=name, rich_help_panel=self.panel)
        else:
            holder.command(name, rich_help_panel=self.panel)(made)
        group: Any = typer.main.get_group(holder)
        return group.commands[name]


class Commands(Mapping[str, Any]):
    """Commands by name, each imported when it is first looked up."""

    def __init__(self, group: LazyGroup) -> None:
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


class LazyGroup(TyperGroup):
    """A group that knows its commands by a table."""

    table: ClassVar[Mapping[str, CommandEntry]] = {}

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands: Any = Commands(self)

    def loaded(self, name: str, command: Any) -> Any:
        """Hook that changes a command after it is imported."""
        return command

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.table)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        with _only_listed(self):
            super().format_help(ctx, formatter)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        with _only_listed(self):
            return super().shell_complete(ctx, incomplete)


class DefaultGroup(TyperGroup):
    """A group with a default command, whose name may be left out: `larvatus similar TEXT TEXT`."""

    default: ClassVar[str]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] != "--help":
            args = [self.default, *args]
        parsed: list[str] = super().parse_args(ctx, args)
        return parsed


class _only_listed:
    """While this lasts, a group's commands are names with a sentence each."""

    def __init__(self, group: LazyGroup) -> None:
        self._group, self._commands = group, group.commands

    def __enter__(self) -> None:
        self._group.commands = {
            name: TyperCommand(name, help=listed.help, rich_help_panel=listed.panel, rich_markup_mode="rich")
            for name, listed in self._group.table.items()
        }

    def __exit__(self, *fault: object) -> None:
        self._group.commands = self._commands


_START, _TEXT, _PRETRAIN, _MODELS = "Getting started", "Text and vocabularies", "Pretraining", "Models and cards"
_FILL, _FINETUNE, _VECTORS = "Filling, scoring and generating", "Fine-tuning", "Vectors and search"
_INTERPRET, _AUDIT, _SERVE = "Interpretation", "Auditing", "Serving"

COMMANDS = {
    "demo": CommandEntry(
        "demo:demo",
        _START,
        "Try the packaged English model: blanks, search, senses, a tagger from 60 sentences, and adapting it to text.",
    ),
    "tutorial": CommandEntry(
        "tutorial:tutorial", _START, "List the tutorials, or write one as a notebook with the files that it reads."
    ),
    "doctor": CommandEntry(
        "machine:doctor",
        _START,
        "Show versions, devices, kernels and free memory, or all that a bug report needs (--report).",
    ),
    "bench": CommandEntry(
        "machine:bench",
        _START,
        "Measure this machine: matrix ceiling, training, embedding, loader, memory and installed peers; or --grow.",
    ),
    "recipes": CommandEntry("pretrain:app", _START, "List the published systems, or show one as TOML."),
    "tokenizer": CommandEntry("tokenizer:app", _TEXT, "Train a vocabulary on text, or show how it splits a text."),
    "corpus": CommandEntry("corpus:app", _TEXT, "Check text, and build, show and verify token shards."),
    "plan": CommandEntry(
        "plan:plan",
        _PRETRAIN,
        "Read text and recommend how to pretrain on it: settings, expected loss, minutes, and what more text gives.",
    ),
    "pretrain": CommandEntry(
        "pretrain:pretrain",
        _PRETRAIN,
        "Pretrain an encoder on your own text. Without a built corpus, the vocabulary and shards are built first.",
    ),
    "compare": CommandEntry(
        "compare:compare",
        _PRETRAIN,
        "Train several recipes on the same text under the same budget, and show them in one table and a plot.",
    ),
    "ablate": CommandEntry(
        "compare:ablate",
        _PRETRAIN,
        "Repeat a published ablation on your own text: variants of one recipe, everything else equal.",
    ),
    "convert": CommandEntry(
        "pretrain:convert",
        _MODELS,
        "Convert a model to another layout: ours or one of Hugging Face's. Heads that the layout lacks are dropped.",
    ),
    "card": CommandEntry(
        "card:model_card",
        _MODELS,
        "Render the model card from the claims in larvatus.json, add figures, or recompute all of them (--verify).",
    ),
    "adapter": CommandEntry(
        "embed:adapter_app", _MODELS, "Add a sentence adapter to a model, extract one, or merge it into the weights."
    ),
    "export": CommandEntry("pretrain:export_app", _MODELS, "Export a model to ONNX, and check it against torch."),
    "fill": CommandEntry("fill:fill", _FILL, "Fill the blanks of texts with the most probable words."),
    "score": CommandEntry(
        "score:score",
        _FILL,
        "Score texts word by word by pseudo-log-likelihood, or minimal pairs by accuracy (--pairs).",
    ),
    "generate": CommandEntry(
        "fill:generate", _FILL, "Continue texts token by token: greedy, sampled, or by beam search (gpt, t5)."
    ),
    "data": CommandEntry("data:app", _FINETUNE, "Check labelled data before fine-tuning."),
    "finetune": CommandEntry(
        "finetune:app",
        _FINETUNE,
        "Fine-tune a model on labelled examples, select the best checkpoint on validation examples, and calibrate it.",
    ),
    "prompt": CommandEntry(
        "prompt:command",
        _FINETUNE,
        "Classify with a prompt: texts without training, a table of methods (--data), or PET (--out).",
    ),
    "predict": CommandEntry(
        "predict:predict",
        _FINETUNE,
        "Predict with a fine-tuned model: classes, tags, spans, trees, answers, choices, coreference, roles, vectors.",
    ),
    "evaluate": CommandEntry(
        "evaluate:evaluate",
        _FINETUNE,
        "Evaluate a fine-tuned model on labelled data (--data), masked words on text (--corpus), or a suite (--suite).",
    ),
    "embed": CommandEntry(
        "embed:embed",
        _VECTORS,
        "Write vectors of the words, sentences or documents of a corpus to a file. After a kill: --resume.",
    ),
    "search": CommandEntry(
        "search:app",
        _VECTORS,
        "Find the passages of documents that answer a question. With a QUESTION, the command is `ask`.",
    ),
    "distil": CommandEntry(
        "embed:distil_app", _VECTORS, "Make a small static model from a sentence encoder: one vector for each token."
    ),
    "similar": CommandEntry(
        "similar:app",
        _VECTORS,
        "Compare word instances by cosine, or find the nearest ones in a corpus. With TEXTS, the command is `words`.",
    ),
    "map": CommandEntry(
        "similar:word_map",
        _VECTORS,
        "Draw instances of words in a corpus as points: a page to explore, a picture, a table.",
    ),
    "senses": CommandEntry(
        "senses:app", _VECTORS, "Build sense vectors from tagged text, and tag words with the nearest sense."
    ),
    "isotropy": CommandEntry(
        "isotropy:app",
        _INTERPRET,
        "Measure the anisotropy of a model's layers, and standardise vectors (z-scores per dimension).",
    ),
    "attention": CommandEntry(
        "attention:app",
        _INTERPRET,
        'Show what attention heads look at: larvatus attention "A sentence." --model DIR --out page.html',
    ),
    "lens": CommandEntry(
        "lens:app",
        _INTERPRET,
        "Show what each layer would fill into a blank (logit lens, tuned lens). With TEXTS, the command is `show`.",
    ),
    "explain": CommandEntry(
        "explain:explain",
        _INTERPRET,
        "Attribute a filled blank, a class, a tag or an answer to words; or measure which method to trust (--data).",
    ),
    "probe": CommandEntry(
        "probe:probe",
        _INTERPRET,
        "Probe what each layer knows: linear and MLP probes, control tasks, description length, random weights.",
    ),
    "patch": CommandEntry(
        "causes:patch",
        _INTERPRET,
        "Show which states make a model answer as it does in another sentence (activation patching).",
    ),
    "knockout": CommandEntry(
        "causes:knock_out",
        _INTERPRET,
        "Switch off heads or neurons, singly and in greedy sets, and measure minimal pairs, masked tokens or a task.",
    ),
    "features": CommandEntry("causes:app", _INTERPRET, "Find sparse features of a layer's states, and show them."),
    "audit": CommandEntry("audit:app", _AUDIT, "Audit a model for bias, leaks of its training text, and toxicity."),
    "studio": CommandEntry(
        "serve:app",
        _SERVE,
        "Open a page to fill blanks, inspect and compare models, label, fine-tune and watch runs, or export one.",
    ),
    "serve": CommandEntry(
        "serve:serve",
        _SERVE,
        "Serve every task of models: /v1/fill, /v1/embed, /v1/classify, …. /docs lists all. Ctrl-C ends it.",
    ),
}
