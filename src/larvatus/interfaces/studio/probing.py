"""Probe: what each layer of a model knows of a small labelled file, measured in a process of its own; saved reports.

    GET  /studio/api/probe                                        state of the probe that runs, saved reports, limits
    POST /studio/api/probe/start  {"name": "dev.conllu", "text": "…", "model": "law", "tag": "Tense", "probe": "linear"}
    POST /studio/api/probe/stop
    GET  /studio/api/probe/report?name=dev                        a saved report, as numbers and as a picture
    POST /studio/api/probe/show   {"name": "probe.json", "text": "…"}     the same for output of `larvatus probe --json`

The file and its report are kept in `runs/studio-probes/NAME`. The process, its progress and its end are those of Learn.
"""

from __future__ import annotations

import dataclasses
import re
import shutil
import sys
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal

from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from larvatus.core.drawing import STYLE, as_json, element
from larvatus.core.ranges import whole
from larvatus.core.regular_files import is_there, read_text
from larvatus.data.labelled.file_options import WordFiles
from larvatus.evaluation.probing.examples import ProbeData, ProbeTask, check_task
from larvatus.evaluation.probing.results import ProbeReport
from larvatus.evaluation.probing.run import ProbingSettings
from larvatus.interfaces.api.probing import read_for_probe
from larvatus.interfaces.serve.responses import RequestError
from larvatus.interfaces.studio.http import Answer, json_reply, read_body, run_in_thread
from larvatus.interfaces.studio.learn import Learner
from larvatus.interfaces.studio.learn_request import ENDINGS, MOST_BYTES, LearnFile, LearnJob, naming_files_only
from larvatus.interfaces.studio.routes import StudioModels
from larvatus.interfaces.studio.settings import Folders

REPORT = "report.json"
NAME = re.compile(r"[a-z0-9-]{1,80}")
"""Names that `Learner.free_name` gives."""
MOST_SAVED = 100
"""Saved reports that are listed."""
LONGEST_REPORT = 2**20
CHILD = (sys.executable, "-m", "larvatus.interfaces.studio.probe_process")
Kinds = Literal["both", "linear", "mlp"]
Limit = Annotated[int, whole(10, 2_000)]


class NoSuchReport(RequestError, status=404):
    """No saved probe has this name."""


class ProbeChoices(LearnFile):
    """A labelled file, and what is probed of it; None for the defaults of `larvatus probe`."""

    model: str | None = None
    """Name of a served model; None for the first."""
    tag: Annotated[str, Meta(max_length=100)] | None = None
    """Column of the tags, or a feature such as Tense."""
    probe: Kinds = "linear"
    limit: Limit = 300
    """Most texts, sampled at random."""


class StoredProbe(LearnFile):
    """Output of `larvatus probe --json`."""


class ProbeJob(LearnJob):
    """The job of the probing process."""

    tag: str | None = None
    probe: Kinds = "linear"
    limit: Limit = 300

    def settings(self) -> ProbingSettings:
        task: ProbeTask = self.task  # type: ignore[assignment]  # checked by `check_task`
        return ProbingSettings(task=task, probe=self.probe, limit=self.limit, description_length=False)

    def read(self) -> ProbeData:
        """The examples, without the folder of their file in its name."""
        with naming_files_only(Path(self.train).parent):
            data = read_for_probe(self.train, None, self.settings(), WordFiles(tag=self.tag))
        return dataclasses.replace(data, source=PurePosixPath(self.train).name)


def make_prober(folders: Folders, device: str) -> Learner:
    """What runs probes in the background: one at a time, as trainings."""
    return Learner(folders.probes, lambda directory: directory.name, device=device, command=CHILD)


def probe_routes(prober: Learner, models: StudioModels) -> dict[tuple[str, str], Answer]:
    """Routes by method and path."""
    folder = prober.folders.models

    async def state(request: Request) -> Response:
        limits = {"bytes": MOST_BYTES, "endings": list(ENDINGS)}
        return json_reply({**prober.state(), "saved": saved_reports(folder), "limits": limits})

    async def start(request: Request) -> Response:
        given = await read_body(request, ProbeChoices)
        return await run_in_thread(lambda: begin_probe(prober, models.directory(given.model), given), status=202)

    async def stop(request: Request) -> Response:
        return await run_in_thread(prober.stop)

    async def report(request: Request) -> Response:
        name = request.query_params.get("name", "")
        return await run_in_thread(lambda: shown_report(saved_report(folder, name)))

    async def show(request: Request) -> Response:
        given = await read_body(request, StoredProbe)
        given.check_size()
        return await run_in_thread(lambda: shown_report(ProbeReport.from_json(given.text)))

    root = "/studio/api/probe"
    return {
        ("GET", root): state,
        ("GET", f"{root}/report"): report,
        ("POST", f"{root}/start"): start,
        ("POST", f"{root}/stop"): stop,
        ("POST", f"{root}/show"): show,
    }


def begin_probe(prober: Learner, directory: Path, given: ProbeChoices) -> dict[str, Any]:
    """Store the file, read it as the probe will, and start. Of two requests at once, the second is refused."""
    with prober.beginning:
        prober.refuse_while_busy()
        given.check_size()
        file = given.checked_name()
        name = prober.free_name(PurePosixPath(file).stem)
        path = prober.keep_file(name, file, given.text)
        try:
            with naming_files_only(path.parent):
                task = check_task(given.task, [str(path)])
            job = ProbeJob(
                task=task,
                model=str(directory),
                train=str(path),
                out=str(path.parent),
                device=prober.device,
                tag=given.tag or None,
                probe=given.probe,
                limit=given.limit,
            )
            job.read()
        except Exception:
            shutil.rmtree(path.parent)
            raise
        return prober.start(job, name=name)


def saved_reports(folder: Path) -> list[str]:
    """Names of saved reports, newest first."""
    there = [path for path in folder.glob(f"*/{REPORT}") if is_there(path) and not path.parent.is_symlink()]
    newest = sorted(there, key=lambda path: path.stat().st_mtime, reverse=True)
    return [path.parent.name for path in newest[:MOST_SAVED]]


def saved_report(folder: Path, name: str) -> ProbeReport:
    path = folder / name / REPORT
    if not NAME.fullmatch(name) or not is_there(path):  # another name could lead to a folder elsewhere
        raise NoSuchReport(f"there is no saved probe {name!r:.80}; it may have been removed")
    return ProbeReport.from_json(read_text(path, most=LONGEST_REPORT))


def shown_report(report: ProbeReport) -> dict[str, Any]:
    """The numbers, and the picture of notebooks."""
    picture = element("div", {}, element("style", {}, STYLE), report.picture())
    return {"report": report.to_dict(), "picture": as_json(picture)}
