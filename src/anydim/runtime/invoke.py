"""Calls that are like the last one: checked, allocated and run by one builtin function.

Python takes longer to check ten arrays, make ten results and pack their addresses than a small
model to run. `native/invoke.py` does the same for a frame whose sizes are bound: it reads the heads
of arrays (`PyArrayObject_fields`, as numpy's C interface promises; whether they lie so is looked up
once) and calls Python by the addresses of its C interface, which stand in a table of words. Where
they do not lie so, in free-threaded Python and elsewhere, every call goes the way of a first one.

Tensors come in and go out by the DLPack exchange API of their library, where it has one.
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
from anydim.runtime.system import memory_functions

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
_ERRORS = (AttributeError, BufferError, MemoryError, RuntimeError, TypeError, ValueError)
"""What makers of arrays and libraries of tensors raise, and a first call reports."""
_CALLED = ctypes.create_string_buffer(b"invoke")


def _addresses() -> tuple[int, ...]:
    """Those of the functions; nothing where this Python is not as native code takes it."""
    if not HEADS or object.__basicsize__ != 16:
        return ()
    names = (*_FUNCTIONS, "PyCMethod_New")
    if not all(hasattr(ctypes.pythonapi, name) for name in names) or not _fields_lie_so():
        return ()
    found = [getattr(ctypes.pythonapi, name) for name in _FUNCTIONS]
    return tuple(ctypes.cast(each, ctypes.c_void_p).value or 0 for each in found)


def _fields_lie_so() -> bool:
    """Whether rank, sizes, type and flags of arrays lie where native code reads them."""
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
    """What makes a builtin function: of a PyMethodDef, what it is bound to, module and class."""
    kinds = (ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p, ctypes.c_void_p)
    return ctypes.PYFUNCTYPE(ctypes.py_object, *kinds)(("PyCMethod_New", ctypes.pythonapi))


class Table:
    """The words of a frame, and the builtin function that reads them: `table.invoke(given, into)`.

    `block` is the address of the frame's block, in which the addresses and the sizes of each
    input and output are the words `places`: (address, first size). The function is that of `code`;
    it calls `run` with the block. In a program of regions results lie where the run has made them,
    until `clear` is called.
    """

    def __init__(
        self, signature: Signature, block: int, places: Sequence[tuple[int, int]], code: int,
        run: int, clear: int = 0,
    ) -> None:  # fmt: skip
        specs = (*signature.inputs, *signature.outputs)
        names = [sys.intern(spec.key) for spec in signature.outputs]
        names = [sys.intern(spec.name) for spec in signature.inputs] + names
        rows = numpy.zeros((len(specs), ROW), numpy.int64)
        for row, spec, name, (pointer, size) in zip(rows, specs, names, places):
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
        head[[RECORDING, ERRORS]] = id(_RECORDING), id(_ERRORS)
        head[[ALLOCATE, FREE, COPY]] = memory_functions()[:3]
        head[DEFINITION:ROWS] = ctypes.addressof(_CALLED), code, _FAST, 0  # flags: little-endian
        self._words = numpy.concatenate([head, rows.reshape(-1)])
        self._rows = self._words[ROWS:].reshape(-1, ROW)[len(signature.inputs) :]
        self._last = [numpy.zeros(spec.rank, numpy.int64) for spec in signature.outputs]
        if clear:
            self._rows[:, FOUND], self._rows[:, COPIED] = self._rows[:, SHAPE], -1
            self._rows[:, SHAPE] = pointers(self._last)
        self._kept = (names, [spec.dtype.numpy for spec in specs], _RECORDING, _NEGATED, _ERRORS)
        self._made: tuple[Any, list[tuple[Any, ...]]] = ((), [])
        self._kind: type | None = None
        (table,) = pointers((self._words,))
        self.invoke: Invoke = _new_function()(table + 8 * DEFINITION, self._words, None, None)

    @property
    def failed(self) -> int:
        """The number that came back from the last call that failed."""
        return int(self._words[FAILED])

    def bind(
        self, makers: Sequence[Callable[..., numpy.ndarray]],
        shapes: Sequence[tuple[int, ...]], dtypes: Sequence[numpy.dtype],
    ) -> None:  # fmt: skip
        """What makes arrays for the results, of these shapes and types."""
        arguments = list(zip(shapes, dtypes))
        self._made = (makers, arguments)
        for row, maker, given in zip(self._rows, makers, arguments):
            row[[MAKER, ARGUMENTS]] = id(maker), id(given)

    def expect(self, copied: Sequence[int]) -> None:
        """The bound results of a program of regions, with the bytes to copy of each."""
        for row, last, (shape, _), size in zip(self._rows, self._last, self._made[1], copied):
            last[:], row[COPIED] = shape, size

    def take(self, kind: type | None) -> None:
        """Take tensors of a type as well, which has functions for that; None: of no type.

        None are taken where a result has an element type that DLPack does not have.
        """
        known = kind is not None and bool((self._rows[:, KIND] >= 0).all())
        api = exchange_of(kind) if kind is not None and known else None
        self._words[TENSOR] = 0 if api is None else id(kind)
        if api is not None:
            self._words[[VIEW, WRAP]] = api.view, api.wrap
            self._words[NEGATED] = id(_NEGATED) if hasattr(kind, _NEGATED) else 0
        self._kind = kind


def _kind(dtype: numpy.dtype, rank: int) -> int:
    """The word of a DLTensor with its rank and element type; one that none has for other types."""
    known = from_numpy(dtype)
    code = code_of(known)
    return -1 if code is None else rank | code << 32 | 8 * known.bytes << 40 | 1 << 48
