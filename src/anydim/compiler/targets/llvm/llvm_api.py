"""LLVM's C API, in llvmlite's shared library.

llvmlite's own Python layer has one lock around every call, which would serialise compilation, and
importing it takes 12 ms. LLVM itself only requires that two threads share no context. The release
of llvmlite with these functions is pinned in `pyproject.toml`.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from ctypes import POINTER, c_bool, c_char_p, c_int, c_size_t, c_uint, c_uint8, c_uint64, c_void_p
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from anydim.base.errors import MissingError
from anydim.base.fork_locks import fork_lock

# Global LLVM options of this process. Loop strength reduction rewrites the addresses of a tile
# into more pointers than there are registers (9 x 3 x 16 lanes: 102 instead of 236 GFLOP/s), and
# takes a third of the compile time; the text is hoisted already. Scheduling again after
# register allocation has no measurable effect on speed on processors that reorder
# instructions themselves, and takes a tenth of the compile time.
OPTIONS = ("-disable-lsr", "-post-RA-scheduler=0")

_NAMES = {"darwin": "libllvmlite.dylib", "win32": "llvmlite.dll"}
_OBJECT_CODE = 2  # a kind of linker input
# The older linker allocates memory for code and for its constants separately, anywhere, and
# aborts the process if they are more than 2 GB apart. On Windows only it is complete.
_ONE_BLOCK = sys.platform != "win32"
_LOCK = fork_lock(sys.modules[__name__], "_LOCK")


class _Part(ctypes.Structure):
    _fields_ = (("kind", c_uint8), ("data", c_char_p), ("size", c_size_t))


class _Symbol(ctypes.Structure):
    _fields_ = (("name", c_char_p), ("address", c_uint64))


_TEXT = POINTER(c_char_p)  # an output text that the caller disposes of
_FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "ContextCreate": (c_void_p, ()),
    "ContextDispose": (None, (c_void_p,)),
    "CreateLLJITCompiler": (c_void_p, (c_void_p, c_bool, c_bool, _TEXT)),
    "CreateTargetMachine": (
        c_void_p,
        (c_void_p, c_char_p, c_char_p, c_char_p, c_int, c_char_p, c_char_p, c_int, c_int, c_char_p),
    ),
    "DisposeMemoryBuffer": (None, (c_void_p,)),
    "DisposeModule": (None, (c_void_p,)),
    "DisposeString": (None, (c_char_p,)),
    "DisposeTargetMachine": (None, (c_void_p,)),
    "GetBufferSize": (c_size_t, (c_void_p,)),
    "GetBufferStart": (c_void_p, (c_void_p,)),
    "GetDefaultTargetTriple": (None, (_TEXT,)),
    "GetHostCPUFeatures": (c_int, (_TEXT,)),
    "GetHostCPUName": (None, (_TEXT,)),
    "GetTargetFromTriple": (c_void_p, (c_char_p, _TEXT)),
    "GetVersionInfo": (c_uint, ()),
    "InitializeAllAsmPrinters": (None, ()),
    "InitializeAllTargetInfos": (None, ()),
    "InitializeAllTargetMCs": (None, ()),
    "InitializeAllTargets": (None, ()),
    "InitializeNativeAsmPrinter": (None, ()),
    "InitializeNativeTarget": (None, ()),
    "LLJITDispose": (None, (c_void_p,)),
    "LLJIT_Dylib_Tracker_Dispose": (c_bool, (c_void_p, _TEXT)),
    "LLJIT_Link": (
        c_void_p,
        (
            c_void_p, c_char_p, POINTER(_Part), c_size_t, POINTER(_Symbol), c_size_t,
            POINTER(_Symbol), c_size_t, _TEXT,
        ),
    ),
    "ParseAssembly": (c_void_p, (c_void_p, c_char_p, _TEXT)),
    "SetCommandLine": (None, (c_char_p, c_char_p)),
    "SetTargetMachineAsmVerbosity": (None, (c_void_p, c_int)),
    "TargetMachineEmitToMemory": (c_void_p, (c_void_p, c_void_p, c_int, _TEXT)),
    "VerifyModule": (c_bool, (c_void_p, _TEXT)),
}  # fmt: skip

# They keep the interpreter's lock: reacquiring it may take 5 ms if another thread runs.
_BRIEF = frozenset((
    "ContextCreate", "CreateTargetMachine", "DisposeMemoryBuffer", "DisposeString",
    "DisposeTargetMachine", "GetBufferSize", "GetBufferStart", "GetDefaultTargetTriple",
    "GetTargetFromTriple",
))  # fmt: skip


def begin_loading() -> Callable[[], None]:
    """Map the library into memory on another thread; the result waits for its end.

    Python's own loading would hold the interpreter's lock for these 5 ms.
    """
    if os.name != "posix":
        return lambda: None
    opening = ctypes.CDLL(None).dlopen
    path = os.fsencode(_path())
    thread = threading.Thread(target=lambda: opening(path, os.RTLD_NOW | os.RTLD_LOCAL))
    thread.start()
    return thread.join


def llvm() -> Mapping[str, Any]:
    """Return the functions by name, initialised for this machine."""
    with _LOCK:
        return _functions()


@cache
def _functions() -> Mapping[str, Any]:
    path = _path()
    library, brief = ctypes.CDLL(path), ctypes.PyDLL(path)
    functions: dict[str, Any] = {}
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(brief if name in _BRIEF else library, f"LLVMPY_{name}")
        function.restype, function.argtypes = result, arguments
        functions[name] = function
    functions["InitializeNativeTarget"]()
    functions["InitializeNativeAsmPrinter"]()
    for option in OPTIONS:
        functions["SetCommandLine"](b"anydim", option.encode())
    return functions


@cache
def _every_architecture() -> None:
    """Initialise all of LLVM's targets, not only this machine's."""
    for what in ("TargetInfos", "Targets", "TargetMCs", "AsmPrinters"):
        _functions()[f"InitializeAll{what}"]()


def _path() -> str:
    spec = find_spec("llvmlite")
    if spec is None or spec.origin is None:
        raise MissingError(
            "anydim compiles with llvmlite, which is not installed", "pip install llvmlite"
        )
    return str(Path(spec.origin).parent / "binding" / _NAMES.get(sys.platform, "libllvmlite.so"))


# ---- texts -------------------------------------------------------------------------------------


@contextmanager
def _text() -> Iterator[Any]:
    """Yield an output text, which is disposed of at the end."""
    text = c_char_p()
    try:
        yield text
    finally:
        if text:  # type: ignore[truthy-bool]
            llvm()["DisposeString"](text)


def reported_text(name: str) -> str:
    """Call a function that writes a text; returns the text."""
    with _text() as text:
        llvm()[name](ctypes.byref(text))
        return (text.value or b"").decode()


def _check_result(result: Any, text: Any) -> Any:
    """Return the result of a function, or raise its error text."""
    if not result:
        raise RuntimeError((text.value or b"LLVM reported no reason").decode())
    return result


@cache
def version() -> str:
    """Return the release of LLVM."""
    number = llvm()["GetVersionInfo"]()
    return ".".join(str(number >> shift & 0xFF) for shift in (16, 8, 0))


# ---- compiling ---------------------------------------------------------------------------------


def emit(
    text: str, triple: str, cpu: str, features: str, level: int, as_object: bool = True,
    comments: bool = False,
) -> bytes:  # fmt: skip
    """Return object code or assembly of a module; raises RuntimeError if LLVM rejects it.

    `level` is the optimisation level of code generation, 0 to 3. With `comments`, the assembly
    annotates blocks, loops and spills.
    """
    call = llvm()
    context, module, target = call["ContextCreate"](), None, None
    try:
        with _text() as error:
            module = call["ParseAssembly"](context, text.encode(), ctypes.byref(error))
            _check_result(module, error)
        with _text() as error:
            _check_result(not call["VerifyModule"](module, ctypes.byref(error)), error)
        target = _target(triple, cpu, features, level)
        if comments:
            call["SetTargetMachineAsmVerbosity"](target, 1)
        with _text() as error:
            kind = int(as_object)
            buffer = call["TargetMachineEmitToMemory"](target, module, kind, ctypes.byref(error))
            _check_result(buffer, error)
        data = ctypes.string_at(call["GetBufferStart"](buffer), call["GetBufferSize"](buffer))
        call["DisposeMemoryBuffer"](buffer)
        return data
    finally:
        if target is not None:
            call["DisposeTargetMachine"](target)
        if module:
            call["DisposeModule"](module)
        call["ContextDispose"](context)


def _target(triple: str, cpu: str, features: str, level: int) -> Any:
    call = llvm()
    if triple.split("-")[0] != reported_text("GetDefaultTargetTriple").split("-")[0]:
        with _LOCK:
            _every_architecture()
    with _text() as error:
        found = call["GetTargetFromTriple"](triple.encode(), ctypes.byref(error))
        _check_result(found, error)
    names = (triple.encode(), cpu.encode(), features.encode())
    model = b"static" if triple.startswith("wasm") else b"pic"
    made = call["CreateTargetMachine"](found, *names, level, model, b"default", 0, 0, b"")
    if not made:
        raise RuntimeError(f"LLVM does not support {cpu} of {triple}")
    return made


# ---- linking -----------------------------------------------------------------------------------


class Linked:
    """Objects linked in memory, and the addresses of their exported symbols."""

    def __init__(
        self,
        name: str,
        objects: Sequence[bytes],
        exports: Sequence[str],
        imports: Mapping[str, int],
    ) -> None:
        """Raises RuntimeError for a missing symbol."""
        call = llvm()
        self._engine = self._tracker = None
        parts = (_Part * len(objects))(*(_Part(_OBJECT_CODE, data, len(data)) for data in objects))
        wanted = (_Symbol * len(exports))(*(_Symbol(symbol.encode(), 0) for symbol in exports))
        given = (_Symbol * len(imports))(*(_Symbol(s.encode(), at) for s, at in imports.items()))
        with _text() as error:
            engine = call["CreateLLJITCompiler"](None, False, _ONE_BLOCK, ctypes.byref(error))
            self._engine = _check_result(engine, error)
        with _text() as error:
            tracker = call["LLJIT_Link"](
                self._engine, name.encode(), parts, len(parts), given, len(given), wanted,
                len(wanted), ctypes.byref(error),
            )  # fmt: skip
            if not tracker:
                self.close()
            self._tracker = _check_result(tracker, error)
        self.addresses = {symbol: each.address for symbol, each in zip(exports, wanted)}

    def close(self) -> None:
        """Free the code."""
        call = llvm()
        if self._tracker is not None:
            with _text() as error:
                call["LLJIT_Dylib_Tracker_Dispose"](self._tracker, ctypes.byref(error))
        if self._engine is not None:
            call["LLJITDispose"](self._engine)
        self._tracker = self._engine = None

    def __del__(self, finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if not finalizing():  # at interpreter exit, the module's globals may be cleared
            self.close()
