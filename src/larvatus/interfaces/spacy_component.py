"""spaCy: predictions as `Doc` objects, and a component of a pipeline. spaCy has to be installed.

    nlp = spacy.blank("en")
    nlp.add_pipe("larvatus", config={"model": "runs/both"})
    nlp("Mt. Sanitas is in Sunshine Canyon.").ents

    to_spacy(model.predict("Mt. Sanitas is in Sunshine Canyon.")).ents

| prediction | in the `Doc` |
| --- | --- |
| tags of words | `token.tag_`, and `token.pos_` where they are universal parts of speech |
| entities | `doc.ents` |
| spans, nested ones too | `doc.spans["sc"]`, and the longest in `doc.ents` |
| classes | `doc.cats` |
| trees | the words of the model as tokens: `token.head`, `dep_`, `lemma_`, `pos_`, `morph`, `doc.sents` |
| coreference | `doc.spans["coref_clusters_1"]`, … |
| semantic roles | `doc.spans["roles_1"]`, …: a predicate, labelled with its roleset, and its arguments |

The component reads the text of a `Doc` and keeps its tokens: one has the tag of the word that its first character lies
in, and an entity is widened to whole tokens. Only a tree replaces the tokens by the words that it is of.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import spacy
from spacy.language import Language
from spacy.tokens import Doc
from spacy.util import filter_spans, minibatch

from larvatus.core.errors import UsageError
from larvatus.inference.model import Model, load

UNIVERSAL = frozenset(
    "ADJ ADP ADV AUX CCONJ DET INTJ NOUN NUM PART PRON PROPN PUNCT SCONJ SYM VERB X".split()  # noqa: SIM905
)
"""Universal parts of speech (de Marneffe et al. 2021)."""


def to_spacy(prediction: Any, vocab: Any = None) -> Doc:
    """A prediction of `Model.predict` as a `Doc`.

    Args:
        prediction: Of one task, or of several for one text.
        vocab: That of a pipeline; by default that of a new one.
    """
    parts = _parts(prediction)
    text = parts[0].text
    nlp = spacy.blank("xx")
    vocab = nlp.vocab if vocab is None else vocab
    trees = next(filter(None, map(_trees, parts)), [])
    words = next((words for part in parts if (words := getattr(part, "words", ()))), ())
    if trees:
        doc = _doc_of_trees(vocab, text, trees)
    elif words:
        doc = _doc_of_words(vocab, text, words)[0]
    else:
        plain = nlp.make_doc(text)
        doc = Doc(vocab, words=[token.text for token in plain], spaces=[bool(token.whitespace_) for token in plain])
    return _annotate(doc, parts)


def build_component(nlp: Language, name: str, model: str, device: str) -> LarvatusComponent:
    """The component of a pipeline's config: `model` is a model directory."""
    return LarvatusComponent(load(model, device=device))


Language.factory("larvatus", default_config={"device": "auto"}, func=build_component)


class LarvatusComponent:
    """Annotates documents with the predictions of a fine-tuned model."""

    def __init__(self, model: Model) -> None:
        self.model = model

    def __call__(self, doc: Doc) -> Doc:
        return next(self.pipe([doc]))

    def pipe(self, stream: Iterable[Doc], *, batch_size: int = 64) -> Iterator[Doc]:
        """Documents in batches; one without text stays as it is."""
        for docs in minibatch(stream, batch_size):
            texts = [doc.text for doc in docs if doc.text.strip()]
            predictions = iter(self.model.predict(texts) if texts else ())
            for doc in docs:
                yield self._annotated(doc, next(predictions)) if doc.text.strip() else doc

    def _annotated(self, doc: Doc, prediction: Any) -> Doc:
        parts = _parts(prediction)
        return to_spacy(prediction, doc.vocab) if any(map(_trees, parts)) else _annotate(doc, parts)


def _parts(prediction: Any) -> list[Any]:
    """The predictions of each task that are of a text as it is."""
    parts = [*getattr(prediction, "by_task", {"": prediction}).values()]
    parts = [part for part in parts if hasattr(part, "text") and not hasattr(part, "question")]
    if not parts:
        kind = type(prediction).__name__
        raise UsageError(
            f"{kind} is no prediction about a text; a Doc is made of tags, spans, classes, trees or clusters"
        )
    return parts


def _trees(part: Any) -> list[Sequence[Any]]:
    """The words of each sentence, where the prediction has trees."""
    sentences = [sentence.words for sentence in getattr(part, "sentences", ())]
    return sentences if any(hasattr(word, "relation") for words in sentences for word in words) else []


def _doc_of_words(vocab: Any, text: str, words: Sequence[Any]) -> tuple[Doc, list[int]]:
    """A Doc with the words as tokens, and the number of each; what lies between, apart from spaces, is tokens too."""
    tokens, spaces, places = list[str](), list[bool](), list[int]()
    at = 0

    def add(part: str) -> None:
        if tokens and part.startswith(" ") and not spaces[-1]:
            spaces[-1], part = True, part[1:]
        if part:
            tokens.append(part)
            spaces.append(False)

    for word in words:
        add(text[at : word.start])
        places.append(len(tokens))
        tokens.append(text[max(at, word.start) : word.end] or word.text)  # several words may be of one token
        spaces.append(False)
        at = max(at, word.end)
    add(text[at:])
    return Doc(vocab, words=tokens, spaces=spaces), places


def _doc_of_trees(vocab: Any, text: str, trees: Sequence[Sequence[Any]]) -> Doc:
    """A Doc with the words of trees as tokens, with heads, relations, lemmas and parts of speech."""
    doc, places = _doc_of_words(vocab, text, [word for tree in trees for word in tree])
    numbers = iter(places)
    heads = [max(0, number - 1) for number in range(len(doc))]  # of tokens that are no words
    of_tokens = {"deps": ["dep"] * len(doc), **{name: [""] * len(doc) for name in ("lemmas", "pos", "morphs")}}
    for tree in trees:
        by_id = {word.id: next(numbers) for word in tree}
        for word in tree:
            place = by_id[word.id]
            heads[place] = by_id.get(word.head, place)
            of_tokens["deps"][place] = word.relation if word.head else "ROOT"
            of_tokens["lemmas"][place], of_tokens["pos"][place] = word.lemma or "", word.upos or ""
            of_tokens["morphs"][place] = "|".join(f"{name}={value}" for name, value in (word.feats or {}).items())
    words, spaces = [token.text for token in doc], [bool(token.whitespace_) for token in doc]
    return Doc(vocab, words=words, spaces=spaces, heads=heads, **of_tokens)


def _annotate(doc: Doc, parts: Sequence[Any]) -> Doc:
    for part in parts:
        _set_tags(doc, part)
        _set_entities(doc, part)
        doc.cats |= dict(getattr(part, "probabilities", {}))
        for number, cluster in enumerate(getattr(part, "clusters", ()), start=1):
            doc.spans[f"coref_clusters_{number}"] = _spans(doc, cluster.mentions)
        for number, frame in enumerate(getattr(part, "frames", ()), start=1):
            spans = _spans(doc, [frame.predicate, *frame.arguments])
            for span, name in zip(spans, [frame.roleset, *(each.role for each in frame.arguments)], strict=True):
                span.label_ = name
            doc.spans[f"roles_{number}"] = spans
    return doc


def _set_tags(doc: Doc, part: Any) -> None:
    words = part.words if getattr(part, "of_words", False) else ()
    starts = [word.start for word in words]
    for token in doc if words else ():
        word = words[max(0, bisect_right(starts, token.idx) - 1)]
        if token.is_space or token.idx >= word.end:
            continue
        token.tag_ = word.tag
        if word.tag in UNIVERSAL:
            token.pos_ = word.tag


def _set_entities(doc: Doc, part: Any) -> None:
    if not hasattr(part, "entities"):
        return
    spans = _spans(doc, part.entities)
    if not hasattr(part, "words"):  # spans, which may overlap
        doc.spans["sc"] = spans
    doc.ents = filter_spans([*doc.ents, *spans])


def _spans(doc: Doc, units: Iterable[Any]) -> list[Any]:
    return [
        doc.char_span(each.start, each.end, label=getattr(each, "label", ""), alignment_mode="expand")
        for each in units
        if each.end > each.start
    ]
