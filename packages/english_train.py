"""The second edition of the English model: masked words, and a teacher's words and texts, learnt together.

    python packages/english_train.py --text text --data DATA --valid DATA/text/en_wiki.valid.txt.xz --tokenizer tok
        --teacher all-mpnet-base-v2 --minutes 15 --out runs/second

    L = L_mlm + a · mean (1 - cos(P_l z_l, t_l))
              + b · (4 · mean (1 - s · t) + KL(softmax(t t' / τ) ‖ softmax(s s' / τ)))
              + c · mean (p - t · t')²

z_l are the student's tokens at layers 7 and 9, t_l the teacher's words at layers 8 and 12 (`english_rows.py`); s are
unit vectors of texts, a linear layer of the mean of their tokens, and t the teacher's, reduced by PCA; p is the
similarity of two texts that are read as a pair, from their first token. A third of the sequences are shown whole, the
others have masked tokens; L_mlm is that of `larvatus pretrain`. Then the sentence adapter is fitted to the rounded
weights (`english_sentences.py`). For a GPU of 120 GB; on a CPU only a few steps are practical.
"""

from __future__ import annotations

import argparse
import json
import lzma
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from english_rows import HELD_OUT, STEP, TEXT, Document, Ints, Rows, Targets, read_documents, read_rows, teach
from english_sentences import Student as Adapted
from english_sentences import Texts
from english_sentences import train as fit
from torch import Tensor, nn

from larvatus.core.batch import NO_WORD, TokenBatch
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.models.bundle.convert import convert_bundle
from larvatus.models.bundle.directory import load_bundle, save_bundle
from larvatus.models.bundle.model_names import packaged_model
from larvatus.models.bundle.weights import write_tensors
from larvatus.models.network import Network
from larvatus.models.recipes import OptimizerConfig
from larvatus.training.engine.optimizer import build_optimizer, set_rate

LAYERS = (7, 9)
"""Of the student, in the order of the teacher's."""
SIZE = 512
"""Of a text's vector."""
LIMIT, PAIR = 512, 64
"""Longest sequence, and longest text of a pair, in tokens."""
CLEAN, PAIRED, OTHERS = 0.35, 0.25, 0.5
"""Share of the sequences that are shown whole, of the short texts that are read with their neighbour, and of the rows
that the teacher has not read in an epoch."""
Flags = npt.NDArray[np.bool_]
TEMPERATURE, COSINE_WEIGHT = 0.05, 4.0
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
    clean_S: Tensor
    edited_S: Tensor
    row_S: Tensor
    """The first row of each sequence."""
    second_S: Tensor
    """The second row; −1 for single texts and filling."""
    count: int


class Reader:
    """Batches of rows on a device."""

    def __init__(self, rows: Rows, known: Flags, *, tokens: int, device: str, seed: int) -> None:
        """`known` are the rows that the teacher has read."""
        self.rows, self.known, self.tokens, self.sequences, self.device = (rows, known, tokens, tokens // 20, device)
        self.ids = torch.from_numpy(rows.ids.astype(np.int32)).to(device)
        self.words = torch.from_numpy(rows.words).to(device)
        self.starts = np.cumsum(rows.lengths) - rows.lengths
        self.random = np.random.default_rng(seed)

    def _order(self) -> Ints:
        """The rows of an epoch: those of the teacher, and half of the others. Up to four of a group stay together."""
        random, groups = self.random, self.rows.groups
        used = self.known | ((self.rows.kinds == TEXT) & (random.random(len(groups)) < OTHERS))
        order = np.flatnonzero(used)
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
            "clean": np.concatenate([self.known[rows[firsts]] & (random.random(count) < CLEAN), np.zeros(left, bool)]),
            "edited": np.concatenate([self.rows.kinds[rows[firsts]] != TEXT, np.ones(left, bool)]),
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
        edited_S = on["edited"]
        return Batch(
            tokens, sequence_N, row_N, word_N, on["clean"] | edited_S, edited_S, on["first"], on["second"], count
        )


class Student(nn.Module):
    """The English encoder, its masked-lm head, and what is only there while it learns."""

    def __init__(self, network: Network, width: int, *, compiled: bool) -> None:
        super().__init__()
        self.network = network
        hidden = network.encoder.width
        torch.manual_seed(1)
        self.words = nn.ModuleList(nn.Linear(hidden, width) for _ in LAYERS)
        self.dense = nn.Linear(hidden, SIZE, bias=False)
        self.pair = nn.Sequential(nn.Linear(hidden, hidden), nn.GELU(), nn.Linear(hidden, 1))
        nn.init.orthogonal_(self.dense.weight)
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

    def texts(self, z_ND: Tensor, batch: Batch) -> Tensor:
        """[S, SIZE] unit vectors of sequences."""
        sums_SD = torch.zeros(len(batch.tokens.lengths), z_ND.shape[1], device=z_ND.device)
        means_SD = sums_SD.index_add(0, batch.sequence_N, z_ND.float()) / batch.tokens.lengths.clamp(min=1)[:, None]
        return F.normalize(self.dense(means_SD), dim=-1)


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
    """80/10/10 in the sequences that are not shown whole."""
    ids_N, device = batch.tokens.ids, batch.tokens.ids.device
    chosen_N = (torch.rand(len(ids_N), device=device) < rate) & (batch.word_N >= 0) & ~batch.clean_S[batch.sequence_N]
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
    """The terms of L on a batch."""

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
        if weights.get("sentence"):
            terms["sentence"] = self._text_term(student.texts(z_ND, batch), batch)
        if weights.get("pair"):
            terms["pair"] = self._pair_term(z_ND, batch)
        total = sum((weights.get(name, 1.0) * term for name, term in terms.items() if weights.get(name, 1.0)), mlm * 0)
        return total, {**terms, "accuracy": right / (masked.labels_M >= 0).sum().clamp(min=1)}

    def _word_term(self, states: tuple[Tensor, ...], batch: Batch) -> Tensor:
        rows = len(self.targets.first)
        first_N = torch.where(batch.row_N < rows, self.targets.first[batch.row_N.clamp(max=rows - 1)], -1)
        known_N = (first_N >= 0) & (batch.word_N >= 0)
        target_N2T = self.targets.words[torch.where(known_N, first_N + batch.word_N, 0)]
        losses = [
            self.student._words(z_ND, part.weight, part.bias, target_N2T[:, place], known_N)
            for place, (z_ND, part) in enumerate(zip(states, self.student.words, strict=True))
        ]
        return torch.stack(losses).mean()

    def _text_term(self, s_SD: Tensor, batch: Batch) -> Tensor:
        """Of the single texts that are shown whole."""
        n = batch.count
        known_S = batch.clean_S[:n] & (batch.second_S[:n] < 0) & (self.targets.first[batch.row_S[:n]] >= 0)
        s_BD, t_BD = s_SD[:n], self.targets.texts[batch.row_S[:n]].float()
        cosine = ((1 - (s_BD * t_BD).sum(1)) * known_S).sum()
        hidden = torch.eye(n, dtype=torch.bool, device=s_BD.device) | ~known_S[None]
        wanted, given = (F.log_softmax((v @ v.T / TEMPERATURE).masked_fill(hidden, -1e4), 1) for v in (t_BD, s_BD))
        divergence = (F.kl_div(given, wanted, log_target=True, reduction="none").sum(1) * known_S).sum()
        return (COSINE_WEIGHT * cosine + divergence) / known_S.sum().clamp(min=1)

    def _pair_term(self, z_ND: Tensor, batch: Batch) -> Tensor:
        """Of pairs that are shown whole: the first token tells how similar the teacher's vectors are."""
        n = batch.count
        first_S = (batch.tokens.lengths.cumsum(0) - batch.tokens.lengths)[:n]
        given_S = self.student.pair(z_ND.index_select(0, first_S).float())[:, 0]
        first, second = batch.row_S[:n], batch.second_S[:n].clamp(min=0)
        known_S = (batch.second_S[:n] >= 0) & batch.clean_S[:n]
        known_S &= (self.targets.first[first] >= 0) & (self.targets.first[second] >= 0)
        wanted_S = (self.targets.texts[first].float() * self.targets.texts[second].float()).sum(1)
        return ((given_S - wanted_S).square() * known_S).sum() / known_S.sum().clamp(min=1)


@dataclass(frozen=True)
class Plan:
    steps: int
    muon: float = 0.012
    rate: float = 1.5e-3
    warmup: int = 200
    masked: tuple[float, float] = (0.3, 0.15)

    def share(self, step: int) -> float:
        """Share of the peak rate."""
        left = 1 - max(0, step - self.warmup) / max(1, self.steps - self.warmup)
        return min(1.0, (step + 1) / self.warmup) * left


def train(losses: Losses, reader: Iterator[Batch], plan: Plan, minutes: float | None, log: Path) -> None:
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
    parser.add_argument("--tokens", type=int, default=98_304, help="in a batch")
    parser.add_argument(
        "--words", type=int, default=45_000_000, help="that the teacher reads; each takes 1.5 KiB of the GPU"
    )
    parser.add_argument("--weights", default="word=2,sentence=0.5,pair=5")
    parser.add_argument("--muon", type=float, default=Plan.muon)
    parser.add_argument("--rate", type=float, default=Plan.rate)
    parser.add_argument("--adapter-minutes", type=float, default=3.5)
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
    student = Student(bundle.network, targets.words.shape[-1], compiled=device == "cuda").to(device)
    torch.manual_seed(7)
    read = (targets.first >= 0).cpu().numpy()
    reader = Reader(rows, read, tokens=args.tokens, device=device, seed=1)
    checks = Reader(valid, np.ones(len(valid.lengths), bool), tokens=args.tokens, device=device, seed=2)
    losses = Losses(student, targets, weights, reader.ids, int(0.32 * args.tokens))
    train(losses, iter(reader), Plan(args.steps, args.muon, args.rate), args.minutes, args.out / "log.jsonl")
    scores = held_out(student, checks, 3 if len(valid.ids) > 4 * args.tokens else 1)
    step_line(f"held out: {json.dumps(scores)}", begin)
    network = bundle.network.cpu()
    lineage = {**bundle.lineage, "second_edition": {"steps": args.steps, "tokens": args.tokens, "weights": weights}}
    save_bundle(
        args.out / "model", network=network, objective_configs=bundle.objectives, tokenizer=tokenizer,
        recipe=bundle.recipe, lineage=lineage, card="",
    )  # fmt: skip
    convert_bundle(args.out / "model", args.out / "int8", dtype="int8", overwrite=True)
    dense = student.dense.weight.detach().float()
    heads = {
        "dense.weight": dense,
        **{f"words.{n}.{k}": v for n, m in enumerate(student.words) for k, v in m.state_dict().items()},
    }
    write_tensors(
        args.out / "heads.safetensors", {name: tensor.half().cpu().contiguous() for name, tensor in heads.items()}
    )
    step_line(f"{args.out / 'int8'} is written", begin)
    texts, vectors = (Texts.of(rows, np.flatnonzero(read), device, tokens=args.adapter_tokens), targets.texts)
    del losses, student, targets, reader, checks
    torch.cuda.empty_cache()
    adapted = Adapted(load_bundle(args.out / "int8").network.encoder, dense.cpu(), device, compiled=device == "cuda")
    fit(adapted, texts, vectors, steps=100_000, rate=2e-3, clusters=320, until=60 * args.adapter_minutes)
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
