"""The engine of all batchers: requests wait in lines, threads take groups of them and call models.

A group is as large as pays (`grouping.py`). Cheap requests are first; a request is due `STRETCH`
times its predicted time after its arrival, and then it passes cheaper ones, as far as each of them
waits for at most one longer call (`lanes.py`). Requests that are long beside those of the last
minutes (`order.py`) have a thread of their own at low priority, so that the system lets short ones
pass. Where several calls may run at once, all but one may be long ones, too.

Memory: what waits, runs and is kept between calls stays below the limit. A request is accepted only
if it can run alone beside all that wait, so that none waits for memory in vain.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from time import perf_counter
from traceback import clear_frames
from typing import Any

from anydim.base.errors import (
    BusyError,
    OptionError,
    OutOfMemoryError,
    TimeLimitError,
    UserError,
)
from anydim.base.text import count_of, quote_list, suggestion
from anydim.base.user_values import flag_of, seconds_of, text_of, whole_within
from anydim.runtime.program.batches.item import Form
from anydim.serving.budget import Budget
from anydim.serving.grouping import bytes_needed, count_fitting, take_worthwhile
from anydim.serving.lanes import Group, Lane, Served
from anydim.serving.order import Steps, step_of
from anydim.serving.requests import CANCELLED, DONE, RUNNING, WAITING, Lines, Request, Sink
from anydim.sizes import LARGEST

STRETCH = 10.0  # times its predicted time, a request may wait before others pass it
NICE = 5  # of the thread for long requests: a quarter of a core that others fill
OVERRUN = 2.0  # times its bound, a call of a thread that should not wait may take
PAUSE = 20.0  # times its own time, such threads make no calls after one that took longer
Later = Callable[[Callable[[], None]], object]


class Engine:
    """Runs requests of several models under one limit of memory, with one set of threads."""

    def __init__(self, memory: int, calls: int, queue: int) -> None:
        self.budget, self.queue = Budget(memory), queue
        self.models: dict[str, Served] = {}
        self._calls = calls
        self._begin()

    def _begin(self) -> None:
        """Reset to no requests and no threads: at the start, and in a child after a fork."""
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)  # a call ended
        self.lanes = (Lane(self._lock, self._calls, 0), Lane(self._lock, 1, NICE))
        self._threads: list[threading.Thread] = []
        self._is_closed = False
        self.groups = 0  # calls that run
        self.budget.clear()
        self._steps = Steps()
        self._late: list[Request] = []  # whose errors are to be delivered
        for served in self.models.values():
            served.waiting = served.running = 0

    # ---- models ----------------------------------------------------------------------------------

    def add(self, name: str, form: Form) -> Served | None:
        """Serve a model under a name; return the model it replaces, whose requests still run."""
        with self._lock:
            before = self.models.get(name)
            self.models[name] = made = Served(name, form)
            if before is not None:
                made.measures = before.measures
        return before

    def remove(self, name: str) -> Served:
        """Stop accepting requests for a model; queued ones still run."""
        with self._lock:
            served = self._find_model(name)
            del self.models[name]
            served.is_closed = True
        return served

    def wait_drained(self, served: Served, seconds: float | None = None) -> bool:
        """Wait until a model has no queued or running request; return whether that was in time."""
        with self._lock:
            return self._changed.wait_for(lambda: not served.waiting + served.running, seconds)

    def _find_model(self, name: str | None) -> Served:
        """Return the model with a name, or the only model for None; raises OptionError."""
        known = self.models
        if name is None:
            if len(known) == 1:
                return next(iter(known.values()))
            raise OptionError("which model?", f"name one: {quote_list(known) or 'there is none'}")
        found = known.get(text_of("the name of a model", name))
        if found is None:
            hint = suggestion(name, known) or f"models: {quote_list(known) or 'none'}"
            raise OptionError(f"there is no model '{name}'", hint)
        return found

    # ---- requests --------------------------------------------------------------------------------

    def _read(
        self, given: Any, sink: Sink, future: Any, model: str | None, priority: int,
        deadline: float | None, outputs: Sequence[str] | None, keep: int,
    ) -> Request:  # fmt: skip
        """Check a request and predict its time; raises InputError or MemoryLimitError."""
        arrived = perf_counter()
        if os.getpid() != self._process:
            self._begin()
        served = self._find_model(model)
        whole_within("priority", priority, -LARGEST, LARGEST, "give an integer")
        deadline = seconds_of("deadline", deadline)
        form = served.form
        try:
            item = form.read(given, outputs)
            alone = bytes_needed(form, item, self.budget.limit, max(keep, 1))
        except UserError:
            served.measures.refused += 1
            raise
        predicted = item.own + form.overhead(item)
        seconds = predicted * form.costs.ratio
        due = arrived + STRETCH * seconds
        if deadline is not None:
            due = min(due, arrived + deadline - seconds)
            deadline = arrived + deadline
        request = Request(served, item, alone, sink, future, priority, arrived, due, deadline, keep)
        request.seconds, request.step = seconds, step_of(predicted)
        return request

    def submit(
        self, given: Any, sink: Sink, future: Any, model: str | None, priority: int,
        deadline: float | None, outputs: Sequence[str] | None, keep: int = 0,
    ) -> Request:  # fmt: skip
        """Queue a request; its result bytes are charged `keep` times until `release`.

        Raises InputError for inputs that do not fit the model, MemoryLimitError for a request that
        can never run, BusyError if the queue or the memory is full.
        """
        request = self._read(given, sink, future, model, priority, deadline, outputs, keep)
        with self._lock:
            self._admit(request)
            self._enter(request)
        return request

    def call(
        self, given: Any, sink: Sink, future: Any, model: str | None, priority: int,
        deadline: float | None, outputs: Sequence[str] | None, keep: int = 0,
        within: float | None = None, later: Later | None = None,
    ) -> Request:  # fmt: skip
        """Run a request in the caller's thread if the engine is idle, otherwise queue it.

        Both ways deliver the results to the sink. With `within`, the caller's thread runs it only
        if its work is bounded by sizes and predicted to take less than these seconds. A call that
        takes more than `OVERRUN` times `within` disables this for its model for `PAUSE` times its
        duration. A request past its deadline does not run. `later` gets the bookkeeping that
        remains after delivery.
        """
        request = self._read(given, sink, future, model, priority, deadline, outputs, keep)
        with self._lock:
            self._admit(request)
            may_run = _is_short(request, within) and not _is_over(request)
            group = self._lone(request) if may_run else None
            if group is None:
                self._enter(request)
        if group is not None:
            self._run(group, later)
            taken = request.ended - request.started
            if within is not None and taken > OVERRUN * within:
                request.served.pause_ends = request.ended + PAUSE * taken
        return request

    def _lone(self, request: Request) -> Group | None:
        """Return a group of this request alone if it may run now; None if it must be queued."""
        lane = self.lanes[0]
        if request.lane is not lane or self.groups or any(each.lines.count for each in self.lanes):
            return None
        group = Group(lane, request.served.form, [request], request.alone)
        self._enter_call(group)
        return group

    def _admit(self, request: Request) -> None:
        """Reserve memory and choose a lane for a request; raises BusyError."""
        try:
            self._check_room(request)
        except BusyError:
            request.served.measures.rejected += 1
            raise
        request.served.waiting += 1
        if self._steps.note(request.step, request.arrived):
            self._divide()
        request.lane = self.lanes[self._steps.is_long(request.step)]

    def _divide(self) -> None:
        """Move each queued request to the lane of its step."""
        waiting = [request for lane in self.lanes for request in lane.lines.waiting()]
        for lane in self.lanes:
            lane.lines = Lines()
        for request in waiting:
            request.lane = self.lanes[self._steps.is_long(request.step)]
            request.lane.lines.add(request)
        self._notify()

    def _check_room(self, request: Request) -> None:
        if self._is_closed or request.served.is_closed:
            raise BusyError(f"{request.served.name}: it takes no more requests")
        waiting = self.lanes[0].lines.count + self.lanes[1].lines.count
        if waiting >= self.queue:
            raise BusyError(
                f"{request.served.name}: {count_of(waiting, 'request')} wait, "
                "the most there may be",
                "send requests later, or raise the limit of the queue",
            )
        self.budget.hold(request.held, f"{request.served.name}: the request", request.alone)

    def _enter(self, request: Request) -> None:
        request.lane.lines.add(request)
        if not self._threads:
            self._start()
        self._notify()

    def cancel(self, request: Request) -> None:
        """Cancel a request, or drop its results; frees its memory."""
        with self._lock:
            if request.state == WAITING:
                self._cancel_waiting(request)
            elif request.state == RUNNING:
                request.keep = 0  # freed when its call ends
            else:
                self._free(request)

    def _cancel_waiting(self, request: Request) -> None:
        request.state = CANCELLED
        request.served.measures.cancelled += 1
        request.lane.lines.drop()
        self._forget(request)
        self._free(request)

    def expire(self, request: Request) -> bool:
        """Fail a queued request that missed its deadline, without delivering its error."""
        with self._lock:
            if request.state != WAITING:
                return False
            request.lane.lines.drop()
            self._fail_late(request, perf_counter())
            self._late.remove(request)
            self._wake()
            return True

    def hold(self, bytes: int, what: str) -> None:
        """Charge bytes to the memory limit; raises BusyError if they do not fit."""
        with self._lock:
            self.budget.hold(bytes, what)

    def unhold(self, bytes: int) -> None:
        """Return bytes that `hold` charged."""
        with self._lock:
            self.budget.held -= bytes
            self._wake()

    def _free(self, request: Request) -> None:
        self.budget.held -= request.held
        request.held, request.item, request.result = 0, None, None
        self._wake()

    # ---- threads ---------------------------------------------------------------------------------

    def _start(self) -> None:
        for number, lane in enumerate(self.lanes):
            for each in range(lane.threads):
                name = f"anydim-{'long' if number else 'calls'}-{each}"
                thread = threading.Thread(target=self._work, args=(lane,), name=name, daemon=True)
                self._threads.append(thread)
                thread.start()

    def _work(self, lane: Lane) -> None:
        """Run a thread: take groups of a lane until the engine is closed and its lines empty."""
        if lane.nice and hasattr(os, "setpriority"):
            with suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), lane.nice)
        while True:
            with self._lock:
                group = self._next(lane)
                while group is None and not self._late:
                    if self._is_closed and not lane.lines.count:
                        return
                    lane.idle += 1
                    lane.wake.wait()
                    lane.idle -= 1
                    group = self._next(lane)
                late, self._late = self._late, []
            deliver(late)
            if group is not None:
                self._run(group)
            del group  # while it waits for the next one, arrays are free

    def _wake(self) -> None:
        """Wake the threads that wait for memory, and those with requests."""
        self._changed.notify_all()
        self._notify()

    def _notify(self) -> None:
        """Wake one idle thread of each lane that has requests."""
        short, long = self.lanes
        if short.idle and (short.lines.count or (long.lines.count and self._may_help())):
            short.wake.notify()
        if long.idle and long.lines.count:
            long.wake.notify()

    def _may_help(self) -> bool:
        """Whether a thread of the short lane may take a long request: one thread must stay free."""
        return len(self.lanes[0].calls) < self.lanes[0].threads - 1

    # ---- groups ----------------------------------------------------------------------------------

    def _next(self, lane: Lane) -> Group | None:
        """Take the next group for a lane from its line; None if none fits in memory now."""
        short, long = self.lanes
        if not (short.lines.count or long.lines.count):
            lane.reserved = 0
            return None
        source = self._source(lane)
        now = perf_counter()
        while source is not None and (head := source.first(now)) is not None:
            requests = take_worthwhile(source.lines, head.place, now, self._fail_late)
            if requests:
                break
        else:
            lane.reserved = 0
            return None
        form = requests[0].served.form
        count, bytes = count_fitting(form, requests, partial(self._has_room, lane))
        for request in requests[count:]:
            source.lines.add(request)
        if not count:
            lane.reserved = bytes
            return None
        lane.reserved = 0
        group = Group(lane, form, requests[:count], bytes)
        self._enter_call(group)
        return group

    def _source(self, lane: Lane) -> Lane | None:
        """Return the lane from which a thread of `lane` may take requests now."""
        short, long = self.lanes
        if len(lane.calls) >= lane.threads:
            return None  # a caller runs one itself
        if lane is long:
            most = self._steps.longest_short  # some long ones may have begun as short ones
            others = sum(group.step > most for group in short.calls)
            return None if others == short.threads or short.is_behind(most) else long
        return long if not short.lines.count and self._may_help() else short

    def _fail_late(self, request: Request, now: float) -> None:
        """Fail a request that missed its deadline; its error is delivered outside the lock."""
        request.error = TimeLimitError(
            f"{request.served.name}: the deadline was over after {now - request.arrived:.3f} s",
            "the request did not run; send fewer requests, or give more time",
        )
        request.ended = now
        self._forget(request)
        self._end(request, "late")
        self._late.append(request)

    def _has_room(self, lane: Lane, bytes: int, count: int) -> bool:
        if count == 1 and not self.groups:
            return True  # a request that was accepted fits alone
        reserved = sum(other.reserved for other in self.lanes if other is not lane)
        return self.budget.fits(reserved + bytes)

    def _enter_call(self, group: Group) -> None:
        self.budget.begin(group.bytes)
        self.groups += 1
        group.lane.calls.append(group)
        group.requests[0].lane.begins(group)
        self._trim(group)
        now = perf_counter()
        for request in group.requests:
            request.state, request.started = RUNNING, now
            request.served.running += 1
            self._forget(request)

    def _forget(self, request: Request) -> None:
        """Remove a request from the counts of queued requests."""
        request.served.waiting -= 1
        self.budget.waits_no_more(request.alone)

    def _trim(self, group: Group) -> None:
        """Free memory that models keep between calls if the running calls need it."""
        own = group.form
        if len(self.models) == 1 and next(iter(self.models.values())).form is own:
            if not self.budget.fits(own.idle_bytes()):
                own.trim()
            return
        forms = {served.form for served in self.models.values()} | {own}
        kept = {form: form.idle_bytes() for form in forms}
        if not self.budget.fits(sum(kept.values()) - kept[own]):
            for form in forms - {own}:
                form.trim()
        if not self.budget.fits(kept[own]):
            own.trim()

    # ---- calls -----------------------------------------------------------------------------------

    def _run(self, group: Group, later: Later | None = None) -> None:
        """Call the model and deliver results or errors; with `later`, bookkeeping comes after."""
        requests, form = group.requests, group.form
        items = [request.item for request in requests]
        start = perf_counter()
        try:
            results = form.run(items)
            for request, result in zip(requests, results):
                request.result = result
        except BaseException as error:
            if len(requests) > 1 and not isinstance(error, OutOfMemoryError):
                self._run_each(form, requests)
            else:
                for request in requests:
                    request.error = _without_frame(error)
        end = perf_counter()
        items.clear()
        for request in requests:
            request.ended = end
        if later is not None and all(request.error is None for request in requests):
            deliver(requests)
            later(partial(self._end_call, group, start, end))
        else:
            self._end_call(group, start, end)
            deliver(requests)

    def _run_each(self, form: Form, requests: list[Request]) -> None:
        """Run the requests of a failed group one by one, so that only the faulty one fails."""
        for request in requests:
            try:
                (request.result,) = form.run([request.item])
            except BaseException as error:
                request.error = _without_frame(error)

    def _end_call(self, group: Group, start: float, end: float) -> None:
        requests, form = group.requests, group.form
        form.costs.learn(group.work, end - start)
        with self._lock:
            rows = sum(request.item.rows for request in requests)
            measures = requests[0].served.measures
            measures.count_call(
                len(requests), rows, end - start, group.work * form.costs.ratio, group.bytes
            )
            self.budget.running -= group.bytes
            self.groups -= 1
            group.lane.calls.remove(group)
            requests[0].lane.ends(group, end)
            for request in requests:
                request.served.running -= 1
                self._end(request, "failed" if request.error is not None else "done")
            self._wake()

    def _end(self, request: Request, outcome: str) -> None:
        """Record an outcome; free the request's memory except results that are kept."""
        served, item = request.served, request.item
        served.measures.count_outcome(outcome, item.extent, request)
        request.state = DONE
        left = request.keep * item.output_bytes if request.error is None else 0
        self.budget.held -= request.held - left
        request.held, request.item = left, None

    # ---- end -------------------------------------------------------------------------------------

    def close(self, drain: bool, seconds: float | None) -> None:
        """Stop accepting requests; run the queued ones with `drain`, otherwise cancel them."""
        drain, seconds = flag_of("drain", drain), seconds_of("seconds", seconds)
        cancelled = list[Request]()
        with self._lock:
            self._is_closed = True
            if not drain:
                cancelled = [r for lane in self.lanes for r in lane.lines.waiting()]
            for request in cancelled:
                request.error = BusyError(f"{request.served.name}: the server stops")
                self._cancel_waiting(request)
            for lane in self.lanes:
                lane.wake.notify_all()
        deliver(cancelled)
        end = None if seconds is None else perf_counter() + seconds
        for thread in self._threads:
            thread.join(None if end is None else max(0.0, end - perf_counter()))
        with self._lock:  # calls that callers run themselves
            left = None if end is None else max(0.0, end - perf_counter())
            self._changed.wait_for(lambda: not self.groups, left)


def _is_short(request: Request, within: float | None) -> bool:
    """Whether a call is predicted to take less than `within` seconds (None: no limit)."""
    if within is None:
        return True
    served = request.served
    is_known = served.form.costs.is_known and request.arrived >= served.pause_ends
    return is_known and request.seconds < within


def _is_over(request: Request) -> bool:
    """Whether the deadline of a request has passed."""
    return request.deadline is not None and perf_counter() >= request.deadline


def _without_frame(error: BaseException) -> BaseException:
    """Clear the frames of a traceback, which would keep requests and arrays alive."""
    each: BaseException | None = error
    while each is not None:
        clear_frames(each.__traceback__)
        each = each.__context__
    caught = error.__traceback__
    return error.with_traceback(caught.tb_next if caught is not None else None)


def deliver(requests: Sequence[Request]) -> None:
    """Deliver requests to their sinks, one call per sink."""
    by_sink: dict[Sink, list[Request]] = {}
    for request in requests:
        by_sink.setdefault(request.sink, []).append(request)
    for sink, own in by_sink.items():
        sink.deliver(own)
