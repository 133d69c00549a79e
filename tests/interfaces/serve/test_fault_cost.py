"""Row 83 of the list of faults: a request over the limit of cost is refused before it runs, with what would fit; others
keep their pace, which is told by the order of passes and turns, never by a clock."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

import larvatus as lv
from larvatus.interfaces.serve.batcher import Batcher
from larvatus.interfaces.serve.operations import OPERATIONS
from larvatus.interfaces.serve.operations.operation import (
    Operation,
    RequestCost,
    RequestLimits,
    TextsBody,
    token_lengths,
)
from larvatus.interfaces.serve.requests import OperationRequest
from larvatus.interfaces.serve.server import total_cost
from tests.interfaces.serve.models import save_models
from tests.interfaces.serve.running import Running
from tests.patience import WATCHDOG_S

TEXT = "the river bank was wide and deep "
LIMITS = {"max_tokens": 400, "max_numbers": 3_000, "max_top": 50, "batch_tokens": 64}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, tiny_model: Any, save_tiny: Any) -> Iterator[Running]:
    folders = save_models(tmp_path_factory.mktemp("models"), tiny_model, save_tiny, "plain", "classify", "answer")
    with Running([lv.load(folder) for folder in folders.values()], **LIMITS) as running:
        yield running


COSTLY: dict[str, tuple[str, dict[str, Any], str]] = {
    "many texts": ("embed", {"texts": [TEXT * 8] * 20}, "--max-tokens"),
    "a long text": ("embed", {"texts": TEXT * 100}, "--max-tokens"),
    "vectors of all layers": ("embed", {"texts": [TEXT] * 12, "unit": "token", "layers": "all"}, "--max-numbers"),
    "masked copies": ("score", {"texts": TEXT * 4}, "--max-tokens"),
    "beams": ("fill", {"texts": "the [MASK] [MASK] [MASK] [MASK]", "beam": 50}, "--max-tokens"),
    "windows that overlap": ("classify", {"texts": TEXT * 8, "overlap": 29}, "--max-tokens"),
    "a question in each window": (
        "answer",
        {"questions": [{"question": TEXT * 3, "passage": TEXT * 20}], "overlap": 0},
        "--max-tokens",
    ),
}


@pytest.mark.parametrize("name", COSTLY)
def test_83_what_costs_too_much_is_refused_before_it_runs_with_what_would_fit(server: Running, name: str) -> None:
    route, body, flag = COSTLY[name]
    before = server.batcher.counts.passes
    reply = server.post(f"/v1/{route}", body)
    assert reply.status == 422, reply.body
    assert reply.error["type"] == "OverLimit"
    assert flag in reply.error["message"]
    assert re.search(r"would fit|lower what is asked", reply.error["message"])
    assert server.batcher.counts.passes == before


def test_83_what_is_said_to_fit_fits(server: Running) -> None:
    route, body, _ = COSTLY["many texts"]
    said = server.post(f"/v1/{route}", body).error["message"]
    count = int(re.search(r"first (\d+) of these 20 texts", said)[1])  # type: ignore[index]
    assert server.post(f"/v1/{route}", {"texts": body["texts"][:count]}).status == 200
    assert server.post(f"/v1/{route}", {"texts": body["texts"][: count + 1]}).status == 422
    said = server.post("/v1/score", {"texts": TEXT * 4}).error["message"]
    tokens = int(re.search(r"about (\d+) tokens in place of 28", said)[1])  # type: ignore[index]
    assert server.post("/v1/score", {"texts": "river " * tokens}).status == 200


@pytest.mark.parametrize(
    ("route", "body"),
    [
        ("embed", {"texts": [TEXT * 8, TEXT]}),
        ("score", {"texts": TEXT}),
        ("fill", {"texts": "the [MASK] [MASK] [MASK] was wide", "beam": 9}),
        ("classify", {"texts": TEXT * 8, "overlap": 10}),
        ("classify", {"texts": [[TEXT, TEXT * 8]]}),
        ("answer", {"questions": [{"question": "the river", "passage": TEXT * 8}]}),
    ],
)
def test_83_the_estimate_is_what_is_computed(server: Running, route: str, body: dict[str, Any]) -> None:
    operation = OPERATIONS[route]
    subject = server.app.state.server.served.choose(route, None)
    asked = msgspec_body(operation, body)
    request = OperationRequest(operation, subject, operation.options(asked), operation.items(asked))
    estimate = total_cost(request, [token_lengths(subject.model, item) for item in request.items]).tokens
    before = server.batcher.counts.tokens
    assert server.post(f"/v1/{route}", body).status == 200
    computed = server.batcher.counts.tokens - before
    assert 0.5 * estimate <= computed <= 1.6 * estimate, (estimate, computed)  # special tokens are not estimated


def msgspec_body(operation: Operation[Any], body: dict[str, Any]) -> Any:
    import msgspec

    return msgspec.convert(body, operation.Body)


def test_83_what_the_machine_cannot_compute_in_time_is_refused_at_once(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow machine: 60 seconds, the timeout, are enough for 100 tokens."""
    monkeypatch.setattr(server.batcher, "seconds_for", lambda tokens: tokens * 0.6)
    reply = server.post("/v1/embed", {"texts": TEXT * 20})
    assert reply.status == 422
    assert "computes about 100 in the 60 seconds" in reply.error["message"]
    assert server.post("/v1/embed", {"texts": TEXT}).status == 200


def test_83_the_pace_is_that_of_full_passes(server: Running) -> None:
    server.post("/v1/embed", {"texts": [TEXT * 3] * 12})  # passes of 16 tokens or more, a quarter of the budget
    pace = server.batcher.token_rate
    assert pace.tokens >= 16
    server.post("/v1/embed", {"texts": "the river"})
    with server.held():  # neither a small pass nor one without tokens says anything
        pass
    assert server.batcher.token_rate == pace
    assert server.batcher.seconds_for(1_000) == 1_000 * pace.seconds / pace.tokens
    assert RequestLimits(10, 10).allow(RequestCost(10, 10))


# ---------------------------------------------------------------------------------------------------- turns


class Noted(Operation[TextsBody]):
    """Writes down which item is run when; the first waits until it is let go."""

    name, title, Body, together = "noted", "Notes items.", TextsBody, False
    examples: Any = {}

    def __init__(self) -> None:
        self.order: list[str] = []
        self.begun, self.let_go = threading.Event(), threading.Event()

    def lacks(self, model: Any) -> None:
        return None

    def run(self, subject: Any, items: Sequence[str], options: Any) -> list[dict[str, Any]]:
        self.order += items
        self.begun.set()
        assert self.let_go.wait(WATCHDOG_S)
        return [{}] * len(items)


def test_83_requests_take_turns_whatever_number_of_items_they_have() -> None:
    operation, batcher = Noted(), Batcher(threads=1, queue=10, budget=64)
    subject: Any = SimpleNamespace(name="none")

    def submit(*texts: str) -> Any:
        return batcher.submit(OperationRequest(operation, subject, TextsBody(texts=()), texts))

    try:
        many = submit(*(f"many {number}" for number in range(9)))
        assert operation.begun.wait(WATCHDOG_S)
        one, two = submit("one"), submit("two 1", "two 2")
        operation.let_go.set()
        for ticket in (many, one, two):
            assert ticket.result(WATCHDOG_S)
        assert operation.order[:3] == ["many 0", "one", "two 1"]
        assert operation.order.index("two 2") < operation.order.index("many 2")
    finally:
        batcher.close()


def test_83_no_request_holds_more_than_half_of_the_threads() -> None:
    operation, batcher = Noted(), Batcher(threads=4, queue=10, budget=64)
    subject: Any = SimpleNamespace(name="none")
    try:
        many = batcher.submit(
            OperationRequest(operation, subject, TextsBody(texts=()), [f"many {n}" for n in range(9)])
        )
        assert operation.begun.wait(WATCHDOG_S)
        one = batcher.submit(OperationRequest(operation, subject, TextsBody(texts=()), ["one"]))
        while "one" not in operation.order:  # a thread is free for it, though nothing was let go
            time.sleep(0.005)
        assert len(operation.order) <= 3
        operation.let_go.set()
        assert many.result(WATCHDOG_S)
        assert one.result(WATCHDOG_S)
    finally:
        operation.let_go.set()
        batcher.close()
