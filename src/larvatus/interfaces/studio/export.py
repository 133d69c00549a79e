"""The studio as a folder of files: views of one model that need no server, only a browser (`larvatus studio export`).

page = export_page("runs/mine", out="site", runtime="node_modules/onnxruntime-web")
page.size, page.left_out

site/index.html, css/, lib/, views/, offline/      the studio's own files, as far as the page imports them
site/model/                                        model.onnx (`bundle/page_graph.py`), tokenizer.json, page.json
site/runtime/                                      ONNX Runtime for the web, as its npm package has it
site/LICENCES.txt
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from larvatus.core.errors import ArtefactError, UsageError
from larvatus.core.files import new_directory, remove
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.inference.cloze.fill import OTHER_END, abbreviations, allowed_tokens, glued_tokens, surface
from larvatus.interfaces.serve.operations.operation import is_packaged
from larvatus.interfaces.studio.offline_tokenizer import character_classes, check_offline_tokenizer
from larvatus.models.bundle.directory import Bundle, load_bundle
from larvatus.models.bundle.model_names import NAME, model_or_packaged
from larvatus.models.bundle.page_graph import masked_head, page_bytes, write_page_graph

PAGE = Path(__file__).parent / "page"
STYLES = ("tokens", "base", "shell", "parts", "marks", "views", "explain")
RUNTIME, RUNTIME_VERSION = "onnxruntime-web", "1.30.0"
"""npm package that runs the model in the browser, and the version that was tested."""
RUNTIME_FILES = {"ort.wasm.bundle.min.mjs": "ort.js", "ort-wasm-simd-threaded.wasm": "ort.wasm"}
"""Files of its `dist/`, and their names here: some file servers do not know `.mjs`."""
LIMIT = 60.0
"""Megabytes of the whole folder."""
POLICY = (
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "worker-src 'self'; base-uri 'none'; form-action 'none'"
)
_IMPORT = re.compile(r"""(?:from\s+|import\s*\(\s*|import\s+|new URL\()["'](\.[^"']+\.js)["']""")


class PageExport(Struct, frozen=True, kw_only=True):
    """Record of an exported page."""

    path: str
    size: int
    """Bytes of all files."""
    difference: float
    """Largest difference of a probability or an attention weight from torch, with the same rounded weights."""
    views: tuple[str, ...]
    left_out: dict[str, str]
    """Views that the model cannot have, and why."""

    def to_dict(self) -> dict[str, Any]:
        return dict(msgspec.to_builtins(self))


def export_page(
    model: str | Path | None = None,
    *,
    out: str | Path,
    runtime: str | Path | None = None,
    limit: float = LIMIT,
    overwrite: bool = False,
) -> PageExport:
    """Write the views of a model as a folder that any file server can serve, without a network.

    Args:
        model: A model directory, or a hub name: a bidirectional transformer; the packaged English model by default.
        out: A new folder.
        runtime: Folder of the npm package onnxruntime-web; default: in the `node_modules` here or above.
        limit: Largest size of the folder, in megabytes.
        overwrite: Replace an earlier page.

    Returns:
        A record of the page: `.size`, `.views`, `.left_out`, `.difference` from torch.
    """
    out = Path(out)
    _check_out(out, overwrite=overwrite)
    vendored, version = find_runtime(runtime)
    name = str(model or model_or_packaged())
    bundle = load_bundle(name)
    check_offline_tokenizer(bundle.tokenizer)
    _check_size(bundle, vendored, limit)
    left_out = _left_out(bundle)
    with new_directory(out.resolve()) as aside:
        for part in ("model", "runtime"):
            (aside / part).mkdir()
        difference = write_page_graph(bundle.network, aside / "model" / "model.onnx")
        (aside / "model" / "tokenizer.json").write_text(bundle.tokenizer.library.to_str(), encoding="utf-8")
        card = _card(bundle, left_out, (aside / "model" / "model.onnx").stat().st_size)
        (aside / "model" / "page.json").write_text(json.dumps(card, ensure_ascii=False), encoding="utf-8")
        for theirs, ours in RUNTIME_FILES.items():
            shutil.copyfile(vendored / "dist" / theirs, aside / "runtime" / ours)
        _write_site(aside, version)
        size = sum(path.stat().st_size for path in aside.rglob("*") if path.is_file())
        if size > limit * 1e6:
            raise UsageError(_too_large(size, limit))
        if overwrite:
            remove(out.resolve())
    views = tuple(view for view in ("fill", "layers", "inside", "senses", "compare") if view not in left_out)
    return PageExport(path=str(out), size=size, difference=difference, views=views, left_out=left_out)


def find_runtime(named: str | Path | None) -> tuple[Path, str]:
    """The folder of the npm package, and its version."""
    way = f"get it with: npm install {RUNTIME}@{RUNTIME_VERSION}, or name its folder with --runtime"
    here = Path.cwd()
    places = [Path(named)] if named else [each / "node_modules" / RUNTIME for each in (here, *here.parents)]
    folder = next((place for place in places if (place / "package.json").is_file()), None)
    if folder is None:
        where = str(named) if named else "node_modules here or above"
        raise UsageError(f"there is no {RUNTIME} in {where}; {way}")
    try:
        package = msgspec.json.decode((folder / "package.json").read_bytes(), type=dict[str, Any])
    except msgspec.DecodeError as fault:
        raise ArtefactError(f"{folder / 'package.json'} is no package.json: {fault}; {way}") from fault
    if package.get("name") != RUNTIME:
        raise UsageError(f"{folder} is the npm package {package.get('name')!r:.60}, not {RUNTIME}; {way}")
    if missing := [name for name in RUNTIME_FILES if not (folder / "dist" / name).is_file()]:
        raise UsageError(f"{folder} has no dist/{missing[0]}: this version is too old, or incomplete; {way}")
    return folder, str(package.get("version", "of unknown version"))


def _check_out(out: Path, *, overwrite: bool) -> None:
    if not out.exists() and not out.is_symlink():
        return
    if not overwrite:
        raise ArtefactError(f"{out} exists; choose another folder, or replace an earlier page with --overwrite")
    if out.is_symlink() or not (out / "model" / "page.json").is_file():
        raise ArtefactError(f"{out} is no page that Larvatus exported, and is not replaced; choose another folder")


def _check_size(bundle: Bundle, vendored: Path, limit: float) -> None:
    """Refuse before the export, which takes a minute, what would be too large after it."""
    size = page_bytes(bundle.network) + sum((vendored / "dist" / name).stat().st_size for name in RUNTIME_FILES)
    if size > limit * 1e6:
        raise UsageError(_too_large(size, limit))


def _too_large(size: float, limit: float) -> str:
    return (
        f"the page would have {size / 1e6:,.0f} MB, and the limit is {limit:,.0f}; export a smaller model, or allow "
        f"more with --limit {int(size / 1e6) + 2}"
    )


def _left_out(bundle: Bundle) -> dict[str, str]:
    tokenizer = bundle.tokenizer
    if masked_head(bundle.network) is None:
        why = "the model has no masked-LM head"
        if bundle.network.generator is not None:
            why = "the masked-LM head is that of the model's generator"
    elif tokenizer.id(tokenizer.special.mask) is None:
        why = "the vocabulary has no mask token"
    else:
        return {}
    return {"fill": why, "layers": why}


def _card(bundle: Bundle, left_out: dict[str, str], size: int) -> dict[str, Any]:
    """What the page knows of the model: as `/v1/models` describes it, and tables over the vocabulary."""
    tokenizer, encoder = bundle.tokenizer, bundle.network.encoder
    packaged = is_packaged(Path(bundle.path))
    name = NAME if packaged else Path(bundle.path).resolve().name
    template = tokenizer.template.single
    before, after = ([int(id) for id in gap] for gap in template.gaps)
    fills = {} if left_out else _words(tokenizer)
    return {
        "name": name,
        "path": name,
        "packaged": packaged,
        "can": ["attention", "similar", "senses", *([] if left_out else ["fill"])],
        "left_out": [{"view": view, "reason": reason} for view, reason in left_out.items()],
        "layers": encoder.depth,
        "heads": encoder.heads,
        "width": encoder.width,
        "reach": encoder.reach,
        "parameters": sum(p.numel() for p in bundle.network.parameters()),
        "bytes": size,
        "before": before,
        "after": after,
        "mask": {"text": tokenizer.special.mask, "id": tokenizer.id(tokenizer.special.mask)},
        "special_ids": sorted(tokenizer.special_ids),
        "tokens": [surface(tokenizer, id) for id in range(tokenizer.size)],
        "rows": len(encoder.word_vectors),
        "classes": character_classes(),
        **{"words": [], "glued": [], "abbreviations": [], "other_end": False, **fills},
    }


def _words(tokenizer: Tokenizer) -> dict[str, Any]:
    """Which tokens may fill a blank, as `larvatus fill` has it."""
    return {
        "words": np.flatnonzero(allowed_tokens(tokenizer, "words")).tolist(),
        "glued": np.flatnonzero(glued_tokens(tokenizer)).tolist(),
        "abbreviations": abbreviations(tokenizer).tolist(),
        "other_end": tokenizer.id(OTHER_END) is not None,
    }


def _write_site(folder: Path, version: str) -> None:
    """The studio's own files, with the page's script instead of the studio's."""
    needed = {PAGE / name for name in ("boot.js", "icon.svg", *(f"css/{style}.css" for style in STYLES))}
    for path in {*needed, *_imported(PAGE / "offline" / "main.js", set())}:
        target = folder / path.relative_to(PAGE)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    html = (PAGE / "index.html").read_text(encoding="utf-8")
    html = re.sub(rf'  <link rel="stylesheet" href="css/(?!(?:{"|".join(STYLES)})\.css)[^\n]*\n', "", html)
    html = html.replace('<html lang="en">', '<html lang="en" data-offline>').replace(
        'src="main.js"', 'src="offline/main.js"'
    )
    policy = f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
    html = html.replace('<meta charset="utf-8">', f'<meta charset="utf-8">\n  {policy}')
    waiting = "The page needs a file server, which may be on this computer: python -m http.server"
    html = html.replace(
        '<main id="main" tabindex="-1">', f'<main id="main" tabindex="-1"><p class="faint">{waiting}</p>'
    )
    (folder / "index.html").write_text(html, encoding="utf-8")
    (folder / "LICENCES.txt").write_text(LICENCES.format(runtime=RUNTIME, version=version), encoding="utf-8")


def _imported(script: Path, seen: set[Path]) -> Iterator[Path]:
    """A script and all that it imports; the runtime is not the studio's."""
    if script in seen or not script.is_relative_to(PAGE) or "runtime" in script.parts:
        return
    seen.add(script)
    yield script
    for target in _IMPORT.findall(script.read_text(encoding="utf-8")):
        yield from _imported((script.parent / target).resolve(), seen)


LICENCES = """\
This page was exported by Larvatus (Apache License 2.0), which owns index.html, boot.js, shell.js, css/, lib/, views/
and offline/. The model in model/ has the licence that its model card states.

runtime/ holds ONNX Runtime for the web (npm package {runtime} {version}), under the MIT License:

Copyright (c) Microsoft Corporation

Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated
documentation files (the "Software"), to deal in the Software without restriction, including without limitation the
rights to use, copy, modify, merge, publish, distribute, sublicense, and/or sell copies of the Software, and to permit
persons to whom the Software is furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all copies or substantial portions of the
Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE
WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR
COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR
OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
"""
