"""Cross-encoders of `sentence-transformers`, however old: one marker in config.json, whatever its version wrote.

    config = marked_config(Path("ms-marco-MiniLM"), files.read_json(...))
    config["sentence_transformers"]["activation_fn"]              # "torch.nn.modules.linear.Identity"

Version 4 writes this entry of config.json, and so do we (`models/heads/reranking.py`). Before, it was another field.
Since version 6 it is in `config_sentence_transformers.json`, next to a `modules.json` of one module, the transformer.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from larvatus.core import files
from larvatus.core.regular_files import is_there
from larvatus.models.bundle.sentence_modules import SENTENCE_FILE
from larvatus.models.bundle.sentence_pooling import PACKAGE, read_modules
from larvatus.models.heads.reranking import MARKER


def marked_config(directory: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """config.json with the marker of a cross-encoder, if the files next to it say that it is one.

    A package of other modules loses the classes that it was trained from: its heads are those in the file.
    """
    if not is_there(directory / PACKAGE):
        return dict(config)
    path = directory / SENTENCE_FILE
    stated: Any = files.read_json(path) if is_there(path) else {}
    whole = [kind for kind, _ in read_modules(directory)] == ["Transformer"]
    if whole and isinstance(stated, dict) and stated.get("model_type") == "CrossEncoder":
        return {**config, MARKER: {"activation_fn": stated.get("activation_fn")}}
    return {**config, "architectures": []}
