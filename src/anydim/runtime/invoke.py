"""A fast path for calls with the shapes of the previous call: one native builtin function.

Checking ten arrays, allocating ten results and packing their addresses takes Python longer than a
small model runs. `native/invoke.py` does the same for a frame whose sizes are bound: it reads the
heads of numpy arrays (`PyArrayObject_fields`, part of numpy's C API; the layout is verified once)
and calls Python's C API by addresses in a table of slots. If the layout differs, as in
free-threaded Python, all calls take the slow path.

Tensors are imported and exported by the DLPack exchange API of their library, where available.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy

from anydim.base.dtypes import from_numpy
from anydim.runtime.exchange import code_of, exchange_of
from anydim.runtime.pointers import HEADS, pointers
from anydim.runtime.signature import Signature
from anydim.runtime.system_functions import memory_functions

Invoke = Callable[[Any, Any], Any]

(
    RUN, CLEAR, BLOCK, FAILED, DICT, ARRAY, NONE, FALSE, TRUE, INPUTS, OUTPUTS,
    SIZE, FIND, NEW, SET, MAKE, HOLD, DROP, OCCURRED, MATCHES, FORGET, ATTRIBUTE, METHOD,
    UNLOCK, LOCK, TENSOR, RECORDING, NEGATED, VIEW, WRAP, ALLOCATE, FREE, COPY, ERRORS,
    DEFINITION,
) = range(35)  # fmt: skip
ROWS = DEFINITION + 4
"""Words of a table. Functions of Python from SIZE on; VIEW and WRAP are a tensor library's.

DEFINITION is the PyMethodDef of the builtin function, which reads it until it is gone, and holds
the table until then.
"""

(
    NAME, ELEMENT, RANK, SHAPE, POINTER, KIND, BYTES, ALIGNMENT, HELD, MAKER, ARGUMENTS, FOUND,
    COPIED, ROW,
) = range(14)  # fmt: skip
"""Words of a row, one for each input, then for each output; there are ROW of them.

Results of regions are found after the run: sizes at FOUND, which are those at SHAPE in a call like
the last one, and COPIED, its bytes where it is copied, else a number below 0.
"""

READY, WRITEABLE = 0x0101, 0x0501  # numpy's flags: C_CONTIGUOUS, ALIGNED; and WRITEABLE
_FUNCTIONS = (
    "PyDict_Size", "PyDict_GetItem", "PyDict_New", "PyDict_SetItem", "PyObject_Call", "Py_IncRef",
    "Py_DecRef", "PyErr_Occurred", "PyErr_ExceptionMatches", "PyErr_Clear", "PyObject_GetAttr",
    "PyObject_VectorcallMethod", "PyEval_SaveThread", "PyEval_RestoreThread",
)  # fmt: skip
_FAST = 0x0080  # METH_FASTCALL
_RECORDING, _NEGATED = "requires_grad", "is_neg"  # an attribute, and a method that not all have
REPORTED = (AttributeError, BufferError, MemoryError, RuntimeError, TypeError, ValueError)
"""What makers of arrays and libraries of tensors raise, and a first call reports."""
_CALLED = ctypes.create_string_buffer(b"invoke")


def _addresses() -> tuple[int, ...]:
    """Return the addresses of the C API functions; empty if native code does not support this
    Python."""
    if not HEADS or object.__basicsize__ != 16:
        return ()
    names = (*_FUNCTIONS, "PyCMethod_New")
    if not all(hasattr(ctypes.pythonapi, name) for name in names) or not _has_known_layout():
        return ()
    found = [getattr(ctypes.pythonapi, name) for name in _FUNCTIONS]
    return tuple(ctypes.cast(each, ctypes.c_void_p).value or 0 for each in found)


def _has_known_layout() -> bool:
    """Verify the offsets of rank, sizes, dtype and flags that native code assumes."""
    for array in (numpy.zeros((2, 3), numpy.int8)[:, 1:], numpy.zeros((5,)), numpy.zeros(())):
        words = (ctypes.c_uint64 * 9).from_address(id(array))
        sizes = (ctypes.c_int64 * array.ndim).from_address(words[4] or id(array))
        seen = (words[1], words[3] & 0xFFFFFFFF, tuple(sizes), words[7], words[8] & 0xFFFFFFFF)
        if seen != (id(type(array)), array.ndim, array.shape, id(array.dtype), array.flags.num):
            return False
    return True


_PYTHON = _addresses()
POSSIBLE = bool(_PYTHON)
"""Whether this Python's objects can be read so."""


@cache
def _new_function() -> Callable[..., Any]:
    """Return a constructor of builtin functions from a PyMethodDef, a bound object, module and
    class."""
    kinds = (ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p, ctypes.c_void_p)
    return ctypes.PYFUNCTYPE(ctypes.py_object, *kinds)(("PyCMethod_New", ctypes.pythonapi))


class NewResults:
    """Allocators of results, of these shapes and dtypes, as the rows of a table refer to them."""

    def __init__(
        self, makers: Sequence[Callable[..., numpy.ndarray]],
        shapes: Sequence[tuple[int, ...]], dtypes: Sequence[numpy.dtype],
    ) -> None:  # fmt: skip
        self.makers, self.arguments = list(makers), list(zip(shapes, dtypes))
        pairs = [(id(make), id(given)) for make, given in zip(self.makers, self.arguments)]
        self.words = numpy.array(pairs, numpy.int64).reshape(-1, 2)


class Table:
    """The slots of a frame, and the builtin function that reads them: `table.invoke(given, into)`.

    `block` is the address of the frame's block; `slots` are its slots for each input and output:
    (address, first size). The function calls `run` of `code` with the block. In a region program,
    results stay where the run allocated them until `clear` is called.
    """

    def __init__(
        self, signature: Signature, block: int, slots: Sequence[tuple[int, int]], code: int,
        run: int, clear: int = 0,
    ) -> None:  # fmt: skip
        specs = (*signature.inputs, *signature.outputs)
        names = [sys.intern(spec.key) for spec in signature.outputs]
        names = [sys.intern(spec.name) for spec in signature.inputs] + names
        rows = numpy.zeros((len(specs), ROW), numpy.int64)
        for row, spec, name, (pointer, size) in zip(rows, specs, names, slots):
            dtype = spec.dtype.numpy
            row[[NAME, ELEMENT, RANK]] = id(name), id(dtype), spec.rank
            row[[SHAPE, POINTER]] = block + 8 * size, block + 8 * pointer
            row[[KIND, BYTES]] = _kind(dtype, spec.rank), dtype.itemsize
            row[ALIGNMENT] = dtype.alignment
        head = numpy.zeros(ROWS, numpy.int64)
        head[[RUN, CLEAR, BLOCK]] = run, clear, block
        head[[DICT, ARRAY]] = id(dict), id(numpy.ndarray)
        head[[NONE, FALSE, TRUE]] = id(None), id(False), id(True)
        head[[INPUTS, OUTPUTS]] = len(signature.inputs), len(signature.outputs)
        head[SIZE : SIZE + len(_PYTHON)] = _PYTHON
        head[[RECORDING, ERRORS]] = id(_RECORDING), id(REPORTED)
        head[[ALLOCATE, FREE, COPY]] = memory_functions()[:3]
        head[DEFINITION:ROWS] = ctypes.addressof(_CALLED), code, _FAST, 0  # flags: little-endian
        self._words = numpy.concatenate([head, rows.reshape(-1)])
        self._rows = self._words[ROWS:].reshape(-1, ROW)[len(signature.inputs) :]
        self._making = self._rows[:, MAKER : ARGUMENTS + 1]
        self._last = [numpy.zeros(spec.rank, numpy.int64) for spec in signature.outputs]
        if clear:
            self._rows[:, FOUND], self._rows[:, COPIED] = self._rows[:, SHAPE], -1
            self._rows[:, SHAPE] = pointers(self._last)
        self._kept = (names, [spec.dtype.numpy for spec in specs], _RECORDING, _NEGATED, REPORTED)
        self._new = NewResults((), (), ())
        self._kind: type | None = None
        (table,) = pointers((self._words,))
        self.invoke: Invoke = _new_function()(table + 8 * DEFINITION, self._words, None, None)

    @property
    def failed(self) -> int:
        """The number of the last failure."""
        return int(self._words[FAILED])

    def bind(self, new: NewResults) -> None:
        """Set the allocators of results."""
        self._new = new
        self._making[...] = new.words

    def expect(self, copied: Sequence[int]) -> None:
        """Bind the results of a region program, with the number of bytes to copy of each."""
        for row, last, (shape, _), size in zip(self._rows, self._last, self._new.arguments, copied):
            last[:], row[COPIED] = shape, size

    def take(self, kind: type | None) -> None:
        """Accept tensors of a class with a DLPack exchange API; None: numpy arrays only.

        No class is accepted if a result has a dtype without a DLPack code.
        """
        known = kind is not None and bool((self._rows[:, KIND] >= 0).all())
        api = exchange_of(kind) if kind is not None and known else None
        self._words[TENSOR] = 0 if api is None else id(kind)
        if api is not None:
            self._words[[VIEW, WRAP]] = api.view, api.wrap
            self._words[NEGATED] = id(_NEGATED) if hasattr(kind, _NEGATED) else 0
        self._kind = kind


def _kind(dtype: numpy.dtype, rank: int) -> int:
    """Return the word of a DLTensor with its rank and dtype; an impossible one for unsupported
    dtypes."""
    known = from_numpy(dtype)
    code = code_of(known)
    return -1 if code is None else rank | code << 32 | 8 * known.bytes << 40 | 1 << 48
