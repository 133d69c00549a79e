"""`larvatus doctor`: what this machine has, for bug reports and before a long run."""

from __future__ import annotations

import json
import os
import platform
import shutil
from importlib import metadata
from typing import Any

import torch
from rich.console import Console

from larvatus.core.tables import Table
from larvatus.core.version import VERSION
from larvatus.interfaces.cli.options import Json
from larvatus.interfaces.cli.tables import show_part
from larvatus.models.nn.attention.fused import describe_kernel
from larvatus.training.engine.settings import Runtime

_PACKAGES = ("torch", "tokenizers", "safetensors", "numpy", "pyarrow", "msgspec", "sentencex")


def doctor(as_json: Json = False) -> None:
    """Show versions, devices, kernels and free memory."""
    facts = _facts()
    if as_json:
        print(json.dumps(facts))
        return
    rows = [
        (name, ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else str(value))
        for name, value in facts.items()
    ]
    show_part(Console(), Table(("", ""), rows, left=2))


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
