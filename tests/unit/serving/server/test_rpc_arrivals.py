"""Promise: messages over gRPC are read in the order of their calls, each once there is room."""

from __future__ import annotations

import asyncio
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from anydim.base.errors import BusyError, InputError, TimeLimitError
from anydim.serving.engine import Engine

grpc = pytest.importorskip("grpc")
pytest.importorskip("google.protobuf")

from google.protobuf.message import DecodeError  # noqa: E402

from anydim.serving.server import rpc_arrivals  # noqa: E402
from anydim.serving.server.rpc_arrivals import Arrivals, longest_message  # noqa: E402

BODY = 4 << 20
ROOM = 3 * longest_message(BODY)  # of a message while it is read


def arrivals(limit: int) -> tuple[Arrivals, Engine]:
    engine = Engine(limit, 1, 16)
    state: Any = SimpleNamespace(
        batcher=SimpleNamespace(engine=engine),
        most_body=BODY,
        rpc_calls=0,
        stopping=asyncio.Event(),
        slow=[],
        give_way=lambda: any(each() for each in state.slow),
    )
    return Arrivals(state), engine


class Context:
    """A call whose message arrives when it is set."""

    def __init__(self, order: list[int], number: int) -> None:
        self.arrived = asyncio.Event()
        self.message: Any = b"%d" % number
        self._order, self._number = order, number

    def peer(self) -> str:
        return f"ipv4:127.0.0.1:{self._number}"

    async def read(self) -> Any:
        self._order.append(self._number)
        await self.arrived.wait()
        return self.message


def test_messages_are_read_in_order_as_there_is_room() -> None:
    async def run() -> None:
        made, engine = arrivals(2 * ROOM)
        order: list[int] = []
        contexts = [Context(order, number) for number in range(4)]
        tasks = []
        for context in contexts:
            tasks.append(asyncio.ensure_future(made.only(context, bytes)))
            await asyncio.sleep(0)
        await asyncio.sleep(0.05)
        assert order == [0, 1] and engine.budget.held == 2 * ROOM
        contexts[1].arrived.set()
        assert await tasks[1] == b"1"
        await asyncio.sleep(0.05)
        assert order == [0, 1, 2]
        tasks[0].cancel()  # its client left
        await asyncio.sleep(0.05)
        assert order == [0, 1, 2, 3]
        for context in contexts:
            context.arrived.set()
        assert [await task for task in tasks[2:]] == [b"2", b"3"]
        assert engine.budget.is_clear

    asyncio.run(run())


def test_messages_that_do_not_arrive_or_are_malformed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc_arrivals, "BODY_SECONDS", 0.05)

    def refuse(data: bytes) -> Any:
        raise DecodeError("wrong")

    async def run() -> None:
        made, engine = arrivals(ROOM)
        context = Context([], 0)
        with pytest.raises(TimeLimitError, match="did not arrive"):
            await made.only(context, bytes)
        context.arrived.set()
        for read in (made.only, made.following):
            with pytest.raises(InputError, match="malformed"):
                await read(context, refuse)
        context.message = grpc.aio.EOF
        with pytest.raises(InputError, match="no message"):
            await made.only(context, bytes)
        assert await made.following(context, bytes) is None
        assert engine.budget.is_clear
        engine.hold(1, "a body")  # now there is never room
        with pytest.raises(BusyError, match="a message over gRPC takes"):
            await made.only(context, bytes)
        engine.unhold(1)
        assert engine.budget.is_clear

    asyncio.run(run())


def test_streams_end_when_the_server_stops() -> None:
    async def run() -> None:
        made, engine = arrivals(ROOM)
        order: list[int] = []
        contexts = [Context(order, number) for number in range(4)]
        reads = (made.following, made.following, made.only, made.following)
        tasks = []
        for read, context in zip(reads, contexts):
            tasks.append(asyncio.ensure_future(read(context, bytes)))
            await asyncio.sleep(0)
        made._state.stopping.set()
        for number in (0, 1):  # one reads, one waits for room
            with pytest.raises(BusyError, match="the server stops"):
                await tasks[number]
        contexts[2].arrived.set()
        contexts[3].arrived.set()
        assert await tasks[2] == b"2"  # no stream: its call has begun
        with pytest.raises(BusyError, match="the server stops"):
            await tasks[3]
        assert order == [0, 2] and engine.budget.is_clear

    asyncio.run(run())


def test_short_messages_pass_while_there_is_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc_arrivals, "_SHORT_SECONDS", 0.05)

    async def run() -> None:
        made, engine = arrivals(ROOM)
        order: list[int] = []
        idle, late, *others = (Context(order, number) for number in range(4))
        stream = asyncio.ensure_future(made.following(idle, bytes))
        await asyncio.sleep(0)
        waiting = asyncio.ensure_future(made.short(late, bytes))
        for number, context in enumerate(others, 2):
            context.arrived.set()
            assert await made.short(context, bytes) == b"%d" % number
        with pytest.raises(TimeLimitError, match="did not arrive"):
            await waiting
        others[0].message = b"a" * (rpc_arrivals.LOOKAHEAD + 1)
        with pytest.raises(InputError, match="at most 65536"):
            await made.short(others[0], bytes)
        assert engine.budget.held == ROOM and not stream.done()
        idle.arrived.set()
        assert await stream == b"0"
        assert engine.budget.is_clear

    asyncio.run(run())


def test_memory_of_long_messages_is_returned_before_it_counts_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def run() -> None:
        made, engine = arrivals(ROOM)
        held: list[int] = []
        monkeypatch.setattr(
            rpc_arrivals, "return_free_memory", lambda: held.append(engine.budget.held)
        )
        for read in (made.only, made.following):
            for size, count in ((1 << 21, 0), ((1 << 21) - 1, 0), (1, 1), (5 << 20, 2)):
                context = Context([], 0)
                context.message = b"a" * size
                context.arrived.set()
                assert len(await read(context, bytes)) == size
                assert held == [ROOM] * count
            held.clear()

    asyncio.run(run())


def test_a_call_counts_from_its_arrival_to_its_answer() -> None:
    made, engine = arrivals(100)
    with made.call(60):
        assert engine.budget.held == 60 and made._state.rpc_calls == 1
        with pytest.raises(BusyError), made.call(60):
            raise AssertionError("it has begun")
    assert engine.budget.is_clear and made._state.rpc_calls == 0


class Connections:
    """What clients have sent, by their ports."""

    def __init__(self) -> None:
        self.bytes, self.calls = dict.fromkeys(range(9), 0), Counter[Any]()

    def bytes_received(self, peer: tuple[str, int]) -> int:
        return self.bytes[peer[1]]


@pytest.mark.parametrize("kind", ("only", "following"))
def test_a_message_that_arrives_slowly_gives_way_once_others_wait(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(rpc_arrivals, "PATIENCE", 0.1)
    monkeypatch.setattr(rpc_arrivals, "_LEAST_PATIENCE", 0.05)

    async def run() -> None:
        made, engine = arrivals(2 * ROOM)
        found: Any = Connections()
        made.connections = found
        order: list[int] = []
        contexts = [Context(order, number) for number in range(4)]
        tasks = [asyncio.ensure_future(getattr(made, kind)(each, bytes)) for each in contexts[:2]]
        for _ in range(10):
            await asyncio.sleep(0.02)
            found.bytes[1] += 1 << 16
        assert not any(task.done() for task in tasks)  # nobody waits
        contexts[2].arrived.set()
        waiting = asyncio.ensure_future(made.only(contexts[2], bytes))
        for _ in range(40):
            found.bytes[1] += 1 << 16
            await asyncio.sleep(0.01)
        assert await waiting == b"2" and not tasks[1].done()
        with pytest.raises(BusyError, match="others wait for its room"):
            await tasks[0]
        contexts[1].arrived.set()
        assert await tasks[1] == b"1" and engine.budget.is_clear

    asyncio.run(run())


def test_a_connection_with_a_call_counts_until_its_answer() -> None:
    made, _ = arrivals(100)
    found: Any = Connections()
    made.connections = found
    context = Context([], 7)
    with made.call(1, context):
        assert found.calls == {("127.0.0.1", 7): 1}
    assert not found.calls
