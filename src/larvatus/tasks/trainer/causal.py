"""How a left-to-right model is fine-tuned (GPT, Radford et al. 2018, §3.2 and 3.3).

    _start_ text _classify_  →  class          L = L_task + λ · L_lm        λ = 0.5

Texts are wrapped in a start, a delimiter and an extract token of which the model knew nothing
(`data/text/special_tokens.py`),
the task reads the extract token, and the language-model loss of the same texts is added.
"""

from __future__ import annotations

import dataclasses

import msgspec
import torch
from torch import Tensor, nn

from larvatus.core import rng
from larvatus.core.batch import TrainingBatch
from larvatus.core.errors import UsageError
from larvatus.data.text.special_tokens import NAMES, add_delimiters, has_delimiters
from larvatus.models.bundle.directory import Bundle
from larvatus.models.heads.head import Head
from larvatus.models.network import Network
from larvatus.models.nn.causal_transformer import CausalTransformerConfig
from larvatus.models.objectives import CausalLM, Loss
from larvatus.tasks.registry import AnyTask
from larvatus.tasks.trainer.config import TrainConfig

LM_WEIGHT = 0.5
"""λ as published."""
WORDS = "encoder.embeddings.words.weight"


def with_delimiters(bundle: Bundle) -> Bundle:
    """A left-to-right model whose vocabulary has the three tokens; any other model as it is."""
    if not isinstance(bundle.model, CausalTransformerConfig) or has_delimiters(bundle.tokenizer):
        return bundle
    extension = add_delimiters(bundle.tokenizer)
    state = bundle.network.state_dict()
    rows = _with_rows(state[WORDS], extension.first, extension.parts, std=bundle.model.init)
    network = Network.empty(bundle.model, bundle.objectives, len(rows))
    network.load_state_dict({**state, WORDS: rows})
    return dataclasses.replace(bundle, network=network.requires_grad_().eval(), tokenizer=extension.tokenizer)


def _with_rows(words_VD: Tensor, first: int, parts: tuple[tuple[int, ...], ...], *, std: float) -> Tensor:
    """The word vectors with a row for each new token: the mean of the tokens it replaces, or sampled by its name."""
    longer = words_VD.new_zeros(max(len(words_VD), first + len(parts)), words_VD.shape[1])
    longer[: len(words_VD)] = words_VD
    for number, (name, old) in enumerate(zip(NAMES[len(NAMES) - len(parts) :], parts, strict=True)):
        if old:
            longer[first + number] = words_VD[list(old)].mean(0)
        else:
            generator = torch.Generator().manual_seed(rng.derive(0, f"init {WORDS} {name}"))
            nn.init.trunc_normal_(longer[first + number], std=std, a=-2 * std, b=2 * std, generator=generator)
    return longer


def with_lm_weight(config: TrainConfig, bundle: Bundle, task: AnyTask) -> TrainConfig:
    """The settings with the weight of the language-model loss, if the model has one and the task adds it."""
    given = config.lm_weight
    if not task.keeps_lm_loss:
        if given is not msgspec.UNSET and given:
            raise UsageError(f"finetune {task.name} does not add the language-model loss; leave lm_weight out")
        return config
    if not isinstance(bundle.model, CausalTransformerConfig):
        if given is not msgspec.UNSET and given:
            raise UsageError(
                "lm_weight keeps the language-model loss of a left-to-right model, such as gpt, and this model is "
                "none; leave it out"
            )
        return config
    if config.trained.part == "head":
        if given is not msgspec.UNSET and given:
            raise UsageError("lm_weight needs an encoder that is trained, and only the head is; leave it out")
        return config
    return msgspec.structs.replace(config, lm_weight=LM_WEIGHT if given is msgspec.UNSET else given)


def task_and_lm_loss(
    model: Network, batch: TrainingBatch[Tensor], head: Head, words: CausalLM, *, limit: int | None
) -> tuple[Loss, Loss]:
    """The loss of the head, and that of the next tokens, from one pass."""
    states = head.states(model.encoder, batch.tokens, limit=limit)
    of_task: Loss = head.loss(states, batch, model.encoder)
    return of_task, words.loss(states if states.ndim == 2 else states[-1], batch, model.encoder)
