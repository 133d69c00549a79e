"""Which weights, settings and vocabulary vectors come from: two models with the same fingerprint give the same ones.

model_fingerprint(Path("runs/mine"), tokenizer)        # 64 hexadecimal digits
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from larvatus.core import files
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.models.bundle.weights import find_weights


def model_fingerprint(directory: Path, tokenizer: Tokenizer) -> str:
    """Two directories with the same one give the same vectors: weights, settings and vocabulary."""
    digest = hashlib.sha256(tokenizer.fingerprint.encode())
    root = files.standing(directory)
    for path in [root / "config.json", *find_weights(root)]:
        digest.update(files.sha256(path).encode())
    return digest.hexdigest()


def settings_hash(tokenizer: Tokenizer) -> str:
    """Of what a tokenizer's files say besides `tokenizer.json`: special tokens, how texts are dressed."""
    said = json.dumps([tokenizer.config, vars(tokenizer.special)], sort_keys=True, default=str)
    return hashlib.sha256(said.encode(errors="surrogatepass")).hexdigest()
