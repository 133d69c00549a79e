"""A `config.json` of `transformers` that we cannot follow is refused, by the field that we cannot follow."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from larvatus.core.errors import ArtefactError
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.models.bundle.directory import load_bundle
from tests.models.bundle.families import FAMILIES
from tests.models.bundle.theirs import LIMIT, edit_config, their_directory

SAVED: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("ForPreTraining", {}),
    "albert": ("ForPreTraining", {}),
    "electra": ("ForPreTraining", {"embedding_size": 12}),
    "modernbert": ("ForMaskedLM", {"hidden_size": 24, "num_attention_heads": 3, "num_hidden_layers": 5}),
}
"""Head and fields that the models are saved with; `ForMaskedLM` where none are given."""
REFUSED: dict[str, list[tuple[dict[str, Any], str]]] = {
    "bert": [
        ({"model_type": "roberto"}, "model_type 'roberto' is not supported; did you mean roberta"),
        ({"model_type": None}, "model_type"),
        ({"is_decoder": True}, "is_decoder"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type"),
        ({"hidden_act": "silu"}, "hidden_act"),
        ({"hidden_size": "16"}, "hidden_size"),
        ({"num_attention_heads": 3}, "is not divisible by model.heads"),
        ({"num_hidden_layers": 0}, "layers"),
        ({"num_hidden_layers": 10**6}, "num_hidden_layers = 1000000 must lie"),
        ({"hidden_size": 10**12}, "= 1000000000000 must lie between 1"),
        ({"hidden_size": 10**6, "num_attention_heads": 1}, "misshapen"),
        ({"pruned_heads": {"0": [1]}}, "pruned_heads"),
        ({"architectures": ["BertLMHeadModel"]}, "BertLMHeadModel"),
        ({"vocab_size": 7}, "belong to different models"),
        ({"tie_word_embeddings": False}, "tie_word_embeddings"),
    ],
    "roberta": [
        ({"pad_token_id": 0}, "pad_token_id"),  # positions would begin at another row
        ({"type_vocab_size": 2}, "type_vocab_size"),
        ({"hidden_act": "relu"}, "always has a GELU"),
        ({"max_position_embeddings": 2}, "max_position_embeddings"),
        ({"max_position_embeddings": LIMIT}, "misshapen: roberta.embeddings.position_embeddings.weight"),
        ({"hidden_size": 10**12}, "= 1000000000000 must lie between 1"),
        ({"is_decoder": True}, "is_decoder"),
        ({"pruned_heads": {"0": [1]}}, "pruned_heads"),
        ({"architectures": ["RobertaForCausalLM"]}, "RobertaForCausalLM"),
        ({"architectures": ["XLMRobertaModel"]}, "is not one of RobertaForMaskedLM"),
    ],
    "distilbert": [
        ({"activation": "silu"}, "activation"),
        ({"n_heads": 3}, "is not divisible by model.heads"),
        ({"dim": 10**12}, "= 1000000000000 must lie between 1"),
        ({"hidden_dim": 24}, "misshapen"),
        ({"pruned_heads": {"0": [1]}}, "pruned_heads"),
        ({"tie_word_embeddings": False}, "tie_word_embeddings"),
        ({"architectures": ["DistilBertForMaskedImages"]}, "its head cannot be read"),
    ],
    "mpnet": [
        ({"relative_attention_num_buckets": 64}, "relative_attention_num_buckets"),
        ({"pad_token_id": 0}, "pad_token_id"),
        ({"hidden_act": "relu"}, "always has a GELU"),
        ({"max_position_embeddings": 2}, "max_position_embeddings"),
        ({"hidden_size": 10**12}, "= 1000000000000 must lie between 1"),
        ({"architectures": ["MPNetForCausalLM"]}, "its head cannot be read"),
    ],
    "albert": [
        ({"num_hidden_groups": 2}, "num_hidden_groups"),
        ({"inner_group_num": 2}, "inner_group_num"),
        ({"embedding_size": 0}, "embedding_size"),
        ({"embedding_size": 12}, "misshapen"),
        ({"hidden_size": 10**12}, "= 1000000000000 must lie between 1"),
        ({"hidden_act": "silu"}, "hidden_act"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type"),
        ({"architectures": ["AlbertForMaskedImages"]}, "AlbertForMaskedImages"),
    ],
    "electra": [
        ({"embedding_size": 0}, "embedding_size = 0 must lie between 1"),
        ({"embedding_size": 10}, "misshapen: electra.embeddings"),
        ({"embedding_size": 16}, "electra.embeddings_project"),
        ({"hidden_size": 10**12}, "= 1000000000000 must lie between 1"),
        ({"is_decoder": True}, "is_decoder"),
        ({"architectures": ["ElectraForCausalLM"]}, "ElectraForCausalLM"),
        ({"architectures": ["ElectraForMaskedLM"]}, "generator_predictions"),
    ],
    "modernbert": [
        ({"hidden_activation": "silu"}, "hidden_activation"),
        ({"classifier_activation": "relu"}, "classifier_activation differ"),
        ({"mlp_bias": True}, "biases in some layers only"),
        ({"mlp_dropout": 0.1}, "mlp_dropout is not 0"),
        ({"decoder_bias": False}, "decoder_bias"),
        ({"tie_word_embeddings": False}, "tie_word_embeddings"),
        ({"num_attention_heads": 5}, "is not divisible by model.heads"),
        ({"num_hidden_layers": 4}, "layer_types has 5 entries for 4 layers"),
        ({"layer_types": ["sliding_attention"] * 5}, "layer_types must be"),
        ({"layer_types": ["chunked_attention"] * 5}, "layer_types"),
        ({"local_attention": 1}, "local_attention = 1"),
        ({"rope_parameters": {"full_attention": {"rope_type": "yarn"}}}, "rope_type"),
        ({"rope_parameters": {"full_attention": {"rope_theta": 0.0}}}, "rope_theta"),
        ({"rope_scaling": {"type": "linear"}}, "rope_scaling"),
        ({"architectures": ["ModernBertForCausalLM"]}, "ModernBertForCausalLM"),
        ({"hidden_size": 10**12}, "= 1000000000000 must lie between 1"),
        ({"global_attn_every_n_layers": 0}, "global_attn_every_n_layers = 0"),
    ],
}
CASES = [(family, fields, word) for family, refused in REFUSED.items() for fields, word in refused]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory, vocabularies: dict[str, Tokenizer]) -> Callable[[str], Path]:
    """A function that gives the directory of a family, which we can load; not to be edited."""

    @cache
    def make(family: str) -> Path:
        head, fields = SAVED.get(family, ("ForMaskedLM", {}))
        name, vocabulary, sizes = FAMILIES[family]
        folder = tmp_path_factory.mktemp(family) / "theirs"
        directory, _ = their_directory(folder, vocabularies[vocabulary], f"{name}{head}", **sizes | fields)
        load_bundle(directory)
        return directory

    return make


@pytest.mark.parametrize(("family", "fields", "word"), CASES)
def test_a_config_that_we_cannot_follow_is_refused_by_field(
    saved: Callable[[str], Path], tmp_path: Path, family: str, fields: dict[str, Any], word: str
) -> None:
    directory = Path(shutil.copytree(saved(family), tmp_path / "theirs"))
    edit_config(directory, **fields)
    with pytest.raises(ArtefactError, match=word) as caught:
        load_bundle(directory)
    if family in ("bert", "modernbert"):
        assert "config.json" in str(caught.value) or "misshapen" in word
