"""Which layers a model's word vectors are of where none are requested: the last, unless its directory states others.

    set_word_layers("runs/mine", "7")             # larvatus.json and the card say it; the weights stay as they are
    load("runs/mine").similarity("the *bank* of the river", "the *bank* raised rates")     # of layer 7

The last layer of a masked language model is made for predicting words, and a lower one often describes their meaning
better (Ethayarajh 2019); `larvatus similar evaluate` measures every layer. Vectors of whole texts stay of the last one.
"""

from __future__ import annotations

from pathlib import Path

from larvatus.core.errors import UsageError
from larvatus.inference.vectors.layers import Layers, LayerWeights, layers_name
from larvatus.models.bundle.claims import WORD_LAYERS, make_claim
from larvatus.models.bundle.directory import load_bundle
from larvatus.models.bundle.manifest import LAST
from larvatus.models.bundle.partial_updates import card_state, write_card
from larvatus.models.bundle.static_directory import static_folder


def set_word_layers(directory: str | Path, layers: Layers) -> str:
    """Set the layers of a model directory's word vectors, by name; `last` is as if nothing was ever set.

    Args:
        directory: A model directory that Larvatus wrote.
        layers: As in `model.embed`, but not `all`.

    Returns:
        The layers as a command line writes them.
    """
    path, name = Path(directory), layers_name(layers).strip()
    claims = card_state(path).claims
    if static_folder(path) is not None:
        raise UsageError(f"{path} is a static model: it has no layers, and no vectors of words in context")
    if LayerWeights.read(name, layers=load_bundle(path).network.encoder.depth).stacked:
        raise UsageError("a word has one vector, and layers = all gives several; name one layer or a mix")
    stated = [] if name == LAST else [make_claim(WORD_LAYERS, name, command="model")]
    kept = [claim for claim in claims if claim.metric != WORD_LAYERS]
    write_card(path, [*kept, *stated], word_layers=name)
    return name
