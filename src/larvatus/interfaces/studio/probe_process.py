"""The process of Probe: probes of the layers of a model on a small file, and their report as JSON in the job's folder.

    python -m larvatus.interfaces.studio.probe_process < job.json

It reads its job and writes its events as the training process of Learn does (`learn_process.py`).
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from larvatus.core.outputs import write_output
from larvatus.evaluation.probing.run import probe_layers
from larvatus.inference.model import load
from larvatus.interfaces.studio.learn_process import Send, run_job
from larvatus.interfaces.studio.probing import REPORT, ProbeJob


def probe(job: ProbeJob, send: Send) -> None:
    """Probe a model, and report the texts that were read: once by the model, once by one with random weights."""
    data = job.read()
    total, done = 2 * len(data.texts), 0

    def advance(count: int) -> None:
        nonlocal done
        done += count
        send(step=done, steps=total)
        if done in (total // 2, total):
            which = "the model" if done < total else "random weights"
            send(said=f"{len(data.texts):,} texts read by {which}; training its probes")

    send(said=f"{job.task}: {len(data.texts):,} texts, {len(data.names):,} labels", step=0, steps=total)
    report = probe_layers(load(Path(job.model), device=job.device), data, job.settings(), advance)
    write_output(Path(job.out) / REPORT, msgspec.json.encode(report.to_dict()).decode() + "\n")


if __name__ == "__main__":
    sys.exit(run_job(ProbeJob, probe))
