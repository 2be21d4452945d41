"""Wrong things at every public function: `python -m tests.fuzz.wrong_calls --count 1000`.

Every function of `anydim.__all__`, every method of what they give, and every command is called
with arguments that fit but for one or two. Only results and UserErrors may come out, each within
`SECONDS`.
"""

from __future__ import annotations

import inspect
import io
import os
import random
import signal
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from functools import cache, partial
from pathlib import Path
from typing import Any

import click
import numpy as np

import anydim as ad
from anydim.base import dtypes, settings
from anydim.cli.app import COMMANDS
from anydim.cli.app import main as command_line
from anydim.serving import Batcher
from tests.unit.compiler.frontends.models import model, node
from tests.unit.serving.language_models.tiny_models import write_folder

SECONDS = 5
TEXT = "def f(float(M,K) a, float(K) b; int n = 1) -> (c) { c(m) +=! a(m,k) * b(k) * n }"
ROWS = model([node("y = Relu(x)")], ["x f[batch, length, 4]"], ["y"])
ONNX = model([node("y = Relu(x)"), node("z = Softmax(y)", axis=1)], ["x f[batch, 4]"], ["z"])


# ---- wrong things --------------------------------------------------------------------------------


class Spiteful:
    """Fails at whatever is asked of it."""

    def _fail(self, *_: Any, **__: Any) -> Any:
        raise ZeroDivisionError("spite")

    __array__ = __len__ = __iter__ = __getitem__ = __index__ = __int__ = __float__ = _fail
    __bool__ = __contains__ = __fspath__ = __dlpack__ = __dlpack_device__ = __str__ = _fail
    __repr__ = __lt__ = __add__ = keys = items = SerializeToString = graph = _fail


class Unhashable(str):
    """A text with no hash."""

    __hash__ = None  # type: ignore[assignment]


def _cyclic() -> list[Any]:
    items: list[Any] = [1]
    items.append(items)
    return items


WRONG: tuple[Callable[[], Any], ...] = (
    lambda: None, lambda: True, lambda: 0, lambda: 1, lambda: -1, lambda: 2**31, lambda: 2**63,
    lambda: -(2**70), lambda: 10**5000, lambda: 0.5, lambda: -0.0, lambda: float("nan"),
    lambda: float("inf"), lambda: 1j, lambda: "", lambda: "x", lambda: "seq", lambda: "é\u202e",
    lambda: "a\0b", lambda: "\ud800", lambda: "x" * 10_000, lambda: b"", lambda: b"\xff\0",
    lambda: bytearray(b"abc"), list, lambda: [None], lambda: [1, "a"], lambda: [[1], [2, 3]],
    lambda: (), lambda: (1,), lambda: (1, 2), lambda: (2, 1), dict, lambda: {"x": None},
    lambda: {1: 2}, lambda: {"batch": "3"}, lambda: {None: None}, lambda: set(), lambda: range(3),
    lambda: object(), lambda: object, lambda: len, lambda: print, lambda: Spiteful(), _cyclic,
    lambda: Unhashable("x"), lambda: np.float32(1), lambda: np.int64(-1), lambda: np.zeros(0),
    lambda: np.zeros((2, 4), np.float32), lambda: np.full((2, 4), np.nan),
    lambda: np.array(["a"]), lambda: np.array([None]), lambda: np.zeros((1,) * 32),
    lambda: np.datetime64("2020"), lambda: np.zeros((2, 4), ">f4"), lambda: np.ma.zeros((2, 4)),
    lambda: np.zeros((4, 2), np.float32).T, lambda: np.zeros(3, [("a", "f4")]), lambda: ad.Dim(1),
    lambda: ad.float32, lambda: Path("."), lambda: Path("missing"), lambda: ValueError("x"),
    lambda: iter([1]), lambda: (i for i in range(3)), lambda: lambda: None, lambda: Ellipsis,
    lambda: memoryview(b"abc"), lambda: slice(1), lambda: ad, lambda: lambda *a, **k: 1 / 0,
)  # fmt: skip


# ---- what is called ------------------------------------------------------------------------------


@cache
def things() -> dict[str, Any]:
    """Objects whose methods are called."""
    compiled = ad.compile(ONNX)
    compiled.save("good.anydim")
    Path("good.onnx").write_bytes(ONNX.SerializeToString())
    Path("good.tc").write_text(TEXT, "utf-8")
    np.savez("in.npz", x=np.ones((2, 4), np.float32))
    found = {"model": compiled, "loaded": ad.load("good.anydim"), "lib": ad.define(TEXT)}
    found["function"] = found["lib"].f
    found["memory"] = compiled.memory
    found["ragged"] = ad.compile(ROWS, ragged={"length": "batch"})
    found["rows"] = found["ragged"](x=[np.ones((2, 4), np.float32)])["y"]
    found["ranks"] = ad.compile(model([node("y = Relu(x)")], ["x f"], ["y"]))
    found["batcher"] = Batcher({"m": compiled})
    found["language"] = ad.language_model(write_folder(Path("tiny")), threads=1)
    found["decoder"] = found["language"].decoder
    found["text"] = found["language"].generate("the quick", max_tokens=2)
    found["language"].save("language.anydim")
    found["saved"] = ad.language_model("language.anydim", threads=1)
    found["caches"] = ad.language_model("language.anydim", threads=1).model
    found["caches"].join()
    return found


def _builder() -> tuple[ad.Builder, Any]:
    g = ad.Builder()
    n = g.dim("n", 0, 8)
    return g, g.input("x", dtypes.float32, (n, 4))


_SOURCES: dict[str, Callable[[], Any]] = {
    "source": ONNX.SerializeToString, "path": lambda: "good.anydim", "text": lambda: TEXT,
    "stage": lambda: "graph", "dim": lambda: "batch", "name": lambda: "x", "lo": lambda: 0,
    "hi": lambda: 8, "dtype": lambda: dtypes.float32, "shape": lambda: (2, 4), "given": lambda: 1,
    "array": lambda: np.ones(3, np.float32), "folder": lambda: "exported", "samples": lambda: 1,
    "seconds": lambda: 1.0, "problem": lambda: "p", "bytes": lambda: 1,
}  # fmt: skip
_FREE = {"values": (0, 1, 2), "sizes": (), "named": (), "inputs": (1, 2), "carried": (1,)}
_NAMES = ("x", "a", "b", "batch", "n", "out", "fixed", "é", "axes", "dims")
_SKIPPED = {"Model", "LoadedModel", "Builder", "settings", "__version__"}  # their own targets
_ERRORS = {name for name in ad.__all__ if isinstance(getattr(ad, name), type)
           and issubclass(getattr(ad, name), BaseException)}  # fmt: skip


def targets() -> list[tuple[str, Callable[[], Callable[..., Any]]]]:
    """Name, and how to get what is called."""
    found: list[tuple[str, Callable[[], Callable[..., Any]]]] = []
    for name in sorted(set(ad.__all__) - _SKIPPED - _ERRORS):
        if callable(getattr(ad, name)):
            found += [(name, partial(getattr, ad, name))] * 3
    for name, thing in things().items():
        methods = [m for m in dir(type(thing)) if not m.startswith("_") or m == "__call__"]
        methods = [m for m in methods if not hasattr(Mapping, m)]  # those of Python's mappings
        for method in methods:
            if callable(inspect.getattr_static(type(thing), method, None)):
                found.append((f"{name}.{method}", partial(getattr, thing, method)))
    for method in (m for m in dir(ad.Builder) if not m.startswith("_")):
        found.append((f"Builder.{method}", lambda method=method: getattr(_builder()[0], method)))
    for operator in (
        "add",
        "reduce_sum",
        "reshape",
        "transpose",
        "concat",
        "slice",
        "softmax",
        "gather",
        "conv",
        "cast",
        "pad",
        "top_k",
        "resize",
        "expand",
    ):
        found.append((f"Builder.{operator}",
                      lambda operator=operator: getattr(_builder()[0], operator)))  # fmt: skip
    found += [(f"settings.{name}", lambda name=name: getattr(settings, name))
              for name in ("get",)]  # fmt: skip
    found += [("settings.override", lambda: _overridden)] * 2
    return found


def _overridden(**values: Any) -> None:
    with settings.override(**values):
        pass


def _arguments(chance: random.Random, call: Callable[..., Any]) -> tuple[list[Any], dict[str, Any]]:
    """Arguments that fit as far as their names say, but for one or two."""
    try:
        parameters = list(inspect.signature(call).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    given: list[Any] = []
    named: dict[str, Any] = {}
    places: list[tuple[Any, Any]] = []
    for parameter in parameters:
        if parameter.kind is parameter.VAR_POSITIONAL:
            for _ in range(chance.choice(_FREE.get(parameter.name, (0, 1)) or (0,))):
                places.append((given, len(given)))
                given.append(np.ones((2, 4), np.float32))
        elif parameter.kind is parameter.VAR_KEYWORD:
            for name in chance.sample(_NAMES, chance.randrange(3)):
                if name not in named:
                    named[name] = np.ones((2, 4), np.float32)
                    places.append((named, name))
        else:
            usual = _SOURCES.get(parameter.name, lambda p=parameter: p.default)()
            if usual is parameter.empty:
                usual = chance.choice(WRONG)()
            if parameter.kind is parameter.KEYWORD_ONLY or named:
                named[parameter.name] = usual
                places.append((named, parameter.name))
            else:
                given.append(usual)
                places.append((given, len(given) - 1))
    for into, at in chance.sample(places, min(len(places), chance.choice((1, 1, 2)))):
        into[at] = chance.choice(WRONG)()
    return given, named


FILES = ("good.onnx", "good.anydim", "good.tc:f", "language.anydim", "missing", "", ".")


def _words(chance: random.Random) -> list[str]:
    """A command line."""
    command = chance.choice([*COMMANDS, "nonsense"])
    words = [command, chance.choice(FILES)]
    options = (
        "--dim", "--at", "--input", "--output", "--integers", "--threads", "--type", "--attribute",
        "--level", "--precision", "--code", "--seed", "--samples", "--stage", "-o", "--target",
        "--plot", "--against", "--nothing", "--name", "--memory", "--random", "--ragged",
        "--tolerance", "--context", "--quantize", "--within", "--tokens", "--kernel", "--chart",
    )  # fmt: skip
    values = (
        "", "batch=2", "batch=1..0", "batch=99999999999999999999", "M=2,K=3", "x=in.npz", "in.npz",
        "good.onnx", "-1", "0", "é", "a=b=c", "=", "..", "1e400", "nan", "graph", "T=float32",
        "out.npz", "x=1..2", "details=1", "self=2", "*=int8,*=exact",
        "no/chart.svg", "native", "x86-64-v3", "fast", "llvm", "n=x", "out.anydim", "1",
    )  # fmt: skip
    for _ in range(chance.randrange(4)):
        words += [chance.choice(options), chance.choice(values)]
    return words


# ---- judgement -----------------------------------------------------------------------------------


class TooLong(BaseException):
    """A call that takes longer than it may."""


def wrong_call(seed: int) -> str:
    """What came of a call: 'refused', 'taken', or RAW with what was raised and where."""
    chance = random.Random(seed)
    if chance.random() < 0.15:
        return _judged("command", lambda: _command(_words(chance)))
    name, get = chance.choice(targets())
    call = get()
    given, named = _arguments(chance, call)
    return _judged(name, lambda: call(*given, **named))


def _command(words: list[str]) -> None:
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            command_line(words, prog_name="anydim")
    except SystemExit as ended:
        if ended.code not in (0, 1, 2):
            raise RuntimeError(f"exit code {ended.code}: {words}") from None


def _judged(name: str, act: Callable[[], Any]) -> str:
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        act()
        return "taken"
    except ad.UserError as error:
        str(error)
        return "refused"
    except (Exception, TooLong) as error:
        frames = traceback.extract_tb(error.__traceback__)
        own = [f"{Path(f.filename).name}:{f.lineno}" for f in frames if "anydim" in f.filename]
        text = " ".join(str(error).split())[:200]
        if isinstance(error, TypeError) and not own and "argument" in text:
            return "no such arguments"  # Python's own word for a call that has none of the form
        return f"RAW {name}: {type(error).__name__}: {text} at {' < '.join(reversed(own[-4:]))}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _stop(number: int, frame: Any) -> None:
    raise TooLong


@contextmanager
def workplace(folder: Path):
    """A folder to work in, whose files are fresh; calls that take too long are ended."""
    here, before = os.getcwd(), signal.signal(signal.SIGPROF, _stop)
    os.chdir(folder)
    things.cache_clear()
    try:
        yield
    finally:
        os.chdir(here)
        signal.signal(signal.SIGPROF, before)
        things.cache_clear()


@click.command()
@click.option("--count", default=1000, show_default=True, help="How many calls.")
@click.option("--seed", default=0, show_default=True, help="The seed of the first one.")
def main(count: int, seed: int) -> None:
    """Call everything with wrong things, and count what came of it."""
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder, workplace(Path(folder)):
        for number in range(seed, seed + count):
            found = wrong_call(number)
            counts["RAW" if found.startswith("RAW") else found] += 1
            if found.startswith("RAW"):
                with suppress(UnicodeError):
                    click.echo(f"{number}: {found}")
    click.echo(f"{count} calls from seed {seed}: {dict(counts)}")
    sys.exit(bool(counts["RAW"]))


if __name__ == "__main__":
    main()
