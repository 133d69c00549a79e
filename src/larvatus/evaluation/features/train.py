"""Train sparse features of one layer on a corpus, and the same on an encoder with random weights.

    trained = train_features(model, ["texts/"], layer=6, settings=FeatureSettings())
    trained.dictionaries["trained"].explained, trained.dictionaries["random"].explained

Features of a random encoder look interpretable too: much of what they show is the word itself and its place (Heap et
al. 2025, arXiv 2501.17727). So both encoders read the same passages, and both autoencoders get the same settings and
seeds. Every tenth passage is held out; all that is reported is measured on these:

    explained variance     1 − Σ |x − x̂|² / Σ |x − mean|², with a 95% interval over passages
    dead features          those that fire on no held-out token
    one word form          share of features whose strongest contexts, one a passage, all mark the same word form
    consistency            mean cosine between the marked words of a feature's contexts, by their vectors in the last
                           layer of the trained model (each dimension standardised); about 0 for contexts at random

Memory holds one buffer of states for each encoder, and the held-out passages with two vectors for each of their tokens.

N tokens, D size of a state, F features, K active ones, C contexts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from larvatus.core.arrays import Doubles, Floats, Ints
from larvatus.core.errors import DataError, UsageError
from larvatus.core.ranges import whole
from larvatus.core.rng import derive, stream
from larvatus.data.text.readers import Skipped
from larvatus.data.text.words import segment_words
from larvatus.evaluation.features.autoencoder import AutoencoderTrainer, FeatureSettings, SparseAutoencoder
from larvatus.evaluation.features.results import Context, Feature, FeatureDictionary, FeatureOrigin, SparseFeatures
from larvatus.inference.vectors.passages import LocatedText, PassageOptions, blocks, passages
from larvatus.inference.vectors.pooling import EmbedOptions
from larvatus.inference.vectors.vectors import Vectors, embed_texts
from larvatus.metrics.intervals import bootstrap
from larvatus.models.loaded import LoadedModel
from larvatus.models.nn.encoder import Encoder
from larvatus.models.nn.initialise import initialise

EVERY = 10
"""One of so many passages is held out."""
CHARACTERS = 1 << 14
"""Size of a block of passages that is embedded at once."""
AROUND = 60
"""Characters of a context on either side of its word."""


def train_features(
    model: LoadedModel,
    paths: Sequence[str],
    *,
    layer: int,
    settings: FeatureSettings = FeatureSettings(),
    reading: PassageOptions = PassageOptions(),
    progress: Callable[[int], None] = lambda done: None,
    skipped: Skipped | None = None,
) -> SparseFeatures:
    """Features of a layer (0: the embeddings). `progress` is called with the number of tokens that were trained on."""
    encoder: Encoder = model.network.encoder
    if layer not in whole(0, encoder.depth):
        raise UsageError(f"there is no layer {layer!r}: the model has layers 0, the embeddings, to {encoder.depth}")
    stand_in = random_encoder(encoder, settings.seed)
    encoders = {"trained": encoder, "random": stand_in}
    trainers: dict[str, AutoencoderTrainer] = {}
    buffer = _Buffer(tuple(encoders), settings.buffer)
    held: list[LocatedText] = []
    seen = held_tokens = 0

    def learn() -> None:
        for name, states_ND in buffer.taken().items():
            if name not in trainers:
                trainers[name] = AutoencoderTrainer.of(states_ND, settings)
            trainers[name].train(states_ND)

    source = passages(paths, reading, Skipped() if skipped is None else skipped)
    for block in blocks(source, CHARACTERS):
        numbered = [(piece, len(segment_words(piece.text))) for piece in block]
        kept = []
        for number, (piece, words) in enumerate(numbered, seen):
            if number % EVERY < EVERY - 1:
                kept.append(piece.text)
            elif held_tokens < settings.tokens // (EVERY - 1):
                held.append(piece)
                held_tokens += words
        seen += len(block)
        read = {name: _vectors(each, model, kept, layer) for name, each in encoders.items()}
        for both in zip(*read.values(), strict=True):
            states = [torch.from_numpy(_sound(vectors)[0]) for vectors in both]
            if buffer.total < settings.tokens and len(states[0]):
                buffer.add(dict(zip(read, states, strict=True)), settings.tokens, long=both[0].windows > 1)
                if buffer.full:
                    learn()
        progress(buffer.total)
        if buffer.total >= settings.tokens:
            break
    if buffer.total < 2 * settings.k or len(held) < 2:
        raise DataError(
            f"{', '.join(paths[:3])}: {buffer.total:,} tokens in {seen:,} passages are too few to train on and hold "
            f"out two, every {EVERY}th passage; name more text"
        )
    learn()
    return _measured(model, encoders, trainers, held, layer=layer, settings=settings, paths=paths, buffer=buffer)


def random_encoder(encoder: Encoder, seed: int) -> Encoder:
    """An encoder of the same shape with initial weights, on the same device."""
    made = encoder.config.build(len(encoder.word_vectors))
    initialise(made, seed=derive(seed, "features-random"), std=encoder.config.init)
    return made.to(encoder.device).eval()


def _vectors(encoder: Encoder, model: LoadedModel, texts: Sequence[str], layer: int | str) -> Iterator[Vectors]:
    yield from embed_texts(encoder, model.tokenizer, texts, EmbedOptions(unit="token", layers=layer))


def _sound(vectors: Vectors) -> tuple[Floats, Ints]:
    """States of tokens, and their characters; without tokens of white space, and those that have no state."""
    sound = np.isfinite(vectors.vectors).all(1) & np.array([bool(unit.strip()) for unit in vectors.units], np.bool_)
    return vectors.vectors[sound].astype(np.float32), vectors.spans[sound]


class _Buffer:
    """States of each encoder in memory, up to a size."""

    def __init__(self, names: Sequence[str], size: int) -> None:
        self._size, self._held = size, 0
        self._parts: dict[str, list[Tensor]] = {name: [] for name in names}
        self.total = 0
        """States that were ever added, of one encoder."""
        self.long = 0
        """Texts longer than a window."""

    @property
    def full(self) -> bool:
        return self._held >= self._size

    def add(self, states: dict[str, Tensor], most: int, *, long: bool) -> None:
        """Add the states of a text, and no more than `most` in all."""
        count = min(len(next(iter(states.values()))), most - self.total)
        for name, states_ND in states.items():
            self._parts[name].append(states_ND[:count])
        self._held += count
        self.total += count
        self.long += long

    def taken(self) -> dict[str, Tensor]:
        """All states; the buffer is empty afterwards."""
        whole = {name: torch.cat(parts) for name, parts in self._parts.items() if parts}
        self._parts, self._held = {name: [] for name in self._parts}, 0
        return whole


def _measured(
    model: LoadedModel,
    encoders: dict[str, Encoder],
    trainers: dict[str, AutoencoderTrainer],
    held: Sequence[LocatedText],
    *,
    layer: int,
    settings: FeatureSettings,
    paths: Sequence[str],
    buffer: _Buffer,
) -> SparseFeatures:
    last = list(_vectors(model.network.encoder, model, [p.text for p in held], "last"))
    top_ND = np.concatenate([_sound(each)[0] for each in last]).astype(np.float64)
    top_ND = (top_ND - top_ND.mean(0)) / np.maximum(top_ND.std(0), 1e-9)
    top_ND /= np.maximum(np.linalg.norm(top_ND, axis=1, keepdims=True), 1e-9)
    dictionaries, features = {}, {}
    for name, trainer in trainers.items():
        tally = _HeldOut(trainer.autoencoder, settings.contexts)
        for number, vectors in enumerate(_vectors(encoders[name], model, [p.text for p in held], layer)):
            tally.add(number, *_sound(vectors))
        features[name] = tally.features(held, top_ND)
        dictionaries[name] = tally.summary(features[name], top_ND, seed=settings.seed)
    origin = FeatureOrigin(
        model=model.fingerprint,
        name=str(model.bundle.path),
        layer=layer,
        corpus=", ".join(paths[:3]) + (", …" if len(paths) > 3 else ""),
        tokens=buffer.total,
        held_out=len(top_ND),
        passages=len(held),
        settings=settings,
        long=buffer.long + sum(each.windows > 1 for each in last),
    )
    autoencoders = {name: trainer.autoencoder for name, trainer in trainers.items()}
    return SparseFeatures(origin, dictionaries, features, autoencoders)


class _HeldOut:
    """What an autoencoder does on the held-out passages, added one by one."""

    def __init__(self, autoencoder: SparseAutoencoder, contexts: int) -> None:
        self._made = autoencoder
        self._fired_F = np.zeros(autoencoder.size, np.int64)
        self._best_FC = torch.zeros(autoencoder.size, contexts)
        self._where_FC2 = torch.full((autoencoder.size, contexts, 2), -1)
        self._spans: list[Ints] = []
        self._errors: list[float] = []
        self._states: list[Floats] = []

    def add(self, number: int, states_ND: Floats, spans: Ints) -> None:
        """The tokens of one passage."""
        self._spans.append(spans)
        if not len(states_ND):
            self._errors.append(0.0)
            self._states.append(states_ND)
            return
        x_ND = torch.from_numpy(states_ND)
        values_NK, features_NK = self._made.encode(x_ND)
        with torch.inference_mode():
            rebuilt_ND = self._made.decode(values_NK, features_NK) * self._made.scale + self._made.centre
        self._errors.append(float((x_ND - rebuilt_ND).double().square().sum()))
        self._states.append(states_ND)
        active_NF = torch.zeros(len(x_ND), self._made.size).scatter_(1, features_NK, values_NK)
        self._fired_F += (active_NF > 0).sum(0).numpy()
        best_F, token_F = active_NF.max(0)
        where_F12 = torch.stack([torch.full_like(token_F, number), token_F], -1)[:, None]
        values, order = torch.cat([self._best_FC, best_F[:, None]], 1).sort(dim=1, descending=True, stable=True)
        where = torch.cat([self._where_FC2, where_F12], 1).gather(1, order[..., None].expand(-1, -1, 2))
        self._best_FC, self._where_FC2 = values[:, :-1], where[:, :-1]

    def features(self, held: Sequence[LocatedText], top_ND: Doubles) -> tuple[Feature, ...]:
        """Each feature with its strongest contexts, one a passage."""
        starts = np.concatenate([[0], np.cumsum([len(spans) for spans in self._spans])])
        total = max(1, int(starts[-1]))
        words = [segment_words(piece.text) for piece in held]
        listed = []
        for number, (best_C, where_C2) in enumerate(zip(self._best_FC.tolist(), self._where_FC2.tolist(), strict=True)):
            places = [(value, p, t) for value, (p, t) in zip(best_C, where_C2, strict=True) if value > 0]
            contexts = tuple(_context(held[p], words[p], self._spans[p][t], value) for value, p, t in places)
            forms = {context.word.casefold() for context in contexts}
            rows = top_ND[[int(starts[p]) + t for _, p, t in places]]
            listed.append(
                Feature(
                    number=number + 1,
                    rate=float(self._fired_F[number]) / total,
                    one_form=len(contexts) > 1 and len(forms) == 1,
                    consistency=_pairwise(rows) if len(rows) > 1 else None,
                    contexts=contexts,
                )
            )
        return tuple(listed)

    def summary(self, features: Sequence[Feature], top_ND: Doubles, *, seed: int) -> FeatureDictionary:
        """What the comparison shows of a dictionary."""
        mean_D = np.mean(np.concatenate(self._states), axis=0, dtype=np.float64)
        spread = [float(np.square(states - mean_D).sum()) for states in self._states]
        rows = np.stack([self._errors, spread], axis=1)

        def explained(sums: Doubles) -> Any:
            return 1 - sums[..., 0] / np.maximum(sums[..., 1], 1e-30)

        interval = bootstrap(rows, explained, seed=seed)
        shown = [feature for feature in features if feature.consistency is not None]
        varied = [feature.consistency for feature in shown if not feature.one_form]
        chance = [
            _pairwise(top_ND[stream(seed, "feature-contexts", item=n).integers(0, len(top_ND), len(each.contexts))])
            for n, each in enumerate(shown)
        ]
        return FeatureDictionary(
            size=len(features),
            explained=interval.value,
            low=interval.low,
            high=interval.high,
            dead=sum(feature.rate == 0 for feature in features),
            compared=len(shown),
            one_form=_mean([float(feature.one_form) for feature in shown]),
            consistency=_mean([feature.consistency for feature in shown]),
            consistency_varied=_mean(varied),
            chance=_mean(chance),
        )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def _pairwise(rows_CD: Doubles) -> float:
    """Mean cosine between different rows of length 1."""
    count = len(rows_CD)
    return float((np.square(rows_CD.sum(0)).sum() - np.square(rows_CD).sum()) / (count * (count - 1)))


def _context(piece: LocatedText, words: Ints, span: Ints, value: float) -> Context:
    """The word of a token in its surroundings; the token itself where it is in no word."""
    start, end = span.tolist()
    while start < end - 1 and piece.text[start].isspace():  # byte-level tokens begin with their space
        start += 1
    covering = words[(words[:, 0] <= start) & (start < words[:, 1])]
    start, end = covering[0].tolist() if len(covering) else (start, end)
    first, last = max(0, start - AROUND), min(len(piece.text), end + AROUND)
    return Context(
        text=piece.text[first:last],
        start=start - first,
        end=end - first,
        value=value,
        source=piece.source,
        line=piece.line_at(start),
        document=piece.document,
        place=piece.start + start,
    )
