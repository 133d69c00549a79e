"""The English model: masked words, and a teacher's words and texts, learnt together.

    python packages/english_train.py --text text --data DATA --valid DATA/text/en_wiki.valid.txt.xz --minutes 13
        --tokenizer src/larvatus_english/model --teacher all-mpnet-base-v2 --out runs/english

    L = L_mlm + a · mean (1 - cos(P z_7, t_8)) + c · mean (p - t · t')²                       of a batch with masks
              + b · (4 · mean (1 - s · t) + KL(softmax(t t' / τ) ‖ softmax(s s' / τ)))        of a batch of whole texts

z_7 are the student's tokens at layer 7, t_8 the teacher's words at layer 8 (`english_rows.py`), so that the layers
above are left to the masked-lm head; p is the similarity of two texts that are read as a pair, from their first token.
s are unit vectors of texts that the encoder reads with the sentence adapter, which is learnt with it, and t the
teacher's, reduced by PCA. L_mlm is that of `larvatus pretrain`. Then the weights are rounded, and the adapter alone is
trained on (`english_sentences.py`). For a GPU of 120 GB; on a CPU only a few steps are practical.
"""

from __future__ import annotations

import argparse
import copy
import json
import lzma
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from english_rows import HELD_OUT, STEP, TEXT, Document, Ints, Rows, Targets, read_documents, read_rows, teach
from english_sentences import COSINE_WEIGHT, SIZE, Texts, cluster, loss
from english_sentences import Student as Adapted
from english_sentences import train as fit
from torch import Tensor, nn

from larvatus.core.batch import NO_WORD, TokenBatch
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.models.bundle.convert import convert_bundle
from larvatus.models.bundle.directory import load_bundle, save_bundle
from larvatus.models.bundle.model_names import packaged_model
from larvatus.models.bundle.weights import write_tensors
from larvatus.models.network import Network
from larvatus.models.nn.encoder import Encoder
from larvatus.models.recipes import OptimizerConfig
from larvatus.training.engine.optimizer import build_optimizer, set_rate

LAYERS = (7, 9)
"""Of the student: those of the teacher's layers, in their order, and the last."""
LIMIT, PAIR = 512, 64
"""Longest sequence, and longest text of a pair, in tokens."""
PAIRED, CLUSTERS = 0.25, 320
"""Share of the short texts that are read with their neighbour, and clusters of near texts."""
MASK, SPECIAL = 12_287, 4
"""The token that hides, and how many special tokens come first in the vocabulary."""


@dataclass(frozen=True)
class Batch:
    """A flat batch of fixed size; its last sequences are filling."""

    tokens: TokenBatch[Tensor]
    sequence_N: Tensor
    row_N: Tensor
    """The row of each token; the number of rows for filling."""
    word_N: Tensor
    row_S: Tensor
    """The first row of each sequence."""
    second_S: Tensor
    """The second row; −1 for single texts and filling."""
    count: int


class Reader:
    """Batches of rows on a device."""

    def __init__(self, rows: Rows, *, tokens: int, device: str, seed: int) -> None:
        self.rows, self.tokens, self.sequences, self.device = (rows, tokens, tokens // 20, device)
        self.ids = torch.from_numpy(rows.ids.astype(np.int32)).to(device)
        self.words = torch.from_numpy(rows.words).to(device)
        self.starts = np.cumsum(rows.lengths) - rows.lengths
        self.random = np.random.default_rng(seed)

    def _order(self) -> Ints:
        """The rows of an epoch: all that somebody wrote so. Up to four of a group stay together."""
        random, groups = self.random, self.rows.groups
        order = np.flatnonzero(self.rows.kinds == TEXT)
        order = order[np.argsort(groups[order], kind="stable")]
        new = np.concatenate([[True], groups[order][1:] != groups[order][:-1]])
        places = np.arange(len(order))
        run = (places - np.maximum.accumulate(np.where(new, places, 0))) // 4
        number = np.cumsum(np.concatenate([[True], new[1:] | (run[1:] != run[:-1])])) - 1
        return order[np.argsort(random.permutation(number[-1] + 1)[number], kind="stable")]

    def __iter__(self) -> Iterator[Batch]:
        most = self.sequences - self.sequences // 12
        while True:
            order = self._order()
            spent = np.cumsum(self.rows.lengths[order])
            first = 0
            while first < len(order):
                budget = (spent[first - 1] if first else 0) + self.tokens - self.sequences
                last = min(int(np.searchsorted(spent, budget, side="right")), first + most)
                if last >= len(order):
                    break
                yield self.batch(order[first:last])
                first = last

    def batch(self, rows: Ints) -> Batch:
        random, device, lengths = self.random, self.device, self.rows.lengths[rows]
        short = lengths <= PAIR
        near = self.rows.groups[rows][1:] == self.rows.groups[rows][:-1]
        often = np.where(near, 2 * PAIRED, PAIRED / 2)
        joins = np.concatenate([[False], short[1:] & short[:-1] & (random.random(len(near)) < often)])
        joins &= ~np.concatenate([[False], joins[:-1]])  # a sequence has at most two texts
        firsts = np.flatnonzero(~joins)
        of_sequences = np.add.reduceat(lengths, firsts)
        count, left = len(firsts), self.sequences - len(firsts)
        rest = self.tokens - int(lengths.sum())
        filling = np.full(left, rest // left)
        filling[: rest % left] += 1
        seconds = np.where(
            np.append(joins, False)[firsts + 1], np.append(rows, -1)[np.minimum(firsts + 1, len(rows))], -1
        )
        all_lengths = np.concatenate([of_sequences, filling])
        numbers = {
            "lengths": np.concatenate([lengths, filling]),
            "starts": np.concatenate([self.starts[rows], np.zeros(left, np.int64)]),
            "rows": np.concatenate([rows, np.full(left, len(self.rows.lengths))]),
            "joins": np.concatenate([joins, np.zeros(left, bool)]),
            "sequences": all_lengths,
            "first": np.concatenate([rows[firsts], np.zeros(left, np.int64)]),
            "second": np.concatenate([seconds, np.full(left, -1)]),
        }
        on = {
            name: torch.from_numpy(np.ascontiguousarray(array)).to(device, non_blocking=True)
            for name, array in numbers.items()
        }
        return self._assembled(on, count)

    def _assembled(self, on: dict[str, Tensor], count: int) -> Batch:
        n, device = self.tokens, self.device
        part_N = torch.repeat_interleave(torch.arange(len(on["lengths"]), device=device), on["lengths"], output_size=n)
        inner_N = torch.arange(n, device=device) - (on["lengths"].cumsum(0) - on["lengths"])[part_N]
        row_N = on["rows"][part_N]
        real_N = row_N < len(self.rows.lengths)
        place_N = (on["starts"][part_N] + inner_N).clamp(max=len(self.ids) - 1)
        ids_N = torch.where(real_N, self.ids[place_N].long(), torch.zeros((), dtype=torch.long, device=device))
        ids_N = torch.where(on["joins"][part_N] & (inner_N == 0), 2, ids_N)  # <s> A </s></s> B </s>
        word_N = torch.where(real_N, self.words[place_N].long(), -1)
        sequence_N = torch.repeat_interleave(
            torch.arange(len(on["sequences"]), device=device), on["sequences"], output_size=n
        )
        position_N = torch.arange(n, device=device) - (on["sequences"].cumsum(0) - on["sequences"])[sequence_N]
        zeros_N = torch.zeros_like(ids_N)
        tokens = TokenBatch(
            ids=ids_N, lengths=on["sequences"], positions=position_N, segments=zeros_N, words=zeros_N + NO_WORD
        )
        return Batch(tokens, sequence_N, row_N, word_N, on["first"], on["second"], count)


def shared_copy(encoder: Encoder) -> Encoder:
    """The encoder again, with the very same parameters."""
    shared: dict[int, Any] = {id(tensor): tensor for tensor in (*encoder.parameters(), *encoder.buffers())}
    return copy.deepcopy(encoder, shared)


class Student(nn.Module):
    """The English encoder, its masked-lm head, its sentence adapter, and what is only there while it learns."""

    def __init__(self, network: Network, width: int, device: str) -> None:
        super().__init__()
        self.network = network.to(device)
        hidden, compiled = network.encoder.width, device == "cuda"
        torch.manual_seed(1)
        self.words = nn.ModuleList(nn.Linear(hidden, width) for _ in LAYERS[:-1]).to(device)
        self.pair = nn.Sequential(nn.Linear(hidden, hidden), nn.GELU(), nn.Linear(hidden, 1)).to(device)
        dense = nn.init.orthogonal_(torch.empty(SIZE, hidden))
        self.adapted = Adapted(shared_copy(network.encoder), dense, device, compiled=compiled)
        network.requires_grad_(True)  # adding LoRA freezes what it is added to
        self._encode: Any = torch.compile(network.encoder, dynamic=False) if compiled else network.encoder
        self._masked: Any = torch.compile(self._masked_loss, dynamic=False) if compiled else self._masked_loss
        self._words: Any = torch.compile(word_loss, dynamic=False) if compiled else word_loss

    def encode(self, batch: TokenBatch[Tensor]) -> tuple[Tensor, ...]:
        return tuple(self._encode(batch, layers=list(LAYERS), limit=LIMIT))

    def _masked_loss(self, z_MD: Tensor, labels_M: Tensor) -> tuple[Tensor, Tensor]:
        head: Any = self.network.objectives["masked-lm"]
        logits_MV = head.logits(z_MD, self.network.encoder.word_vectors)
        right = (logits_MV.argmax(-1) == labels_M).sum()
        return F.cross_entropy(logits_MV.float(), labels_M, ignore_index=-100), right


def word_loss(z_ND: Tensor, weight: Tensor, bias: Tensor, target_NT: Tensor, known_N: Tensor) -> Tensor:
    """Mean of 1 - cos over the tokens that the teacher has read."""
    given_NT = F.linear(z_ND, weight, bias)
    cosine_N = F.cosine_similarity(given_NT.float(), target_NT.float() * STEP, dim=-1, eps=1e-3)
    return ((1 - cosine_N) * known_N).sum() / known_N.sum().clamp(min=1)


@dataclass(frozen=True)
class Masked:
    ids_N: Tensor
    places_M: Tensor
    labels_M: Tensor


def mask(batch: Batch, rate: float, most: int, corpus: Tensor) -> Masked:
    """80/10/10."""
    ids_N, device = batch.tokens.ids, batch.tokens.ids.device
    chosen_N = (torch.rand(len(ids_N), device=device) < rate) & (batch.word_N >= 0)
    places_M = torch.argsort(chosen_N.byte(), descending=True, stable=True)[:most]
    labels_M = torch.where(chosen_N[places_M], ids_N[places_M], -100)
    kept_N = torch.zeros_like(chosen_N)
    kept_N[places_M] = labels_M >= 0
    fate_N = torch.rand(len(ids_N), device=device)
    other_N = corpus[torch.randint(len(corpus), (len(ids_N),), device=device)].long()
    other_N = torch.where((other_N < SPECIAL) | (other_N == MASK), MASK, other_N)
    shown_N = torch.where(kept_N & (fate_N < 0.8), MASK, torch.where(kept_N & (fate_N < 0.9), other_N, ids_N))
    return Masked(shown_N, places_M, labels_M)


class Losses:
    """The terms of L of a batch with masks."""

    def __init__(
        self, student: Student, targets: Targets, weights: dict[str, float], corpus: Tensor, most: int
    ) -> None:
        self.student, self.targets, self.weights, self.corpus, self.most = (student, targets, weights, corpus, most)

    def __call__(self, batch: Batch, rate: float) -> tuple[Tensor, dict[str, Tensor]]:
        student, weights = self.student, self.weights
        masked = mask(batch, rate, self.most, self.corpus)
        shown = TokenBatch(
            ids=masked.ids_N,
            lengths=batch.tokens.lengths,
            positions=batch.tokens.positions,
            segments=batch.tokens.segments,
            words=batch.tokens.words,
        )
        with torch.autocast(batch.sequence_N.device.type, torch.bfloat16, enabled=batch.sequence_N.is_cuda):
            states = student.encode(shown)
            z_ND = states[-1]
            mlm, right = student._masked(z_ND.index_select(0, masked.places_M), masked.labels_M)
            terms = {"mlm": mlm}
            if weights.get("word"):
                terms["word"] = self._word_term(states, batch)
        if weights.get("pair"):
            terms["pair"] = self._pair_term(z_ND, batch)
        total = sum((weights.get(name, 1.0) * term for name, term in terms.items() if weights.get(name, 1.0)), mlm * 0)
        return total, {**terms, "accuracy": right / (masked.labels_M >= 0).sum().clamp(min=1)}

    def _word_term(self, states: tuple[Tensor, ...], batch: Batch) -> Tensor:
        rows = len(self.targets.first)
        first_N = torch.where(batch.row_N < rows, self.targets.first[batch.row_N.clamp(max=rows - 1)], -1)
        known_N = (first_N >= 0) & (batch.word_N >= 0)
        target_NLT = self.targets.words[torch.where(known_N, first_N + batch.word_N, 0)]
        losses = [
            self.student._words(z_ND, part.weight, part.bias, target_NLT[:, place], known_N)
            for place, (z_ND, part) in enumerate(zip(states[:-1], self.student.words, strict=True))
        ]
        return torch.stack(losses).mean()

    def _pair_term(self, z_ND: Tensor, batch: Batch) -> Tensor:
        """The first token of a pair tells how similar the teacher's vectors of both texts are."""
        n = batch.count
        first_S = (batch.tokens.lengths.cumsum(0) - batch.tokens.lengths)[:n]
        given_S = self.student.pair(z_ND.index_select(0, first_S).float())[:, 0]
        first, second = batch.row_S[:n], batch.second_S[:n].clamp(min=0)
        known_S = batch.second_S[:n] >= 0
        known_S &= (self.targets.first[first] >= 0) & (self.targets.first[second] >= 0)
        wanted_S = (self.targets.texts[first].float() * self.targets.texts[second].float()).sum(1)
        return ((given_S - wanted_S).square() * known_S).sum() / known_S.sum().clamp(min=1)


class TextLoss:
    """The term of L of whole texts: in turn texts of random groups, and of near ones."""

    def __init__(self, adapted: Adapted, texts: Texts, vectors: Tensor, clusters: int) -> None:
        self.adapted, self.texts = adapted, texts
        self.vectors = vectors[torch.from_numpy(texts.known).to(vectors.device)]
        self.kinds = [texts.rows(None, 1), texts.rows(cluster(self.vectors, texts.groups, clusters), 2)]

    def __call__(self, step: int) -> Tensor:
        rows = next(self.kinds[step % 2])
        batch, sequence_N = self.texts.batch(rows)
        t_BD = self.vectors[torch.from_numpy(rows).to(self.vectors.device)].float()
        cosine, divergence = loss(self.adapted(batch, sequence_N, len(rows)), t_BD)
        return COSINE_WEIGHT * cosine + divergence


@dataclass(frozen=True)
class Plan:
    steps: int
    muon: float = 0.012
    rate: float = 1.5e-3
    warmup: int = 200
    masked: tuple[float, float] = (0.25, 0.15)

    def share(self, step: int) -> float:
        """Share of the peak rate."""
        left = 1 - max(0, step - self.warmup) / max(1, self.steps - self.warmup)
        return min(1.0, (step + 1) / self.warmup) * left


def train(
    losses: Losses, of_texts: TextLoss, reader: Iterator[Batch], plan: Plan, minutes: float | None, log: Path
) -> None:
    """The steps of a plan; `minutes` from the hundredth step on decide how many there are."""
    student = losses.student.train()
    config = OptimizerConfig(
        type="muon",
        muon_rate=plan.muon,
        muon_decay=0.05,
        rate=plan.rate,
        beta1=0.9,
        beta2=0.98,
        epsilon=1e-8,
        decay=0.0125,
        clip=1.0,
    )
    optimizer = build_optimizer(student, config)
    weights = [weight for weight in student.parameters() if weight.requires_grad]
    start, high = time.monotonic(), plan.masked[0]
    step = 0
    while step < plan.steps:
        if minutes and step == 100:
            start = time.monotonic()
        if minutes and step == 300:
            speed = 200 / (time.monotonic() - start)
            plan = replace(plan, steps=int(100 + 60 * minutes * speed))
            print(f"{plan.steps:,} steps in {minutes} minutes, {speed:.1f} a second", flush=True)
        share = plan.share(step)
        set_rate(optimizer, plan.rate * share)
        rate = plan.masked[1] + (high - plan.masked[1]) * (1 - step / plan.steps)
        total, terms = losses(next(reader), rate)
        total.backward()
        if weight := losses.weights.get("sentence"):
            terms["sentence"] = of_texts(step)
            (weight * terms["sentence"]).backward()
        nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if step % 100 == 0 or step == plan.steps - 1:
            record = {"step": step, "seconds": round(time.monotonic() - start, 1), "rate": round(rate, 3)}
            record |= {name: round(term.item(), 4) for name, term in terms.items()}
            if not math.isfinite(record["mlm"]):
                raise SystemExit(f"the loss is not finite at step {step}")
            print(json.dumps(record), flush=True)
            with log.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
        step += 1


def revocabulary(network: Network, old: Any, new: Any) -> None:
    """Give the rows of the embeddings to another vocabulary of the same size: a piece that is not new keeps its row,
    another has the mean of its old pieces."""
    vocabulary, table = new.get_vocab(), old.get_vocab()
    head: Any = network.objectives["masked-lm"]
    with torch.no_grad():
        for weight in (network.encoder.word_vectors, head.bias):
            before = weight.detach().clone()
            for piece, number in vocabulary.items():
                if piece in table:
                    weight[number] = before[table[piece]]
                else:
                    text = new.decode([number], skip_special_tokens=False)
                    parts = old.encode(text, add_special_tokens=False).ids or [table["<unk>"]]
                    weight[number] = before[parts].mean(0)


@torch.inference_mode()
def held_out(student: Student, reader: Reader, batches: int) -> dict[str, float]:
    """Accuracy on held-out text where [MASK] is shown for 15% of the tokens."""
    right = total = 0
    student.eval()
    torch.manual_seed(0)
    rows = iter(reader)
    for _ in range(batches):
        batch = next(rows)
        ids_N = batch.tokens.ids
        chosen_N = (torch.rand(len(ids_N), device=ids_N.device) < 0.15) & (batch.word_N >= 0)
        places_M = torch.argsort(chosen_N.byte(), descending=True, stable=True)[: int(0.2 * len(ids_N))]
        labels_M = torch.where(chosen_N[places_M], ids_N[places_M], -100)
        tokens = batch.tokens
        shown = TokenBatch(
            ids=torch.where(chosen_N, MASK, ids_N),
            lengths=tokens.lengths, positions=tokens.positions, segments=tokens.segments, words=tokens.words,
        )  # fmt: skip
        with torch.autocast(ids_N.device.type, torch.bfloat16, enabled=ids_N.is_cuda):
            z_ND = student.encode(shown)[-1]
            _, correct = student._masked(z_ND.index_select(0, places_M), labels_M)
        right, total = right + int(correct), total + int((labels_M >= 0).sum())
    student.train()
    return {"accuracy": right / total, "tokens": total}


def step_line(text: str, start: float) -> None:
    print(f"[{time.monotonic() - start:.0f} s] {text}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--text", type=Path, required=True, help="the folder that english_text.py wrote")
    parser.add_argument("--data", type=Path, required=True, help="where pairs/ and qa/ are")
    parser.add_argument("--valid", type=Path, required=True, help="held-out text")
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--teacher", required=True)
    parser.add_argument("--begin", type=Path, help="the model to begin with; the packaged one by default")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=9_000)
    parser.add_argument("--minutes", type=float, help="plan the steps by the speed of the first hundred")
    parser.add_argument("--tokens", type=int, default=81_920, help="in a batch with masks")
    parser.add_argument("--text-tokens", type=int, default=24_576, help="in a batch of whole texts")
    parser.add_argument(
        "--words", type=int, default=64_000_000, help="that the teacher reads; each takes 768 bytes of the GPU"
    )
    parser.add_argument("--weights", default="word=1,sentence=0.4,pair=5")
    parser.add_argument("--muon", type=float, default=Plan.muon)
    parser.add_argument("--rate", type=float, default=Plan.rate)
    parser.add_argument("--adapter-minutes", type=float, default=1.5)
    parser.add_argument("--adapter-tokens", type=int, default=163_840, help="in a batch of the adapter")
    parser.add_argument("--workers", type=int, default=16)
    args = parser.parse_args()
    run(args, "cuda" if torch.cuda.is_available() else "cpu")


def run(args: argparse.Namespace, device: str) -> None:
    begin, weights = (time.monotonic(), {k: float(v) for k, v in (w.split("=") for w in args.weights.split(","))})
    args.out.mkdir(parents=True, exist_ok=True)
    rows = cached_rows(args)
    step_line(f"{len(rows.lengths):,} rows, {rows.lengths.sum():,} tokens, {rows.word_counts.sum():,} words", begin)
    with lzma.open(args.valid, "rt", encoding="utf-8") as file:
        articles = file.read().split("\n\n")
    valid = read_rows(
        [Document(HELD_OUT, number, article) for number, article in enumerate(articles)],
        student=str(args.tokenizer / "tokenizer.json"), teacher=str(Path(args.teacher) / "tokenizer.json"), workers=4,
    )  # fmt: skip
    targets = teach(rows, args.teacher, words=args.words, size=SIZE, device=device)
    step_line(f"the teacher has read {int((targets.first >= 0).sum()):,} rows, {len(targets.words):,} words", begin)
    bundle = load_bundle(args.begin or packaged_model())
    tokenizer = Tokenizer.load(args.tokenizer)
    revocabulary(bundle.network, bundle.tokenizer.library, tokenizer.library)
    student = Student(bundle.network, targets.words.shape[-1], device)
    torch.manual_seed(7)
    read = (targets.first >= 0).cpu().numpy()
    reader = Reader(rows, tokens=args.tokens, device=device, seed=1)
    checks = Reader(valid, tokens=args.tokens, device=device, seed=2)
    losses = Losses(student, targets, weights, reader.ids, int(0.27 * args.tokens))
    texts = Texts.of(rows, np.flatnonzero(read), device, tokens=args.text_tokens)
    of_texts = TextLoss(student.adapted, texts, targets.texts, CLUSTERS)
    train(losses, of_texts, iter(reader), Plan(args.steps, args.muon, args.rate), args.minutes, args.out / "log.jsonl")
    scores = held_out(student, checks, 3 if len(valid.ids) > 4 * args.tokens else 1)
    step_line(f"held out: {json.dumps(scores)}", begin)
    adapter = student.adapted.tensors()
    write_tensors(args.out / "adapter.safetensors", adapter)
    network = bundle.network.cpu()
    lineage = {**bundle.lineage, "fourth_run": {"tokens": args.tokens, "weights": weights, "minutes": args.minutes}}
    save_bundle(
        args.out / "model", network=network, objective_configs=bundle.objectives, tokenizer=tokenizer,
        recipe=bundle.recipe, lineage=lineage, card="",
    )  # fmt: skip
    convert_bundle(args.out / "model", args.out / "int8", dtype="int8", overwrite=True)
    step_line(f"{args.out / 'int8'} is written", begin)
    vectors = targets.texts
    del losses, of_texts, student, targets, reader, checks
    torch.cuda.empty_cache()
    texts = Texts.of(rows, np.flatnonzero(read), device, tokens=args.adapter_tokens)
    rounded = load_bundle(args.out / "int8").network.encoder
    adapted = Adapted(rounded, adapter["dense.weight"], device, compiled=device == "cuda")
    adapted.encoder.load_state_dict({k: v for k, v in adapter.items() if ".lora." in k}, strict=False)
    fit(adapted, texts, vectors, steps=100_000, rate=1e-3, clusters=CLUSTERS, until=60 * args.adapter_minutes)
    write_tensors(args.out / "adapter.safetensors", adapted.tensors())
    step_line(f"{args.out / 'adapter.safetensors'} is written", begin)


def cached_rows(args: argparse.Namespace) -> Rows:
    """The rows, kept for another run on the same text."""
    path = args.out / "rows.npz"
    if not path.exists():
        rows = read_rows(
            read_documents(args.text, args.data), student=str(args.tokenizer / "tokenizer.json"),
            teacher=str(Path(args.teacher) / "tokenizer.json"), workers=args.workers,
        )  # fmt: skip
        np.savez(path, *(getattr(rows, field.name) for field in fields(Rows)))
        return rows
    with np.load(path) as arrays:
        return Rows(*(arrays[f"arr_{n}"] for n in range(len(fields(Rows)))))


if __name__ == "__main__":
    main()
