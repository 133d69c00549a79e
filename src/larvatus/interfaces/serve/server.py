"""A server without its routes: models, the batcher, the limits. HTTP and JSON lines are built on it.

server = Server.of([load("runs/law")], ServeSettings())
server.answer_now(OPERATIONS["fill"], FillBody(texts="The [MASK] ran."))
await server.answer(operation, body)                # the same in an event loop
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from larvatus.inference.model import Model
from larvatus.interfaces.serve.batcher import Batcher
from larvatus.interfaces.serve.operations.operation import (
    Body,
    Operation,
    RequestCost,
    RequestLimits,
    byte_lengths,
    token_lengths,
)
from larvatus.interfaces.serve.requests import ItemResult, OperationRequest, RequestFuture
from larvatus.interfaces.serve.responses import OverLimit, TimedOut, error_body
from larvatus.interfaces.serve.served_models import ServedModels
from larvatus.interfaces.serve.settings import ServeSettings


@dataclass(frozen=True, eq=False)
class Server:
    served: ServedModels
    batcher: Batcher
    settings: ServeSettings

    @classmethod
    def of(cls, models: Sequence[Model], settings: ServeSettings) -> Server:
        batcher = Batcher(threads=settings.threads, queue=settings.queue, budget=settings.batch_tokens)
        return cls(ServedModels.of(models, settings, batcher), batcher, settings)

    async def answer(self, operation: Operation[Any], body: Body) -> dict[str, Any]:
        """The response to a body. Raises if every item failed. When it is cancelled, nothing more is computed."""
        request = self._request(operation, body)
        if not self._is_cheap(request):
            await asyncio.to_thread(self._check_cost, request)
        future = self.batcher.submit(request)
        with self._within_timeout(future):
            results = await asyncio.wait_for(asyncio.wrap_future(future), self.settings.timeout)
        return _response(request, results)

    def answer_now(self, operation: Operation[Any], body: Body) -> dict[str, Any]:
        """The same, for a thread that may block."""
        request = self._request(operation, body)
        if not self._is_cheap(request):
            self._check_cost(request)
        future = self.batcher.submit(request)
        with self._within_timeout(future):
            results = future.result(self.settings.timeout)
        return _response(request, results)

    @contextmanager
    def _within_timeout(self, future: RequestFuture) -> Iterator[None]:
        """Cancel the request when nobody waits for it any more; a timeout becomes `TimedOut`."""
        try:
            yield
        except TimeoutError:
            raise TimedOut(f"no answer in {self.settings.timeout:g} seconds; request less, or retry later") from None
        finally:
            future.cancel()  # does nothing to what is done

    def _request(self, operation: Operation[Any], body: Body) -> OperationRequest:
        """The request that a body makes, if the limits allow it."""
        operation.check(body, self.settings)
        subject = self.served.choose(operation.name, operation.model_name(body, self.served.models))
        subject = operation.prepared(subject, body, self.served.choose)
        items = operation.items(body)
        count = sum(operation.count(item) for item in items)
        if count > self.settings.max_items:
            raise OverLimit(f"{count:,} texts, and this server takes {self.settings.max_items:,} at once (--max-items)")
        return OperationRequest(operation, subject, operation.options(body), items)

    @property
    def limits(self) -> RequestLimits:
        """Limits of a request: the settings, or what can be computed before its timeout, if that is less."""
        settings = self.settings
        seconds = self.batcher.seconds_for(settings.max_tokens)
        in_time = int(settings.max_tokens * settings.timeout / seconds) if seconds > settings.timeout else None
        if in_time is None or settings.max_tokens <= settings.batch_tokens:
            return RequestLimits(settings.max_tokens, settings.max_numbers)
        return RequestLimits(max(in_time, settings.batch_tokens), settings.max_numbers, settings.timeout)

    def _is_cheap(self, request: OperationRequest) -> bool:
        """Whether the request is within the limits by its bytes, so that it need not be tokenised to check it."""
        return self.limits.allow(total_cost(request, [byte_lengths(item) for item in request.items]))

    def _check_cost(self, request: OperationRequest) -> None:
        check_cost(request, self.limits, [token_lengths(request.subject.model, item) for item in request.items])

    def close(self) -> None:
        """End all threads. Requests that wait fail with `Closing`."""
        self.batcher.close()


def _response(request: OperationRequest, results: Sequence[ItemResult]) -> dict[str, Any]:
    """Failed items hold their error. If all items failed, the first error is raised."""
    faults = [result for result in results if isinstance(result, BaseException)]
    if faults and (request.operation.whole or len(faults) == len(results)):
        raise faults[0]
    given = [error_body(result) if isinstance(result, BaseException) else result for result in results]
    return request.operation.answer(request.subject.name, given)


STEPS = 16
"""Bisection steps in the search for what would fit."""
Lengths = Sequence[Sequence[int]]
"""For each item, the number of tokens of its texts."""


def total_cost(request: OperationRequest, lengths: Lengths) -> RequestCost:
    """The cost of the first `len(lengths)` items of a request, whose texts have these numbers of tokens."""
    operation, subject = request.operation, request.subject
    each = zip(request.items, lengths, strict=False)
    return sum((operation.cost(subject, item, request.options, of_item) for item, of_item in each), RequestCost(0))


def check_cost(request: OperationRequest, limits: RequestLimits, lengths: Lengths) -> None:
    """Refuse a request that is over a limit, and name what would fit."""
    cost = total_cost(request, lengths)
    if limits.allow(cost):
        return
    way = _what_fits(request, limits, lengths)
    if cost.numbers > limits.numbers:
        raise OverLimit(
            f"the answer would have {cost.numbers:,} numbers, and this server gives {limits.numbers:,} to a request "
            f"(--max-numbers); {way}"
        )
    if limits.timeout:
        raise OverLimit(
            f"{cost.tokens:,} tokens would be computed, and this machine computes about {limits.tokens:,} in the "
            f"{limits.timeout:g} seconds that a request has (--timeout); {way}"
        )
    raise OverLimit(
        f"{cost.tokens:,} tokens would be computed, and this server computes {limits.tokens:,} for a request "
        f"(--max-tokens); {way}"
    )


def _what_fits(request: OperationRequest, limits: RequestLimits, lengths: Lengths) -> str:
    """How many of the texts would fit, or how long a text."""
    low, high = 0, len(request.items)
    while low < high:  # the first `low` items fit
        middle = (low + high + 1) // 2
        fits = limits.allow(total_cost(request, lengths[:middle]))
        low, high = (middle, high) if fits else (low, middle - 1)
    if low:
        return f"the first {low:,} of these {len(request.items):,} texts would fit"
    part = _part_that_fits(request, limits, lengths[0])
    tokens = int(part * sum(lengths[0]))
    if not tokens:
        return "shorten the text, or request less for it (layers, beam, blanks, endings)"
    return f"a text of about {tokens:,} tokens in place of {sum(lengths[0]):,} would fit"


def _part_that_fits(request: OperationRequest, limits: RequestLimits, lengths: Sequence[int]) -> float:
    low, high = 0.0, 1.0
    for _ in range(STEPS):
        middle = (low + high) / 2
        scaled = [int(length * middle) for length in lengths]
        cost = request.operation.cost(request.subject, request.items[0], request.options, scaled)
        low, high = (middle, high) if limits.allow(cost) else (low, middle)
    return low
