"""The same server in several replicas on a Ray cluster (extra `larvatus[scale]`); Ray Serve distributes requests.

    serve run larvatus.interfaces.serve.on_ray:application models=/shared/runs/law,/shared/runs/tagger replicas=4
    run_on_ray(["/shared/runs/law"], ServeSettings(port=8311), replicas=4, address="10.0.0.4:6379")

Every replica loads the models from the same paths and runs the whole application of `app.py`, with its own queue and
limits: a replica whose queue is full answers 429 itself. Results do not depend on the replica.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from larvatus.core.errors import UsageError, did_you_mean
from larvatus.core.signals import Stopped, terminable
from larvatus.data.bulk.executor import AUTO, check_address, connected
from larvatus.inference.model.loading import LoadOptions
from larvatus.interfaces.serve.listening import check_installed
from larvatus.interfaces.serve.settings import ServeSettings

NAME = "larvatus"
SLACK = 32
"""Requests of a replica beyond its queue: those it refuses, health and metrics."""
SHUTDOWN_S = 30.0
"""Seconds for a replica to answer its requests when it shuts down."""
LOOK_S = 3_600.0


def deployed(
    models: Sequence[str],
    settings: ServeSettings | None = None,
    *,
    replicas: int = 2,
    running: LoadOptions | None = None,
    cpus: float = 1.0,
    gpus: float = 0.0,
) -> Any:
    """An application of Ray Serve, for `ray.serve.run` or a config file.

    `models` are directories that every node has under the same path, or hub names in each node's cache; `running` sets
    how they are loaded, `cpus` and `gpus` the resources of a replica.
    """
    serve = _ray_serve()
    if not models:
        raise UsageError("there is no model to serve; name a directory")
    if replicas < 1:
        raise UsageError(f"replicas={replicas} would serve nothing; give 1 or more")
    chosen, how = settings or ServeSettings(), running or LoadOptions()
    chosen = msgspec.structs.replace(chosen, index=tuple(str(Path(path).resolve()) for path in chosen.index))
    paths = tuple(str(Path(name).resolve()) if Path(name).is_dir() else name for name in models)
    options = {
        "name": NAME,
        "num_replicas": replicas,
        "max_ongoing_requests": chosen.queue + SLACK,  # Ray's limit applies after ours, which answers 429
        "graceful_shutdown_timeout_s": SHUTDOWN_S,
        "ray_actor_options": {"num_cpus": cpus, "num_gpus": gpus},
    }
    return serve.deployment(**options)(serve.ingress(_builder(paths, chosen, how))()).bind()


def _builder(models: tuple[str, ...], settings: ServeSettings, running: LoadOptions) -> Callable[[], Any]:
    def build() -> Any:
        from larvatus.interfaces.serve.app import build_app

        return build_app([running.load(name) for name in models], settings)

    return build


def run_on_ray(
    models: Sequence[str],
    settings: ServeSettings | None = None,
    *,
    replicas: int = 2,
    address: str = AUTO,
    **options: Any,
) -> None:
    """Serve on a cluster until Ctrl-C or SIGTERM, on the host and port of the settings on every node with a replica.

    `options` are those of `deployed`.
    """
    check_address(address)
    chosen, serve = settings or ServeSettings(), _ray_serve()
    target = deployed(models, chosen, replicas=replicas, **options)
    with connected(address), terminable():
        try:
            serve.start(http_options={"host": chosen.host, "port": chosen.port})
            serve.run(target, name=NAME)
            while True:
                time.sleep(LOOK_S)
        except Stopped:
            pass
        finally:
            serve.shutdown()


def application(arguments: Mapping[str, str]) -> Any:
    """Entry point of `serve run larvatus.interfaces.serve.on_ray:application models=DIR,DIR replicas=2 max_items=64`.

    All arguments other than `models`, `replicas`, `cpus` and `gpus` are settings of `larvatus serve`. Host and port are
    those of Ray Serve (`serve start --http-host HOST --http-port PORT`).
    """
    given = dict(arguments)
    models = [name for name in given.pop("models", "").split(",") if name]
    own_names = {"replicas": int, "cpus": float, "gpus": float}
    more = {name: _number(name, given.pop(name), kind) for name, kind in own_names.items() if name in given}
    fields = [name for name in ServeSettings.__struct_fields__ if name not in ("host", "port", "json_lines")]
    for name in given:
        if name not in fields:
            raise UsageError(
                f"{name} is not a setting of a server{did_you_mean(name, [*fields, 'models', *own_names])}"
            )
    lists = {name: [each for each in given.pop(name, "").split(",") if each] for name in ("host_allowed", "index")}
    try:
        settings = msgspec.convert({**given, **lists}, ServeSettings, strict=False)
    except msgspec.ValidationError as fault:
        raise UsageError(f"settings of the server: {fault}") from fault
    return deployed(models, settings, **more)


def _number(name: str, text: str, kind: Callable[[str], Any]) -> Any:
    try:
        return kind(text)
    except ValueError as fault:
        raise UsageError(f"{name}={text} is not a number; give one such as {name}=2") from fault


def _ray_serve() -> Any:
    """The module `ray.serve`, with usage statistics turned off."""
    check_installed()
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        from ray import serve  # an extra, and seconds of imports
    except ImportError as fault:
        raise UsageError('a deployment needs Ray Serve; pip install "larvatus[scale,studio]"') from fault
    return serve
