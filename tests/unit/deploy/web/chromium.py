"""Calls of exported models in a headless Chromium."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
_HERE = Path(__file__).parent
_SECONDS = 300  # the most that a page may take
_TYPES = {
    ".js": "text/javascript", ".mjs": "text/javascript", ".html": "text/html",
    ".wasm": "application/wasm",
}  # fmt: skip
_OPTIONS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip
ISOLATED = {  # pages have threads and finer clocks
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
}
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")


def answers_in_page(
    folder: Path, calls: Iterable[Mapping[str, Any]], relaxed: bool = False,
    headers: Mapping[str, str] = ISOLATED, **options: object,
) -> list[dict[str, Any]]:  # fmt: skip
    """The answers of calls in one instance, in a page; as `node.answers`."""
    request = {"calls": list(calls), "options": {"relaxed": relaxed, **options}}
    page = (_HERE / "calls.html").read_bytes()
    found = posted(page, {"": _HERE, "model": folder}, request, headers=headers)
    assert isinstance(found, list)
    return found


def posted(
    page: bytes, folders: Mapping[str, Path], request: object, seconds: int = _SECONDS,
    headers: Mapping[str, str] = ISOLATED,
) -> Any:  # fmt: skip
    """What a page posts to `answers`; it finds `request`, and folders by the first part of a path.

    Files in no other folder are those of the folder ''. `clock` is the processor time of the main
    threads of pages, in milliseconds; `spread` gives each of their threads of scripts a core.
    """
    found: list[bytes] = []
    done = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.strip("/")
            first, _, rest = path.partition("/")
            file = folders[first] / rest if first in folders else folders[""] / path
            if path == "request":
                self.answer(json.dumps(request).encode(), "application/json")
            elif path == "clock":
                self.answer(str(_busy(home)).encode(), "text/plain")
            elif path == "spread":
                self.answer(str(_spread(home)).encode(), "text/plain")
            elif not path:
                self.answer(page, "text/html")
            elif file.is_file():
                self.answer(file.read_bytes(), _TYPES.get(file.suffix, "application/octet-stream"))
            else:
                self.send_error(404)

        def do_POST(self) -> None:
            found.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.answer(b"", "text/plain")
            done.set()

        def answer(self, data: bytes, kind: str) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *words: object) -> None:
            pass

    with (
        ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server,
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home,
    ):
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/"
        command = [str(CHROMIUM), *_OPTIONS, f"--user-data-dir={home}", address]
        quiet = subprocess.DEVNULL
        browser = subprocess.Popen(command, stdout=quiet, stderr=quiet)
        try:
            assert done.wait(seconds), "the page does not answer"
        finally:
            browser.terminate()
            browser.wait(20)
            server.shutdown()
    return json.loads(found[0])


def _pages(home: str) -> Iterator[Path]:
    """Yield the folders in /proc of the processes of a browser's pages."""
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            words = (folder / "cmdline").read_bytes()
            if b"--type=renderer" in words and home.encode() in words:
                yield folder


def _busy(home: str) -> float:
    """Milliseconds of processor time of the main threads of all pages of a browser."""
    spent = 0
    for folder in _pages(home):
        with suppress(OSError):
            spent += int((folder / "schedstat").read_text("utf-8").split()[0])
    return spent / 1e6


def _spread(home: str) -> int:
    """Give the main threads of pages the first core, and workers the others in turn, as a system
    without other load does; returns the number of workers."""
    first, *others = sorted(os.sched_getaffinity(0))
    workers = 0
    for folder in _pages(home):
        os.sched_setaffinity(int(folder.name), {first})
        for thread in sorted(folder.glob("task/*"), key=lambda each: int(each.name)):
            if others and (thread / "comm").read_text("utf-8").startswith("DedicatedWorker"):
                os.sched_setaffinity(int(thread.name), {others[workers % len(others)]})
                workers += 1
    return workers
