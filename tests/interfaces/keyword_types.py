"""Generate the keyword types of the public functions and of the methods of a model, from their settings structs.

    python -m tests.interfaces.keyword_types            # writes both modules; a test compares them with what this gives

A public function reads its keywords with `read_settings(settings, A, B, function="…")`; its type `…Keywords` has the
fields of A and B, less those that are parameters of the function. The methods of a model are listed in `METHODS`.
"""

from __future__ import annotations

import ast
import importlib
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from larvatus.core.settings import ASSIGNMENTS, PATH, field_docs
from larvatus.inference import model
from larvatus.inference.maps.instances import FindOptions
from larvatus.inference.maps.word_map import MapOptions
from larvatus.inference.search.search import SearchOptions
from larvatus.inference.vectors.pooling import EmbedOptions
from larvatus.interfaces import api
from larvatus.interfaces.api.task_settings import EvaluationSettings, RunSettings, TuningMachine
from larvatus.interfaces.api.text_evaluation import HeldOutSettings, VectorEvaluationSettings
from larvatus.interfaces.settings import TextSettings
from larvatus.models.generation.generate import GenerateSettings
from larvatus.tasks.inputs import PredictOptions
from larvatus.tasks.registry import TASKS
from larvatus.tasks.trainer.config import TRAINABLE_SETTINGS, Callbacks, TrainConfig
from larvatus.tasks.trainer.trainable import TrainableConfig

FOLDER = Path(api.__file__).parent
TARGET = FOLDER / "keywords.py"
METHODS_TARGET = Path(model.__file__).parent / "keywords.py"
HEADER = '''"""Keyword types of the public functions. Generated from the settings structs: do not edit.

`make keywords` writes this file; tests/interfaces/test_keywords.py compares it with the structs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal, TypedDict

'''
CALLBACKS = Callbacks.__name__
HEADER += f"from {Callbacks.__module__} import {CALLBACKS}\n"
Field = tuple[str, str]
"""Type as source text, and description."""
DEVICE = ("str", "Where a model is loaded: auto, cpu or cuda.")
EXTRA: Mapping[str, Mapping[str, Field]] = {
    "AuditBiasKeywords": {
        "device": DEVICE,
        "progress": (
            "Callable[[str, int, int], None]",
            "Called with what is scored, how many are done, and the total.",
        ),
    },
    "PromptKeywords": {
        "resume": ("bool", "With out: resume the run that was begun there."),
        "overwrite": ("bool", "With out: replace what is there."),
    },
    "EvaluateVectorsKeywords": {
        "train": ("object", "Examples to sample from, of classification, in any of the ways that data takes."),
    },
    "FinetuneKeywords": {
        "group": ("str | None", "Column of train whose equal values are held out together; only without dev."),
        "hold_out": ("bool", "Hold out a tenth of train where there is no dev."),
        "watch": (CALLBACKS, "Callbacks of the run; they replace the progress on the terminal."),
    },
}
"""Keywords that are not fields of a struct."""
METHODS_HEADER = '''"""Keyword types of the methods of a model. Generated from their options: do not edit.

`make keywords` writes this file; tests/interfaces/test_keywords.py compares it with the structs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypedDict

from larvatus.inference.vectors.plan import Spans
from larvatus.inference.vectors.standardise import Standardiser
'''
STANDARDISE = ("str | Standardiser | None", "A standardiser, or its name in the model's directory.")
METHODS: Mapping[str, tuple[tuple[type[msgspec.Struct], ...], frozenset[str], Mapping[str, Field]]] = {
    "ModelEmbedKeywords": ((EmbedOptions,), frozenset({"unit", "layers", "pool"}), {"standardise": STANDARDISE}),
    "ModelVectorsKeywords": (
        (EmbedOptions,),
        frozenset(),
        {"standardise": STANDARDISE, "spans": ("Spans | Sequence[Spans] | None", "Characters of spans.")},
    ),
    "ModelNearestKeywords": (
        (SearchOptions,),
        frozenset({"passages"}),
        {"standardise": STANDARDISE, "text": ("str | None", "Column of tables that holds the text.")},
    ),
    "ModelMapKeywords": ((FindOptions, MapOptions), frozenset(), {"standardise": STANDARDISE}),
    "ModelGenerateKeywords": (
        (GenerateSettings,),
        frozenset(),
        {"stop": ("str | Sequence[str]", "Texts that end it.")},
    ),
    "ModelPredictKeywords": (
        (PredictOptions,),
        frozenset({"tokens"}),
        {"batch_tokens": ("int", "Tokens of a batch; 0 for what suits the device.")},
    ),
}
"""Structs of a method's keywords, the fields of them that are no keywords of it, and keywords that are no fields."""


def generate() -> str:
    """The source of the module."""
    named = {"ColumnKeywords": column_fields()}
    functions = dict(sorted({**dict(scanned()), **special()}.items()))
    shared = _shared(functions)
    for kind in shared:
        named[_struct_name(kind)] = struct_fields(kind)
    parts = [HEADER, *(_class(name, ("TypedDict, total=False",), fields) for name, fields in named.items())]
    for name, (kinds, columns, taken) in functions.items():
        whole = [parent for kind in kinds for parent in kind.__mro__ if parent in shared]  # itself, or what it extends
        bases = [kind for kind in whole if taken.isdisjoint(kind.__struct_fields__)]
        known = set(taken).union(*(set(struct_fields(kind)) for kind in bases))
        fields: dict[str, Field] = {}
        for kind in kinds:
            if kind not in bases:
                fields |= {key: field for key, field in struct_fields(kind).items() if key not in known}
        fields |= EXTRA.get(name, {})
        names = [*(_struct_name(kind) for kind in bases), *(["ColumnKeywords"] if columns else [])]
        parts.append(_class(name, (*(names or ["TypedDict"]), "total=False"), fields))
    parts.append(_class("FinetuneKeywords", ("ColumnKeywords", "total=False"), finetune_fields()))
    return "\n".join(parts)


def generate_methods() -> str:
    """The source of the module for the methods of a model."""
    parts: list[str] = [METHODS_HEADER]
    written: dict[str, dict[str, Field]] = {}
    for name, (kinds, without, more) in METHODS.items():
        fields = {key: field for kind in kinds for key, field in struct_fields(kind).items() if key not in without}
        written[name] = fields = {**fields, **more}
        base = next((other for other in written if other != name and written[other].items() <= fields.items()), None)
        own = {key: field for key, field in fields.items() if base is None or key not in written[base]}
        parts.append(_class(name, (base or "TypedDict", "total=False"), own))
    return "\n".join(parts)


Function = tuple[tuple[type[msgspec.Struct], ...], bool, frozenset[str]]
"""Structs of a function's keywords, whether it takes columns, and its parameters."""


def scanned() -> Iterator[tuple[str, Function]]:
    """Functions of `interfaces/api` with `**settings: Unpack[…Keywords]` that call `read_settings`."""
    for path in sorted(FOLDER.glob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if not isinstance(node, ast.FunctionDef) or node.args.kwarg is None:
                continue
            annotation = ast.unparse(node.args.kwarg.annotation) if node.args.kwarg.annotation else ""
            calls = [each for each in ast.walk(node) if isinstance(each, ast.Call) and isinstance(each.func, ast.Name)]
            reads = [call for call in calls if call.func.id == "read_settings"]  # type: ignore[attr-defined]
            if not annotation.startswith("Unpack[") or not reads:
                continue
            module = importlib.import_module(f"{api.__name__}.{path.stem}")
            kinds = tuple(getattr(module, ast.unparse(name)) for name in reads[0].args[1:])
            columns = any(call.func.id == "split_columns" for call in calls)  # type: ignore[attr-defined]
            every = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
            yield annotation[7:-1], (kinds, columns, frozenset(each.arg for each in every))


def special() -> dict[str, Function]:
    """`evaluate`, whose keywords depend on what the model is evaluated on."""
    return {
        "EvaluateKeywords": ((EvaluationSettings,), True, frozenset()),
        "EvaluateTextKeywords": ((TextSettings, HeldOutSettings), False, frozenset()),
        "EvaluateVectorsKeywords": ((VectorEvaluationSettings,), True, frozenset({"vectors"})),
    }


def _shared(functions: Mapping[str, Function]) -> list[type[msgspec.Struct]]:
    """Structs that several functions take whole."""
    kinds = [
        kind for kinds, _, taken in functions.values() for kind in kinds if taken.isdisjoint(kind.__struct_fields__)
    ]
    return [kind for kind in dict.fromkeys(kinds) if kinds.count(kind) > 1]


def _struct_name(kind: type) -> str:
    return kind.__name__.removesuffix("Settings") + "Keywords"


def struct_fields(kind: type[msgspec.Struct], *, structs: bool = False) -> dict[str, Field]:
    """Fields of a struct; those that are structs only where `structs`, as mappings."""
    hints, words = get_type_hints(kind, include_extras=True), field_docs(kind)
    spelt = {name: spell(hints[name]) for name in kind.__struct_fields__}
    return {
        name: (hint, words.get(name, "")) for name, hint in spelt.items() if structs or hint != "Mapping[str, object]"
    }


def column_fields() -> dict[str, Field]:
    fields: dict[str, Field] = {}
    for task in TASKS.values():
        fields = {**struct_fields(task.Reading), **fields}
    return dict(sorted(fields.items()))


def finetune_fields() -> dict[str, Field]:
    """Training, what is trained, the run, the machine and the options of all tasks; columns are those of the base."""
    trained = {name: field for name, field in struct_fields(TrainableConfig).items() if name in TRAINABLE_SETTINGS}
    fields = struct_fields(TrainConfig) | trained | struct_fields(RunSettings) | struct_fields(TuningMachine)
    del fields["settings"]
    fields["seeds"] = ("int | Sequence[int]", fields["seeds"][1])
    for task in TASKS.values():
        for name, (hint, words) in struct_fields(task.Options, structs=True).items():
            older, description = fields.get(name, ("", words))
            fields[name] = (merged([older, hint]) if older else hint, description or words)
    clash = {name for name, field in column_fields().items() if name in fields and fields[name][0] != field[0]}
    assert not clash, f"options and columns of one name and another type: {clash}"
    return {name: field for name, field in fields.items() if name not in column_fields()} | EXTRA["FinetuneKeywords"]


def merged(hints: Iterable[str]) -> str:
    """One union of several: ``int | None`` and ``int`` is ``int | None``; words of literals in one."""
    parts = [part for hint in hints for part in _split(hint)]
    words = [word for part in parts if part.startswith("Literal[") for word in part[8:-1].split(", ")]
    literal = [f"Literal[{', '.join(dict.fromkeys(words))}]"] if words else []
    plain = [part for part in parts if not part.startswith("Literal[") and part != "None"]
    return " | ".join([*dict.fromkeys([*literal, *plain]), *(["None"] if "None" in parts else [])])


def _split(hint: str) -> list[str]:
    tree = ast.parse(hint, mode="eval").body
    parts: list[str] = []
    while isinstance(tree, ast.BinOp):
        parts.insert(0, ast.unparse(tree.right))
        tree = tree.left
    return [part.replace("'", '"') for part in [ast.unparse(tree), *parts]]


def spell(hint: Any) -> str:
    """A field's type as Python callers may pass it."""
    origin = get_origin(hint)
    if origin is Annotated:
        marks = hint.__metadata__
        return "str | Path" if PATH in marks else _ASSIGNED if ASSIGNMENTS in marks else spell(hint.__origin__)
    if origin in (Union, types.UnionType):
        return merged([spell(part) for part in get_args(hint) if part is not msgspec.UnsetType])
    if origin is Literal:
        return f"Literal[{', '.join(_quoted(word) for word in get_args(hint))}]"
    if origin in (tuple, list) or getattr(origin, "__name__", "") == "Sequence":
        return f"Sequence[{spell(get_args(hint)[0])}]"
    if getattr(origin, "__name__", "") in ("dict", "Mapping"):
        return f"Mapping[{', '.join(map(spell, get_args(hint)))}]"
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return "Mapping[str, object]"
    return {Path: "str | Path", type(None): "None"}.get(hint) or hint.__name__


_ASSIGNED = "Sequence[str] | Mapping[str, bool | int | float | str]"


def _quoted(word: object) -> str:
    return f'"{word}"' if isinstance(word, str) else repr(word)


def _class(name: str, bases: Sequence[str], fields: Mapping[str, Field]) -> str:
    lines = ["", f"class {name}({', '.join(bases)}):"]
    for field, (hint, _) in fields.items():
        lines.append(f"    {field}: {hint}")
    return "\n".join([*lines, *([] if fields else ["    pass"]), ""])


if __name__ == "__main__":
    TARGET.write_text(generate(), encoding="utf-8")
    METHODS_TARGET.write_text(generate_methods(), encoding="utf-8")
