"""A server without its addresses: models, the queue, the limits. HTTP, JSON lines and others ask it.

server = Server.of([load("runs/law")], ServeSettings())
server.answer_now(OPERATIONS["fill"], FillBody(texts="The [MASK] ran."))
await server.answer(operation, body)                # the same in an event loop
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from larvatus.inference.model import Model
from larvatus.interfaces.serve.cost import Limits
from larvatus.interfaces.serve.cost_check import check_cost, total_cost
from larvatus.interfaces.serve.operations.operation import Body, Operation, byte_lengths, token_lengths
from larvatus.interfaces.serve.refusals import OverLimit, TimedOut, error_of
from larvatus.interfaces.serve.served_models import ServedModel, ServedModels
from larvatus.interfaces.serve.settings import ServeSettings
from larvatus.interfaces.serve.work import Call, Result, Work


@dataclass(frozen=True, eq=False)
class Server:
    served: ServedModels
    work: Work
    settings: ServeSettings

    @classmethod
    def of(cls, models: Sequence[Model], settings: ServeSettings) -> Server:
        served = ServedModels.of(models, settings)
        return cls(served, Work(threads=settings.threads, queue=settings.queue), settings)

    async def answer(self, operation: Operation[Any], body: Body) -> dict[str, Any]:
        """What is answered to a body; raises where nothing in it could be. Cancelled, nothing more is computed."""
        call = self._call(operation, body)
        if not self._is_cheap(call):
            await asyncio.to_thread(self._check_cost, call)
        ticket = self.work.submit(call)
        try:
            results = await asyncio.wait_for(asyncio.wrap_future(ticket), self.settings.timeout)
        except TimeoutError:
            raise TimedOut(f"no answer in {self.settings.timeout:g} seconds; ask for less, or again later") from None
        finally:
            ticket.cancel()  # does nothing to what is done
        return _answered(call, results)

    def answer_now(self, operation: Operation[Any], body: Body) -> dict[str, Any]:
        """The same for a thread that can wait."""
        call = self._call(operation, body)
        if not self._is_cheap(call):
            self._check_cost(call)
        ticket = self.work.submit(call)
        try:
            results = ticket.result(self.settings.timeout)
        except TimeoutError:
            raise TimedOut(f"no answer in {self.settings.timeout:g} seconds; ask for less, or again later") from None
        finally:
            ticket.cancel()
        return _answered(call, results)

    def _call(self, operation: Operation[Any], body: Body) -> Call:
        """What is to be done."""
        operation.check(body, self.settings)
        subject: ServedModel = self.served.choose(operation.name, body.model)
        items = operation.items(body)
        count = sum(operation.count(item) for item in items)
        if count > self.settings.max_items:
            raise OverLimit(f"{count:,} texts, and this server takes {self.settings.max_items:,} at once (--max-items)")
        return Call(operation, subject, operation.options(body), items)

    @property
    def limits(self) -> Limits:
        """Limits of a request: those that were set, or what can be computed before its timeout, if that is less."""
        passes, settings = self.served.passes, self.settings
        seconds = passes.seconds_for(settings.max_tokens)
        in_time = int(settings.max_tokens * settings.timeout / seconds) if seconds > settings.timeout else None
        if in_time is None or settings.max_tokens <= settings.batch_tokens:
            return Limits(settings.max_tokens, settings.max_numbers)
        return Limits(max(in_time, settings.batch_tokens), settings.max_numbers, settings.timeout)

    def _is_cheap(self, call: Call) -> bool:
        """Whether its bytes alone say so: nothing need be tokenised for it."""
        return self.limits.allow(total_cost(call, [byte_lengths(item) for item in call.items]))

    def _check_cost(self, call: Call) -> None:
        check_cost(call, self.limits, [token_lengths(call.subject.model, item) for item in call.items])

    def close(self) -> None:
        """End all threads; who waits is told so."""
        self.work.close()
        self.served.close()


def _answered(call: Call, results: Sequence[Result]) -> dict[str, Any]:
    """Failed items say so; where all failed, the first error is the answer's."""
    faults = [result for result in results if isinstance(result, BaseException)]
    if faults and (call.operation.whole or len(faults) == len(results)):
        raise faults[0]
    given = [error_of(result) if isinstance(result, BaseException) else result for result in results]
    return call.operation.answer(call.subject.name, given)
