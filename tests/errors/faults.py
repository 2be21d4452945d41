"""What happens to anydim when the machine around it fails: `make faults`, or

    python -m tests.errors.faults [NAME ...]

Each case runs in a process of its own with a cache folder of its own, prints what came of it, and
is compared with the outcome that `docs/reliability.md` promises. `SHORT` are those of `make test`.
"""

from __future__ import annotations

import os
import random
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

from tests.errors.cases import Case, ended, outcome, script
from tests.errors.strategy_faults import SHORT_STRATEGIES, STRATEGIES

_GOOD = "works(ad.compile(graph(2)))\nprint('ok')"


# ---- kills -------------------------------------------------------------------------------------


def _killed(case: Case, folder: Path) -> str:
    """Kill a process in mid-compile at times that differ; the next one finds a usable cache."""
    chance = random.Random(0)
    for _ in range(6):
        process = script("ad.compile(graph(3))", folder)
        time.sleep(chance.uniform(0.2, 2.0))
        process.kill()
        process.communicate()
    return ended(script(_GOOD, folder))


def _killed_saving(case: Case, folder: Path) -> str:
    """Kill a process in mid-save: the file that was there is whole, or the new one is."""
    code = "m = ad.compile(graph(2))\nm.save('m.anydim')\nprint('ok')"
    first = ended(script(code, folder))
    if first != "ok":
        return first
    for _ in range(4):
        process = script("m = ad.compile(graph(2))\nprint('go', flush=True)\n"
                         "while True: m.save('m.anydim')", folder)  # fmt: skip
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(0.05)
        process.kill()
        process.communicate()
        found = ended(script("works(ad.load('m.anydim', verify=True))\nprint('ok')", folder))
        if found != "ok":
            return found
    return "ok"


# ---- caches --------------------------------------------------------------------------------------


def _spoilt(spoil: Callable[[Path], None]) -> Callable[[Case, Path], str]:
    """Compile, do something to every file of the cache, compile again."""

    def run(case: Case, folder: Path) -> str:
        first = ended(script(_GOOD, folder))
        if first != "ok":
            return first
        for file in sorted((folder / "cache").rglob("*")):
            if file.is_file():
                spoil(file)
        return ended(script(_GOOD, folder))

    return run


def _flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    if data:
        data[len(data) // 2] ^= 1
        file.write_bytes(data)


def _pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def _folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def _shuffle(case: Case, folder: Path) -> str:
    """Every file of the cache has the name of another."""
    first = ended(script(_GOOD, folder))
    files = [file for file in sorted((folder / "cache").rglob("*")) if file.is_file()]
    contents = [file.read_bytes() for file in files]
    for file, data in zip(files, contents[1:] + contents[:1]):
        file.write_bytes(data)
    return first if first != "ok" else ended(script(_GOOD, folder))


def _unusable(case: Case, folder: Path) -> str:
    """The cache folder is a file."""
    (folder / "cache").write_text("no folder", "utf-8")
    return ended(script(_GOOD, folder))


def _full(case: Case, folder: Path) -> str:
    """No file may grow beyond 1 KiB: what a full disk looks like to whoever writes."""
    limit = """
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))
    """
    return ended(script(textwrap.dedent(limit) + textwrap.dedent(case.script), folder))


# ---- the table -----------------------------------------------------------------------------------

_LIMITED = """
works(ad.compile(graph(2)))
model = ad.compile(graph(1))
works(model)
pages = int(open('/proc/self/statm').read().split()[0])
most = pages * resource.getpagesize() + (64 << 20)
resource.setrlimit(resource.RLIMIT_AS, (most, most))
"""

CASES = (
    Case("kill-compile", "the process is killed during compilation, six times",
         "the next process compiles",
         "", _killed),
    Case("kill-save", "the process is killed during a save, four times",
         "the file is complete: old or new",
         "", _killed_saving),
    Case("cache-bits", "every file of the cache has a flipped bit", "compiled again",
         "", _spoilt(_flip)),
    Case("cache-cut", "every file of the cache is truncated to half", "compiled again",
         "", _spoilt(lambda file: os.truncate(file, file.stat().st_size // 2))),
    Case("cache-empty", "every file of the cache is empty", "compiled again",
         "", _spoilt(lambda file: os.truncate(file, 0))),
    Case("cache-pipes", "every file of the cache is a named pipe", "compiled again, no waiting",
         "", _spoilt(_pipe)),
    Case("cache-folders", "every file of the cache is a folder", "compiled again",
         "", _spoilt(_folder)),
    Case("cache-shuffled", "the files of the cache are renamed to each other's names",
         "compiled again",
         "", _shuffle),
    Case("cache-file", "the cache folder is a file", "compiled without a cache", "", _unusable),
    Case("cache-read-only", "the cache folder is on a read-only file system",
         "compiled without a cache", """
         from anydim.base import settings
         with settings.override(cache_dir='/proc/anydim'):
             works(ad.compile(graph(2)))
         print('ok')"""),
    Case("disk-full-cache", "the disk is full during a write to the cache",
         "compiled without a cache", _GOOD, _full),
    Case("disk-full-save", "the disk is full during a save",
         "OptionError; no file remains, and the model works", """
         model = ad.compile(graph(2))
         try: model.save('m.anydim')
         except ad.OptionError: pass
         assert not [name for name in os.listdir('.') if name != 'cache'], os.listdir('.')
         works(model)
         print('ok')""", _full),
    Case("save-read-only", "the target folder of a save is not writable", "OptionError", """
         model = ad.compile(graph(1))
         for path in ('/proc/m.anydim', 'absent/m.anydim', '.'):
             try: model.save(path)
             except ad.OptionError: continue
             raise AssertionError(path)
         works(model)
         print('ok')"""),
    Case("memory-call", "the memory of a process is limited and a call needs more",
         "OutOfMemoryError; smaller calls work", _LIMITED + """
try: model(x=np.broadcast_to(np.float32(1), (1 << 20, 64)))
except ad.OutOfMemoryError: pass
else: raise AssertionError
works(model)
print('ok')"""),
    Case("memory-compile", "the memory of a process is limited and a compile may need more",
         "it compiles, or OutOfMemoryError; existing models work", _LIMITED + """
try: works(ad.compile(graph(40, 'large')))
except (ad.UserError, MemoryError): pass
works(model)
print('ok')"""),
    Case("files-compile", "no file descriptor is left", "compiled without a cache", """
         works(ad.compile(graph(2)))
         used = len(os.listdir('/proc/self/fd'))
         resource.setrlimit(resource.RLIMIT_NOFILE, (used - 1, used - 1))
         works(ad.compile(graph(3)))
         print('ok')"""),
    Case("files-load", "no file descriptor is left, and a model is loaded",
         "ArtefactError; existing models work", """
         model = ad.compile(graph(1))
         model.save('m.anydim')
         ad.load('m.anydim')
         before = resource.getrlimit(resource.RLIMIT_NOFILE)
         resource.setrlimit(resource.RLIMIT_NOFILE, (3, before[1]))
         try: ad.load('m.anydim')
         except ad.ArtefactError: pass
         else: raise AssertionError
         works(model)
         print('ok')"""),
    Case("threads", "no thread can be started", "calls run on one thread", """
         def none(self): raise RuntimeError("can't start new thread")
         model = ad.compile(graph(2), threads=4)
         threading.Thread.start = none
         works(model, 5000)
         print('ok')"""),
    Case("interrupt-call", "Ctrl-C in a loop that never ends",
         "KeyboardInterrupt within a second; the model works", """
         import time
         model = ad.compile(endless())
         threading.Timer(0.3, os.kill, [os.getpid(), signal.SIGINT]).start()
         start = time.monotonic()
         try: model(m=np.array(2**62), x=np.ones(3, np.float32))
         except KeyboardInterrupt: pass
         assert time.monotonic() - start < 1.3
         assert (model(m=np.array(2), x=np.ones(3, np.float32))['y'] == 3).all()
         print('ok')"""),
    Case("interrupt-compile", "Ctrl-C during compilation",
         "KeyboardInterrupt; the next compile works",
         """
         threading.Timer(0.4, os.kill, [os.getpid(), signal.SIGINT]).start()
         try:
             while True: ad.compile(graph(12))
         except KeyboardInterrupt: pass
         works(ad.compile(graph(2)))
         print('ok')"""),
    Case("terminate-call", "SIGTERM in a loop that never ends", "the process ends immediately", """
         model = ad.compile(endless())
         threading.Timer(0.3, os.kill, [os.getpid(), signal.SIGTERM]).start()
         def bye(*_):
             print('ok', flush=True)
             os._exit(0)
         signal.signal(signal.SIGTERM, bye)
         model(m=np.array(2**62), x=np.ones(3, np.float32))"""),
    Case("fork-after-call", "a process forks after calls on several threads",
         "parent and child both call, and compile", """
         model = ad.compile(graph(2), threads=2)
         works(model, 5000)
         child = os.fork()
         if child == 0:
             works(model, 5000)
             works(ad.compile(graph(3), threads=2), 5000)
             os._exit(7)
         assert os.waitpid(child, 0)[1] >> 8 == 7
         works(model, 5000)
         print('ok')"""),
    Case("fork-mid-call", "a process forks while other threads call",
         "the child calls", """
         model = ad.compile(graph(2), threads=2)
         stop = threading.Event()
         def call():
             while not stop.is_set(): works(model, 3000)
         threads = [threading.Thread(target=call) for _ in range(3)]
         for thread in threads: thread.start()
         for _ in range(8):
             child = os.fork()
             if child == 0:
                 signal.alarm(20)
                 works(model, 3000)
                 os._exit(7)
             assert os.waitpid(child, 0)[1] >> 8 == 7
         stop.set()
         for thread in threads: thread.join()
         print('ok')"""),
    Case("fork-mid-compile", "a process forks while another thread compiles",
         "the child calls existing models", """
         model = ad.compile(graph(1))
         works(model)
         stop = threading.Event()
         def compile():
             number = 0
             while not stop.is_set():
                 number += 1
                 ad.compile(graph(1, f'g{number}'))
         thread = threading.Thread(target=compile)
         thread.start()
         for _ in range(8):
             child = os.fork()
             if child == 0:
                 signal.alarm(20)
                 works(model)
                 os._exit(7)
             assert os.waitpid(child, 0)[1] >> 8 == 7
         stop.set()
         thread.join()
         print('ok')"""),
    Case("exit-mid-call",
         "the process ends while daemon threads call", "it ends with its own exit code",
         """
         model = ad.compile(endless())
         for _ in range(2):
             threading.Thread(target=lambda: model(m=np.array(2**62), x=np.ones(3, np.float32)),
                              daemon=True).start()
         import time
         time.sleep(0.3)
         print('ok')"""),
)  # fmt: skip
ALL = (*CASES, *STRATEGIES)
SHORT = ("disk-full-save", "memory-call", "fork-after-call", *SHORT_STRATEGIES)


def main(names: list[str]) -> int:
    """Run cases; how many did not keep their promise."""
    wrong = 0
    for case in ALL:
        if names and case.name not in names:
            continue
        start = time.monotonic()
        found = outcome(case)
        wrong += found != "as promised"
        print(f"{case.name:20} {time.monotonic() - start:6.1f} s  {found}", flush=True)
    return wrong


if __name__ == "__main__":
    sys.exit(min(main(sys.argv[1:]), 1))
