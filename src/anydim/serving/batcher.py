"""Batchers: requests of any sizes in, results out; one for threads, one for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from threading import get_ident
from time import perf_counter
from typing import Any

from anydim.base.amounts import bytes_of
from anydim.base.errors import InputError, OptionError, TimeLimitError
from anydim.base.keywords import public
from anydim.base.user_values import seconds_of, text_of, whole_within
from anydim.runtime.executable import AbsentProgram
from anydim.runtime.lists import RaggedPort
from anydim.runtime.program.batches.item import Form
from anydim.runtime.program.batches.ragged_form import RaggedForm
from anydim.runtime.program.callable_program import CallableProgram
from anydim.serving.engine import Engine
from anydim.serving.equal_form import EqualForm
from anydim.serving.report import report
from anydim.serving.requests import Request
from anydim.serving.string_form import StringForm
from anydim.sizes import LARGEST

Results = dict[str, Any]
MOST_CALLS = 256


def form_of(model: CallableProgram, batch: str | None = None, name: str = "") -> Form:
    """How requests of a model share calls: rows of any sizes for ragged models, otherwise requests
    of equal shapes along `batch`, or each alone. Errors call the model by `name`, or by its own.

    Raises OptionError for models of lists or structures, whose memory no formula of sizes gives.
    """
    if not isinstance(model, CallableProgram):
        raise OptionError(
            f"a batcher serves compiled and loaded models, not {type(model).__name__}",
            "give what ad.compile or ad.load returned",
        )
    called = name or model.name
    if model.adapter is not None:
        adapter = model.adapter.named(called)
        adapter.check_batcher(batch)
        if isinstance(model.executable, AbsentProgram):
            return StringForm(adapter)
    kinds = {type(port) for port in model.lists.values()}
    if kinds - {RaggedPort}:
        raise OptionError(f"{called} takes lists or structures, which a batcher does not serve",
                          "call the model")  # fmt: skip
    if not kinds:
        return EqualForm(model, batch, name)
    if batch is not None:
        raise OptionError(f"{called} has ragged dims, and `batch` is for models without",
                          "leave it out")  # fmt: skip
    form = RaggedForm(called, model.executable, model.program, model.lists, model.input_names())
    form.check_results()
    return form


class _Serving:
    """What both batchers have in common."""

    def __init__(
        self, models: Any, *, memory: int | str = "1 GiB", calls: int = 1, queue: int = 1024
    ) -> None:
        whole_within("calls", calls, 1, MOST_CALLS, "give how many calls may run at once")
        whole_within("queue", queue, 1, LARGEST, "give how many requests may wait")
        self.engine = Engine(bytes_of(memory), calls, queue)
        named = models if isinstance(models, Mapping) else {getattr(models, "name", ""): models}
        for name, model in named.items():
            self.add(name, model)

    def add(self, name: str, model: CallableProgram, batch: str | None = None) -> None:
        """Serve a model by a name. A model that has the name already is replaced; its requests
        still run.

        Args:
            name: The name.
            model: A compiled or loaded model.
            batch: For a model without ragged dims: the dim of rows that do not depend on each
                other. Requests whose other sizes are equal share calls along it. Samples of shared
                calls are checked, unless the graph proves it (`explain` says which); where rows
                depend on each other, requests run one by one.

        Raises:
            OptionError: The model takes lists or structures, or has no such dim.
        """
        name = text_of("the name of a model", name)
        self.engine.add(name, form_of(model, batch, name))

    def remove(self, name: str, seconds: float | None = None) -> bool:
        """Stop serving a model; wait until its requests ended.

        Args:
            name: The name.
            seconds: How long to wait at most. None: without limit.

        Returns:
            Whether all of them ended.

        Raises:
            OptionError: There is no such model.
        """
        name, seconds = text_of("the name of a model", name), seconds_of("seconds", seconds)
        return self.engine.wait_drained(self.engine.remove(name), seconds)

    def metrics(self) -> dict[str, Any]:
        """Returns all measurements since the start: docs/serving-reference.md lists them."""
        return report(self.engine)


class _Futures:
    """Sets the outcomes of futures of threads."""

    def deliver(self, requests: list[Request]) -> None:
        """As `Sink.deliver`."""
        for request in requests:
            future: Future[Results] = request.future
            request.future = None
            if not future.cancelled() and future.set_running_or_notify_cancel():
                if request.error is None:
                    future.set_result(request.result)
                else:
                    future.set_exception(request.error)
            request.result = request.error = None


class _Pending(Future[Results]):
    """The future of a request; cancelling it takes the request out of the queue."""

    request: Request | None = None
    engine: Engine | None = None

    def cancel(self) -> bool:
        done = super().cancel()
        if done and self.engine is not None and self.request is not None:
            self.engine.cancel(self.request)
        return done


@public
class Batcher(_Serving):
    """Runs requests from any threads, grouped so that calls are fast and memory is bounded.

        with Batcher(model, memory="512 MiB") as batcher:
            result = batcher({"input_ids": ids})
            future = batcher.submit({"input_ids": other}, deadline=0.5)

    A request is what a call of the model takes, by name: arrays with any number of rows. Its
    result has the bits that a call of it alone has.

    Args:
        models: A compiled or loaded model, or several by name. Rows of models with ragged dims
            share calls; other requests run one by one (see `add`).
        memory: Most bytes of requests, calls and results that are not delivered, together.
            Weights are not included.
        calls: How many calls run at once. Requests that take much longer than others have a
            thread besides.
        queue: How many requests wait at most.
    """

    _SINK = _Futures()

    def submit(
        self, inputs: Any, model: str | None = None, *, outputs: Sequence[str] | None = None,
        priority: int = 0, deadline: float | None = None,
    ) -> Future[Results]:  # fmt: skip
        """Queue a request.

        Args:
            inputs: Arrays by name, a tuple, or the array of the only input.
            model: The name of the model; None if there is one.
            outputs: Names of the results to return. None: all.
            priority: Requests of higher priority run first.
            deadline: Seconds within which it must begin to run.

        Returns:
            A future with the outputs by name. Its `cancel` takes the request out of the queue.

        Raises:
            InputError: An input does not fit the model.
            MemoryLimitError: The request can never fit; the error has its sizes and bytes.
            BusyError: The queue or the memory is full.
            OptionError: There is no such model.
        """
        future = _Pending()
        engine = self.engine
        request = engine.submit(inputs, self._SINK, future, model, priority, deadline, outputs)
        future.engine, future.request = engine, request
        return future

    def __call__(
        self, inputs: Any, model: str | None = None, *, outputs: Sequence[str] | None = None,
        priority: int = 0, deadline: float | None = None,
    ) -> Results:  # fmt: skip
        """Run a request, and wait for its results. Arguments and errors are those of `submit`.

        Raises:
            TimeLimitError: The deadline was over before the request ran.
        """
        future = _Pending()
        request = self.engine.call(inputs, self._SINK, future, model, priority, deadline, outputs)
        future.engine, future.request = self.engine, request
        try:
            return future.result(deadline)
        except FutureTimeout:
            if future.done() or not future.cancel():
                return future.result()  # it runs, or ended meanwhile
            name = model or next(iter(self.engine.models), "")
            raise TimeLimitError(
                f"{name}: the deadline was over after {deadline:.3f} s",
                "the request did not run; send fewer requests, or give more time",
            ) from None

    def close(self, drain: bool = True, seconds: float | None = None) -> None:
        """Refuse new requests, and end the threads.

        Args:
            drain: Run the requests that wait; otherwise they get a BusyError.
            seconds: How long to wait at most. None: without limit.
        """
        self.engine.close(drain, seconds)

    def __enter__(self) -> Batcher:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


class _Loop:
    """Sets the outcomes of futures of an event loop, those of a group at once."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop, self._thread = loop, get_ident()

    def deliver(self, requests: list[Request]) -> None:
        """As `Sink.deliver`."""
        if get_ident() == self._thread:
            _settle(requests)
            return
        with suppress(RuntimeError):  # the loop is closed: no caller waits
            self.loop.call_soon_threadsafe(_settle, requests)


def _settle(requests: list[Request]) -> None:
    for request in requests:
        future: asyncio.Future[Results] | None = request.future
        if future is not None and not future.done():
            if request.error is None:
                future.set_result(request.result)
            else:
                future.set_exception(request.error)
        request.result = request.error = None


@public
class AsyncBatcher(_Serving):
    """A `Batcher` for asyncio: a call is awaited, and cancelling its task cancels the request.

        async with AsyncBatcher(model, memory="512 MiB") as batcher:
            result = await batcher({"input_ids": ids}, deadline=0.5)

    Its arguments are those of `Batcher`.
    """

    _sink: _Loop | None = None

    async def __call__(
        self, inputs: Any, model: str | None = None, *, outputs: Sequence[str] | None = None,
        priority: int = 0, deadline: float | None = None,
    ) -> Results:  # fmt: skip
        """Run a request. Arguments and errors are those of `Batcher.__call__`."""
        request = self.submit(inputs, model, outputs=outputs, priority=priority, deadline=deadline)
        return await self.outcome(request)

    def submit(
        self, inputs: Any, model: str | None = None, *, outputs: Sequence[str] | None = None,
        priority: int = 0, deadline: float | None = None, keep: int = 0, within: float = 0.0,
    ) -> Request:  # fmt: skip
        """Queue a request for `outcome`. Arguments and errors are those of `Batcher.submit`.

        Args:
            keep: How many times the bytes of results count until `release`.
            within: A request that is predicted to take fewer seconds runs on the event loop, if
                no other waits or runs.
        """
        loop = asyncio.get_running_loop()
        sink = self._sink
        if sink is None or sink.loop is not loop:
            sink = self._sink = _Loop(loop)
        future, engine = loop.create_future(), self.engine
        if within:
            return engine.call(
                inputs, sink, future, model, priority, deadline, outputs, keep, within,
                loop.call_soon,
            )  # fmt: skip
        return engine.submit(inputs, sink, future, model, priority, deadline, outputs, keep)

    async def outcome(self, request: Request) -> Results:
        """The results of a request, once. Cancelling the task cancels the request.

        Raises the errors of the request; InputError if its outcome was taken before.
        """
        if request.future is None:
            raise InputError("the outcome of this request was taken before",
                             "keep its results, or submit it again")  # fmt: skip
        timer = None
        if request.deadline is not None:
            loop = asyncio.get_running_loop()
            left = max(0.0, request.deadline - perf_counter())
            timer = loop.call_later(left, _expire, self.engine, request)
        try:
            results: Results = await request.future
            return results
        except (asyncio.CancelledError, CancelledError):
            self.engine.cancel(request)
            raise
        finally:
            request.future = None  # a cycle would keep arrays until they are collected
            if timer is not None:
                timer.cancel()

    def release(self, request: Request) -> None:
        """Stop counting the results of a request that was submitted with `keep`."""
        self.engine.cancel(request)

    async def close(self, drain: bool = True, seconds: float | None = None) -> None:
        """As `Batcher.close`, without blocking the loop."""
        await asyncio.to_thread(self.engine.close, drain, seconds)

    async def __aenter__(self) -> AsyncBatcher:
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.close()


def _expire(engine: Engine, request: Request) -> None:
    """End a request that still waits at its deadline."""
    if not request.future.done() and engine.expire(request):
        request.future.set_exception(request.error)
