"""The client: methods have the names of `larvatus.Model`; vectors are arrays, other results plain dicts.

client = Client("http://127.0.0.1:8311", key=Path("key.txt").read_text().strip())
client.embed(["the river", "the town"]).shape                # [2, D]
client.tag("Mt. Sanitas is in Sunshine Canyon.")["entities"]
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Unpack

import numpy as np

from larvatus.core.errors import UsageError
from larvatus.core.text_inputs import (
    CheckedInputs,
    CheckedTexts,
    as_string,
    checked_inputs,
    checked_text,
    checked_texts,
    checked_texts_or_words,
)
from larvatus.interfaces.client.answers import (
    SHAPES,
    WHOLE,
    ModelsAnswer,
    converted,
    only_result,
    results_of,
    unit_vectors,
    wrong_answer,
)
from larvatus.interfaces.client.connections import Connections
from larvatus.interfaces.client.keywords import RankingKeywords

Words = Sequence[str]


class Client:
    """A client of `larvatus serve`: it keeps connections, and any thread may use it.

    A refused request raises a `ServerError` with the server's message and its `.status`; so does a response that is too
    large, late, or of another shape than a Larvatus server's. When the server is full (429), the request is sent again
    after the wait that the server requests. If one of several inputs fails, its result is
    `{"error": {"type": …, "message": …}}`; if it was the only one, or vectors were requested, the error is raised.

    Args:
        address: Address of the server: `http://127.0.0.1:8311`. Proxies of the environment are not used.
        key: A key of the server's `--key-file`, if it has one.
        timeout: Seconds for a whole call, retries included.
        retries: Number of retries when the server is full.

    Example:
        >>> client = lv.Client(address)
        >>> [model["name"] for model in client.models()]
        ['mine']
        >>> client.fill("the [MASK] was wide", top=1)["fills"][0]["token"] in model.tokenizer.tokens
        True
    """

    def __init__(self, address: str, *, key: str | None = None, timeout: float = 60.0, retries: int = 4) -> None:
        self._connections = Connections(address, key=key, timeout=timeout, retries=retries)

    def models(self) -> list[dict[str, Any]]:
        """The served models: name, sizes, labels, and the operations that each `can` run.

        Returns:
            One dict per model.

        Example:
            >>> "fill" in client.models()[0]["can"]
            True
        """
        return converted(self._connections.ask("GET", "/v1/models"), ModelsAnswer, self._connections.address).models

    def fill(
        self,
        texts: str | Iterable[str],
        *,
        model: str | None = None,
        top: int | None = None,
        joint: bool | None = None,
        words_only: bool | None = None,
    ) -> Any:
        """The most likely words for the blanks of texts, each marked with the mask token.

        Args:
            texts: One text, or several.
            model: Name of a served model; by default the first that supports it.
            top: Number of candidates.
            joint: Fill several blanks jointly.
            words_only: Whole words only (the server's default); False also allows subwords and punctuation.

        Returns:
            A dict for one text (`fills`, `marginals`, tokens `read`), a list for several.

        Example:
            >>> len(client.fill(["the [MASK] ran", "a [MASK]"], top=3)[1]["fills"])
            3
        """
        return self._each("fill", checked_texts(texts), model=model, top=top, joint=joint, words_only=words_only)

    def embed(
        self,
        texts: str | Iterable[str | Words],
        *,
        model: str | None = None,
        unit: str = "sentence",
        layers: str | int | Sequence[float] | None = None,
        pool: str | None = None,
        normalise: bool | None = None,
        standardise: str | None = None,
    ) -> Any:
        """Vectors as arrays, as from `Model.embed`.

        Args:
            texts: One text, or several; one of several may also be a list of words.
            model: Name of a served model; by default the first.
            unit: Unit that gets a vector: `token`, `word`, `span` (marked with stars), `sentence` or `document`.
            layers: `last`, `last4` (mean), `last4-sum`, a number, a list of weights, or `all`.
            pool: Words and spans: mean, sum, max, first or last of their subwords; sentences: mean, max or cls.
            normalise: Scale vectors to length 1.
            standardise: Name of a standardiser saved with the model.

        Returns:
            For sentences and documents: [D] for one text, [n, D] for several. For other units: [units, D] for one text,
            a list of these for several; a unit that the vocabulary deletes is NaN.

        Example:
            >>> client.embed(["the river ran", "the town"]).shape, client.embed("the river", unit="word").shape
            ((2, 16), (2, 16))
        """
        options = {"layers": layers, "pool": pool, "normalise": normalise, "standardise": standardise}
        listed, single = checked_texts_or_words(texts)
        items = self._ask("embed", listed, {"model": model, "unit": unit, **options})
        address = self._connections.address
        arrays = [unit_vectors(item, number, unit, address) for number, item in enumerate(items, start=1)]
        if single:
            return arrays[0]
        if unit in WHOLE and len({array.shape for array in arrays}) > 1:
            raise wrong_answer(address, "vectors of several sizes")
        return np.stack(arrays) if unit in WHOLE else arrays

    def similar(
        self,
        texts: Iterable[str],
        *,
        model: str | None = None,
        spans: Sequence[tuple[int, int]] | None = None,
        layers: str | int | Sequence[float] | None = None,
        pool: str | None = None,
        standardise: str | None = None,
    ) -> dict[str, Any]:
        """Cosines between word instances, one per text.

        Args:
            texts: Two or more texts, each with one word between stars: `"the *bank* of the river"`.
            model: Name of a served model; by default the first.
            spans: Characters (start, end) of the word in each text, instead of stars.
            layers: As in `embed`.
            pool: Pooling of subwords.
            standardise: Name of a standardiser saved with the model.

        Returns:
            The response of the server: the `instances`, and the matrix of their `cosines`.

        Example:
            >>> len(client.similar(["the *river*", "a *river*", "the *bank*"])["cosines"])
            3
        """
        options = {"spans": spans, "layers": layers, "pool": pool, "standardise": standardise}
        return self._whole("similar", {"texts": checked_texts(texts).texts, "model": model, **options})

    def senses(
        self, texts: Iterable[str], *, model: str | None = None, clusters: int | None = None, **options: Any
    ) -> dict[str, Any]:
        """Clusters of similar uses of a word.

        Args:
            texts: Texts, each with one word between stars.
            model: Name of a served model; by default the first.
            clusters: Number of clusters; by default chosen by silhouette.
            **options: `layers`, `pool`, `standardise`, as in `embed`.

        Returns:
            The response of the server: `instances` with their points in the plane, `clusters`, `nearest` pairs, and
            WordNet senses if the server has them.

        Example:
            >>> sorted(client.senses(["the *bank* of the river", "a *bank* in town", "the *bank*"], clusters=2))[0]
            'clusters'
        """
        listed = checked_texts(texts).texts
        return self._whole("senses", {"texts": listed, "model": model, "clusters": clusters, **options})

    def classify(self, texts: str | tuple[str, str] | Iterable[Any], *, model: str | None = None) -> Any:
        """The class of texts, with its probability.

        Args:
            texts: One text, a tuple for one pair, or several texts or pairs.
            model: Name of a served model; by default the first that classifies.

        Returns:
            A dict for one input, a list for several.
        """
        return self._each("classify", checked_inputs(texts), model=model)

    def tag(self, texts: str | tuple[str, ...] | Iterable[Any], *, model: str | None = None) -> Any:
        """The tag of every word, and the entities that the tags mark.

        Args:
            texts: One text, a tuple with its words, or several texts or lists of words.
            model: Name of a served model; by default the first that tags.

        Returns:
            A dict for one input, a list for several.
        """
        return self._each("tag", checked_inputs(texts), model=model)

    def spans(self, texts: str | tuple[str, ...] | Iterable[Any], *, model: str | None = None) -> Any:
        """Labelled spans, possibly nested, and relations between them.

        Args:
            texts: One text, a tuple with its words, or several texts or lists of words.
            model: Name of a served model; by default the first that finds spans.

        Returns:
            A dict for one input, a list for several.
        """
        return self._each("spans", checked_inputs(texts), model=model)

    def answer(
        self,
        questions: tuple[str, str] | Iterable[tuple[str, str]],
        *,
        model: str | None = None,
        top: int | None = None,
    ) -> Any:
        """Answers to questions, as spans of a passage.

        Args:
            questions: A tuple of a question and its passage, or several of them.
            model: Name of a served model; by default the first that answers.
            top: Number of answers to each question, most likely first.

        Returns:
            A dict for one question, a list for several.
        """
        alone = isinstance(questions, tuple) and bool(questions) and as_string(questions[0]) is not None
        pairs = checked_inputs([questions] if alone else questions, "questions").inputs
        for at, pair in enumerate(pairs):
            if not isinstance(pair, tuple | list) or len(pair) != 2 or not all(isinstance(part, str) for part in pair):
                raise UsageError(f"questions[{at}] is {type(pair).__name__}, not a question and its passage: give both")
        listed = [{"question": question, "passage": passage} for question, passage in pairs]
        given = self._whole("answer", {"questions": listed, "model": model, "top": top})
        items = results_of(given, len(listed), self._connections.address)
        return only_result(items) if alone else items

    def rerank(
        self, query: str, passages: Iterable[str], *, model: str | None = None, top: int | None = None
    ) -> list[dict[str, Any]]:
        """Passages in the order of their relevance to a query.

        Args:
            query: A question, or any text.
            passages: Candidates, such as the results of a search.
            model: Name of a served model; by default the first that reranks.
            top: Number of passages; all by default.

        Returns:
            A dict for each passage, the most relevant first: its `index` in the given ones, and `relevance_score`.
        """
        listed = checked_texts(passages, "passages").texts
        body = {"query": checked_text(query), "documents": listed, "model": model, "top_n": top}
        results: list[dict[str, Any]] = self._whole("rerank", body)["results"]
        if any(not 0 <= result["index"] < len(listed) for result in results):
            raise wrong_answer(self._connections.address, "the index of a passage that was not sent")
        return results

    def score(self, texts: str | Iterable[str], *, model: str | None = None, method: str | None = None) -> Any:
        """Pseudo-log-likelihood of texts, by token and by word.

        Args:
            texts: One text, or several.
            model: Name of a served model; by default the first that supports it.
            method: `original` or `word-l2r`, as in `Model.score`.

        Returns:
            A dict for one text, a list for several.

        Example:
            >>> [word["text"] for word in client.score("the river")["words"]]
            ['the', 'river']
        """
        return self._each("score", checked_texts(texts), model=model, method=method)

    def attention(self, text: str, *, model: str | None = None) -> dict[str, Any]:
        """Attention weights of every head on a text.

        Args:
            text: A text that fits into the model's window.
            model: Name of a served model; by default the first that has attention.

        Returns:
            The response of the server: `tokens`, `weights` as nested lists (layers × heads × T × T), `types` of heads.

        Example:
            >>> len(client.attention("the river")["tokens"])
            4
        """
        return self._whole("attention", {"text": checked_text(text), "model": model})

    def search(
        self,
        queries: str | Iterable[str],
        *,
        index: str | None = None,
        where: Mapping[str, Any] | None = None,
        paths: str | Sequence[str] | None = None,
        **ranking: Unpack[RankingKeywords],
    ) -> Any:
        """The passages of an index that answer a question best.

        Args:
            queries: One question or text, or several.
            index: Name of an index of the server (`larvatus serve --index DIR`); by default the first.
            where: Only passages with these values of metadata columns: `{"year": [1999, 2000]}`.
            paths: Only files whose path matches a pattern such as `*.md`, or one of several.
            **ranking: `top` (number of passages), `hybrid` (fuse the ranking by meaning with BM25), `bm25` (by words
                only), `rerank` (name of a served model that orders the candidates), `candidates` (how many).

        Returns:
            A dict for one query (`hits` with `document`, `start`, `end`, `score` and `text`; files that have `changed`
            since they were indexed), a list for several.

        Example:
            >>> documents = lv.index_documents("my_texts/", out=folder / "served", model=model)
            >>> with lv.serve_models(model, index=[documents.path]) as there, lv.Client(there) as searching:
            ...     [hit["document"] for hit in searching.search("the river", top=1)["hits"]]
            ['my_texts/rivers.txt']
        """
        listed, single = checked_texts(queries, "queries")
        patterns = [paths] if isinstance(paths, str) else None if paths is None else list(paths)
        body = {"query": listed, "index": index, "where": where, "paths": patterns, **ranking}
        items = results_of(self._whole("search", body), len(listed), self._connections.address)
        return only_result(items) if single else items

    def ask(self, route: str, **body: Any) -> dict[str, Any]:
        """Send a request to any route of the server; its `/docs` lists them.

        Args:
            route: Last part of the address, such as `choose` in `/v1/choose`.
            **body: Fields of the body.

        Returns:
            The response of the server, unchanged.

        Example:
            >>> client.ask("embeddings", input="the river")["object"]
            'list'
        """
        return self._whole(route, body)

    def close(self) -> None:
        """Close the connections; a later call opens new ones."""
        self._connections.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Client of {self._connections.address}>"

    def _whole(self, route: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """The whole response; options that are None keep the server's defaults."""
        given = {name: value for name, value in body.items() if value is not None}
        answer: dict[str, Any] = self._connections.ask("POST", f"/v1/{route}", given)
        if route in SHAPES:
            converted(answer, SHAPES[route], self._connections.address)
        return answer

    def _ask(self, route: str, texts: list[Any], options: Mapping[str, Any]) -> list[dict[str, Any]]:
        return results_of(self._whole(route, {"texts": texts, **options}), len(texts), self._connections.address)

    def _each(self, route: str, texts: CheckedTexts | CheckedInputs, **options: Any) -> Any:
        listed, single = texts
        items = self._ask(route, listed, options)
        return only_result(items) if single else items
