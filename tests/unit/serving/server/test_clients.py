"""Promise: connections count with what they hold; at the limit the oldest idle one closes, then one
whose body arrives slowly, then the one that holds the most."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anydim.serving.server import clients, state
from anydim.serving.server.clients import CONNECTION, Clients, Limits
from anydim.serving.server.rpc_connections import RpcConnections, peer_of

MIB = 1 << 20


class Each:
    """A connection that holds some bytes."""

    due = 0.0

    def __init__(self, bytes: int = CONNECTION) -> None:
        self.bytes, self.is_closed = bytes, False

    def held(self) -> int:
        return self.bytes

    def evict(self) -> None:
        self.is_closed = True


def counted(most: int, limit: int) -> tuple[Clients, list[float]]:
    now = [0.0]
    return Clients(most, limit, lambda: now[0]), now


def entered(made: Clients, count: int, bytes: int = CONNECTION) -> list[Each]:
    found = [Each(bytes) for _ in range(count)]
    for each in found:
        assert made.enter(each)
        made.count(each, bytes)
    return found


def test_the_oldest_idle_connection_closes_for_a_new_one() -> None:
    made, now = counted(3, 1 << 40)
    first, second, third = entered(made, 3)
    assert not made.enter(Each())  # all have just come
    now[0] = 2.0
    made.work(first)
    assert made.enter(Each()) and second.is_closed and not first.is_closed and len(made) == 3
    now[0] = 2.5
    made.wait(first)
    assert made.enter(Each()) and third.is_closed
    assert made.enter(Each()) and first.is_closed  # the others have just come


def test_a_body_that_arrives_slowly_gives_way_and_a_fast_one_does_not() -> None:
    made, now = counted(2, 1 << 40)
    slow, fast = entered(made, 2)
    for each in (slow, fast):
        made.work(each)
        made.arrive(each)
    while now[0] < clients.PATIENCE:
        assert not made.give_way()
        now[0] += 0.5
        made.count_arrived(fast, clients.LEAST_RATE)
        made.count_arrived(slow, 1)
    now[0] += 0.5
    made.count_arrived(fast, clients.LEAST_RATE)
    assert made.enter(Each()) and slow.is_closed and not fast.is_closed
    now[0] += 10.0  # bytes do not count for later than `PATIENCE`
    assert made.give_way() and fast.is_closed and not made.give_way()


def test_bytes_are_counted_and_the_largest_connection_closes_last() -> None:
    made, now = counted(100, 10 * MIB)
    idle, large, *small = entered(made, 20)
    for each in (large, *small):
        made.work(each)
    now[0] = 2.0
    idle.bytes, large.bytes = 4 * MIB, 5 * MIB
    made.count(idle, idle.bytes)
    made.count(large, large.bytes)
    assert not idle.is_closed and made.bytes > 9 * MIB
    small[0].bytes = 2 * MIB
    made.count(small[0], small[0].bytes)
    assert idle.is_closed and not large.is_closed and made.bytes < 10 * MIB
    small[1].bytes = 3 * MIB
    made.count(small[1], small[1].bytes)
    assert large.is_closed and not any(each.is_closed for each in small)
    made.leave(large)
    made.count(large, 1)
    assert made.bytes == sum(each.bytes for each in small)


def test_what_was_counted_before_is_looked_at_again_before_one_closes() -> None:
    made, _ = counted(100, 10 * MIB)
    each, *_ = entered(made, 5)
    made.count(each, 20 * MIB)  # it holds them no more
    assert not each.is_closed and made.bytes == 5 * CONNECTION


def test_random_connections_stay_within_the_limits() -> None:
    random = np.random.default_rng(0)
    made, now = counted(40, MIB)
    there: list[Each] = []
    for _ in range(20_000):
        now[0] += float(random.exponential(0.05))
        there = [each for each in there if not each.is_closed]
        what = random.integers(6)
        if what == 0 or not there:
            each = Each()
            if made.enter(each):
                there.append(each)
        else:
            each = there[int(random.integers(len(there)))]
            if what == 1:
                made.leave(each)
                there.remove(each)
            elif what == 2:
                made.wait(each)
            elif what == 3:
                made.work(each)
                made.arrive(each)
            elif what == 4:
                made.count_arrived(each, int(random.integers(1, 1 << 16)))
            else:
                each.bytes = CONNECTION + int(random.integers(1 << 17))
                made.count(each, each.bytes)
        assert len(made) <= 40 and made.bytes <= MIB
    there = [each for each in there if not each.is_closed]
    assert len(made) == len(there)


@pytest.mark.parametrize("memory", (64 * MIB, 160 * MIB, 2 << 30, 64 << 30))
@pytest.mark.parametrize("descriptors", (None, 256, 1024, 1 << 20))
def test_limits_follow_from_memory_queue_and_descriptors(
    memory: int, descriptors: int | None
) -> None:
    found = Limits.of(memory, 1024, descriptors)
    assert 2 <= found.http <= 2 * 1024 + 64 and 2 <= found.rpc <= found.http
    assert found.http * CONNECTION <= found.bytes
    if descriptors == 1024:
        assert found.http + found.rpc < 1024 - 2 * clients.ACCEPTED
    if memory == 64 << 30 and descriptors != 1024 and descriptors != 256:
        assert found.http == found.rpc == 2 * 1024 + 64


def test_the_soft_limit_of_descriptors_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    resource = pytest.importorskip("resource")
    given: list[Any] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 5000))
    monkeypatch.setattr(resource, "setrlimit", lambda _, pair: given.append(pair))
    assert clients.raised_descriptors() == 5000 and given == [(5000, 5000)]

    def refused(*_: Any) -> None:
        raise ValueError

    monkeypatch.setattr(resource, "setrlimit", refused)
    assert clients.raised_descriptors() == 1024


def test_a_cause_is_logged_once_a_minute() -> None:
    once = state.OncePerCause()

    def record(level: int, text: str, at: float, **more: Any) -> logging.LogRecord:
        found = logging.LogRecord("anydim", level, "file", 1, text, (), more.pop("error", None))
        found.created = at
        vars(found).update(more)
        return found

    error = (OSError, OSError("no files"), None)
    assert [once.filter(record(logging.ERROR, "accept", at, error=error))
            for at in (0.0, 1.0, 59.0)] == [True, False, False]  # fmt: skip
    other = (OSError, OSError("no memory"), None)
    assert once.filter(record(logging.ERROR, "accept", 2.0, error=other))
    last = record(logging.ERROR, "accept", 60.0, error=error)
    assert once.filter(last) and vars(last)["facts"] == {"repeated": 2}
    for name in ("a", "b"):
        assert once.filter(record(logging.ERROR, "not loaded", 3.0, facts={"model": name}))
    assert all(once.filter(record(logging.INFO, "loaded", at)) for at in (0.0, 0.0))
    assert all(once.filter(record(logging.WARNING, str(n), 0.0)) for n in range(1000))


@pytest.mark.parametrize(("text", "peer"), (
    ("ipv4:127.0.0.1:42", ("127.0.0.1", 42)), ("ipv6:%5B::1%5D:42", ("::1", 42)),
    ("ipv6:[fe80::1%25eth0]:42", ("fe80::1%eth0", 42)), ("unix:", ("", 0)),
))  # fmt: skip
def test_peers_as_grpcio_writes_them(text: str, peer: tuple[str, int]) -> None:
    assert peer_of(text) == peer


@pytest.fixture(params=(socket.AF_INET, socket.AF_INET6), ids=("IPv4", "both"))
def accepted(request: pytest.FixtureRequest) -> Any:
    """The port of a server, and a function that makes both ends of a connection to it."""
    if not Path("/proc/self/fd").exists():
        pytest.skip("no /proc")
    is_both = request.param == socket.AF_INET6
    try:
        bound = socket.create_server(
            ("::" if is_both else "127.0.0.1", 0), family=request.param, dualstack_ipv6=is_both
        )
    except OSError:
        pytest.skip("no IPv6")
    ends: list[socket.socket] = [bound]

    def made() -> tuple[socket.socket, socket.socket]:
        client = socket.create_connection(("127.0.0.1", bound.getsockname()[1]))
        ends.extend((client, bound.accept()[0]))
        return client, ends[-1]

    yield bound.getsockname()[1], made
    for each in ends:
        each.close()


Accepted = tuple[int, Callable[[], tuple[socket.socket, socket.socket]]]


def test_idle_connections_over_grpc_close_but_those_with_calls(
    accepted: Accepted, monkeypatch: pytest.MonkeyPatch
) -> None:
    from anydim.serving.server import rpc_connections

    monkeypatch.setattr(rpc_connections, "FIRST_SECONDS", 0.0)
    port, made = accepted
    found = RpcConnections(port, 8, lambda: 0)
    pairs = [made() for _ in range(6)]
    peers = [client.getsockname()[:2] for client, _ in pairs]
    found.calls[peers[0]] += 1
    found.close_idle(4)
    closed = []
    for client, _ in pairs:
        client.settimeout(0.05)
        try:
            closed.append(client.recv(1) == b"")
        except TimeoutError:
            closed.append(False)
    assert sum(closed) == 2 and not closed[0]
    client, server = made()
    peer = client.getsockname()[:2]
    assert found.bytes_received(peer) == 0
    client.sendall(b"12345")
    assert server.recv(5) == b"12345" and found.bytes_received(peer) == 5
    assert found.bytes_received(("127.0.0.1", 1)) is None
