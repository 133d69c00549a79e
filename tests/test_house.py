"""The plan of the house holds (docs/architecture.md): one check a rule, over the syntax trees of src.

What `ruff`, `mypy` and `lint-imports` cannot say. Each check names its offenders. `KNOWN` lists those that stood when a
rule was made; it only shrinks: a new offender fails, and so does a listed one that offends no more. `ALLOWED` lists
those that stay, and why.

    PYTHONPATH=src python tests/test_house.py        # prints today's offenders as KNOWN would list them
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "larvatus"

LONGEST_FILE = 400
LONGEST_FUNCTION = 60
MOST_PARAMETERS = 8
SAYS_NOTHING = {"found", "one", "own"}
OLD_WORDS = re.compile(r"\bby lot\b|\b(leav\w+|left) (\w+ )?away\b|\btext that does not say\b")
SPECIAL_IDS = {"cls_id", "sep_id"}
FRAME = {
    "data/text/template.py",  # wraps texts
    "data/text/tokenizer.py",  # tells it which ids there are
    "data/text/vocabularies/__init__.py",  # writes it into a new tokenizer.json
    *(f"data/text/vocabularies/{kind}.py" for kind in ("kind", "bpe", "wordpiece", "unigram", "characters")),
}
WATCHER = "training/engine/reporter.py"
REGISTRY = {"tasks/task.py", "tasks/registry.py"}

ALLOWED: dict[str, dict[str, str]] = {
    "long_files": {"interfaces/api/keywords.py": "generated: the keyword types of all public functions"},
    "functions_of_many_parameters": {
        "interfaces/cli/commands/finetune.py:finetune": "the command that is generated for each task",
    },
    "names_that_say_nothing": {
        "core/files.py": "stays as it is: whether files survive a crash hangs on each of its lines",
        "data/text/align.py": "stays as it is: whether words find their tokens hangs on each of its lines",
        "tasks/classify/evaluation.py:TextEvaluation.found": "users read it: what the model answered, beside `gold`",
        "tasks/evaluation/tables.py:ConfusedPair.found": "a key of the JSON that evaluate writes",
        "tasks/predict.py:ExamplePrediction.found": "users read it, beside `example`",
    },
}
"""What offends for a reason, and stays."""

KNOWN: dict[str, str] = {}


def files() -> list[str]:
    return sorted(path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py"))


@cache
def source(file: str) -> str:
    return (SOURCE / file).read_text(encoding="utf-8")


@cache
def tree(file: str) -> ast.Module:
    return ast.parse(source(file))


@cache
def nodes(file: str) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(tree(file)))


# ---------------------------------------------------------------------------- which file imports which


@cache
def modules() -> dict[str, str]:
    """Dotted name of each file."""
    return {
        ".".join(("larvatus", *Path(file).with_suffix("").parts)).removesuffix(".__init__"): file for file in files()
    }


def statements(body: list[ast.stmt], *, hidden: bool) -> Iterator[ast.stmt]:
    """Those that run when a file is imported and, if asked, those that wait in functions or are for types alone."""
    for statement in body:
        for_types = isinstance(statement, ast.If) and "TYPE_CHECKING" in ast.unparse(statement.test)
        if (for_types or isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef)) and not hidden:
            continue
        yield statement
        inner = [child for child in ast.iter_child_nodes(statement) if isinstance(child, ast.stmt)]
        yield from statements(inner, hidden=hidden)


def imports(file: str, *, hidden: bool) -> set[str]:
    """Files of ours that a file imports by name."""
    targets: set[str] = set()
    for statement in statements(tree(file).body, hidden=hidden):
        if isinstance(statement, ast.Import):
            targets |= {modules()[alias.name] for alias in statement.names if alias.name in modules()}
        elif isinstance(statement, ast.ImportFrom) and statement.module in modules():
            package = modules()[statement.module]
            targets |= {modules().get(f"{statement.module}.{alias.name}", package) for alias in statement.names}
    return targets - {file}


def circles(graph: dict[str, set[str]]) -> set[str]:
    """Groups of files each of which reaches all others of the group: strongly connected components."""
    reached: dict[str, set[str]] = {}
    for start in graph:
        seen: set[str] = set()
        waiting = [start]
        while waiting:
            new = graph[waiting.pop()] - seen
            seen |= new
            waiting.extend(new)
        reached[start] = seen
    groups = {frozenset(other for other in reached[file] if file in reached[other]) for file in graph}
    return {" ↔ ".join(sorted(group)).replace(" ", "") for group in groups if group}


# ------------------------------------------------------------------------------------------- the rules


def circles_of_files() -> set[str]:
    """No two files import each other, directly or by others."""
    return circles({file: imports(file, hidden=False) for file in files()})


def hidden_circles() -> set[str]:
    """No import stands in a function, or for types alone, because at the top it would close a circle."""
    graph = {file: imports(file, hidden=True) for file in files() if file != "__init__.py"}
    return circles({file: targets & graph.keys() for file, targets in graph.items()}) - circles_of_files()


def long_files() -> set[str]:
    """One idea a file."""
    return {file for file in files() if len(source(file).splitlines()) > LONGEST_FILE}


def functions(file: str) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [node for node in nodes(file) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def long_functions() -> set[str]:
    return {
        f"{file}:{function.name}"
        for file in files()
        for function in functions(file)
        if function.end_lineno is not None and function.end_lineno - function.lineno + 1 > LONGEST_FUNCTION
    }


def functions_of_many_parameters() -> set[str]:
    """A struct of settings carries what belongs together; `self` is not counted. Parameters of a command are structs
    and its options, which `@from_structs` names once; kernels take plain numbers and addresses."""
    flat = {"from_structs", "triton.jit"}

    def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
        every = (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
        return sum(parameter.arg not in ("self", "cls") for parameter in every)

    return {
        f"{file}:{function.name}"
        for file in files()
        for function in functions(file)
        if parameters(function) > MOST_PARAMETERS and flat.isdisjoint(map(ast.unparse, function.decorator_list))
    }


@cache
def kinds_of_tasks() -> frozenset[str]:
    """Classes of which there is one for each task: heads and their settings, examples, results, evaluations, tasks."""
    kinds: set[str] = set()
    for file in files():
        classes = [node for node in tree(file).body if isinstance(node, ast.ClassDef)]
        if file.startswith("models/heads/") or file in {"tasks/results.py", *REGISTRY}:
            kinds |= {cls.name for cls in classes}
        elif file in {"data/labelled/records.py", "data/labelled/span_records.py"}:
            kinds |= {cls.name for cls in classes if "Example" in cls.name or cls.name == "SpannedWords"}
        elif file.startswith("tasks/"):
            bases = {cls.name: " ".join(ast.unparse(base) for base in cls.bases) for cls in classes}
            kinds |= {name for name in bases if name.endswith("Evaluation") or "Task[" in bases[name]}
    return frozenset(kinds - {"Trunk", "Head", "HeadConfig"})


def asked_classes(node: ast.AST) -> set[str]:
    """The classes that a node asks something to be of: `isinstance(x, A | B)`, `type(x) is A`, `case A(): …`."""
    asked: ast.expr | None = None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("isinstance", "issubclass"):
        asked = node.args[1]
    elif isinstance(node, ast.MatchClass):
        asked = node.cls
    elif isinstance(node, ast.Compare) and ast.unparse(node.left).startswith("type("):
        asked = node.comparators[0]
    if asked is None:
        return set()
    names = (part for part in ast.walk(asked) if isinstance(part, ast.Name | ast.Attribute))
    return {part.id if isinstance(part, ast.Name) else part.attr for part in names}


def kinds_of_tasks_asked_for() -> set[str]:
    """What differs between tasks is asked of the registry. The readers of `data/labelled/` and a task's own folder may
    look at forms of examples."""
    kinds = kinds_of_tasks()
    others = {kind for kind in kinds if "Example" not in kind and kind != "SpannedWords"}

    def asked(file: str) -> set[str]:
        folder = (SOURCE / file).parent
        of_a_task = folder.parent.name == "tasks" and (folder / "task.py").exists()
        return set().union(*map(asked_classes, nodes(file))) & (
            others if of_a_task or file.startswith("data/labelled/") else kinds
        )

    return {file for file in files() if file not in REGISTRY and asked(file)}


def special_tokens_outside_the_frame() -> set[str]:
    """Only the frame knows what stands before, between and after texts."""

    def names_one(node: ast.AST) -> bool:
        if isinstance(node, ast.Attribute):
            return node.attr in SPECIAL_IDS or bool(re.search(r"\bspecial\.(cls|sep)$", ast.unparse(node)))
        return (isinstance(node, ast.Name) and node.id in SPECIAL_IDS) or (
            isinstance(node, ast.arg) and node.arg in SPECIAL_IDS
        )

    return {file for file in files() if file not in FRAME for node in nodes(file) if names_one(node)}


def rich_below_the_commands() -> set[str]:
    """The library prints nothing; what watches a run is handed in."""

    def imported(node: ast.AST) -> list[str]:
        if isinstance(node, ast.Import):
            return [alias.name for alias in node.names]
        return [node.module or ""] if isinstance(node, ast.ImportFrom) else []

    return {
        file
        for file in files()
        if not file.startswith("interfaces/cli/") and file != WATCHER
        for node in nodes(file)
        if any(name.split(".")[0] == "rich" for name in imported(node))
    }


def aliases_of_arrays() -> set[str]:
    """`core/arrays.py` names the kinds of arrays, once."""
    return {
        file
        for file in files()
        if file != "core/arrays.py"
        for statement in tree(file).body
        if isinstance(statement, ast.Assign | ast.AnnAssign) and "NDArray[" in ast.unparse(statement.value or statement)
    }


def names_that_say_nothing() -> set[str]:
    """Variables, parameters and fields are called after what they hold. A field is told as `file:Class.field`."""

    def given(node: ast.AST) -> str | None:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            return node.id
        if isinstance(node, ast.arg):
            return node.arg
        return node.name if isinstance(node, ast.MatchAs | ast.MatchStar | ast.ExceptHandler) else None

    offenders: set[str] = set()
    for file in files():
        fields = {
            statement.target: cls.name
            for cls in nodes(file)
            if isinstance(cls, ast.ClassDef)
            for statement in cls.body
            if isinstance(statement, ast.AnnAssign)
        }
        for node in nodes(file):
            if (name := given(node)) in SAYS_NOTHING:
                offenders.add(f"{file}:{fields[node]}.{name}" if node in fields else file)
    return offenders


def words_of_no_field() -> set[str]:
    """Help, errors and docstrings use the words that people search for: random, leave out, no language given."""
    return {file for file in files() if OLD_WORDS.search(source(file))}


RULES = (
    circles_of_files,
    hidden_circles,
    long_files,
    long_functions,
    functions_of_many_parameters,
    kinds_of_tasks_asked_for,
    special_tokens_outside_the_frame,
    rich_below_the_commands,
    aliases_of_arrays,
    names_that_say_nothing,
    words_of_no_field,
)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_plan_of_the_house_holds(rule) -> None:
    known = {*KNOWN.get(rule.__name__, "").split(), *ALLOWED.get(rule.__name__, {})}
    offenders = rule()
    assert not offenders - known, f"against the plan ({rule.__doc__}): {sorted(offenders - known)}"
    assert not known - offenders, f"no longer against the plan: take out of KNOWN: {sorted(known - offenders)}"


@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        ({"a": {"b"}, "b": {"c"}, "c": set()}, set()),
        ({"a": {"b"}, "b": {"a", "c"}, "c": set()}, {"a↔b"}),
        ({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}, {"a↔b↔c"}),
    ],
)
def test_circles_are_seen(graph, expected) -> None:
    assert circles(graph) == expected


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("isinstance(head, Tagging | Spans)", {"Tagging", "Spans"}),
        ("isinstance(head, (heads.Tagging, int))", {"heads", "Tagging", "int"}),
        ("type(head) is Tagging", {"Tagging"}),
        ("match head:\n    case Tagging(): pass", {"Tagging"}),
        ("Tagging(head)", set()),
    ],
)
def test_questions_after_a_class_are_seen(code, expected) -> None:
    assert set().union(*map(asked_classes, ast.walk(ast.parse(code)))) == expected


def listing() -> str:
    """`KNOWN` as it would stand today."""
    entries = []
    for rule in RULES:
        listed = sorted(rule() - ALLOWED.get(rule.__name__, {}).keys())
        lines = textwrap.wrap(" ".join(listed), 112, break_long_words=False, break_on_hyphens=False)
        if lines:
            entries.append(
                f'    "{rule.__name__}": """\n' + "".join(f"        {line}\n" for line in lines) + '    """,\n'
            )
    return "KNOWN: dict[str, str] = {\n" + "".join(entries) + "}"


if __name__ == "__main__":
    print(listing())
