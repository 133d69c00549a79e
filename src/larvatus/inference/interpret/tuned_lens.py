"""The lens of masked models: the masked-LM head on every layer (logit lens) and affine translators (tuned lens).

    logit lens    p_l = softmax(head(norm(h_l)))                      norm: the encoder's final norm, of pre-norm models
    tuned lens    p_l = softmax(head(norm(h_l + A_l h_l + b_l)))      (Belrose et al. 2023; at first A_l = 0, b_l = 0)

h_l are the states of layer l at a blank, layer 0 the embeddings. The last layer has no translator: there the lens is
the model itself. Translators are trained to give the distribution of the last layer on the user's text
(`evaluation/interpretation/lens_training.py`), and saved in the model's directory under a name:

    larvatus lens train --model runs/mine --corpus text/        # runs/mine/lens/default.safetensors
    model.lens("The [MASK] of the river.", tuned="default")

M positions, D hidden size, L layers, V vocabulary.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import torch
from torch import Tensor

from larvatus.core.errors import ArtefactError, UsageError
from larvatus.core.settings import Settings
from larvatus.core.text_inputs import described
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.models.bundle.named_tensors import SUFFIX, NamedTensors
from larvatus.models.bundle.weights import read_tensors
from larvatus.models.loaded import LoadedModel
from larvatus.models.masked_prediction import MaskedPredictor, require_predictor
from larvatus.models.network import Network
from larvatus.models.objectives import MaskedLM

LOGITS_AT_ONCE = 1 << 22
LENSES = NamedTensors(folder="lens", what="tuned lens", make="larvatus lens train")


class LensDescription(Settings):
    """What a tuned lens was trained for, and on."""

    format: int = 1
    model: str
    """Fingerprint of weights, settings and vocabulary."""
    corpus: str
    """Name of the corpus."""
    positions: int
    """Masked tokens that it was trained on."""
    logit_kl: tuple[float, ...] = ()
    """KL(p_L ‖ p_l) on held-out text in nats, of each layer below the last: logit lens,"""
    tuned_kl: tuple[float, ...] = ()
    """tuned lens."""
    sha256: str = ""
    """Checksum of the translators in the file."""


@dataclass(frozen=True, eq=False)
class TunedLens:
    """Translators of every layer below the last; `larvatus lens train` trains them on a corpus."""

    name: str
    about: LensDescription
    weights: Tensor = field(repr=False)
    """A [L, D, D], of layers 0 … L − 1"""
    biases: Tensor = field(repr=False)
    """b [L, D]"""

    @property
    def checksum(self) -> str:
        digest = hashlib.sha256(repr((tuple(self.weights.shape), self.about.model)).encode())
        for tensor in (self.weights, self.biases):
            digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()

    def save(self, path: Path) -> None:
        """Write one file, which appears complete or not at all."""
        tensors = {"weights": self.weights.detach().cpu(), "biases": self.biases.detach().cpu()}
        LENSES.save(path, tensors, msgspec.structs.replace(self.about, sha256=self.checksum))

    @classmethod
    def load(cls, path: Path) -> TunedLens:
        """Read a file that `save` wrote; one that was changed since is refused."""
        tensors, about = read_tensors(path), LENSES.description(path, LensDescription)
        weights, biases = tensors.get("weights"), tensors.get("biases")
        if weights is None or biases is None or weights.shape != (*biases.shape, biases.shape[-1]):
            raise ArtefactError(f"{path}: its translators do not fit each other: it is not a tuned lens; fit it again")
        lens = cls(path.name.removesuffix(SUFFIX), about, weights, biases)
        LENSES.check_sum(path, stored=about.sha256, computed=lens.checksum)
        return lens


def lens_for(model: LoadedModel, given: str | TunedLens | None) -> TunedLens | None:
    """A tuned lens by name, or as given, that was trained for this model; one of another model is refused."""
    path = model.bundle.path
    if not (given is None or isinstance(given, str | TunedLens)):
        raise UsageError(f"tuned is {described(given)}, not text: the name of a tuned lens, or of its file")
    lens = TunedLens.load(LENSES.find(path, given)) if isinstance(given, str) else given
    if lens is not None:
        LENSES.check_model(lens.name, lens.about.model, fingerprint=model.fingerprint, path=path)
    return lens


def masked_lm_predictor(network: Network, tokenizer: Tokenizer, name: str) -> MaskedPredictor:
    """The predictor of a model whose masked-LM head can read any layer; others are refused."""
    predictor = require_predictor(network, tokenizer, what="read layers", name=name)
    if not isinstance(predictor.head, MaskedLM):
        raise ArtefactError(
            f"{name} predicts with a query stream, which no layer of the text is; use a model pretrained with masked-lm"
        )
    return predictor


def lens_logits(
    predictor: MaskedPredictor, layer: int, z_MD: Tensor, translator: tuple[Tensor, Tensor] | None = None
) -> Tensor:
    """Scores of every word from states of a layer: [M, D] → [M, V]. On the last layer, those of the model itself."""
    assert isinstance(predictor.head, MaskedLM)
    if layer < predictor.encoder.depth:
        if translator is not None:
            weight_DD, bias_D = translator
            z_MD = z_MD + torch.nn.functional.linear(z_MD, weight_DD, bias_D)
        z_MD = predictor.encoder.with_final_norm(z_MD)
    return predictor.head.logits(z_MD, predictor.words_VE)


@dataclass(frozen=True, eq=False)
class Lens:
    """The head of a model on all of its layers."""

    predictor: MaskedPredictor
    tuned: TunedLens | None = None

    def log_probabilities(self, layer: int, z_MD: Tensor) -> Tensor:
        """[M, V] log-probabilities from states of a layer."""
        translator = None
        if self.tuned is not None and layer < self.predictor.encoder.depth:
            translator = (self.tuned.weights[layer].to(z_MD), self.tuned.biases[layer].to(z_MD))
        return torch.log_softmax(lens_logits(self.predictor, layer, z_MD, translator).float(), dim=-1)


def kl_to(log_p_MV: Tensor, log_q_MV: Tensor) -> Tensor:
    """KL(p ‖ q) of each row, in nats: [M]."""
    return (log_p_MV.exp() * (log_p_MV - log_q_MV)).sum(-1)


def kl_by_layer(lens: Lens, states: Sequence[Tensor]) -> list[float]:
    """Mean KL(p_L ‖ p_l) over positions, of each layer below the last; `states` are [M, D] of layers 0 … L."""
    depth, count = len(states) - 1, len(states[0])
    sums = torch.zeros(depth, dtype=torch.float64)
    for rows in torch.arange(count).split(max(1, LOGITS_AT_ONCE // len(lens.predictor.words_VE))):
        log_p = lens.log_probabilities(depth, states[depth][rows])
        for layer in range(depth):
            sums[layer] += kl_to(log_p, lens.log_probabilities(layer, states[layer][rows])).double().sum().cpu()
    return (sums / count).tolist()
