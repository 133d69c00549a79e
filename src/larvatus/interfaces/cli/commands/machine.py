"""`larvatus doctor` and `larvatus bench`: what this machine has, and how fast it is.

larvatus doctor
larvatus bench --recipe bert --size base
larvatus bench --model runs/mine --no-peers --json
larvatus bench --grow length --plot length.png
"""

from __future__ import annotations

import json
import os
import platform
import shutil
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console

from larvatus.core.errors import UsageError
from larvatus.core.outputs import check_outputs
from larvatus.core.run_identity import VERSION
from larvatus.core.tables import Table
from larvatus.evaluation.speed.plot import draw, draw_growth
from larvatus.evaluation.speed.results import lines, tables
from larvatus.evaluation.speed.scaling import ScalingResult, table
from larvatus.interfaces.api.benchmarking import run_bench
from larvatus.interfaces.cli.from_struct import Panel, from_structs
from larvatus.interfaces.cli.options import MACHINE, Json, Overwrite, check_plot
from larvatus.interfaces.cli.output import Quiet, is_quiet, show_part
from larvatus.interfaces.settings import BenchSettings, MachineSettings
from larvatus.models.bundle.model_names import packaged_model
from larvatus.models.nn.attention.fused import describe_kernel
from larvatus.training.engine.reporter import Reporter, rich_table
from larvatus.training.engine.settings import Runtime


@from_structs
def bench(
    chosen: Annotated[BenchSettings, Panel(None)],
    machine: Annotated[MachineSettings, Panel(MACHINE, without=("rank_timeout",))],
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Picture to draw, such as bench.png.")] = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Measure this machine: matrix ceiling, training, embedding, loader, memory and installed peers; or --grow."""
    check_plot(plot)
    read = [] if chosen.model is None else [chosen.model]
    check_outputs(plot, overwrite=overwrite, inputs=[chosen.corpus, *read])
    result = run_bench(chosen, machine, Reporter.on_stream(quiet=is_quiet(), stderr=True))
    if plot is not None:
        if isinstance(result, ScalingResult):
            draw_growth(result, plot)
        else:
            draw(result, plot)
    if as_json:
        print(json.dumps(result.to_dict()))
        return
    console = Console(soft_wrap=True, highlight=False, markup=False)
    if isinstance(result, ScalingResult):
        console.print(f"{result.machine.name}: {result.machine.device}, {result.machine.precision}")
        console.print(rich_table(table(result)))
        return
    for line in lines(result):
        console.print(line)
    for each in tables(result):
        console.print()
        console.print(rich_table(each))


_PACKAGES = ("torch", "tokenizers", "safetensors", "numpy", "pyarrow", "msgspec", "sentencex")


_EXTRAS = ("onnxruntime", "usearch", "umap-learn", "matplotlib", "ray", "fastapi", "huggingface_hub", "transformers")
"""Packages that change what a bug report is about, where they are installed."""
_VARIABLES = ("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "WORLD_SIZE", "LARVATUS_DEBUG")
"""Environment variables whose values are not private."""


def doctor(
    as_json: Json = False,
    report: Annotated[
        bool, typer.Option("--report", help="Markdown for a bug report: no names of people, no paths, no texts.")
    ] = False,
) -> None:
    """Show versions, devices, kernels and free memory, or all that a bug report needs (--report)."""
    if report and as_json:
        raise UsageError("--report is Markdown and --json is for programs; give one of them")
    facts = _facts()
    if report:
        print(_bug_report(facts))
        return
    if as_json:
        print(json.dumps(facts))
        return
    rows = [
        (name, ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else str(value))
        for name, value in facts.items()
    ]
    show_part(Console(), Table(("", ""), rows, left=2))


def _bug_report(facts: Mapping[str, Any]) -> str:
    """The facts as a list, what else is installed, and questions to answer."""
    extras = {name: version for name in _EXTRAS if (version := _version(name))}
    settings = {name: os.environ[name] for name in _VARIABLES if name in os.environ}
    rows = {
        **facts,
        "optional packages": extras or "none",
        "environment": settings or f"none of {', '.join(_VARIABLES)}",
        "English model": "installed" if packaged_model() else "not installed",
        "started as": "an editable clone" if "site-packages" not in Path(__file__).parts else "an installed package",
    }
    lines = [
        f"- {name}: {', '.join(f'{k} {v}' for k, v in value.items()) if isinstance(value, Mapping) else value}"
        for name, value in rows.items()
    ]
    crashes = sorted(path.name for path in Path().glob("larvatus-report-*.txt"))
    attach = f"\nPlease attach {', '.join(crashes)} of this folder.\n" if crashes else ""
    return (
        "## What happened\n\n(the command or the call, what it printed, and what you expected)\n\n"
        "## This machine\n\n" + "\n".join(lines) + "\n" + attach
    ).rstrip()


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _facts() -> dict[str, Any]:
    runtime = Runtime.here()
    facts: dict[str, Any] = {
        "larvatus": VERSION,
        "python": f"{platform.python_version()} on {platform.system()} {platform.machine()}",
        "packages": {name: metadata.version(name) for name in _PACKAGES},
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "memory": _memory(),
        "disk free here": f"{shutil.disk_usage('.').free / 2**30:.1f} GiB",
        "device": runtime.device,
        "a run here would use": f"{runtime}, {runtime.microbatch:,} tokens at once, {runtime.workers} workers",
        "attention": describe_kernel(runtime.device, runtime.precision),
    }
    for number in range(torch.cuda.device_count()):
        free, total = torch.cuda.mem_get_info(number)
        name = torch.cuda.get_device_name(number)
        facts[f"cuda:{number}"] = f"{name}, {free / 2**30:.0f} of {total / 2**30:.0f} GiB free"
    return facts


def _memory() -> str:
    page = os.sysconf("SC_PAGE_SIZE")
    free, total = os.sysconf("SC_AVPHYS_PAGES") * page, os.sysconf("SC_PHYS_PAGES") * page
    return f"{free / 2**30:.1f} of {total / 2**30:.1f} GiB free"
