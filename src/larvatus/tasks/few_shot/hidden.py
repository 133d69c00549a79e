"""PET's auxiliary loss (Schick & Schütze 2021, §3.1): go on with masked language modelling while a pattern learns.

    L = (1 − α) L_CE + α L_MLM        α = 1e-4 as published

    beside = MaskedPrompts.of(bundle, config, unlabelled, share=1e-4, texts=48, limit=128)

Few examples would make the model forget its language. So each step also reads unlabelled texts in the pattern, its
blank as it is, and predicts what was hidden of them: 15% of the tokens, as BERT hides them (80% masked, 10% replaced,
10% kept), by the masked-lm head through which the pattern is read. Three unlabelled texts come with each labelled one,
as published. U unlabelled texts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from larvatus.core.arrays import Ints
from larvatus.core.batch import TrainingBatch
from larvatus.core.pretraining_targets import MaskedTokens
from larvatus.core.rng import derive, stream
from larvatus.data.corruption import MaskingConfig, MaskVocabulary, corrupt
from larvatus.data.labelled.records import TextExample
from larvatus.models.bundle.directory import Bundle
from larvatus.models.heads.verbaliser import Verbaliser, VerbaliserConfig
from larvatus.models.network import Network
from larvatus.models.objectives import Loss
from larvatus.tasks.encoding.sequences import Sequences
from larvatus.tasks.prompt.encode import encode_prompts
from larvatus.tasks.scoring import head_as

TEXTS_PER_EXAMPLE = 3
"""Unlabelled texts that are read with each labelled one (published: 12 with 4)."""
HIDING = MaskingConfig(replacement="uniform")


@dataclass(frozen=True, eq=False)
class MaskedPrompts:
    """Unlabelled texts in a pattern, some of which are read, and partly hidden, at each step."""

    sequences: Sequences
    vocabulary: MaskVocabulary
    share: float
    texts: int
    """Of a step."""

    @classmethod
    def of(
        cls,
        bundle: Bundle,
        config: VerbaliserConfig,
        unlabelled: Sequence[TextExample],
        *,
        share: float,
        texts: int,
        limit: int,
    ) -> MaskedPrompts:
        """`limit` tokens of a sequence at most."""
        tokenizer = bundle.tokenizer
        vocabulary = MaskVocabulary(
            mask_id=config.mask, size=tokenizer.size, special_ids=frozenset({*tokenizer.special_ids, config.mask})
        )
        prompts = encode_prompts(tokenizer, config, unlabelled, limit=limit)
        return cls(prompts.sequences, vocabulary, share, texts)

    def batch(self, step: int, *, seed: int) -> TrainingBatch[Ints]:
        """The texts of a step: each epoch over them is a permutation of all."""
        places = step * self.texts + np.arange(self.texts)
        epochs, within = np.divmod(places, len(self.sequences))
        orders = {
            int(n): stream(seed, "unlabelled order", int(n)).permutation(len(self.sequences)) for n in set(epochs)
        }
        chosen = np.array([orders[int(epoch)][place] for epoch, place in zip(epochs, within, strict=True)], np.int64)
        tokens = self.sequences.batch(self.sequences.of(chosen))
        tokens = dataclasses.replace(tokens, words=tokens.positions)  # each a word of its own, so that it may be hidden
        batch = TrainingBatch(tokens=tokens, targets={})
        hiding = derive(seed, "hidden prompts")
        return corrupt(batch, HIDING, vocabulary=self.vocabulary, seed=hiding, epoch=step, items=np.arange(len(chosen)))

    def count(self, batch: TrainingBatch[Ints]) -> int:
        """Hidden tokens."""
        return int(batch.targets[MaskedTokens].count)

    def loss(self, model: Network, batch: TrainingBatch[Tensor], *, limit: int) -> Loss:
        words = head_as(model, Verbaliser, "classify through a blank").words
        return words.loss(model.encoder(batch.tokens, limit=limit), batch, model.encoder)
