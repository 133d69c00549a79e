"""No test asserts how long something took, or gives up after a few seconds: both fail on a busy machine.

Three rules over the syntax trees of tests/, each of which names its offenders:

- an assertion compares no difference of two readings of a wall clock, be it direct, by a variable, a list or a function
  of the same file; a program in a string reads none;
- CPU time is compared with CPU time of another size, not with a number;
- no wait for a process, a thread, a socket or a page, and no deadline, is under `SHORTEST_S`. `WATCHDOG_S` of
  `tests/patience.py` is the usual one: only a hang reaches it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
SHORTEST_S = 120.0
WALL = {"perf_counter", "monotonic", "time", "perf_counter_ns", "monotonic_ns", "time_ns", "default_timer", "now"}
CPU = {"process_time", "process_time_ns", "thread_time", "thread_time_ns"}
CLOCKS_OF = {"", "time", "timeit", "datetime", "datetime.datetime"}
IN_TEXT = re.compile(r"\b(perf_counter|monotonic|time\.time|performance\.now|Date\.now)(_ns)?\(\)")
"""Clocks of programs in strings."""
PASSED_ON = {"max", "min", "sum", "sorted", "list", "tuple", "zip", "map", "abs", "round", "float", "int", "len"}
PASSED_ON |= {"enumerate", "median", "mean", "quantiles", "reversed"}
"""Functions whose result is a duration where an argument is one."""
IN_SECONDS = {"run", "check_call", "check_output", "communicate", "wait", "join", "result", "urlopen", "HTTPConnection"}
IN_SECONDS |= {"settimeout", "create_connection"}
IN_MILLISECONDS = {"set_default_timeout", "wait_for", "wait_for_selector", "wait_for_function"}
FIRST = {"wait", "join", "result", "settimeout", "set_default_timeout"}
"""Calls that take the limit as their first argument, too."""
Function = ast.FunctionDef | ast.AsyncFunctionDef


def name_called(node: ast.Call) -> str:
    """`monotonic` for `time.monotonic(…)`, `max` for `max(…)`."""
    if isinstance(node.func, ast.Attribute):
        return node.func.attr
    return node.func.id if isinstance(node.func, ast.Name) else ""


def owner_called(node: ast.Call) -> str:
    """`time` for `time.monotonic(…)`, nothing for `max(…)`."""
    return ast.unparse(node.func.value) if isinstance(node.func, ast.Attribute) else ""


@cache
def children(node: ast.AST) -> tuple[ast.AST, ...]:
    return tuple(ast.iter_child_nodes(node))


def walk(node: ast.AST) -> Iterator[ast.AST]:
    """As `ast.walk`, in another order; a node that was visited before is not taken apart again."""
    waiting = [node]
    while waiting:
        yield (node := waiting.pop())
        waiting.extend(children(node))


def own_nodes(scope: ast.AST) -> Iterator[ast.AST]:
    """Those of a function with the functions in it, whose names it shares, or those of a file without its functions."""
    if isinstance(scope, Function):
        yield from walk(scope)
        return
    waiting = [*children(scope)]
    while waiting:
        if not isinstance(node := waiting.pop(), Function):
            yield node
            waiting.extend(children(node))


class Durations:
    """Which names of a function hold a reading of a clock, and which a difference of two: `wall` or `cpu`."""

    def __init__(self, scope: ast.AST, *, outer: dict[str, set[str]]) -> None:
        self.names = {name: set(kinds) for name, kinds in outer.items()}
        self.given: set[str] = set()
        """What the function returns, or yields."""
        nodes, before = list(own_nodes(scope)), -1
        while (size := sum(map(len, self.names.values()))) != before:  # until nothing new is learnt
            before = size
            for node in nodes:
                self._learn(node)

    def _learn(self, node: ast.AST) -> None:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                self._give(target, node.value)
        elif isinstance(node, ast.AnnAssign | ast.AugAssign | ast.NamedExpr) and node.value is not None:
            self._give(node.target, node.value)
        elif isinstance(node, ast.For | ast.comprehension):
            self._give(node.target, node.iter)
        elif (
            isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("append", "add")
        ):
            for argument in node.args:
                self._give(node.func.value, argument)
        elif isinstance(node, ast.Return | ast.Yield) and node.value is not None:
            self.given |= self.of(node.value) - {"clock", "cpu clock"}

    def _give(self, target: ast.AST, value: ast.AST) -> None:
        if isinstance(target, ast.Tuple | ast.List):
            values = value.elts if isinstance(value, ast.Tuple | ast.List) else [value] * len(target.elts)
            for each, part in zip(target.elts, values, strict=False):
                self._give(each, part)
        elif name := self._name(target):
            self.names.setdefault(name, set()).update(self.of(value))

    @staticmethod
    def _name(node: ast.AST) -> str:
        """`x` of `x` and of `x[0]`, `self.x` as a whole."""
        while isinstance(node, ast.Subscript | ast.Starred):
            node = node.value
        return ast.unparse(node) if isinstance(node, ast.Name | ast.Attribute) else ""

    def of(self, node: ast.AST) -> set[str]:
        if isinstance(node, ast.Call):
            return self._of_call(node)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
            sides = self.of(node.left) | self.of(node.right)
            return {{"clock": "wall", "cpu clock": "cpu"}.get(kind, kind) for kind in sides}
        if isinstance(node, ast.Lambda):
            return set()
        kinds = set(self.names.get(self._name(node), ()))
        return kinds.union(*map(self.of, ast.iter_child_nodes(node)))

    def _of_call(self, node: ast.Call) -> set[str]:
        owner, name = owner_called(node), name_called(node)
        if name in WALL | CPU and owner in CLOCKS_OF and not node.args:
            return {"cpu clock"} if name in CPU else {"clock"}
        arguments = [*node.args, *(keyword.value for keyword in node.keywords)]
        kinds = set(self.names.get(f"{name}()", ()))
        if isinstance(node.func, ast.Attribute) and owner.isidentifier():
            kinds |= self.names.get(owner, set())  # times.copy()
        passed_on = name in PASSED_ON or "passed on" in kinds
        return kinds.union(*map(self.of, arguments)) - {"passed on"} if passed_on else kinds


def functions(tree: ast.Module) -> list[Function]:
    return [node for node in walk(tree) if isinstance(node, Function)]


def returned(tree: ast.Module) -> dict[str, set[str]]:
    """Functions of a file, as `name()`, that return durations, or something of what they are given."""
    outer: dict[str, set[str]] = {}
    for function in functions(tree):
        given = {each.arg for each in (*function.args.args, *function.args.kwonlyargs)}
        results = [
            node.value for node in own_nodes(function) if isinstance(node, ast.Return) and node.value is not None
        ]
        names = {inner.id for result in results for inner in walk(result) if isinstance(inner, ast.Name)}
        outer[f"{function.name}()"] = {"passed on"} if given & names else set()
    before = -1
    while (size := sum(map(len, outer.values()))) != before:
        before = size
        for function in functions(tree):
            outer.setdefault(f"{function.name}()", set()).update(Durations(function, outer=outer).given)
    return outer


def asserted(scope: ast.AST) -> Iterator[ast.expr]:
    """What is tested by assertions, and by an `if` that fails."""
    for node in own_nodes(scope):
        if isinstance(node, ast.Assert) or (
            isinstance(node, ast.If)
            and any(isinstance(inner, ast.Raise) or "pytest.fail" in ast.unparse(inner) for inner in node.body)
        ):
            yield node.test


def timed(tree: ast.Module) -> set[int]:
    """Lines of assertions that hold only where the machine is quick."""
    lines: set[int] = set()
    if not any(isinstance(node, ast.Call) and name_called(node) in WALL | CPU for node in walk(tree)):
        return lines  # a file that reads no clock has no durations
    outer = returned(tree)
    for function in functions(tree):
        durations = Durations(function, outer=outer)
        for compare in (node for test in asserted(function) for node in walk(test)):
            if not isinstance(compare, ast.Compare):
                continue
            if not any(isinstance(operator, ast.Lt | ast.LtE | ast.Gt | ast.GtE) for operator in compare.ops):
                continue
            sides = [durations.of(side) for side in (compare.left, *compare.comparators)]
            if any("wall" in side for side in sides) or sum("cpu" in side for side in sides) == 1:
                lines.add(compare.lineno)
    return lines


def programs(tree: ast.Module) -> set[int]:
    """Lines of programs in strings that read a clock; a string that is a statement is a docstring."""
    documentation = {node.value for node in walk(tree) if isinstance(node, ast.Expr)}
    texts = (node for node in walk(tree) if isinstance(node, ast.Constant) and node not in documentation)
    return {node.lineno for node in texts if isinstance(node.value, str) and IN_TEXT.search(node.value)}


def constants(scope: ast.AST) -> dict[str, float]:
    """Numbers that a file or a function gives names to, defaults of parameters among them."""
    numbers: dict[str, float] = {}
    for node in own_nodes(scope):
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Constant):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            numbers |= {ast.unparse(target): node.value.value for target in targets}
    if isinstance(scope, Function):
        given = scope.args
        last = given.args[len(given.args) - len(given.defaults) :]
        defaults = [*zip(last, given.defaults, strict=True), *zip(given.kwonlyargs, given.kw_defaults, strict=True)]
        numbers |= {each.arg: value.value for each, value in defaults if isinstance(value, ast.Constant)}
    return {name: float(value) for name, value in numbers.items() if isinstance(value, int | float)}


def limit(node: ast.AST, numbers: dict[str, float]) -> float:
    """Seconds after which a call gives up, or that a deadline is away; infinite where none is known."""
    given: list[ast.expr] = []
    unit = 1.0
    if isinstance(node, ast.Call) and (name := name_called(node)) in IN_SECONDS | IN_MILLISECONDS:
        given = [keyword.value for keyword in node.keywords if keyword.arg == "timeout"]
        given = given or (node.args if name in FIRST and len(node.args) == 1 else [])
        unit = 1000.0 if name in IN_MILLISECONDS else 1.0
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add) and isinstance(node.left, ast.Call):
        given = [node.right] if name_called(node.left) in WALL and owner_called(node.left) in CLOCKS_OF else []
    seconds = numbers.get(ast.unparse(given[0]), float("inf")) if given else float("inf")
    if given and isinstance(given[0], ast.Constant) and isinstance(given[0].value, int | float):
        seconds = float(given[0].value)
    return seconds / unit


def hurried(tree: ast.Module) -> set[int]:
    """Lines that wait for less than `SHORTEST_S`; a wait in the head of a `while` is a pause, and may be short."""
    top = constants(tree)
    lines: set[int] = set()
    for scope in (tree, *functions(tree)):
        numbers = top | constants(scope)
        nodes = list(own_nodes(scope))
        pauses = {inner for node in nodes if isinstance(node, ast.While) for inner in walk(node.test)}
        lines |= {node.lineno for node in nodes if node not in pauses and limit(node, numbers) < SHORTEST_S}  # type: ignore[attr-defined]
    return lines


def offences(path: Path) -> Iterator[str]:
    children.cache_clear()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    name = path.relative_to(TESTS.parent)
    if clocks := timed(tree):
        yield f"{name} asserts how long something took, at lines {sorted(clocks)}"
    if (texts := programs(tree)) and path != Path(__file__):
        yield f"{name} has programs with clocks, at lines {sorted(texts)}"
    if waits := hurried(tree):
        yield f"{name} gives up after less than {SHORTEST_S:g} s, at lines {sorted(waits)}"


@pytest.mark.parametrize("folder", sorted({path.relative_to(TESTS).parts[0] for path in TESTS.rglob("*.py")}))
def test_no_test_depends_on_the_speed_of_the_machine(folder: str) -> None:
    """Of a folder, or of a file beside the folders."""
    place = TESTS / folder
    paths = sorted(place.rglob("*.py")) if place.is_dir() else [place]
    assert paths
    assert [said for path in paths for said in offences(path)] == []


CLOCKED = {
    "direct": "start = time.perf_counter()\n    assert time.perf_counter() - start < 5",
    "by a variable": "took = time.monotonic() - begun()\n    assert 0 < took < 5",
    "imported by name": "start = monotonic()\n    took = monotonic() - start\n    assert took <= 5",
    "in a list": "times = []\n    times.append(time.time() - 1.0)\n    assert max(times) < 5",
    "of two sizes": "a, b = (time.time() - each for each in (1, 2))\n    assert a < 10 * b",
    "by a function": "assert seconds() < 5",
    "by a function of a function": "assert twice()[1] < 5",
    "of a function in it": "def ask(): times.append((1, time.time() - 1))\n    times = []\n    assert times[0][1] < 5",
    "by a function that is given it": "assert last([time.time() - start]) < 5",
    "without assert": "if time.time() - start > 5:\n        raise AssertionError",
    "CPU time and a number": "start = time.process_time()\n    assert time.process_time() - start < 5",
}
UNCLOCKED = {
    "a deadline": "until = time.monotonic() + WATCHDOG_S\n    assert time.monotonic() < until",
    "CPU time of two sizes": "a, b = (time.process_time() - each for each in (1, 2))\n    assert a < 10 * b",
    "a pace": "took = time.monotonic() - start\n    process.wait(took * 0.3)\n    assert process.returncode < 5",
    "other differences": "assert late - early < 8 * 2**20",
}
AROUND = """
def seconds():
    begun = time.perf_counter()
    return time.perf_counter() - begun
def twice():
    return [seconds(), seconds()]
def last(values):
    return values[-1]
def test():
    """


@pytest.mark.parametrize("body", CLOCKED.values(), ids=CLOCKED)
def test_assertions_about_time_are_seen(body: str) -> None:
    assert timed(ast.parse(AROUND + body))


@pytest.mark.parametrize("body", UNCLOCKED.values(), ids=UNCLOCKED)
def test_other_assertions_are_not(body: str) -> None:
    assert not timed(ast.parse(AROUND + body))


def test_clocks_in_programs_are_seen() -> None:
    assert programs(ast.parse("page.evaluate('() => performance.now() - begun')"))
    assert programs(ast.parse("PROGRAM = 'print(time.perf_counter() - begun)'"))
    assert not programs(ast.parse("'time.monotonic() in a docstring'"))


@pytest.mark.parametrize(
    ("code", "short"),
    [
        ("subprocess.run(words, timeout=60)", True),
        ("process.communicate(timeout=600)", False),
        ("thread.join(5)", True),
        ("', '.join(words)", False),
        ("page.locator('x').wait_for(timeout=60_000)", True),
        ("LIMIT = 20.0\ndef f(): connection.settimeout(LIMIT)", True),
        ("def f(seconds=30): until = time.monotonic() + seconds", True),
        ("def f(seconds=WATCHDOG_S): until = time.monotonic() + seconds", False),
        ("while not stopping.wait(0.1): pass", False),
        ("assert begun.wait(0.1)", True),
        ("Client(address, timeout=0.05)", False),
    ],
)
def test_short_limits_are_seen(code: str, short: bool) -> None:
    assert bool(hurried(ast.parse(code))) is short
