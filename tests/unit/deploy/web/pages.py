"""Calls of exported models in headless browsers."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

_HERE = Path(__file__).parent
_MARK = "ANYDIM_PAGES"  # of the environment of a browser: its profile
_SECONDS = 300  # the most that a page may take
_TYPES = {
    ".js": "text/javascript", ".mjs": "text/javascript", ".html": "text/html",
    ".wasm": "application/wasm",
}  # fmt: skip


@dataclass(frozen=True)
class Browser:
    """A browser: its commands on different systems, its options, and the argument by which the
    processes of its pages are known. A profile has a new folder."""

    commands: tuple[str, ...]
    options: tuple[str, ...]
    of_pages: str

    @property
    def path(self) -> str | None:
        """The first command that is installed."""
        return next(filter(None, map(shutil.which, self.commands)), None)

    def command(self, profile: str, address: str) -> list[str]:
        """A start that opens an address."""
        options = [each.format(profile=profile) for each in self.options]
        return [str(self.path), *options, address]


BROWSERS = {
    "chromium": Browser(("chromium", "chromium-browser"), (
        "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--disable-sync",
        "--user-data-dir={profile}",
    ), "--type=renderer"),
    "firefox": Browser(("firefox", "firefox-esr"), (
        "--headless", "--no-remote", "--profile", "{profile}",
    ), "tab"),
}  # fmt: skip
_WORKERS = ("DedicatedWorker", "DOM Worker")  # names of threads, in Chromium and Firefox
ISOLATED = {  # pages have threads and finer clocks
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
}
BROWSER_CASES = [
    pytest.param(name, marks=pytest.mark.skipif(each.path is None, reason=f"there is no {name}"))
    for name, each in BROWSERS.items()
]
in_browsers = pytest.mark.parametrize("browser", BROWSER_CASES)


def answers_in_page(
    folder: Path, calls: Iterable[Mapping[str, Any]], relaxed: bool | None = False,
    browser: str = "chromium", headers: Mapping[str, str] = ISOLATED, **options: object,
) -> list[dict[str, Any]]:  # fmt: skip
    """The answers of calls in one instance, in a page; as `node.answers`."""
    request = {"calls": list(calls), "options": {"relaxed": relaxed, **options}}
    page = (_HERE / "calls.html").read_bytes()
    found = posted(page, {"": _HERE, "model": folder}, request, headers=headers, browser=browser)
    assert isinstance(found, list)
    return found


def posted(
    page: bytes, folders: Mapping[str, Path], request: object, seconds: int = _SECONDS,
    headers: Mapping[str, str] = ISOLATED, browser: str = "chromium",
) -> Any:  # fmt: skip
    """What a page posts to `answers`; it finds `request`, and folders by the first part of a path.

    Files in no other folder are those of the folder ''. `clock` is the processor time of the main
    threads of pages, in milliseconds; `spread` gives each of their threads of scripts a core.
    """
    found: list[bytes] = []
    used = BROWSERS[browser]
    done = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.strip("/")
            first, _, rest = path.partition("/")
            file = folders[first] / rest if first in folders else folders[""] / path
            if path == "request":
                self.answer(json.dumps(request).encode(), "application/json")
            elif path == "clock":
                self.answer(str(_busy(self.pages())).encode(), "text/plain")
            elif path == "spread":
                self.answer(str(_spread(self.pages())).encode(), "text/plain")
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

        def pages(self) -> list[Path]:
            return _pages(home, used.of_pages)

        def log_message(self, *words: object) -> None:
            pass

    with (
        ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server,
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home,
    ):
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/"
        command = used.command(home, address)
        quiet = subprocess.DEVNULL
        marked = {**os.environ, _MARK: home}
        process = subprocess.Popen(command, stdout=quiet, stderr=quiet, env=marked)
        try:
            assert done.wait(seconds), "the page does not answer"
        finally:
            process.terminate()
            process.wait(20)
            server.shutdown()
    return json.loads(found[0])


def _pages(home: str, argument: str) -> list[Path]:
    """The folders in /proc of the processes of a browser's pages."""
    found, mark = [], f"{_MARK}={home}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended, or is another user's
            words = (folder / "cmdline").read_bytes().split(b"\0")
            if argument.encode() in words and mark in (folder / "environ").read_bytes():
                found.append(folder)
    return found


def _busy(pages: Iterable[Path]) -> float:
    """Milliseconds of processor time of the main threads of pages."""
    spent = 0
    for folder in pages:
        with suppress(OSError):
            spent += int((folder / "schedstat").read_text("utf-8").split()[0])
    return spent / 1e6


def _spread(pages: Iterable[Path]) -> int:
    """Give the main threads of pages the first core, and workers the others in turn, as a system
    without other load does; returns the number of workers."""
    first, *others = sorted(os.sched_getaffinity(0))
    workers = 0
    for folder in pages:
        os.sched_setaffinity(int(folder.name), {first})
        for thread in sorted(folder.glob("task/*"), key=lambda each: int(each.name)):
            if others and (thread / "comm").read_text("utf-8").startswith(_WORKERS):
                os.sched_setaffinity(int(thread.name), {others[workers % len(others)]})
                workers += 1
    return workers
