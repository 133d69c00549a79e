"""The door for other encoders: one without blocks or attention does all that needs none, and refuses the rest.

Everything above `nn` is to know `Encoder` alone, so an encoder that it has never seen must do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from msgspec import Struct
from torch import Tensor, nn
from torch.testing import assert_close

from larvatus.core.batch import TokenBatch, TrainingBatch
from larvatus.core.errors import RecipeError, UsageError
from larvatus.core.pretraining_targets import MaskedTokens
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.inference.interpret.attention import attend
from larvatus.inference.interpret.importance import head_importance, zero_heads
from larvatus.inference.vectors.pooling import EmbedOptions
from larvatus.inference.vectors.vectors import embed_texts
from larvatus.models.masked_prediction import TokenQueries, require_predictor
from larvatus.models.network import Network
from larvatus.models.nn.encoder import Encoder
from larvatus.models.nn.transformer import TransformerConfig
from larvatus.models.objectives import MaskedLMConfig, ReplacedTokensConfig
from larvatus.tasks.trainer.trainable import TrainableConfig, trainable


class RecurrentConfig(Struct, tag_field="type", tag="recurrent", frozen=True, kw_only=True):
    hidden: int = 8
    layers: int = 2
    max_positions: int = 1_000
    segments = 0
    enclosed = True
    activation = "gelu"
    norm_epsilon = 1e-12
    biases = True
    init = 0.3

    @property
    def blocks(self) -> int:
        return self.layers

    @property
    def word_width(self) -> int:
        return self.hidden

    def build(self, vocabulary: int) -> Recurrent:
        return Recurrent(self, vocabulary)

    def narrowed(self, share: float) -> RecurrentConfig:
        return RecurrentConfig(hidden=round(share * self.hidden))


class Recurrent(Encoder):
    """h_i = tanh(W [x_i; mean of x_1 … x_i]): a sum over what came before in place of a memory."""

    def __init__(self, config: Any, vocabulary: int) -> None:
        super().__init__()
        self.config = config
        self.words = nn.Embedding(vocabulary, config.hidden)
        self.steps = nn.ModuleList(nn.Linear(2 * config.hidden, config.hidden) for _ in range(config.layers))

    @property
    def word_vectors(self) -> Tensor:
        return self.words.weight

    def forward(
        self, batch: TokenBatch[Tensor], *, layers: Sequence[int] | None = None, limit: int | None = None
    ) -> Tensor | list[Tensor]:
        states = [self.words(batch.ids)]
        for step in self.steps:
            parts = states[-1].split(batch.lengths.tolist())
            means = [part.cumsum(0) / torch.arange(1, len(part) + 1)[:, None] for part in parts]
            states.append(torch.tanh(step(torch.cat([states[-1], torch.cat(means)], dim=-1))))
        return states[-1] if layers is None else [states[layer] for layer in layers]

    def parts(self) -> list[tuple[int, nn.Module]]:
        return [(2, self.words), (1, self.steps[0]), (0, self.steps[1])]

    def flops(self, length: int) -> int:
        return 6 * sum(p.numel() for p in self.steps.parameters())


@pytest.fixture
def network(tiny_tokenizer: Tokenizer) -> Network:
    config: Any = RecurrentConfig()
    return Network.build(config, [MaskedLMConfig()], tiny_tokenizer.size, seed=1).eval()


def masked() -> TrainingBatch[Any]:
    tokens = TokenBatch.of([[2, 7, 4, 3], [2, 4, 3]])
    targets = MaskedTokens(*(TokenBatch.of([row]).ids for row in ([2, 5], [8, 9])))
    return TrainingBatch(tokens=tokens, targets={MaskedTokens: targets})


def test_it_learns_predicts_and_gives_vectors(network: Network, tiny_tokenizer: Tokenizer) -> None:
    batch = masked().map(torch.from_numpy)
    total, _ = network.loss(batch, {"masked-lm": 2.0})
    total.backward()
    assert all(p.grad is not None and p.grad.any() for p in network.encoder.parameters())
    predictor, places = require_predictor(network, what="fill"), torch.tensor([2, 5])
    logits = predictor.logits(batch.tokens, places)
    asked = TokenQueries(sequences=torch.tensor([0, 1]), ids=torch.tensor([8, 9]))
    found = predictor.log_probabilities(batch.tokens, places, asked)
    assert_close(found, logits.log_softmax(-1)[[0, 1], [8, 9]])
    for options, shape in (({}, (1, 8)), ({"layers": "all"}, (3, 1, 8)), ({"layers": "last2"}, (1, 8))):
        (vectors,) = embed_texts(network.encoder, tiny_tokenizer, ["the river bank"], EmbedOptions(**options))
        assert vectors.vectors.shape == shape


def test_its_last_layers_are_trained_alone_and_lora_is_refused(network: Network) -> None:
    trainable(network, TrainableConfig.read("last1"), decay=0.0, seed=1)
    learning = {name for name, p in network.encoder.named_parameters() if p.requires_grad}
    assert learning == {"steps.1.weight", "steps.1.bias"}
    with pytest.raises(UsageError, match="no transformer blocks"):
        trainable(network, TrainableConfig.read("lora"), decay=0.0, seed=1)


def test_what_needs_attention_or_shared_embeddings_is_refused_in_one_line(
    network: Network, tiny_tokenizer: Tokenizer
) -> None:
    for ask in (
        lambda: attend(network.encoder, tiny_tokenizer, "the river"),
        lambda: zero_heads(network.encoder, [(1, 1)]),
        lambda: head_importance(network, [masked()]),
    ):
        with pytest.raises(UsageError, match="Recurrent has no attention heads; use a model with attention"):
            ask()
    config: Any = RecurrentConfig()
    with pytest.raises(RecipeError, match="Recurrent cannot share its embeddings with a generator"):
        Network(config, [MaskedLMConfig(), ReplacedTokensConfig()], 20)


def test_layers_come_in_the_order_asked_and_none_above_them_is_computed() -> None:
    encoder = TransformerConfig(layers=3, hidden=8, heads=2, norm="pre").build(20).eval()
    batch = TokenBatch.of([[2, 7, 4, 3], [2, 3]]).map(torch.from_numpy)
    whole = encoder(batch, layers=range(4))
    assert torch.equal(whole[3], encoder(batch))
    chosen = encoder(batch, layers=[3, 0, 0])
    assert all(torch.equal(a, b) for a, b in zip(chosen, [whole[3], whole[0], whole[0]], strict=True))
    encoder.blocks[2].register_forward_hook(lambda *_: pytest.fail("layer 3 was computed"))
    assert torch.equal(encoder(batch, layers=[2])[0], whole[2])
    assert encoder(batch, layers=[]) == []
    assert (encoder.width, encoder.depth, encoder.reach, encoder.heads) == (8, 3, 512, 2)
