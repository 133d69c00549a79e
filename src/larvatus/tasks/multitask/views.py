"""A model with several heads as a model of one of its tasks: the same encoder and weights, one head.

    tagger = task_view(bundle, TASKS["tag"])
    TASKS["tag"].evaluate(tagger, data, options)

All code of tasks takes a model with one head; so none of it knows of the others.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from larvatus.core.errors import ArtefactError
from larvatus.models.bundle.directory import Bundle
from larvatus.models.heads.head import HeadConfig
from larvatus.models.network import Network, tag

if TYPE_CHECKING:
    from larvatus.tasks.task import Task


def task_view(bundle: Bundle, task: Task[Any, Any, Any]) -> Bundle:
    """The model with only the head of a task."""
    config = task.head_in(bundle)
    if config is None:
        raise ArtefactError(f"{bundle.path} has no head for {task.name}")
    return bundle_view(bundle, config)


def bundle_view(bundle: Bundle, config: HeadConfig) -> Bundle:
    """The model with only this head, and the pretraining objectives whose layers it uses."""
    objectives = (config, *config.objectives)
    return dataclasses.replace(bundle, network=network_view(bundle.network, config), objectives=objectives)


def network_view(network: Network, config: HeadConfig) -> Network:
    """The network with only this head."""
    return network.view(heads=[tag(objective) for objective in (config, *config.objectives)])
