"""Clusters from the scores of mentions and antecedents.

    for clusters in predicted_clusters(model, documents, scoring): …      # of each document: words [first, end)

Words are encoded window by window, and their vectors kept for the whole document; mentions are then chosen and compared
over all of it. What is linked, directly or through others, is a cluster.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch

from larvatus.core.arrays import Floats, Ints
from larvatus.core.batch import edges
from larvatus.models.heads.coreference import Coreference
from larvatus.models.network import Network
from larvatus.models.nn.device import on_device
from larvatus.tasks.coref.encode import CorefDocuments
from larvatus.tasks.coref.examples import WordSpan
from larvatus.tasks.coref.results import DocumentWord, Mention, MentionCluster, ResolvedDocument
from larvatus.tasks.encoding.sequences import run_indices
from larvatus.tasks.features import Features
from larvatus.tasks.results import Coverage, coverages
from larvatus.tasks.scoring import ScoringOptions, batches_by_length, head_as


@dataclass(frozen=True, eq=False)
class ResolvedMentions:
    """Mentions of one document and their antecedents."""

    first: Ints  # [m]
    last: Ints  # [m] inclusive
    scores: Floats  # [m] log-odds of being a mention
    antecedents: Ints  # [m] the best antecedent of each, −1 for none

    def clusters(self, *, singletons: bool) -> list[list[int]]:
        """Numbers of the mentions of each cluster, in the order of the text."""
        owner: dict[int, int] = {}
        clusters: list[list[int]] = []
        linked = set(self.antecedents[self.antecedents >= 0].tolist())
        for number, earlier in enumerate(self.antecedents.tolist()):
            if earlier >= 0:
                owner[number] = owner[earlier]
                clusters[owner[number]].append(number)
            elif number in linked or (singletons and self.scores[number] > 0):
                owner[number] = len(clusters)
                clusters.append([number])
        return clusters

    def spans(self, *, singletons: bool) -> list[list[WordSpan]]:
        """The clusters as words [first, end) of their mentions."""
        spans = list(zip(self.first.tolist(), (self.last + 1).tolist(), strict=True))
        return [[spans[number] for number in cluster] for cluster in self.clusters(singletons=singletons)]


def coref_head(model: Network, name: str = "the model") -> Coreference:
    """The head of a model that resolves coreference."""
    return head_as(model, Coreference, "resolve coreference", name)


@torch.inference_mode()
def word_vectors(model: Network, documents: CorefDocuments, scoring: ScoringOptions) -> Floats:
    """[W, D] vectors of the words of all documents, each from the window where it sees most."""
    head, sequences = coref_head(model), documents.sequences
    model.eval()
    assert sequences.words is not None
    before, counts = edges(sequences.words.counts)[:-1], sequences.words.counts
    vectors = np.zeros((int(counts.sum()), head.width), np.float32)
    for chosen in batches_by_length(sequences, scoring.budget):
        batch = on_device(sequences.inputs(chosen), scoring.device)
        with scoring.autocast():
            states = head.states(model.encoder, batch.tokens, limit=int(sequences.lengths[chosen[-1]]))
            z_WD = head.trunk(head.features(states, batch))
        vectors[run_indices(before[chosen], counts[chosen])] = z_WD.float().cpu().numpy()
    return vectors


def document_vectors(
    model: Network, documents: CorefDocuments, scoring: ScoringOptions, features: Features | None = None
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Vectors [n, D] and forms [n, 2] of the words of each document, on the device.

    `features` are outputs of a frozen encoder, which is then not run.
    """
    head, borders = coref_head(model), edges(documents.words).tolist()
    vectors = word_vectors(model, documents, scoring) if features is None else None
    model.eval()
    for number, (begin, end) in enumerate(pairwise(borders)):
        forms_n2 = torch.from_numpy(documents.forms[begin:end]).to(scoring.device)
        if vectors is not None:
            yield torch.from_numpy(vectors[begin:end]).to(scoring.device), forms_n2
        elif features is not None:
            with torch.inference_mode(), scoring.autocast():
                z_nD = head.trunk(features.of(np.array([number])))
            yield z_nD.float(), forms_n2


@torch.inference_mode()
def resolve(head: Coreference, z_nD: torch.Tensor, forms_n2: torch.Tensor, scoring: ScoringOptions) -> ResolvedMentions:
    """Mentions and antecedents of a document."""
    with scoring.autocast():
        mentions, numbers, scores = head.resolve(z_nD, forms_n2)
    return ResolvedMentions(
        first=mentions.first.cpu().numpy(),
        last=mentions.last.cpu().numpy(),
        scores=mentions.scores.cpu().numpy(),
        antecedents=torch.where(scores > 0, numbers, -1).cpu().numpy(),
    )


def resolved(model: Network, documents: CorefDocuments, scoring: ScoringOptions) -> Iterator[ResolvedMentions]:
    """Mentions and antecedents of each document."""
    head = coref_head(model)
    for z_nD, forms_n2 in document_vectors(model, documents, scoring):
        yield resolve(head, z_nD, forms_n2, scoring)


def predicted_clusters(
    model: Network, documents: CorefDocuments, scoring: ScoringOptions
) -> list[list[list[WordSpan]]]:
    """The clusters of each document."""
    singletons = coref_head(model).config.singletons
    return [each.spans(singletons=singletons) for each in resolved(model, documents, scoring)]


def predict_documents(model: Network, documents: CorefDocuments, scoring: ScoringOptions) -> list[ResolvedDocument]:
    """The answers of a model for documents."""
    singletons = coref_head(model).config.singletons
    each = zip(documents.texts, resolved(model, documents, scoring), coverages(documents.sequences), strict=True)
    return [
        _document(text.text, text.word_spans.tolist(), mentions, coverage, singletons)
        for text, mentions, coverage in each
    ]


def _document(
    text: str, places: Sequence[Sequence[int]], predicted: ResolvedMentions, coverage: Coverage, singletons: bool
) -> ResolvedDocument:
    sure = 1 / (1 + np.exp(-np.clip(predicted.scores.astype(np.float64), -700, 700)))

    def mention(number: int) -> Mention:
        first, last = int(predicted.first[number]), int(predicted.last[number])
        start, end = places[first][0], places[last][1]
        score = float(sure[number])
        return Mention(text=text[start:end], start=start, end=end, first=first, last=last, score=score)

    clusters = predicted.clusters(singletons=singletons)
    return ResolvedDocument(
        text=text,
        words=tuple(DocumentWord(text=text[start:end], start=start, end=end) for start, end in places),
        clusters=tuple(MentionCluster(mentions=tuple(map(mention, cluster))) for cluster in clusters),
        coverage=coverage,
    )
