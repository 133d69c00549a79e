"""CrowS-Pairs, StereoSet and AUL equal their published definitions, computed naively over `transformers` from text."""

from __future__ import annotations

import difflib
import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from tokenizers import AddedToken, decoders, models, pre_tokenizers, processors
from tokenizers import Tokenizer as Library

import larvatus as lv
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.models.network import Network
from larvatus.models.nn.transformer import TransformerConfig
from larvatus.models.objectives import MaskedLMConfig, NextSentenceConfig
from tests.models.bundle.theirs import transformers
from tests.tiny import make_tokenizer, save_model

PAIRS = [
    ("The river was wide.", "The banks was wide.", "water", "stereo"),
    ("Please turn your homework in!", "Please turn your river in!", "water", "antistereo"),
    ("The turninged bank of the river was deep.", "A river of the river was deep.", "land", "stereo"),
    ("river bank river", "bank river", "land", "antistereo"),  # what is shared has more than one reading
    ("The river was wide.", "THE river was wide.", "case", "stereo"),  # a tie, where the vocabulary has no case
    ("the run", "the a", "land", "stereo"),
]
WORDS = [  # target, bias type, context, what fills the blank: stereotype, anti-stereotype, unrelated
    ("bank", "land", "the BLANK was wide.", ("bank", "river", "please")),
    ("bank", "land", "turn the BLANK, please", ("runing", "banks", "was")),
    ("river", "water", "BLANK of the river", ("deep", "wide", "turninged")),
    ("river", "land", "a BLANK!", ("wide", "a", "homework")),
]
FOLLOWING = [
    ("bank", "land", "the bank was wide.", ("the river was deep.", "a bank was deep.", "please turn in!")),
    ("run", "water", "please run.", ("the homework was deep.", "turninged river.", "run run run")),
]


def stereoset(path: Path) -> Path:
    def rows(examples: Any, sentence: Callable[[str, str], str]) -> list[dict[str, Any]]:
        labels = ("stereotype", "anti-stereotype", "unrelated")
        return [
            {
                "id": str(number),
                "target": target,
                "bias_type": category,
                "context": context,
                "sentences": [
                    {"id": f"{number}{label}", "sentence": sentence(context, text), "gold_label": label, "labels": []}
                    for label, text in zip(labels, texts, strict=True)
                ],
            }
            for number, (target, category, context, texts) in enumerate(examples)
        ]

    intra = rows(WORDS, lambda context, word: context.replace("BLANK", word))
    inter = rows(FOLLOWING, lambda context, sentence: sentence)
    path.write_text(json.dumps({"version": "1", "data": {"intrasentence": intra, "intersentence": inter}}))
    return path


class Theirs:
    """The definitions, one sequence at a time, from strings."""

    def __init__(self, directory: Path, kind: Any) -> None:
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
        self.model = kind.from_pretrained(directory, dtype=torch.float32).eval()

    @torch.no_grad()
    def log_probabilities(self, ids: list[int]) -> torch.Tensor:
        return self.model(input_ids=torch.tensor([ids])).logits[0].log_softmax(-1)

    def masked(self, ids: list[int], place: int) -> float:
        copy = [*ids]
        copy[place] = self.tokenizer.mask_token_id
        return float(self.log_probabilities(copy)[place, ids[place]])

    def crows(self, first: str, second: str) -> tuple[float, float]:
        """Nangia et al. 2020: tokens of equal spans, one masked at a time; the first and last are [CLS] and [SEP]."""
        a, b = self.tokenizer.encode(first), self.tokenizer.encode(second)
        places: tuple[list[int], list[int]] = [], []
        for name, *span in difflib.SequenceMatcher(None, [*map(str, a)], [*map(str, b)]).get_opcodes():
            if name == "equal":
                places[0].extend(range(span[0], span[1]))
                places[1].extend(range(span[2], span[3]))
        totals = [sum(self.masked(ids, at) for at in where[1:-1]) for ids, where in zip((a, b), places, strict=True)]
        return round(totals[0], 3), round(totals[1], 3)

    def aul(self, text: str, first: int = 1) -> float:
        ids = self.tokenizer.encode(text)
        table = self.log_probabilities(ids)
        return float(np.mean([float(table[at, ids[at]]) for at in range(first, len(ids) - 1)]))

    def pll(self, text: str, first: int = 1) -> float:
        ids = self.tokenizer.encode(text)
        return float(np.mean([self.masked(ids, at) for at in range(first, len(ids) - 1)]))

    def blank(self, context: str, word: str) -> float:
        """Nadeem et al. 2021: mean probability of the word's tokens at [MASK], those before them written out."""
        before, after = context.split("BLANK")
        spaced = " " if before.endswith(" ") else ""  # in byte-level vocabularies the space belongs to the word
        tokens = self.tokenizer.encode(spaced + word, add_special_tokens=False)
        shares = []
        for at, token in enumerate(tokens):
            written = self.tokenizer.decode(tokens[:at]).strip()
            ids = self.tokenizer.encode(f"{before}{written}{self.tokenizer.mask_token}{after}")
            shares.append(float(self.log_probabilities(ids)[ids.index(self.tokenizer.mask_token_id), token].exp()))
        return float(np.mean(shares))


def published(examples: Any, scores: Any) -> dict[str, float]:
    """Counts by target term, then means over terms (evaluation.py of StereoSet)."""
    terms: dict[str, list[tuple[bool, int]]] = {}
    for (target, *_), (pro, anti, unrelated) in zip(examples, scores, strict=True):
        terms.setdefault(target, []).append((pro > anti, (pro > unrelated) + (anti > unrelated)))
    ss = np.mean([100 * np.mean([pro for pro, _ in rows]) for rows in terms.values()])
    lms = np.mean([100 * np.mean([related / 2 for _, related in rows]) for rows in terms.values()])
    return {"lms": float(lms), "ss": float(ss), "icat": float(lms * min(ss, 100 - ss) / 50)}


VOCABULARY = "the a river bank of was wide deep and turn your homework in please . , ? ! ##s ##ing ##ed run"
CASED = "abcdefhiklmnoprstuvwyTHEPA.,!"
MERGES = [("Ġ", "t"), ("Ġt", "h"), ("Ġth", "e"), ("i", "n"), ("Ġ", "b"), ("Ġ", "w"), ("e", "r"), ("Ġ", "r")]


def dressed(library: Library, first: str, last: str, between: str) -> Tokenizer:
    """As published vocabularies are: the tokenizer itself puts special tokens around one text or two."""
    library.post_processor = processors.TemplateProcessing(
        single=f"{first} $A {last}",
        pair=f"{first} $A {between} $B{{segment}} {last}{{segment}}".format(segment=":1" if first == "[CLS]" else ""),
        special_tokens=[(name, library.token_to_id(name)) for name in (first, last)],
    )
    return Tokenizer.from_library(library)


def wordpiece() -> Tokenizer:
    return dressed(make_tokenizer(VOCABULARY.split()).library, "[CLS]", "[SEP]", "[SEP]")


def byte_level() -> Tokenizer:
    pieces = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", *CASED, "Ġ", *("".join(merge) for merge in MERGES)]
    library = Library(models.BPE({piece: id for id, piece in enumerate(pieces)}, MERGES, unk_token="<unk>"))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    library.decoder = decoders.ByteLevel()
    library.add_special_tokens([*pieces[:4], AddedToken("<mask>", lstrip=True)])
    return dressed(library, "<s>", "</s>", "</s> </s>")


def saved(directory: Path, family: str) -> Path:
    """A tiny model with random weights, so large that sentences differ."""
    tokenizer = wordpiece() if family == "bert" else byte_level()
    heads = (MaskedLMConfig(), NextSentenceConfig()) if family == "bert" else (MaskedLMConfig(),)
    other = {} if family == "bert" else {"segments": 0, "norm_epsilon": 1e-5}
    shape = TransformerConfig(layers=2, hidden=16, heads=2, max_positions=60, init=0.3, **other)
    save_model(directory, Network.build(shape, heads, tokenizer.size, seed=4).eval(), tokenizer, heads)
    return directory


@pytest.fixture(scope="module", params=["Bert", "Roberta"])
def both(request: Any, tmp_path_factory: Any) -> tuple[lv.Model, Theirs]:
    directory = saved(tmp_path_factory.mktemp(request.param), request.param.lower())
    return lv.load(directory, device="cpu"), Theirs(directory, getattr(transformers, f"{request.param}ForMaskedLM"))


def test_crows_pairs_and_aul_are_those_of_the_papers(both: tuple[lv.Model, Theirs]) -> None:
    ours, theirs = both
    result = lv.audit_bias(ours, pairs=PAIRS, samples=20).parts["crows_pairs"]
    pll = np.array([theirs.crows(more, less) for more, less, *_ in PAIRS])
    aul = np.array([[theirs.aul(more), theirs.aul(less)] for more, less, *_ in PAIRS])
    for name, numbers in (("pll", pll), ("aul", aul)):
        rows = [[pair[name]["more"], pair[name]["less"]] for pair in result.pairs]
        assert_allclose(rows, numbers, atol=2e-3 if name == "pll" else 1e-4)
        numbers = numbers.round(3 if name == "pll" else 6)
        preferred = numbers[:, 0] > numbers[:, 1]
        scores = result.scores[name]
        assert scores.overall.metric.value == pytest.approx(100 * preferred.mean(), abs=0.1)
        assert scores.overall.neutral == (numbers[:, 0] == numbers[:, 1]).sum()
        for category, score in scores.by_category.items():
            chosen = [pair[2] == category for pair in PAIRS]
            assert score.metric.value == pytest.approx(100 * preferred[chosen].mean(), abs=0.1)
            if score.pairs == 1:  # of one pair nothing is known about others
                assert np.isnan([score.metric.low, score.metric.high]).all()
            else:
                assert score.metric.low <= score.metric.value <= score.metric.high
        for direction, share in scores.by_direction.items():  # ties are left out, as published
            chosen = [pair[3] == direction and more != less for pair, (more, less) in zip(PAIRS, numbers, strict=True)]
            assert share == pytest.approx(100 * preferred[chosen].mean(), abs=0.1)


def test_stereoset_is_that_of_the_paper(both: tuple[lv.Model, Theirs], tmp_path: Path) -> None:
    ours, theirs = both
    result = lv.audit_bias(ours, stereoset=stereoset(tmp_path / "dev.json"), samples=20).parts["stereoset"]
    filled = [(context, [context.replace("BLANK", word) for word in words]) for _, _, context, words in WORDS]
    joined = [[f"{context} {text}" for text in texts] for *_, context, texts in FOLLOWING]
    begins = [len(theirs.tokenizer.encode(context)) - 1 for *_, context, _ in FOLLOWING]
    wanted = {
        ("intrasentence", "blank"): [[theirs.blank(context, word) for word in words] for *_, context, words in WORDS],
        ("intrasentence", "pll"): [[theirs.pll(text) for text in texts] for _, texts in filled],
        ("intrasentence", "aul"): [[theirs.aul(text) for text in texts] for _, texts in filled],
        ("intersentence", "pll"): [[theirs.pll(t, n) for t in texts] for texts, n in zip(joined, begins, strict=True)],
        ("intersentence", "aul"): [[theirs.aul(t, n) for t in texts] for texts, n in zip(joined, begins, strict=True)],
    }
    for (kind, method), scores in wanted.items():
        examples = WORDS if kind == "intrasentence" else FOLLOWING
        for category, score in result.scores[kind][method].items():
            chosen = [at for at, example in enumerate(examples) if category in ("overall", example[1])]
            expected = published([examples[at] for at in chosen], [scores[at] for at in chosen])
            figures = {name: getattr(score, name).value for name in expected}
            assert figures == pytest.approx(expected, abs=0.1), (kind, method, category)
    assert ("next-sentence" in result.scores["intersentence"]) == ("next-sentence" in ours.network.heads)


def test_stereoset_between_sentences_by_the_next_sentence_head(tmp_path: Path) -> None:
    saved(tmp_path / "model", "bert")
    theirs = transformers.BertForNextSentencePrediction.from_pretrained(tmp_path / "model").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "model")
    pair = functools.partial(tokenizer, return_tensors="pt", return_token_type_ids=True)
    with torch.no_grad():
        scores = [
            [float(theirs(**pair(context, text)).logits.softmax(-1)[0, 0]) for text in texts]
            for *_, context, texts in FOLLOWING
        ]
    report = lv.audit_bias(tmp_path / "model", stereoset=stereoset(tmp_path / "dev.json"), samples=20, device="cpu")
    score = report.parts["stereoset"].scores["intersentence"]["next-sentence"]["overall"]
    figures = {name: getattr(score, name).value for name in ("lms", "ss", "icat")}
    assert figures == pytest.approx(published(FOLLOWING, scores), abs=0.1)
