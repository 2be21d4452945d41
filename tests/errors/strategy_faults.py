"""Faults of what makes bodies aside: its processes, its files. Results have the bits of generic
code whatever happens, each fault is warned of once, and nothing is left behind."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import textwrap
from collections.abc import Callable
from pathlib import Path

from tests.errors.cases import Case, ended, script

_BEGIN = """
import json, random, time, warnings
from pathlib import Path
from anydim.base import settings
from anydim.compiler.variants.workers import Workers, workers

said = []
warnings.simplefilter("always")
warnings.showwarning = lambda message, *_: said.append(str(message))
generic = ad.compile(graph(2), strategy="generic")
SIZES = (1, 2, 3, 7, 16, 33)
KEEN = "adaptive(after=2, most=1)"

def same(model, sizes=SIZES):
    for n in sizes:
        x = np.random.default_rng(n).standard_normal((n, 64)).astype(np.float32)
        assert model(x=x)["y"].tobytes() == generic(x=x)["y"].tobytes(), n

def settle():
    for thread in threading.enumerate():
        if thread.name == "anydim-adaptive":
            thread.join(60)

def serve(strategy=KEEN, rounds=30):
    model = ad.compile(graph(2), strategy=strategy)
    for _ in range(rounds):
        same(model)
    settle()
    same(model)
    return model

def handles():
    return len(os.listdir("/proc/self/fd"))

def states():
    # of the children of this process
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try: words = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError: continue
        if words[1] == str(os.getpid()): found.append(words[0])
    return found

def warned(*words):
    # each of these once, and nothing else
    assert len(said) == len(words), said
    for word in words:
        assert any(word in each for each in said), (word, said)
"""


def _script(text: str) -> str:
    return textwrap.dedent(_BEGIN) + textwrap.dedent(text)


_KILLED = _script("""
before, chance = handles(), random.Random(int(os.environ.get("SEED", "0")))
stop, kills = threading.Event(), []
sys.modules[Workers.__module__]._PAUSE = 0.5
def kill():
    while not stop.wait(chance.uniform(0.0, 2.0)):
        for process in workers(POLITE).processes():
            process.kill()
            kills.append(process.pid)
killer = threading.Thread(target=kill)
killer.start()
model = ad.compile(graph(2), strategy=STRATEGY)
end = time.monotonic() + 25
while time.monotonic() < end:
    same(model, [chance.randrange(1, 400)] * 4)
stop.set()
killer.join()
settle()
same(model)
assert len(kills) > 1 and len(said) == 1, (kills, said)
for process in workers(POLITE).processes(): process.kill()
same(ad.compile(graph(2), strategy="exact"), [5])
end = time.monotonic() + 60
while "Z" in states() and time.monotonic() < end: time.sleep(0.5)
assert "Z" not in states() and handles() <= before + 8, (states(), before, handles())
print("ok")
""")

_GOOD = _script("""
serve()
serve("exact", 1)
about = [each.partition(":")[0] for each in said]
assert len(set(about)) == len(about), said
print("ok" if not os.environ.get("WARNS") or said else "nothing was said")
""")


def _flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    for at in range(50, len(data), 97):
        data[at] ^= 1
    file.write_bytes(data)


def _pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def _folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


_SPOILERS: dict[str, Callable[[Path], object]] = {
    "flipped": _flip,
    "cut": lambda file: os.truncate(file, file.stat().st_size // 2),
    "empty": lambda file: os.truncate(file, 0),
    "garbage": lambda file: file.write_bytes(random.Random(0).randbytes(20_000)),
    "pipe": _pipe,
    "folder": _folder,
}


def _spoilt(*kinds: str) -> Callable[[Case, Path], str]:
    """Fill the cache, spoil each of its files, and serve again: with what is left, or anew."""

    def run(case: Case, folder: Path) -> str:
        found = ended(script(_GOOD, folder))
        for kind in kinds if found == "ok" else ():
            for file in sorted((folder / "cache").rglob("*")):
                if file.is_file():
                    _SPOILERS[kind](file)
            warns = {} if kind in ("empty", "pipe") else {"WARNS": "1"}
            found = ended(script(_GOOD, folder, **warns))
            if found != "ok":
                return f"{kind}: {found}"
            for left in sorted((folder / "cache").rglob("*"), reverse=True):
                if left.is_fifo():
                    left.unlink()
                elif left.is_dir() and not any(left.iterdir()):
                    left.rmdir()
        return found

    return run


def _mounted(options: str, text: str) -> Callable[[Case, Path], str]:
    """The cache on a file system of its own, where this user may mount one; else as in `text`."""

    def run(case: Case, folder: Path) -> str:
        (folder / "cache").mkdir()
        mount = f"mount -t tmpfs -o {options} none {folder / 'cache'}"
        alone = ["unshare", "-m", "sh", "-c"]
        try:
            able = subprocess.run([*alone, mount], capture_output=True, check=False).returncode == 0
        except OSError:
            able = False
        if not able:
            return ended(script(text + case.script, folder))
        return ended(script(case.script, folder, (*alone, f'{mount} && exec "$0" "$@"')))

    return run


def _together(count: int) -> Callable[[Case, Path], str]:
    """So many processes at once with one cache; nothing is to be said."""

    def run(case: Case, folder: Path) -> str:
        some = [script(case.script, folder, SEED=str(seed)) for seed in range(count)]
        found = [ended(process, 240) for process in some]
        return next((each for each in found if each != "ok"), "ok")

    return run


def _left_alone(case: Case, folder: Path) -> str:
    """Kill a process whose worker is at work: the worker ends too."""
    process = script(case.script, folder)
    assert process.stdout is not None
    worker = int(process.stdout.readline())
    process.kill()
    process.communicate()
    wait = f"while [ -e /proc/{worker} ] && ! grep -q ') Z' /proc/{worker}/stat; do sleep 0.1; done"
    try:
        subprocess.run(["sh", "-c", wait], timeout=10, check=True)
    except subprocess.TimeoutExpired:
        os.kill(worker, signal.SIGKILL)
        return "the worker was there after 10 s"
    return "ok"


def _before(file: str, text: str) -> Callable[[Case, Path], str]:
    """Fill the cache, run a piece of Python with `path` of a file in it, then the script."""

    def run(case: Case, folder: Path) -> str:
        found = ended(script(_GOOD, folder))
        if found != "ok":
            return found
        change = f"import sqlite3\npath = 'cache/{file}'\n{textwrap.dedent(text)}\n"
        return ended(script(change + case.script, folder))

    return run


_RANDOM = _script("""
chance = random.Random(int(os.environ["SEED"]))
model = ad.compile(graph(2), strategy=KEEN)
end = time.monotonic() + 20
while time.monotonic() < end:
    same(model, [chance.choice(SIZES) for _ in range(20)])
settle()
same(model)
warned()
print("ok")
""")

_LOCKED = """
other = sqlite3.connect(path, isolation_level=None)
other.execute("begin exclusive")
"""
_NEWER = """
with sqlite3.connect(path) as file: file.execute("pragma user_version = 1000")
"""
_OTHERS = """
with sqlite3.connect(path) as file: file.executescript("drop table trials; create table trials (x)")
"""
_FULL = """
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))
"""

STRATEGIES = (
    Case("strategy-kill", "the process that compiles variants is killed repeatedly for 25 s",
         "generic code serves; one warning, no zombie processes or open handles",
         _KILLED.replace("POLITE", "True").replace("STRATEGY", "KEEN")),
    Case("strategy-kill-exact", "the same while calls wait for variants",
         "calls return results; one warning, no zombie processes or open handles",
         _KILLED.replace("POLITE", "False").replace("STRATEGY", "'exact'")),
    Case("strategy-orphan", "a process is killed while its worker compiles", "the worker ends",
         _script("""
         model = ad.compile(graph(2), strategy="adaptive(after=1)")
         for n in range(1, 30): same(model, [n] * 2)
         while not workers(True).processes(): time.sleep(0.01)
         time.sleep(2)
         print(workers(True).processes()[0].pid, flush=True)
         time.sleep(60)"""), _left_alone),
    Case("strategy-garbage", "variants.sqlite and cached code contain garbage",
         "compiled again, measurements are lost; one warning per file or folder",
         "", _spoilt("garbage")),
    Case("strategy-spoilt",
         "they have flipped bits, or are truncated, empty, pipes or folders",
         "the same", "", _spoilt("flipped", "cut", "empty", "pipe", "folder")),
    Case("strategy-locked", "another process locks variants.sqlite",
         "nothing is stored; one warning",
         _script("serve()\nwarned('locked')\nprint('ok')"), _before("variants.sqlite", _LOCKED)),
    Case("strategy-newer", "variants.sqlite is from a newer version",
         "nothing is stored; one warning, the file is unchanged",
         _script("serve()\nwarned('newer')\nprint('ok')"), _before("variants.sqlite", _NEWER)),
    Case("strategy-others", "variants.sqlite has foreign tables",
         "nothing is stored; one warning",
         _script("serve()\nwarned('not stored')\nprint('ok')"),
         _before("variants.sqlite", _OTHERS)),
    Case("strategy-full", "the disk is full while variants are compiled",
         "nothing is stored; one warning",
         _script("serve()\nwarned('not writable')\nprint('ok')"),
         _mounted("size=16k", _FULL)),
    Case("strategy-read-only", "the cache is on a read-only disk",
         "nothing is stored; one warning",
         _script("serve()\nwarned('not writable')\nprint('ok')"),
         _mounted("ro", _FULL)),
    Case("strategy-two", "two processes with one cache compile the same variants", "both serve",
         _RANDOM, _together(2)),
    Case("strategy-four", "four processes with one cache compile the same variants", "all serve",
         _RANDOM, _together(4)),
    Case("strategy-files", "no file descriptor is left",
         "generic code serves; one warning for processes, one for variants.sqlite",
         _script("""
         same(generic)
         model = ad.compile(graph(2), strategy=KEEN)
         same(model)
         limits = resource.getrlimit(resource.RLIMIT_NOFILE)
         resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
         for _ in range(30): same(model)
         settle()
         resource.setrlimit(resource.RLIMIT_NOFILE, limits)
         assert 1 <= len(said) <= 2, said
         print('ok')""")),
    Case("strategy-records", "a file of recorded sizes has garbage and is truncated",
         "valid lines are used; one warning", _script("""
         model = ad.compile(graph(2), strategy=KEEN)
         with model.record("sizes.jsonl"): same(model)
         path = Path("sizes.jsonl")
         data, garbage = path.read_bytes(), random.Random(0).randbytes(10_000)
         path.write_bytes(data + garbage + b"\\n" + data[:-9])
         assert model.prepare_recorded("sizes.jsonl", 20.0) > 0
         same(model)
         warned("lines say no sizes")
         print('ok')""")),
    Case("strategy-records-full", "the disk is full while sizes are recorded",
         "calls return results; one warning", _script("""
         model = ad.compile(graph(2), strategy="generic")
         with model.record("/dev/full") as kept:
             for _ in range(3):
                 same(model)
                 kept._write()
         warned("not written")
         print('ok')""")),
    Case("strategy-fork", "a process forks while variants are compiled",
         "parent and child both serve and compile variants", _script("""
         model = ad.compile(graph(2), strategy=KEEN)
         for n in range(1, 40): same(model, [n] * 2)
         child = os.fork()
         for n in range(1, 40): same(model, [n] * 2)
         settle()
         same(ad.compile(graph(2), strategy="exact"), [5, 6])
         warned()
         if child == 0: os._exit(7)
         assert os.waitpid(child, 0)[1] >> 8 == 7
         print('ok')""")),
)  # fmt: skip
SHORT_STRATEGIES = ("strategy-files", "strategy-records-full")
