"""A process that answers lines, ended when an answer takes too long."""

from __future__ import annotations

import selectors
import subprocess
import sys
from collections.abc import Iterator

_START = 300.0  # seconds until its first line


class Answers:
    """A module that runs as a process: it writes `ready`, then lines for each line that it reads.

    It starts at the first request, and again after an answer that did not come.
    """

    def __init__(self, module: str, *arguments: str) -> None:
        self.command = [sys.executable, "-m", module, *arguments]
        self.process: subprocess.Popen[bytes] | None = None

    def lines(self, request: str, count: int, seconds: float) -> Iterator[str]:
        """Lines of the answer until all have come, or one does not within some seconds."""
        process = self.process or self._started()
        assert process.stdin is not None
        try:
            process.stdin.write(request.encode() + b"\n")
        except BrokenPipeError:
            self.stop()
            return
        for _ in range(count):
            line = self._line(process, seconds)
            if not line:
                self.stop()
                return
            yield line

    def _started(self) -> subprocess.Popen[bytes]:
        self.process = subprocess.Popen(
            self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, bufsize=0,
        )  # fmt: skip
        self._line(self.process, _START)
        return self.process

    def _line(self, process: subprocess.Popen[bytes], seconds: float) -> str:
        assert process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            return process.stdout.readline().decode() if selector.select(seconds) else ""

    def stop(self) -> None:
        """End the process."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None
