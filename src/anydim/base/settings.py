"""All settings of anydim: one row each, with its type, its default and its effect.

    settings.get("cache_dir")    settings.cache_dir    with settings.override(use_cache=False): ...

A setting is read from the innermost `override` of the running thread or task, else from the
environment variable ANYDIM_<NAME>, else it has its default. Threads started inside an override do
not inherit it: read the setting first and pass its value.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any

from anydim.base.errors import OptionError, UserError
from anydim.base.records import dataclass
from anydim.base.text import quote_list, suggestion
from anydim.base.user_values import short_repr, text_of


def _user_cache() -> str:
    """XDG_CACHE_HOME or ~/.cache; on Windows LOCALAPPDATA. Without a home directory: no cache."""
    folder = os.environ.get("LOCALAPPDATA" if os.name == "nt" else "XDG_CACHE_HOME")
    if folder:
        return os.path.join(folder, "anydim")
    home = os.path.expanduser("~")
    if home == "~":  # no HOME, and no entry for the user
        return os.path.join(os.devnull, "anydim")
    return os.path.join(home, ".cache", "anydim")


def _path(value: object) -> str:
    if not isinstance(value, (str, os.PathLike)) or not str(value) or "\0" in str(value):
        raise ValueError("a path")
    found = os.path.expanduser(os.fsdecode(value))
    if found.startswith("~"):
        raise ValueError("a path without ~, as the user has no home folder")
    return found


def _count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, str)) or not str(value).isdecimal():
        raise ValueError("an integer, 0 or more")
    return int(value)


def _layout(value: object) -> str:
    if not isinstance(value, str) or value not in _LAYOUTS:
        raise ValueError(" or ".join(_LAYOUTS))
    return str(value)


USUAL_STRATEGY = "adaptive(after=256, patience=2)"
USUAL_TARGET = "llvm"  # makes the code of saved programs, too
EXTERNAL_DATA = ("inside", "follow")
_LAYOUTS = ("auto", "channels_first", "channels_last")


def _reach(value: object) -> str:
    if not isinstance(value, str) or value not in EXTERNAL_DATA:
        raise ValueError(" or ".join(EXTERNAL_DATA))
    return str(value)


def _text(value: object) -> str:
    return str(value)


def _flag(value: object) -> bool:
    known = {"1": True, "true": True, "yes": True, "on": True}
    known |= {"0": False, "false": False, "no": False, "off": False}
    answer = known.get(str(value).lower())
    if answer is None:
        raise ValueError("1 or 0, true or false, yes or no, on or off")
    return answer


@dataclass(frozen=True)
class Knob:
    """A setting. `read` converts a given value; its ValueError says what was expected.

    `default_text` is the text of a default that depends on the machine.
    """

    name: str
    read: Callable[[object], Any]
    default: Callable[[], Any]
    about: str
    default_text: str = ""

    @property
    def variable(self) -> str:
        """The environment variable of the setting."""
        return f"ANYDIM_{self.name.upper()}"

    @property
    def usual(self) -> str:
        """The default as shown in documents."""
        value = self.default() if not self.default_text else None
        return self.default_text or f"`{int(value) if isinstance(value, bool) else value}`"


KNOBS = (
    Knob(
        "cache_dir", _path, _user_cache,
        "Folder of the cache of compiled code and programs.",
        "`$XDG_CACHE_HOME/anydim`, `~/.cache/anydim`, or on Windows `%LOCALAPPDATA%\\anydim`",
    ),
    Knob(
        "cache_limit_mb", _count, lambda: 512,
        "Maximum size of the cache of compiled code, `objects`, in MiB.",
    ),
    Knob(
        "program_limit_mb", _count, lambda: 4096,
        "Maximum size of each cache of programs with weights, `programs`, `models` and "
        "`packed`, in MiB. "
        "One program may take a quarter of it, and a quarter of the disk's free space.",
    ),
    Knob(
        "size_values_mb", _count, lambda: 64,
        "Maximum memory, in MiB, for values that depend only on sizes, kept for sizes that may "
        "recur; 0: they are recomputed when sizes differ from the last call's.",
    ),
    Knob("use_cache", _flag, lambda: True, "Whether the cache is used."),
    Knob(
        "keep_programs", _flag, lambda: True,
        "Whether `ad.compile` caches the program of a file, a message or a graph, so that the next "
        "process loads it.",
    ),
    Knob(
        "verify_sources", _flag, lambda: False,
        "Whether every start reads the files that a cached program was compiled from, instead of "
        "comparing their sizes and times.",
    ),
    Knob(
        "external_data", _reach, lambda: EXTERNAL_DATA[0],
        "Where links to external data of an ONNX file may lead: `inside` its folder, or anywhere, "
        "`follow`.",
    ),
    Knob("compile_threads", _count, lambda: 0, "Threads that compile; 0: one per usable core."),
    Knob(
        "compile_workers", _count, lambda: 1,
        "Maximum number of worker processes that compile variants for recurring sizes.",
    ),
    Knob(
        "tuned", _flag, lambda: True,
        "Whether models are compiled with the tuned schedules of this machine.",
    ),
    Knob(
        "limits", _text, str,
        "Limits between versions of kernels, as `part_work=131072, few_byte_rows=3`.",
        "those that `anydim calibrate` measured on this machine",
    ),
    Knob(
        "strategy", _text, lambda: USUAL_STRATEGY,
        "Default strategy of `ad.compile` (docs/strategies.md): which code serves which size. With "
        "`forbid_compile` and on a single core, `generic` instead of `adaptive`.",
    ),
    Knob(
        "forbid_compile", _flag, lambda: False,
        "Whether a call that would compile code for its sizes is an error.",
    ),
    Knob(
        "most_nodes", _count, lambda: 100_000,
        "Maximum number of nodes of a model's function after expansion of its calls.",
    ),
    Knob(
        "placed_twice_mb", _count, lambda: 1024,
        "Maximum weights, in MiB, duplicated on a second device for placements by size.",
    ),
    Knob(
        "placing_seconds", _count, lambda: 10,
        "Maximum seconds for timing placements at the first compile of a program for devices; "
        "0: only estimates decide.",
    ),
    Knob(
        "cuda_graphs", _count, lambda: 0,
        "Maximum number of captured CUDA graphs per device; 0: none.",
    ),
    Knob(
        "cublaslt", _flag, lambda: True,
        "Whether cuBLASLt computes matrix products on CUDA devices, if it is installed.",
    ),
    Knob("winograd", _flag, lambda: True, "Whether 3x3 convolutions may use Winograd's algorithm."),
    Knob(
        "layout", _layout, lambda: "auto",
        "Layout of images between layers: `channels_first`, `channels_last`, or `auto`, the one "
        "with the lower estimated time over the sizes of a model.",
    ),
    Knob("target", str, lambda: USUAL_TARGET, "Code generator of kernels: `llvm` or `c`."),
    Knob(
        "c_compiler", str, lambda: "", "The compiler of target `c`, as a command line.",
        "the first of `cc`, `gcc`, `clang` and `zig` that is installed",
    ),
    Knob(
        "opencl_library", _text, str, "The file of the OpenCL loader.",
        "the one in the package `pyopencl`, or the system's",
    ),
    Knob("vector_bits", _count, lambda: 0, "Maximum vector width in bits; 0: that of the CPU."),
    Knob(
        "ort_fallback", _text, str,
        "Engine for models of `anydim.ort` that anydim rejects: `onnxruntime`, or none.", "none",
    ),
    Knob(
        "onnxruntime_libraries", _text, str,
        "Libraries of custom operators for parts that onnxruntime runs, separated by `:`.",
        "none",
    ),
    Knob("verify", _flag, lambda: False, "Whether graphs are verified after every pass."),
    Knob(
        "dump", _text, str,
        "Folder for the text of every stage that a pass changed; `-`: the standard error stream.",
        "none",
    ),
    Knob("time", _flag, lambda: False, "Whether the seconds of each stage are printed."),
)  # fmt: skip

_BY_NAME = {knob.name: knob for knob in KNOBS}
_overrides: ContextVar[Mapping[str, Any]] = ContextVar(
    "anydim_settings", default=MappingProxyType({})
)


def get(name: str) -> Any:
    """The value of a setting; raises OptionError for an unknown name or an invalid variable."""
    knob = _knob(name)
    given = _overrides.get()
    if name in given:
        return given[name]
    text = os.environ.get(knob.variable, "")
    return _read(knob, text, f"environment variable {knob.variable}") if text else knob.default()


@contextmanager
def override(**values: object) -> Iterator[None]:
    """Override settings inside a `with` block."""
    read = {name: _read(_knob(name), value, f"setting '{name}'") for name, value in values.items()}
    token = _overrides.set({**_overrides.get(), **read})
    try:
        yield
    finally:
        _overrides.reset(token)


def __getattr__(name: str) -> Any:
    if name not in _BY_NAME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return get(name)


def _knob(name: str) -> Knob:
    if text_of("the name of a setting", name) not in _BY_NAME:
        hint = suggestion(name, _BY_NAME) or f"the settings are {quote_list(_BY_NAME)}"
        raise OptionError(f"there is no setting '{name}'", hint)
    return _BY_NAME[name]


def check_knob(name: str, value: object, where: str) -> Any:
    """The value of a knob that a user gives in another way; OptionError for an invalid one."""
    return _read(_knob(name), value, where)


def _read(knob: Knob, value: object, where: str) -> Any:
    try:
        return knob.read(value)
    except ValueError as error:
        raise OptionError(f"{where} is {short_repr(value)}, expected {error}", knob.about) from None
    except UserError:
        raise
    except Exception:  # any error of the object
        raise OptionError(f"{where} is {short_repr(value)}", knob.about) from None
