"""A Ray cluster of two nodes on this machine, started once; nothing of it is left behind, and it calls nobody."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from larvatus.core.rng import stream
from larvatus.models.heads import ClassificationConfig
from tests.tiny import WORDS

QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0", "OMP_NUM_THREADS": "1"}
PLAIN = [word for word in WORDS.split() if not word.startswith("##")]


@pytest.fixture(scope="package")
def cluster() -> Iterator[str]:
    """The address of two nodes with a CPU each."""
    os.environ.update(QUIET)
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nodes = Cluster(initialize_head=True, head_node_args=_node(include_dashboard=False))
        nodes.add_node(**_node())
    try:
        yield nodes.address
    finally:
        nodes.shutdown()


def _node(**more: Any) -> dict[str, Any]:
    return {"num_cpus": 1, "object_store_memory": 80 << 20, **more}


@pytest.fixture(autouse=True)
def _warnings_of_ray() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def prose(path: Path, documents: int, *, seed: int = 0, words: int = 60) -> Path:
    """Documents of the tiny vocabulary's words."""
    random = stream(seed, "prose")
    texts = [" ".join(random.choice(PLAIN, size=words)) + "." for _ in range(documents)]
    path.write_text("\n\n".join(texts) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="package")
def classifier(tiny_model: Any, save_tiny: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of a tiny model that classifies."""
    config = ClassificationConfig(labels=("no", "yes"))
    return save_tiny(tmp_path_factory.mktemp("classifier") / "model", tiny_model(3, (config,)), (config,))  # type: ignore[no-any-return]
