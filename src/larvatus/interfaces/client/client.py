"""What a served model can do, by the names of `larvatus.Model`: vectors are arrays, everything else plain dicts.

client = Client("http://127.0.0.1:8311", key=Path("key.txt").read_text().strip())
client.embed(["the river", "the town"]).shape                # [2, D]
client.tag("Mt. Sanitas is in Sunshine Canyon.")["entities"]
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any

import numpy as np

from larvatus.core.arrays import Floats
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
from larvatus.interfaces.client.answers import WHOLE as SHAPES
from larvatus.interfaces.client.answers import (
    ModelsAnswer,
    ServerError,
    converted,
    refusal,
    results_of,
    vectors_of,
    wrong_answer,
)
from larvatus.interfaces.client.connections import Connections

Words = Sequence[str]
WHOLE = ("sentence", "document")
"""Units of which a text has one."""


class Client:
    """A server that `larvatus serve` started, from Python: connections are kept, and any thread may use it.

    What the server refuses is a `ServerError` with the server's line and its `.status`; so is an answer that is too
    large, late, or of another shape than a Larvatus server's, with the address. When the server is full
    (429), the request is sent again after the wait that it asks for. Of several inputs, a bad one fails alone: its
    result is `{"error": {"type": …, "message": …}}`; where it was the only one, or vectors were asked for, it is
    raised.

    Args:
        address: Where it listens: `http://127.0.0.1:8311`. Proxies that the environment names are not used.
        key: A key of the server's `--key-file`, where it has one.
        timeout: Seconds for a whole call, other tries included.
        retries: How often a request is sent again that found the server full.

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
        """The models that are served: name, sizes, labels, and what each `can` do.

        Returns:
            One dict a model.

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
        """The best words for the blanks of texts, each marked with the mask token.

        Args:
            texts: One text, or several.
            model: The name of a served model; by default the first that can.
            top: How many candidates.
            joint: Fill several blanks together.
            words_only: Offer whole words only (the server's default); False: subwords and signs too.

        Returns:
            A dict for one text (`fills`, `marginals`, how much was `read`), a list for several.

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
        """Vectors as arrays, as `Model.embed` gives them.

        Args:
            texts: One text, or several; one of several may also be a list of words.
            model: The name of a served model; by default the first.
            unit: What gets a vector: `token`, `word`, `span` (marked with stars), `sentence` or `document`.
            layers: `last`, `last4` (mean), `last4-sum`, a number, a list of weights, or `all`.
            pool: Words and spans: mean, sum, max, first or last of their subwords; sentences: mean, max or cls.
            normalise: Vectors of length 1.
            standardise: The name of a standardiser that is saved with the model.

        Returns:
            Of sentences and documents: [D] for one text, [n, D] for several. Of other units: [units, D] for one text, a
            list of such for several; a unit that the vocabulary deletes is NaN.

        Example:
            >>> client.embed(["the river ran", "the town"]).shape, client.embed("the river", unit="word").shape
            ((2, 16), (2, 16))
        """
        options = {"layers": layers, "pool": pool, "normalise": normalise, "standardise": standardise}
        listed, single = checked_texts_or_words(texts)
        items = self._ask("embed", listed, {"model": model, "unit": unit, **options})
        arrays = [self._array(item, number, unit) for number, item in enumerate(items, start=1)]
        if single:
            return arrays[0]
        if unit in WHOLE and len({array.shape for array in arrays}) > 1:
            raise wrong_answer(self._connections.address, "vectors of several sizes")
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
        """Cosines between word instances, one a text.

        Args:
            texts: Two or more texts, each with one word between stars: `"the *bank* of the river"`.
            model: The name of a served model; by default the first.
            spans: The word of each text by its characters, (start, end), in place of stars.
            layers: As in `embed`.
            pool: How subwords become one vector.
            standardise: The name of a standardiser that is saved with the model.

        Returns:
            The server's answer: the `instances`, and the matrix of their `cosines`.

        Example:
            >>> len(client.similar(["the *river*", "a *river*", "the *bank*"])["cosines"])
            3
        """
        options = {"spans": spans, "layers": layers, "pool": pool, "standardise": standardise}
        return self._whole("similar", {"texts": checked_texts(texts).texts, "model": model, **options})

    def senses(
        self, texts: Iterable[str], *, model: str | None = None, clusters: int | None = None, **options: Any
    ) -> dict[str, Any]:
        """How instances of a word fall into groups of like use.

        Args:
            texts: Texts, each with one word between stars.
            model: The name of a served model; by default the first.
            clusters: How many groups; by default as many as the instances show.
            **options: `layers`, `pool`, `standardise`, as in `embed`.

        Returns:
            The server's answer: `instances` with their points in the plane, `clusters`, `nearest` pairs; WordNet's
            senses where the server has them.

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
            model: The name of a served model; by default the first that classifies.

        Returns:
            A dict for one input, a list for several.
        """
        return self._each("classify", checked_inputs(texts), model=model)

    def tag(self, texts: str | tuple[str, ...] | Iterable[Any], *, model: str | None = None) -> Any:
        """The tag of every word, and the entities that the tags say.

        Args:
            texts: One text, a tuple of the words of one, or several texts or lists of words.
            model: The name of a served model; by default the first that tags.

        Returns:
            A dict for one input, a list for several.
        """
        return self._each("tag", checked_inputs(texts), model=model)

    def spans(self, texts: str | tuple[str, ...] | Iterable[Any], *, model: str | None = None) -> Any:
        """Spans with their labels, which may lie in each other, and relations between them.

        Args:
            texts: One text, a tuple of the words of one, or several texts or lists of words.
            model: The name of a served model; by default the first that finds spans.

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
        """Answers that stand in passages.

        Args:
            questions: A tuple of a question and its passage, or several such.
            model: The name of a served model; by default the first that answers.
            top: How many answers to each, likeliest first.

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
        return _alone(items) if alone else items

    def score(self, texts: str | Iterable[str], *, model: str | None = None, method: str | None = None) -> Any:
        """How well the model expects texts: pseudo-log-likelihood, by token and by word.

        Args:
            texts: One text, or several.
            model: The name of a served model; by default the first that can.
            method: `original` or `word-l2r`, as in `Model.score`.

        Returns:
            A dict for one text, a list for several.

        Example:
            >>> [word["text"] for word in client.score("the river")["words"]]
            ['the', 'river']
        """
        return self._each("score", checked_texts(texts), model=model, method=method)

    def attention(self, text: str, *, model: str | None = None) -> dict[str, Any]:
        """What every head looks at in a text.

        Args:
            text: One that the model reads at once.
            model: The name of a served model; by default the first that has attention.

        Returns:
            The server's answer: `tokens`, `weights` as nested lists (layers × heads × T × T), `types` of heads.

        Example:
            >>> len(client.attention("the river")["tokens"])
            4
        """
        return self._whole("attention", {"text": checked_text(text), "model": model})

    def ask(self, route: str, **body: Any) -> dict[str, Any]:
        """Any route of the server, as its `/docs` describes it.

        Args:
            route: The last part of its address, such as `choose` of `/v1/choose`.
            **body: What is posted.

        Returns:
            The server's answer, as it is.

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
        """The whole answer; options that were not given are the server's to choose."""
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
        return _alone(items) if single else items

    def _array(self, item: dict[str, Any], number: int, unit: str) -> Floats:
        if "error" in item:
            fault = refusal(item, 0, otherwise="the server could not read it")
            raise ServerError(f"text {number}: {fault}", kind=fault.kind)
        by_layer = vectors_of(item, self._connections.address)
        if unit in WHOLE and by_layer.shape[-2] != 1:
            raise wrong_answer(self._connections.address, f"{by_layer.shape[-2]:,} vectors of a {unit}")
        return by_layer[..., 0, :] if unit in WHOLE else by_layer


def _alone(items: list[dict[str, Any]]) -> dict[str, Any]:
    """The result of the only input, which is raised where it failed."""
    if "error" in items[0]:
        raise refusal(items[0], 0, otherwise="the server could not read this input")
    return items[0]
