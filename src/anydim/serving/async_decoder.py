"""Decoders for asyncio: tokens of sequences that share steps (`decoding.py`)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection
from contextlib import suppress
from typing import Any

from anydim.base.keywords import public
from anydim.serving.decoding import END, Decoding
from anydim.serving.drafts import Drafts
from anydim.serving.sampling import Choose, largest


@public
class AsyncDecoder(Decoding):
    """A `Decoder` for asyncio: `async for token in decoder.generate(prompt, most=100)`.

    Its arguments are those of `Decoder`.
    """

    async def generate(
        self, tokens: Any, most: int, stop: Collection[int] = (), *, choose: Choose = largest,
        priority: int = 0, deadline: float | None = None, drafts: Drafts | None = None,
    ) -> AsyncGenerator[int, None]:  # fmt: skip
        """Yield tokens as they are chosen, with the arguments and errors of `Decoder.generate`."""
        loop, received = asyncio.get_running_loop(), asyncio.Queue[Any]()

        def send(found: Any) -> None:
            with suppress(RuntimeError):  # the loop is closed: no caller waits
                loop.call_soon_threadsafe(received.put_nowait, found)

        made = self._begin(tokens, most, stop, choose, send, priority, deadline, drafts)
        try:
            while (found := await received.get()) is not END:
                if isinstance(found, BaseException):
                    raise found
                yield found
        finally:
            self._forget(made)

    async def close(self) -> None:
        """As `Decoder.close`, without blocking the loop."""
        await asyncio.to_thread(self._close)

    async def __aenter__(self) -> AsyncDecoder:
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.close()
