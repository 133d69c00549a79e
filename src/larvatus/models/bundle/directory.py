"""A model directory, saved and loaded as a whole: weights, tokenizer, settings, card and manifest.

    config.json  model.safetensors  tokenizer.json …    as Hugging Face stores them: `transformers` loads it too
    larvatus.json                                       our manifest: recipe, lineage, checksums
    README.md                                           the model card
    generator/                                          the same files of the generator that a model may have
    crf.safetensors                                     the CRF that a tagger may have
    modules.json, 1_Pooling/ …                          the modules of a sentence encoder (`sentence_modules.py`)
    sentence/                                           the adapter that embeds whole texts (`sentence_adapter.py`)

    save_bundle(run, network=…, tokenizer=…, …)     all files change together, or none does
    bundle = load_bundle(Path("runs/law"))              checked against the manifest, if there is one

A run directory may hold more (metrics.jsonl, checkpoints/); that is left untouched.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import msgspec
import torch
from torch import Tensor

from larvatus.core import files
from larvatus.core.errors import ArtefactError
from larvatus.core.outputs import check_directory
from larvatus.core.regular_files import is_there
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.data.text.tokenizer_files import WRITTEN
from larvatus.models.bundle import manifest as manifests
from larvatus.models.bundle import sentence_modules, token_modules
from larvatus.models.bundle import weight_files as int8_file
from larvatus.models.bundle.atomic_save import check_pending, finish_interrupted_save, replace_files
from larvatus.models.bundle.claims import CardText
from larvatus.models.bundle.huggingface import (
    Architecture,
    ModelLayout,
    from_huggingface,
    huggingface_shapes,
    layout_for,
    layout_of,
    stated_architecture,
    to_huggingface,
)
from larvatus.models.bundle.model_names import find_model
from larvatus.models.bundle.sentence_adapter import SentenceAdapter, read_adapter
from larvatus.models.bundle.sentence_modules import WRITTEN as MODULE_FILES
from larvatus.models.bundle.sentence_modules import read_pooling
from larvatus.models.bundle.static_directory import read_static, static_folder
from larvatus.models.bundle.weight_files import WeightFiles, check_sizes
from larvatus.models.bundle.weights import (
    CRF_FILE,
    find_weights,
    read_crf,
    refuse_pickle,
    stored_bytes,
    write_crf,
    write_tensors,
)
from larvatus.models.heads import HEAD_TYPES
from larvatus.models.network import Network, ObjectiveConfig, tag
from larvatus.models.nn.encoder import EncoderConfig
from larvatus.models.nn.initialise import empty_weights
from larvatus.models.nn.static import StaticConfig
from larvatus.models.objectives import MaskedLMConfig, ReplacedTokensConfig

WEIGHTS, CONFIG, CARD, TOKENIZER = "model.safetensors", "config.json", manifests.CARD, "tokenizer.json"
MAX_TRIES = 5
"""Attempts to read a directory in which another model is being saved."""
GENERATOR = "generator"
GENERATOR_CARD = """# generator

The masked language model that replaced tokens while the model in the folder above learned to detect them. It has the
same embeddings, and fills blanks; the README.md above is the card of both.
"""
TOKENIZER_FILES = ("tokenizer_config.json", "special_tokens_map.json", "unigram_counts.json")  # read if present
MODEL_FILES = (CARD, CONFIG, WEIGHTS, int8_file.NAME, *WRITTEN, manifests.NAME, CRF_FILE, GENERATOR, *MODULE_FILES)
"""Files that saving a model writes; if one of these exists, a command requires `--overwrite`."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Bundle:
    """The contents of a model directory, ready to use (in evaluation mode, on the CPU)."""

    path: Path
    network: Network
    model: EncoderConfig
    objectives: tuple[ObjectiveConfig, ...]
    tokenizer: Tokenizer
    recipe: dict[str, Any] | None
    lineage: dict[str, Any]
    claims: Sequence[Mapping[str, Any]] = ()
    """The figures of its card, as stored in `larvatus.json` (`claims.py` reads them)."""
    unused_tensors: Mapping[str, Tensor] = field(default_factory=dict)
    """Tensors of the file that the model has no place for (the pooler of a model without a next-sentence head)."""
    family: str = ""
    """The layout that it was read in (a `model_type`); empty for a model that was built here."""
    head_defaults: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Default settings of fine-tuned heads in that family, by head (`TaskHeads.default_settings`)."""
    pooling: str = ""
    """How a sentence encoder pools a text into one vector (`sentence_modules.py`); empty for other models."""
    adapter: SentenceAdapter | None = None
    """What makes a sentence encoder of the encoder, if the directory has it."""
    word_layers: str = manifests.LAST
    """Layers of word vectors where none are requested."""

    @property
    def unused(self) -> tuple[str, ...]:
        """Names of the unused tensors."""
        return tuple(sorted(self.unused_tensors))

    @property
    def architecture(self) -> Architecture:
        return Architecture(
            model=self.model,
            objectives=self.objectives,
            vocabulary=len(self.network.encoder.word_vectors),
        )


def save_bundle(
    directory: Path,
    *,
    network: Network,
    objective_configs: Sequence[ObjectiveConfig],
    tokenizer: Tokenizer,
    recipe: dict[str, Any] | None,
    lineage: dict[str, Any],
    card: str | CardText,
    family: str = "",
) -> None:
    """Write the model; the previous one stays until everything is on disk. `family` is the layout to write it in, if
    that can express it (the one its parent was read in)."""
    architecture = architecture_of(network, objective_configs)
    card = card if isinstance(card, CardText) else CardText(card)
    bundle = Bundle(
        path=directory,
        network=network,
        model=architecture.model,
        objectives=architecture.objectives,
        tokenizer=tokenizer,
        recipe=recipe,
        lineage=lineage,
        claims=card.claims,
    )
    layout = layout_for(architecture, pad=tokenizer.padding_id, vocabulary=tokenizer.kind, family=family)
    write_bundle(directory, bundle, layout=layout, card=card.text)


def save_changed(bundle: Bundle, directory: Path, *, lineage: dict[str, Any], card: str | CardText) -> None:
    """Write a bundle that was made from another, in the layout of its family, with a lineage and card of its own."""
    save_bundle(
        directory,
        network=bundle.network.cpu(),
        objective_configs=bundle.objectives,
        tokenizer=bundle.tokenizer,
        recipe=bundle.recipe,
        lineage=lineage,
        card=card,
        family=bundle.family,
    )


def write_bundle(
    directory: Path, bundle: Bundle, *, layout: ModelLayout, dtype: torch.dtype = torch.float32, card: str
) -> None:
    """Write a model in a layout that can express it, in any precision, or in int8 (`weight_files.py`).

    Heads that `objectives` lacks are left out. The generator that a model was trained with is stored in a subfolder, in
    the layout that fits it best.
    """
    tokenizer = bundle.tokenizer
    models = {"": _Written(bundle.network, bundle.architecture, layout, card)}
    if (generator := bundle.network.generator) is not None:
        heads = [cast(ObjectiveConfig, head.config) for head in generator.heads.values()]
        of_generator = architecture_of(generator, heads)
        fitting = layout_for(of_generator, pad=tokenizer.padding_id, vocabulary=tokenizer.kind)
        written = _Written(generator, of_generator, fitting, GENERATOR_CARD)
        models = {GENERATOR: written, **models}  # the outer manifest is last
    tensors = {folder: model.tensors(dtype) for folder, model in models.items()}
    parts = [folder for folder in models if folder]
    size = sum(map(stored_bytes, tensors.values())) + len(models) * (
        200 * tokenizer.size + len(card)
    )  # a vocabulary takes some 100 bytes a token
    with files.locked(directory, nested=True), _replaced(directory, size) as aside:
        for folder, model in models.items():
            place = aside / folder
            place.mkdir(exist_ok=True)
            write_tensors(place / weights_name(dtype), tensors[folder])
            write_crf(place, model.beside())
            inner = sentence_modules.write_modules(place, model.network, model.architecture, tokenizer.template)
            inner += token_modules.write_token_modules(place, model.network, model.architecture)
            tokenizer.save(place)
            files.write_json(place / CONFIG, model.config(dtype, pad=tokenizer.padding_id))
            files.write_text(place / CARD, model.card)
            names = {path.name for path in place.iterdir() if not path.is_dir()}
            extras: dict[str, Any] = {"parts": [*parts, *inner], "claims": bundle.claims}
            extras = {} if folder else {**extras, "word_layers": bundle.word_layers}
            manifests.write_manifest(place, names, recipe=bundle.recipe, lineage=bundle.lineage, **extras)


@dataclass(frozen=True, eq=False)
class _Written:
    """A model as it will be written."""

    network: Network
    architecture: Architecture
    layout: ModelLayout
    card: str

    def config(self, dtype: torch.dtype, *, pad: int | None) -> dict[str, Any]:
        config = self.layout.config(stated_architecture(self.architecture), pad=pad)
        config |= self.layout.module_fields(self.architecture.objectives)
        dtype = dtype if dtype.is_floating_point else torch.float32  # int8 weights are read as float32
        return {**config, "dtype": str(dtype).removeprefix("torch.")} if "dtype" in config else config

    def tensors(self, dtype: torch.dtype) -> dict[str, Tensor]:
        in_other_files = (*self.layout.tasks.separate, *sentence_modules.PREFIXES)
        ours = {name: tensor for name, tensor in self._kept().items() if not name.startswith(in_other_files)}
        theirs = to_huggingface(self.layout, ours)
        if not dtype.is_floating_point:
            return int8_file.quantise_tensors(theirs)
        return {name: _cast(name, tensor, dtype) for name, tensor in theirs.items()}

    def beside(self) -> dict[str, Tensor]:
        """Parameters that the layout has no place for, under our names."""
        beside = self.layout.tasks.separate
        return {name: tensor for name, tensor in self._kept().items() if name.startswith(beside)}

    def _kept(self) -> dict[str, Tensor]:
        kept = {tag(config) for config in self.architecture.objectives}
        dropped = tuple(f"objectives.{name}." for name in self.network.objectives if name not in kept)
        return {name: t for name, t in self.network.own_state().items() if not name.startswith(dropped)}


def architecture_of(network: Network, objective_configs: Sequence[ObjectiveConfig]) -> Architecture:
    """The architecture of a model without the generator it was trained with."""
    configs = [config for config in objective_configs if tag(config) in network.objectives]
    return Architecture(
        model=cast(EncoderConfig, network.encoder.config),
        objectives=tuple(
            msgspec.structs.replace(config, generator=0.0) if isinstance(config, ReplacedTokensConfig) else config
            for config in configs
        ),
        vocabulary=len(network.encoder.word_vectors),
    )


def weights_name(dtype: torch.dtype) -> str:
    """The file that holds weights of this type."""
    return WEIGHTS if dtype.is_floating_point else int8_file.NAME


def _cast(name: str, tensor: Tensor, dtype: torch.dtype) -> Tensor:
    cast = tensor.to(dtype)
    if cast.isinf().any() and not tensor.isinf().any():
        raise ArtefactError(f"{name} holds numbers too large for {str(dtype).removeprefix('torch.')}; use bfloat16")
    return cast


def _replaced(directory: Path, size: int) -> AbstractContextManager[Path]:
    """Where the new files are written; a model that Larvatus did not write is not overwritten."""
    finish_interrupted_save(directory)
    files.sweep(directory)
    _refuse_foreign(directory)
    return replace_files(directory, size)


def check_model_directory(directory: Path, *, overwrite: bool, inputs: Iterable[str | Path] = ()) -> None:
    """Refuse a directory in which a model cannot be saved, or only by replacing existing files, before any work is
    done.

    With `overwrite`, files of a model may be replaced, but not a model that is being read or that Larvatus did not
    write.
    """
    inputs = list(inputs)
    check_directory(directory, (), inputs=inputs)
    _refuse_foreign(directory)
    check_directory(directory, MODEL_FILES, overwrite=overwrite, inputs=inputs)


def _refuse_foreign(directory: Path) -> None:
    if is_there(directory / CONFIG) and manifests.read_manifest(directory) is None:
        raise ArtefactError(f"{directory} holds a model that Larvatus did not write; choose another --out")


def load_bundle(
    name: Path | str, *, allow_nan: bool = False, revision: str | None = None, online: bool = False
) -> Bundle:
    """Read a model directory, ours or Hugging Face's, or a hub model (`model_names.py`). Nothing is unpickled or
    imported, and nothing is downloaded unless `online` is set."""
    directory = _existing(find_model(name, revision=revision, online=online))
    for _ in range(MAX_TRIES):
        state = _state(directory)
        try:
            bundle = _load(directory, allow_nan=allow_nan)
        except ArtefactError:
            if _state(directory) == state:
                raise
        else:
            if _state(directory) == state:
                return bundle
    raise ArtefactError(
        f"{directory} keeps changing while it is read; wait until the process that writes there has finished"
    )


def _state(directory: Path) -> tuple[Path, int, int]:
    """Changes whenever another model is saved there."""
    root = files.standing(directory)
    try:
        stat = os.lstat(root / manifests.NAME)
    except OSError:
        return root, 0, 0
    return root, stat.st_ino, stat.st_mtime_ns


def _load(path: Path, *, allow_nan: bool) -> Bundle:
    directory = files.standing(path)
    manifest = check_pending(directory) if directory != path else manifests.read_manifest(directory)
    if (folder := static_folder(directory)) is not None:
        return Bundle(path=path, recipe=None, **read_static(directory, folder, manifest, allow_nan=allow_nan))
    source = directory / CONFIG
    config = files.read_json(source)
    layout = layout_of(config, source)
    config = sentence_modules.marked_config(directory, config)
    paths = find_weights(directory)
    if manifest is not None:
        beside = [name for name in (*TOKENIZER_FILES, CRF_FILE) if is_there(directory / name)]
        manifests.verify(directory, manifest, required=[CONFIG, TOKENIZER, *(path.name for path in paths), *beside])

    file = WeightFiles.open(paths, layout)
    architecture = layout.architecture(config, source=source, names=frozenset(file.entries))
    tokenizer = Tokenizer.load(directory)
    tokenizer = tokenizer.without_template() if isinstance(architecture.model, StaticConfig) else tokenizer
    check_sizes(architecture, tokenizer, source, tensors=len(file.entries))
    architecture = sentence_modules.with_sentence_head(architecture, directory, tokenizer.template)
    architecture = token_modules.with_token_head(architecture, directory)
    network = _shell(architecture)
    parameters = {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}
    outside = {name: parameters.pop(name) for name in [*parameters] if name.startswith(layout.tasks.separate)}
    dense = {name: parameters.pop(name) for name in [*parameters] if name.startswith(sentence_modules.PREFIXES)}
    unused = file.check(layout, huggingface_shapes(layout, parameters))
    beyond = read_crf(directory, outside, allow_nan=allow_nan)
    beyond |= sentence_modules.read_projections(directory, dense, verified=manifest is not None, allow_nan=allow_nan)
    tensors = file.read(layout, allow_nan=allow_nan)
    network.load_state_dict(from_huggingface(layout, tensors, parameters) | beyond, assign=True)
    if manifest is not None and GENERATOR in manifest.parts:
        _attach_generator(network, directory, allow_nan=allow_nan)
    adapted = manifest is not None and manifests.ADAPTER in manifest.parts
    adapter = read_adapter(directory / manifests.ADAPTER, network.encoder, allow_nan=allow_nan) if adapted else None
    return Bundle(
        path=path,
        network=network.requires_grad_().eval(),
        model=architecture.model,
        objectives=architecture.objectives,
        tokenizer=tokenizer,
        recipe=manifest.recipe if manifest else None,
        lineage=manifest.lineage if manifest else {},
        claims=manifest.claims if manifest else (),
        unused_tensors={name: tensors[name].to(torch.float32, copy=True) for name in unused},
        family=layout.model_type,
        head_defaults={name: layout.tasks.default_settings(name, config) for name in HEAD_TYPES},
        pooling=read_pooling(directory),
        adapter=adapter,
        word_layers=manifest.word_layers if manifest else manifests.LAST,
    )


def _attach_generator(network: Network, directory: Path, *, allow_nan: bool) -> None:
    """Load the generator next to the model; the two share one copy of their embeddings."""
    generator = load_bundle(directory / GENERATOR, allow_nan=allow_nan).network
    tables = [part.encoder.word_vectors for part in (network, generator)]
    if tables[0].shape != tables[1].shape or not torch.equal(*tables):
        raise ArtefactError(f"{directory / GENERATOR} has other embeddings than its model; train again")
    network.attach(generator)


def _existing(directory: Path) -> Path:
    if directory.is_file():
        refuse_pickle(directory)
        raise ArtefactError(f"{directory} is a file; name the model directory that holds it")
    return directory


def _shell(architecture: Architecture) -> Network:
    """The model with shapes but without memory: a config with wrong sizes costs nothing."""
    heads = architecture.objectives or (MaskedLMConfig(),)  # training needs a head, a loaded encoder may have none
    with empty_weights():
        shell = Network(architecture.model, heads, architecture.vocabulary)
    if not architecture.objectives:
        shell.objectives.clear()
    return shell
