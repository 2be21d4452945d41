"""A server in a process of its own, for tests."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).resolve().parents[4] / "src"


class Running:
    """A server: its ports, its process, and the lines of its log."""

    def __init__(self, words: Sequence[str], descriptors: int | None = None) -> None:
        variables = {**os.environ, "PYTHONPATH": str(SOURCE)}
        command = [sys.executable, "-m", "anydim", "serve", *words, "--port", "0"]
        if "--no-grpc" not in words:
            command += ["--grpc-port", "0"]
        if descriptors is not None:  # its most open files
            command = ["/bin/sh", "-c", f'ulimit -n {descriptors}; exec "$@"', "sh", *command]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=variables)
        self.lines: list[dict[str, Any]] = []
        self.port = self.grpc_port = 0
        assert self.process.stderr is not None
        for line in self.process.stderr:
            try:
                found = json.loads(line)
            except ValueError:
                self.lines.append({"text": line})
                continue
            self.lines.append(found)
            if found["event"] == "grpc":
                self.grpc_port = int(found["address"].rpartition(":")[2])
            if found["event"] == "ready":
                self.port = int(found["url"].rstrip("/").rpartition(":")[2])
                break
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(json.loads(line) if line.startswith("{") else {"text": line})

    def request(
        self, method: str, path: str, body: Any = None, headers: Any = None
    ) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of an answer."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=30)
        if isinstance(body, (dict, list)):
            body = json.dumps(body)
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        found = answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()
        connection.close()
        return found

    def json(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Status and JSON of an answer."""
        status, _, text = self.request(method, path, body)
        return status, json.loads(text)

    def stop(self) -> int:
        """End it as a service manager does; its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(30)
        finally:
            self.process.kill()
            self._reader.join(5)


@contextmanager
def running(*words: str, descriptors: int | None = None) -> Iterator[Running]:
    """A server that is ready, with so many descriptors at most."""
    server = Running(words, descriptors)
    assert server.port, server.lines
    try:
        yield server
    finally:
        server.stop()
