"""A family's config.json as one table that is read and written from the same lines.

FIELDS = {"hidden_size": "hidden", "hidden_act": choice("activation", ACTIVATIONS), …}
table = ConfigTable(TransformerConfig, FIELDS, fixed={"segments": 0}, constants={"tie_word_embeddings": True})
table.settings                        # a struct of the fields of config.json, with their types and defaults
table.read(settings, source)          # settings(hidden_size=768, …) → TransformerConfig(hidden=768, …)
table.write(model)                    # TransformerConfig(hidden=768, …) → {"hidden_size": 768, …}
table.misfits(model)                  # settings of the model that the table has no field for
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_type_hints

import msgspec

from larvatus.core.errors import ArtefactError, RecipeError, UsageError
from larvatus.core.ranges import Size, check_ranges


def convert(value: Mapping[str, Any], to: Any, source: Path) -> Any:
    """Convert JSON to a settings struct, or to a member of a union; errors name the file and the field."""
    try:
        converted = msgspec.convert(value, to)
        check_ranges(converted, "")
        return converted
    except (msgspec.ValidationError, RecipeError, UsageError) as fault:
        raise ArtefactError(f"{source}: {fault}") from fault


@dataclass(frozen=True)
class ConfigField:
    """The setting that a field of config.json states, where the two values are not simply equal."""

    setting: str
    read: Callable[[Any], Any]
    """Value of the field → value of the setting."""
    write: Callable[[Any], Any]
    """The model's settings → value of the field."""
    resolved: str = ""
    """Property that resolves the setting's 0: ``inner`` for ``feedforward``. Read values that equal it become 0."""
    least: int | None = None
    """Smallest value of the field."""
    kind: Any = None
    """Type of the field; None for that of the setting."""


def choice(setting: str, values: Mapping[str, str]) -> ConfigField:
    """A named choice; of several names for one value, the first is written."""

    def write(model: Any) -> str:
        return next(theirs for theirs, ours in values.items() if ours == getattr(model, setting))

    return ConfigField(setting, values.__getitem__, write, kind=Literal[tuple(values)])


def size(setting: str, resolved: str, *, as_default: bool = True) -> ConfigField:
    """A size whose 0 means a default, which config.json writes out; `as_default`: the default is read as 0 again."""
    write = operator.attrgetter(resolved)
    return ConfigField(setting, lambda value: value, write, resolved if as_default else "", kind=Size)


def shifted(setting: str, by: int) -> ConfigField:
    """A number that config.json counts `by` higher."""
    return ConfigField(setting, lambda value: value - by, lambda model: getattr(model, setting) + by, least=by + 1)


def or_none(setting: str, kind: Any, resolved: str = "") -> ConfigField:
    """A number whose 0 is null in config.json."""
    read, write = (lambda value: value or 0), (lambda model: getattr(model, setting) or None)
    return ConfigField(setting, read, write, resolved, kind=kind | None)


def same(setting: str) -> ConfigField:
    return ConfigField(setting, lambda value: value, lambda model: getattr(model, setting))


@dataclass(frozen=True)
class ConfigTable:
    """Fields of config.json and the settings of our encoder that they state."""

    model: type[Any]
    fields: Mapping[str, str | ConfigField]
    """By the name of the field: the setting of ours with the same value, or how the value is translated."""
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """Settings of ours that this family always has."""
    constants: Mapping[str, Any] = field(default_factory=dict)
    """Fields of theirs that are written with the same value for every model, and may have no other when read."""
    unchecked: Collection[str] = ()
    """Constants that may have any value when read."""
    expected: Mapping[str, Any] = field(default_factory=dict)
    """Fields that are not written, and may have no other value when read: another computation otherwise."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Their defaults, where they differ from ours."""
    more: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    """Other fields that are read: type and default."""

    @cached_property
    def settings(self) -> type[Any]:
        """The fields of config.json that change the computation, with their defaults; other fields are ignored."""
        hints, ours = get_type_hints(self.model, include_extras=True), self.model(**self.fixed)
        checked = {name: value for name, value in self.constants.items() if name not in self.unchecked}
        fields: dict[str, tuple[Any, Any]] = {
            "vocab_size": (Size, msgspec.NODEFAULT),
            "architectures": (tuple[str, ...] | None, ()),
            **{name: (entry.kind or hints[entry.setting], entry.write(ours)) for name, entry in self.entries.items()},
            **{name: (Literal[value], value) for name, value in (checked | dict(self.expected)).items()},
            **self.more,
        }
        declared = [
            (name, kind, msgspec.field(default=self.defaults.get(name, default)))
            for name, (kind, default) in fields.items()
        ]
        return msgspec.defstruct(f"{self.model.__name__}Fields", declared, frozen=True, kw_only=True)

    @property
    def entries(self) -> dict[str, ConfigField]:
        return {name: same(entry) if isinstance(entry, str) else entry for name, entry in self.fields.items()}

    def read(self, theirs: msgspec.Struct, source: Path, more: Mapping[str, Any] | None = None) -> Any:
        """The encoder's settings, from the fields of config.json; `more` are settings derived from several fields."""
        for name, entry in self.entries.items():
            if entry.least is not None and (value := getattr(theirs, name)) < entry.least:
                raise ArtefactError(f"{source}: {name} = {value} must be at least {entry.least}")
        settings = {entry.setting: entry.read(getattr(theirs, name)) for name, entry in self.entries.items()}
        given = {"type": self.model.__struct_config__.tag, **settings, **self.fixed, **(more or {})}
        read = convert(given, self.model, source)
        for entry in self.entries.values():
            if entry.resolved:
                default = msgspec.structs.replace(read, **{entry.setting: 0})
                read = default if getattr(default, entry.resolved) == getattr(read, entry.resolved) else read
        return read

    def write(self, model: Any) -> dict[str, Any]:
        """The fields of config.json, from the encoder's settings."""
        return {**{name: entry.write(model) for name, entry in self.entries.items()}, **self.constants}

    def misfits(self, model: msgspec.Struct) -> str:
        """Settings that config.json cannot state: those without a field must be `fixed`, or else the default."""
        if not isinstance(model, self.model):
            return f'model.type = "{model.__struct_config__.tag}"'
        default, stated = self.model(), {entry.setting for entry in self.entries.values()}
        required = {name: getattr(default, name) for name in model.__struct_fields__ if name not in stated}
        required |= self.fixed
        wrong = {name: getattr(model, name) for name, value in required.items() if getattr(model, name) != value}
        return ", ".join(f"model.{name} = {value!r}" for name, value in wrong.items())
