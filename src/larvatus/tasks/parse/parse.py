"""Predicted trees: scores of arcs, the best tree of each sentence, then relations and annotations of its words.

    trees = predict_trees(model, encoded, ScoringOptions())
    docs = parsed_texts(model, texts, windows, scoring, tokenizer)

Sentences of nearly equal length make a batch under a budget of tokens, and only numbers of labels are kept of it, so
memory does not grow with pairs of words. Only the root has the relation `root`, as in Universal Dependencies.
E sentences, W words, K labels.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from larvatus.core.arrays import Floats, Ints
from larvatus.core.batch import TrainingBatch, edges, runs
from larvatus.models.heads.parsing import Parsing, ParsingConfig, WordTrees
from larvatus.models.network import Network
from larvatus.models.nn.device import on_device, to_device
from larvatus.tasks.encoding.sequences import run_indices
from larvatus.tasks.parse.encode import EncodedTrees, LabelledTrees, SentenceInput, starts_of
from larvatus.tasks.parse.lemmas import apply_script
from larvatus.tasks.parse.results import ParsedSentence, ParsedWord, split_feats
from larvatus.tasks.parse.spanning_tree import best_tree
from larvatus.tasks.scoring import ScoringOptions, head_as

ROOT_RELATION = "root"
SCRIPTS = 4
"""Scripts that are tried for a lemma, likeliest first, where a form is too short for one."""


def parser_of(model: Network, name: str = "the model") -> Parsing:
    """The head of a model that parses."""
    return head_as(model, Parsing, "parse sentences", name)


@dataclass(frozen=True, eq=False)
class PredictedTrees:
    """What is predicted for all words, in their order."""

    sizes: Ints  # [E]
    heads: Ints  # [W] number within the sentence, from 1; 0: the root
    probabilities: Floats  # [W] of the head
    relations: Ints  # [W]
    upos: Ints  # [W] −1 where the head does not predict it; so the next two
    feats: Ints  # [W]
    scripts: Ints  # [W, SCRIPTS] the likeliest first
    loss: float
    """Sum of the losses of the words; 0 without gold trees."""

    @classmethod
    def empty(cls, sizes: Ints) -> PredictedTrees:
        words = int(sizes.sum())
        columns = [np.full(words, -1, np.int64) for _ in range(4)]
        return cls(
            sizes=sizes,
            heads=columns[0],
            probabilities=np.zeros(words, np.float32),
            relations=columns[1],
            upos=columns[2],
            feats=columns[3],
            scripts=np.full((words, SCRIPTS), -1, np.int64),
            loss=0.0,
        )


@torch.inference_mode()
def predict_trees(
    model: Network, encoded: EncodedTrees, scoring: ScoringOptions, gold: LabelledTrees | None = None
) -> PredictedTrees:
    """The trees of all sentences; with gold trees of the same sentences, their loss too."""
    head = parser_of(model)
    model.eval()
    trees, starts, loss = PredictedTrees.empty(encoded.sizes), starts_of(encoded.sizes), 0.0
    lengths = np.diff(edges(encoded.sequences.lengths)[edges(encoded.sequences.parts)])
    order = np.argsort(lengths, kind="stable")
    for first, last in runs(lengths[order], scoring.budget):
        chosen = order[first:last]
        arrays = TrainingBatch(tokens=encoded.tokens(chosen), targets={}) if gold is None else gold.batch(chosen)
        batch = on_device(arrays, scoring.device)
        with scoring.autocast():
            states = head.states(model.encoder, batch.tokens, limit=int(arrays.tokens.lengths.max()))
            z_WD = head.trunk(head.features(states, batch))
            sizes = encoded.sizes[chosen]
            _fill(trees, head, z_WD, sizes, run_indices(starts[chosen], sizes))
            if gold is not None:
                loss += float(head.tree_loss(z_WD, batch.targets[WordTrees]).total)
    return trees if gold is None else dataclasses.replace(trees, loss=loss)


def _fill(trees: PredictedTrees, head: Parsing, z_WD: Tensor, sizes: Ints, at: Ints) -> None:
    """Predict the words of a batch, whose numbers among all words are `at`."""
    heads = np.zeros(int(sizes.sum()), np.int64)
    sure = np.zeros(len(heads), np.float32)
    for group, _, scores in head.arcs(z_WD, head.root, sizes.tolist()):
        tables = scores.cpu().numpy()
        shares = torch.softmax(scores / head.config.temperature, -1).cpu().numpy()
        for words, size, table, share in zip(group.words, group.sizes.tolist(), tables, shares, strict=True):
            heads[words[:size]] = best = best_tree(table[:size, : size + 1].T)
            sure[words[:size]] = share[np.arange(size), best]
    before = np.repeat(starts_of(sizes), sizes)
    numbers = to_device(np.where(heads > 0, before + heads - 1, -1), z_WD.device)
    relations = _relation_labels(head.relation_scores(z_WD, numbers), heads, head.config)
    trees.heads[at], trees.probabilities[at], trees.relations[at] = heads, sure, relations
    for name in head.annotations:
        scores_WK = head.annotation_scores(z_WD, name)
        if name == "scripts":
            best = scores_WK.topk(min(SCRIPTS, scores_WK.shape[1]), -1).indices.cpu().numpy()
            trees.scripts[at, : best.shape[1]] = best
        else:
            getattr(trees, name)[at] = scores_WK.argmax(-1).cpu().numpy()


def _relation_labels(scores_WK: Tensor, heads: Ints, config: ParsingConfig) -> Ints:
    """The best relation of each word: `root` for the root only, where the model has it."""
    if ROOT_RELATION in config.labels and len(config.labels) > 1:
        root, scores_WK = config.labels.index(ROOT_RELATION), scores_WK.clone()
        scores_WK[:, root] = -torch.inf
        best: Ints = scores_WK.argmax(-1).cpu().numpy()
        return np.where(heads == 0, root, best)
    return np.asarray(scores_WK.argmax(-1).cpu().numpy(), np.int64)


def parsed_sentences(
    trees: PredictedTrees, sentences: Sequence[SentenceInput], config: ParsingConfig
) -> Iterator[ParsedSentence]:
    """Predicted trees as objects."""
    feats = [split_feats(cell) for cell in config.feats]
    place = 0
    for sentence in sentences:
        spans = [span for token in sentence.tokens for span in token.word_spans()]
        words = []
        for number, (text, (start, end)) in enumerate(zip(sentence.words, spans, strict=True), start=1):
            words.append(
                ParsedWord(
                    id=number,
                    text=text,
                    head=int(trees.heads[place]),
                    relation=config.labels[trees.relations[place]],
                    lemma=_lemma(text, trees.scripts[place].tolist(), config) if config.scripts else None,
                    upos=config.upos[trees.upos[place]] if config.upos else None,
                    feats=feats[trees.feats[place]] if config.feats else None,
                    start=start,
                    end=end,
                    probability=float(trees.probabilities[place]),
                )
            )
            place += 1
        yield ParsedSentence(
            text=sentence.text,
            start=sentence.start,
            end=sentence.end,
            words=tuple(words),
            tokens=sentence.tokens,
            lines=sentence.lines,
        )


def _lemma(form: str, scripts: Sequence[int], config: ParsingConfig) -> str:
    """The lemma by the likeliest script that the form is long enough for; the form itself without one."""
    for script in scripts:
        if script >= 0 and (lemma := apply_script(config.scripts[script], form)) is not None:
            return lemma
    return form
