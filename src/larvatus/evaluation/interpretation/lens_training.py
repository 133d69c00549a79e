"""Training of a tuned lens (Belrose et al. 2023): translators of layers that give the last layer's distribution.

    lens = train_lens(model, batches, LensTraining(), name="default", corpus="text/")
    lens.about.logit_kl[3], lens.about.tuned_kl[3]        # on batches that it was not trained on

The states of the model at masked tokens are computed once. Each translator begins as the identity, so as the logit
lens, and is trained on KL(p_L ‖ p_l) with Adam, whose rate falls linearly to 0. Every tenth batch is held out.

L layers, M masked tokens, D hidden size.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Annotated

import msgspec
import torch
from torch import Tensor

from larvatus.core import files
from larvatus.core.arrays import Ints
from larvatus.core.batch import TrainingBatch
from larvatus.core.errors import DataError
from larvatus.core.pretraining_targets import MaskedTokens
from larvatus.core.ranges import Count, LearningRate, Seed, Size
from larvatus.core.rng import stream
from larvatus.core.settings import Settings
from larvatus.inference.interpret.tuned_lens import (
    Lens,
    LensDescription,
    TunedLens,
    kl_by_layer,
    kl_to,
    lens_logits,
    masked_lm_predictor,
)
from larvatus.models.loaded import LoadedModel
from larvatus.models.masked_prediction import MaskedPredictor
from larvatus.models.nn.device import on_device
from larvatus.training.engine.settings import BUDGETS

HELD_OUT = 10
"""One batch of this many is held out."""


class LensTraining(Settings):
    """How a tuned lens is trained."""

    tokens: Annotated[int, BUDGETS["tokens"]] = 131_072
    """Read no more; of these, the masked ones are trained on."""
    steps: Count = 250
    """Updates."""
    positions: Size = 128
    """Masked tokens of an update."""
    rate: LearningRate = 1e-3
    """Learning rate of Adam."""
    seed: Seed = 0
    """Seed of the order of masked tokens."""


def train_lens(
    model: LoadedModel,
    batches: Sequence[TrainingBatch[Ints]],
    options: LensTraining,
    *,
    name: str,
    corpus: str,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> TunedLens:
    """A tuned lens of a model, from batches with masked tokens. `progress` counts batches read and updates."""
    predictor = masked_lm_predictor(model.network, model.tokenizer, str(model.bundle.path))
    held = set(range(HELD_OUT - 1, len(batches), HELD_OUT)) or {len(batches) - 1}
    total = len(batches) + options.steps
    read: list[Tensor] = []
    for number, batch in enumerate(batches, start=1):
        read.append(masked_states(predictor, batch, model.tokenizer.mask_id))
        progress(number, total)
    train, test = (
        [states for number, states in enumerate(read) if (number in held) == wanted and states.shape[1]]
        for wanted in (False, True)
    )
    if not train or not test:
        raise DataError(f"{corpus}: too few masked tokens to train on some and to test on others; name more text")
    z_LMD, test_LMD = torch.cat(train, dim=1), torch.cat(test, dim=1)
    weights = z_LMD.new_zeros(len(z_LMD) - 1, z_LMD.shape[2], z_LMD.shape[2])
    biases = z_LMD.new_zeros(len(z_LMD) - 1, z_LMD.shape[2])
    _descend(predictor, z_LMD, (weights, biases), options, lambda step: progress(len(batches) + step, total))
    about = LensDescription(model=model.fingerprint, corpus=files.as_text(corpus), positions=z_LMD.shape[1])
    lens = TunedLens(name, about, weights.detach(), biases.detach())
    with torch.inference_mode():
        logit_kl, tuned_kl = (tuple(kl_by_layer(Lens(predictor, each), list(test_LMD))) for each in (None, lens))
    return dataclasses.replace(lens, about=msgspec.structs.replace(about, logit_kl=logit_kl, tuned_kl=tuned_kl))


@torch.inference_mode()
def masked_states(predictor: MaskedPredictor, batch: TrainingBatch[Ints], mask: int) -> Tensor:
    """States of all layers at the tokens that show the mask: [L + 1, M, D]."""
    places = batch.targets[MaskedTokens].places
    shown = torch.from_numpy(places[batch.tokens.ids[places] == mask]).to(predictor.device)
    states = predictor.encoder(on_device(batch.tokens, predictor.device), layers=range(predictor.encoder.depth + 1))
    return torch.stack([z_ND.index_select(0, shown) for z_ND in states])


@torch.inference_mode(False)
@torch.enable_grad()
def _descend(
    predictor: MaskedPredictor,
    z_LMD: Tensor,
    translators: tuple[Tensor, Tensor],
    options: LensTraining,
    progress: Callable[[int], None],
) -> None:
    """Train A [L, D, D] and b [L, D] in place. Layers share nothing: the gradient of each is computed by itself."""
    optimizer = torch.optim.Adam(translators, lr=options.rate)
    decay = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / options.steps)
    count = z_LMD.shape[1]
    for translator in translators:
        translator.requires_grad_().grad = torch.zeros_like(translator)
    for step in range(options.steps):
        chosen = stream(options.seed, "tuned lens", item=step).integers(0, count, min(options.positions, count))
        *below, top_MD = z_LMD[:, torch.from_numpy(chosen).to(z_LMD.device)].clone()
        with torch.no_grad():
            log_p_MV = torch.log_softmax(lens_logits(predictor, len(below), top_MD).float(), -1)
        for layer, z_MD in enumerate(below):
            of_layer = [each[layer].detach().requires_grad_() for each in translators]
            logits_MV = lens_logits(predictor, layer, z_MD, (of_layer[0], of_layer[1]))
            loss = kl_to(log_p_MV, torch.log_softmax(logits_MV.float(), -1)).mean()
            for translator, gradient in zip(translators, torch.autograd.grad(loss, of_layer), strict=True):
                assert translator.grad is not None
                translator.grad[layer] = gradient
        optimizer.step()
        decay.step()
        progress(step + 1)
