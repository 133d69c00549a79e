"""Modules of the page that compute, run by node and compared with Python: marks, literals, addresses, blanks."""

from __future__ import annotations

import ast
import json
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import larvatus
from larvatus.core.errors import UsageError
from larvatus.inference.vectors.plan import read_mark
from tests.patience import WATCHDOG_S

PAGE = Path(larvatus.__file__).parent / "interfaces" / "studio" / "page"
HOSTILE = [
    "",
    "the river",
    "it's a 'quote' and a \"double\" one",
    "<script>alert(1)</script> & <b>",
    "back\\slash \\* star \\\\",
    "$HOME `ls` $(ls) !x",
    "tab\tand\nnew line\r\n",
    "\u2028 separators \u2029 \x85",
    "👩‍👩‍👧 family 🎉",
    "مرحبا بالعالم",
    "日本語のテキスト",
    "None True %s {x}",
]
MARKED = [
    "the *bank* of the river",
    "no mark at all",
    "* bank * with spaces",
    "a \\* star and a *word*",
    "\\\\*x*",
    "**",
    "a *b* and *c*",
    "one * star",
    "👩‍👩‍👧 *🎉* end",
    "*日本* のテキスト",
]
SCRIPT = """
import { curlFor, literal } from "./lib/copy.js";
import { carried, readIndices, words, writeIndices, starred } from "./lib/marks.js";
import { href, parse } from "./lib/router.js";
import { readMark } from "./lib/sentences.js";
import { blanked } from "./views/fill.js";
import { apart, placed } from "./views/sense_plane.js";
globalThis.location = { href: "http://127.0.0.1:8311/studio/" };
const { hostile, marked } = JSON.parse(process.argv[2]);
const chosen = (text, ...indices) => blanked(text, words(text), new Set(indices));
const after = (a, b, ...indices) => writeIndices(carried(words(a), words(b), new Set(indices)));
console.log(JSON.stringify({
  literals: literal(hostile),
  nested: literal({ a: [1, true, null, "x"], b: 0.5 }),
  curls: hostile.map((text) => curlFor("/v1/fill", { texts: [text] })),
  addresses: hostile.map((text) => parse(href("fill", { text, blanks: "1,2", none: "" }))),
  marks: marked.map(readMark),
  stars: hostile.map((text) => words(text).slice(0, 1).map(({ start, end }) => starred(text, start, end))[0] ?? ""),
  firsts: hostile.map((text) => words(text)[0]?.text ?? ""),
  blanks: [chosen("The river ran.", 1), chosen("A <mask> and [MASK] here", 4), chosen("don't go", 0)],
  carried: [after("the old river ran", "the very old river ran", 0, 3), after("a b c", "a c", 1, 2)],
  indices: [...readIndices("3,x,-1,7,1e3")],
  places: apart(placed([[0, 0], [0, 0], [1, 1], [5, -2]])),
}));
"""


@pytest.fixture(scope="module")
def computed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    folder = tmp_path_factory.mktemp("page")
    shutil.copytree(PAGE, folder, dirs_exist_ok=True)
    (folder / "package.json").write_text('{"type": "module"}')
    stand_in = "globalThis.window = {matchMedia: () => ({addEventListener() {}})};\nglobalThis.document = {};\n"
    (folder / "browser.js").write_text(stand_in)
    (folder / "run.js").write_text('import "./browser.js";\n' + SCRIPT)
    given = json.dumps({"hostile": HOSTILE, "marked": MARKED})
    run = subprocess.run([node, "run.js", given], cwd=folder, capture_output=True, text=True, timeout=WATCHDOG_S)
    assert run.returncode == 0, run.stderr
    return dict(json.loads(run.stdout))


def test_a_text_as_python_is_that_text(computed: dict[str, Any]) -> None:
    assert ast.literal_eval(computed["literals"]) == HOSTILE
    assert ast.literal_eval(computed["nested"]) == {"a": [1, True, None, "x"], "b": 0.5}


def test_a_request_as_curl_sends_that_request(computed: dict[str, Any]) -> None:
    for text, line in zip(HOSTILE, computed["curls"], strict=True):
        words = shlex.split(line.replace("\\\n", " ", 2))
        assert words[:2] == ["curl", "http://127.0.0.1:8311/v1/fill"]
        assert json.loads(words[words.index("-d") + 1]) == {"texts": [text]}


def test_an_address_holds_what_a_view_shows(computed: dict[str, Any]) -> None:
    for text, read in zip(HOSTILE, computed["addresses"], strict=True):
        assert read == {"id": "fill", "params": {"blanks": "1,2", **({"text": text} if text else {})}}


def test_marks_are_read_as_the_server_reads_them(computed: dict[str, Any]) -> None:
    for line, read in zip(MARKED, computed["marks"], strict=True):
        try:
            marked = read_mark(line)
        except UsageError:
            assert read["start"] == -1, line
            continue
        start, end = (_code_points(read["text"], read[name]) for name in ("start", "end"))
        assert (read["text"], (start, end)) == (marked.text, marked.spans[0])


def test_a_word_that_is_clicked_is_the_one_the_server_reads(computed: dict[str, Any]) -> None:
    for text, line, first in zip(HOSTILE, computed["stars"], computed["firsts"], strict=True):
        if first:
            marked = read_mark(line)
            assert (marked.text, marked.words) == (text, (first,))


def test_clicked_words_and_typed_marks_become_blanks(computed: dict[str, Any]) -> None:
    assert computed["blanks"] == ["The [MASK] ran.", "A [MASK] and [MASK] [MASK]", "[MASK] go"]


def test_an_edit_keeps_the_blanks_around_it(computed: dict[str, Any]) -> None:
    assert computed["carried"] == ["0,4", "1"]
    assert computed["indices"] == [3, 7]


def test_dots_do_not_cover_each_other(computed: dict[str, Any]) -> None:
    places = computed["places"]
    distances = [abs(complex(*a) - complex(*b)) for n, a in enumerate(places) for b in places[n + 1 :]]
    assert min(distances) > 24


def _code_points(text: str, units: int) -> int:
    """Of an index in UTF-16 units, as JavaScript counts."""
    return len(text.encode("utf-16-le")[: 2 * units].decode("utf-16-le"))
