"""Promise: a load counts a request as unanswered only if a fresh connection does not answer it."""

from __future__ import annotations

import asyncio

from anydim.server.arrivals import FAILED, Connections, Target


async def answered(rounds: int, count: int) -> tuple[list[int], int]:
    """Statuses of requests to a server that closes its idle connections between rounds."""
    open_ones, taken = list[asyncio.StreamWriter](), 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal taken
        open_ones.append(writer)
        while await reader.readline():
            while (await reader.readline()).strip():
                pass
            taken += 1
            await asyncio.sleep(0.02)  # so that each request of a round has a connection
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    connections, found = Connections(Target("127.0.0.1", port, "x")), list[int]()
    for _ in range(rounds):
        sent = [connections.send(b"GET / HTTP/1.1\r\n\r\n") for _ in range(count)]
        found += [status for status, _ in await asyncio.gather(*sent)]
        for writer in open_ones:
            writer.close()
        open_ones.clear()
        await asyncio.sleep(0.05)
    server.close()
    await server.wait_closed()
    status, _ = await connections.send(b"GET / HTTP/1.1\r\n\r\n")
    connections.close()
    return [*found, status], taken


def test_connections_that_the_server_closed_are_replaced() -> None:
    statuses, taken = asyncio.run(answered(3, 6))
    assert statuses == [200] * 18 + [FAILED] and taken == 18
