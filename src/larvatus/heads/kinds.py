"""All kinds of heads, by where they stand: the only list of them.

    KINDS["tagging"]                 # TaggingConfig

A head stands in this folder, or in the folder of its task (``larvatus.tasks.choose.head:ChoosingConfig``): it is named
rather than imported, since tasks stand above. What it imports must stand below `network`: `heads`, `nn`, `targets`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Union

from larvatus.heads.head import HeadConfig

WHERE = (
    "larvatus.heads.classification:ClassificationConfig",
    "larvatus.heads.verbaliser:VerbaliserConfig",
    "larvatus.heads.tagging:TaggingConfig",
    "larvatus.heads.answering:AnsweringConfig",
    "larvatus.heads.spans:SpansConfig",
    "larvatus.heads.writing:WritingConfig",
    "larvatus.tasks.choose.head:ChoosingConfig",
)


def _kind(where: str) -> type[HeadConfig]:
    module, _, name = where.partition(":")
    kind: type[HeadConfig] = getattr(import_module(module), name)
    return kind


KINDS: dict[str, type[HeadConfig]] = {str(kind.__struct_config__.tag): kind for kind in map(_kind, WHERE)}
"""By their tags."""
if TYPE_CHECKING:
    AnyHeadConfig = HeadConfig
else:
    AnyHeadConfig = Union[tuple(KINDS.values())]  # noqa: UP007  # what files are read as, by the tag
