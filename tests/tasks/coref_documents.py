"""Documents by a rule: "the river" is one thing throughout, and "your" is the thing that was named last."""

from __future__ import annotations

import json
from pathlib import Path

from larvatus.core.rng import stream
from larvatus.data.labelled.records import Place
from larvatus.tasks.coref.examples import CorefExample, WordSpan, sort_clusters

NOUNS = ("river", "bank", "homework")
FILLERS = ("was", "wide", "deep", "and", "turn", "in", "please")


def document(number: int, *, sentences: int = 6, seed: int = 0, singletons: bool = False) -> CorefExample:
    random = stream(seed, "test documents", 0, number)
    words: list[str] = []
    groups: dict[str, list[WordSpan]] = {}
    starts, last = [], ""
    for place in range(sentences):
        starts.append(len(words))
        noun = str(random.choice(NOUNS))
        if place and random.random() < 0.4:
            groups[last].append((len(words), len(words) + 1))
            words.append("your")
        else:
            groups.setdefault(noun, []).append((len(words), len(words) + 2))
            words += ["the", noun]
            last = noun
        words += random.choice(FILLERS, size=random.integers(1, 4)).tolist()
        words.append(".")
    kept = groups if singletons else {name: spans for name, spans in groups.items() if len(spans) > 1}
    clusters, _ = sort_clusters(kept)
    return CorefExample(tuple(words), clusters, Place("made", number + 1), id=f"d{number}", sentences=tuple(starts))


def documents(count: int, **how: int) -> list[CorefExample]:
    return [document(number, **how) for number in range(count)]


def rows(examples: list[CorefExample]) -> list[dict[str, object]]:
    return [
        {
            "id": example.id,
            "words": list(example.words),
            "clusters": [[[first, end - 1] for first, end in cluster] for cluster in example.clusters or ()],
        }
        for example in examples
    ]


def write(path: Path, examples: list[CorefExample]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows(examples)))
    return path
