"""Interprets loop IR in plain Python on numpy arrays: slow, with every memory access checked.

Compiled code must give the same results (except for rounding: 'fma' rounds once here, reductions
over lanes may be ordered differently). Scalar int64 values are Python ints, all others are arrays
of `lanes` elements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from functools import partial
from typing import Any, NoReturn

import numpy

from anydim.base.dtypes import DType, boolean, convert_array, float16, float32, int32, int64
from anydim.base.errors import InternalError
from anydim.base.records import dataclass
from anydim.compiler.kernels import ir
from anydim.compiler.targets.evaluated.functions import (
    NARROW,
    OWN,
    PLAIN,
    convert,
    reduce_lanes,
    wrap,
)
from anydim.compiler.targets.evaluated.groups import Group, Member, Touched
from anydim.compiler.targets.evaluated.items import STEPS, item
from anydim.compiler.targets.evaluated.space import (
    Copy,
    Memory,
    Pointer,
    Space,
    uninitialised_memory,
)
from anydim.compiler.targets.evaluated.tiles import TILE_STEPS
from anydim.compiler.targets.visitor import methods_of
from anydim.lang.functions import FUNCTIONS

NEAR = 1024  # bytes by which masked-off lanes of a vector may be out of bounds


def run(
    kernel: ir.Kernel, operands: Sequence[numpy.ndarray], sizes: Sequence[int], start: int = 0,
    stop: int = 1, scratch: int | Pointer = 0,
) -> None:  # fmt: skip
    """Run a kernel on contiguous arrays; written operands are changed in place.

    `scratch` is a number of uninitialised bytes, or the scratch of an earlier part of a range.

    The work-items of a group run in turn. Raises InternalError for an access outside a buffer, a
    write to a read-only operand, a race, or malformed loop IR.
    """
    if len(operands) != len(kernel.operands) or len(sizes) != len(kernel.sizes):
        raise InternalError(
            f"kernel '{kernel.name}' takes {len(kernel.operands)} operands and "
            f"{len(kernel.sizes)} sizes, not {len(operands)} and {len(sizes)}"
        )
    functions = {f.name: f for library in kernel.libraries for f in library.functions}
    functions |= {f.name: f for f in kernel.functions}
    arguments: list[Any] = []
    for operand, array in zip(kernel.operands, operands):
        if array.dtype != operand.dtype.numpy or not array.flags.c_contiguous:
            raise InternalError(
                f"operand '{operand.name}' expects a contiguous array of {operand.dtype}, "
                f"not {array.dtype}"
            )
        data = array.reshape(-1).view(numpy.uint8)
        arguments.append(Pointer(Memory(operand.name, data, operand.written), 0, operand.dtype))
    arguments += [int(size) for size in sizes]
    if not kernel.group:
        with numpy.errstate(all="ignore"):
            held = uninitialised_memory("scratch", scratch) if isinstance(scratch, int) else scratch
            given = [*arguments, start, stop, held]
            _Frame(functions, kernel.main, given).result()
        return
    touched = Touched("group")
    for number in range(start, stop):
        assert isinstance(scratch, int)
        shared = [uninitialised_memory("scratch", scratch)]
        shared += [
            uninitialised_memory(a.name, a.count * a.dtype.bytes, a.dtype) for a in kernel.locals
        ]
        given = [*arguments, number, number + 1, *shared]
        frame = partial(_run_item, functions, kernel.main, given)
        Group(number, kernel.group, touched).run(frame)


def _run_item(
    functions: dict[str, ir.Function], main: ir.Function, given: list[Any], item: Member
) -> None:
    with numpy.errstate(all="ignore"):
        _Frame(functions, main, given, item=item).result()


def call(
    functions: Iterable[ir.Function], name: str, arguments: Sequence[int], space: Space,
    others: Mapping[str, Callable[..., int | None]] | None = None,
) -> int | None:  # fmt: skip
    """Call one of `functions` on int64s, with memory at addresses; returns its result.

    `others` are functions of other modules. Raises InternalError as `run` does.
    """
    known = {function.name: function for function in functions}
    with numpy.errstate(all="ignore"):
        return _Frame(known, known[name], list(arguments), space, others or {}).result()


class _Returned(Exception):
    """A function returns; `value` is its result."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value


def _array_of(value: Any) -> numpy.ndarray:
    return numpy.array([value], numpy.int64) if isinstance(value, int) else value


@dataclass
class _Frame:
    """A call of a function."""

    functions: dict[str, ir.Function]
    function: ir.Function
    arguments: list[Any]
    space: Space = field(default_factory=Space)
    others: Mapping[str, Callable[..., int | None]] = field(default_factory=dict)
    item: Member | None = None
    names: dict[str, Any] = field(default_factory=dict)
    registers: dict[str, Any] = field(default_factory=dict)
    buffers: dict[str, Pointer] = field(default_factory=dict)
    tiles: dict[int, numpy.ndarray] = field(default_factory=dict)
    commit_groups: list[list[Copy]] = field(default_factory=lambda: [[]])  # commit groups

    def __post_init__(self) -> None:
        if len(self.arguments) != len(self.function.parameters):
            self.fail(f"takes {len(self.function.parameters)} arguments")
        for parameter, argument in zip(self.function.parameters, self.arguments):
            if isinstance(parameter, ir.Pointer):
                pointer = Pointer(argument.memory, argument.byte, parameter.dtype)
                self.buffers[parameter.name] = pointer
            else:
                self.names[parameter.name] = argument

    def fail(self, problem: str) -> NoReturn:
        raise InternalError(f"loop IR function '{self.function.name}': {problem}")

    def result(self) -> Any:
        """Run the function; returns its result."""
        try:
            self.run(self.function.body)
        except _Returned as returned:
            return returned.value
        if self.function.result is not None:
            self.fail("ends without a result")
        return None

    def run(self, steps: Sequence[ir.Step]) -> None:
        for step in steps:
            _RULES[type(step)](self, step)

    def value(self, node: ir.Value) -> Any:
        return _RULES[type(node)](self, node)

    def integer(self, node: ir.Value) -> int:
        """Evaluate an int64 scalar, for addresses and loops."""
        value = self.value(node)
        if not isinstance(value, int):
            self.fail(f"{node} is not an int64 scalar")
        return value

    def as_type(self, kind: ir.Type, array: Any) -> Any:
        """Convert a computed value to the representation of its type."""
        if not isinstance(array, numpy.ndarray) or array.ndim == 0:
            array = numpy.atleast_1d(array)
        if len(array) != kind.lanes:
            self.fail(f"expected {kind}, got a value of {len(array)} lanes")
        if kind.lanes == 1 and kind.dtype.name == "int64":
            return int(array[0])
        wanted = kind.dtype.numpy
        return array if array.dtype == wanted else convert_array(array, wanted)

    def array(self, node: ir.Value) -> numpy.ndarray:
        return _array_of(self.value(node))

    # ---- values --------------------------------------------------------------------------------

    def _const(self, node: ir.Const) -> Any:
        if node.type is ir.INDEX or node.type == ir.INDEX:
            return int(node.value)
        return convert_array(numpy.full(node.type.lanes, node.value), node.type.dtype.numpy)

    def _var(self, node: ir.Var) -> Any:
        if node.name not in self.names:
            self.fail(f"'{node.name}' is used before its definition")
        return self.names[node.name]

    def _get(self, node: ir.Get) -> Any:
        if node.name not in self.registers:
            self.fail(f"register '{node.name}' is used before its definition")
        return self.registers[node.name]

    def _op(self, node: ir.Op) -> Any:
        values = [_RULES[type(argument)](self, argument) for argument in node.arguments]
        plain = PLAIN.get(node.function)
        if plain is not None and isinstance(values[0], int) and isinstance(values[-1], int):
            return plain(*values)
        last = node.arguments[-1].type
        for argument in node.arguments[node.function == "select" : -1]:
            if argument.type is not last and argument.type != last:
                self.fail(
                    f"'{node.function}' has operands of different types, one of {argument.type}"
                )
        arrays = [_array_of(v) for v in values]
        lanes = len(arrays[0])
        for array in arrays:
            if len(array) != lanes:
                self.fail(f"'{node.function}' has operands with different numbers of lanes")
        function = OWN.get(node.function) or FUNCTIONS[node.function].numpy
        if arrays[-1].dtype in NARROW and node.function != "select":
            arrays = [convert_array(a, float32.numpy) for a in arrays]  # as targets compute it
        return self.as_type(node.type, function(*arrays))

    def _convert(self, node: ir.Convert) -> Any:
        array = self.array(node.argument)
        if node.type.dtype == float16 and array.dtype != numpy.float16:
            array = convert(array, float32)
        return self.as_type(node.type, convert(array, node.type.dtype))

    def _bitcast(self, node: ir.Bitcast) -> Any:
        array = self.array(node.argument)
        if array.dtype == bool:
            array = numpy.packbits(array, bitorder="little")
        return self.as_type(node.type, array.view(node.type.dtype.numpy))

    def _splat(self, node: ir.Splat) -> Any:
        return self.as_type(node.type, numpy.repeat(self.array(node.argument), node.type.lanes))

    def _iota(self, node: ir.Iota) -> Any:
        return self.as_type(node.type, numpy.arange(node.type.lanes))

    def _reduce(self, node: ir.Reduce) -> Any:
        return self.as_type(node.type, reduce_lanes(node.function, self.array(node.argument)))

    def _shuffle(self, node: ir.Shuffle) -> Any:
        both = numpy.concatenate([self.array(node.left), self.array(node.right)])
        return self.as_type(node.type, both[list(node.lanes)])

    def _permute(self, node: ir.Permute) -> Any:
        both = numpy.concatenate([self.array(node.left), self.array(node.right)])
        return self.as_type(node.type, both[self.array(node.places) % len(both)])

    def _extract(self, node: ir.Extract) -> Any:
        return self.as_type(node.type, self.array(node.argument)[node.lane])

    # ---- memory --------------------------------------------------------------------------------

    def elements(self, buffer: str, kind: ir.Type, offsets: numpy.ndarray, use: str) -> Any:
        """Return (bytes of the memory, byte offset of each element), checked."""
        if buffer not in self.buffers:
            self.fail(f"there is no buffer '{buffer}'")
        pointer = self.buffers[buffer]
        size = kind.dtype.bytes
        positions = pointer.byte + offsets * size
        data = pointer.memory.data
        outside = (positions < 0) | (positions + size > len(data))
        if outside.any():
            at = int(positions[outside][0])
            self.fail(
                f"{use} of {kind} in '{buffer}' is outside '{pointer.memory.name}': byte {at} "
                f"of {len(data)}"
            )
        touched = positions[:, None] + numpy.arange(size)
        if self.item is not None:
            self.item.note(pointer.memory.name, data, touched, use == "store")
        return data, touched

    def _adjacent(self, buffer: str, kind: ir.Type, offset: int) -> numpy.ndarray | None:
        """The bytes of adjacent elements; None where `elements` has to check more."""
        pointer = self.buffers.get(buffer)
        if pointer is None or self.item is not None:
            return None
        size, data = kind.dtype.bytes, pointer.memory.data
        first, count = pointer.byte + offset * size, kind.lanes * size
        return data[first : first + count] if 0 <= first <= len(data) - count else None

    def _mask(self, node: ir.Value | None, lanes: int) -> numpy.ndarray:
        return numpy.ones(lanes, bool) if node is None else self.array(node)

    def _read(self, node: ir.Load | ir.Gather, offsets: numpy.ndarray) -> Any:
        mask = self._mask(node.mask, node.type.lanes)
        data, positions = self.elements(node.buffer, node.type, offsets[mask], "load")
        result = numpy.zeros(node.type.lanes, node.type.dtype.numpy)
        raw = data[positions]
        if node.type.dtype == boolean:
            result[mask] = raw[:, 0] != 0
        else:
            result[mask] = raw.view(node.type.dtype.numpy)[:, 0] if len(raw) else 0
        return self.as_type(node.type, result)

    def _load(self, node: ir.Load) -> Any:
        offset, lanes = self.integer(node.offset), node.type.lanes
        raw = self._adjacent(node.buffer, node.type, offset) if node.mask is None else None
        if raw is not None:
            dtype = node.type.dtype
            return self.as_type(
                node.type, raw != 0 if dtype == boolean else raw.view(dtype.numpy).copy()
            )
        if node.mask is not None and lanes > 1:
            self._touches("load", node, node.type, offset)
        return self._read(node, offset + numpy.arange(lanes))

    def _touches(self, use: str, node: ir.Load | ir.Store, kind: ir.Type, offset: int) -> None:
        """Fail if a whole vector is far out of bounds: masked-off lanes are slow there."""
        if node.buffer not in self.buffers:
            return
        pointer, size = self.buffers[node.buffer], kind.dtype.bytes
        first = pointer.byte + offset * size
        behind, held = first + kind.lanes * size, len(pointer.memory.data)
        if held and (behind <= -NEAR or first >= held + NEAR):
            self.fail(
                f"masked {use} of {kind} in '{node.buffer}' is far outside"
                f" '{pointer.memory.name}': byte {first} of {held}"
            )

    def _gather(self, node: ir.Gather) -> Any:
        return self._read(node, self.array(node.offsets))

    def _store(self, step: ir.Store) -> None:
        kind = step.value.type
        array = self.array(step.value)
        mask = self._mask(step.mask, kind.lanes)
        offset = self.integer(step.offset)
        if step.nontemporal and self._address(ir.Address(step.buffer, step.offset)) % (
            kind.lanes * kind.dtype.bytes
        ):
            self.fail(f"misaligned nontemporal store of {kind}")
        if step.mask is not None and kind.lanes > 1:
            self._touches("store", step, kind, offset)
        raw = self._adjacent(step.buffer, kind, offset) if step.mask is None else None
        if raw is not None and self.buffers[step.buffer].memory.writable:
            raw[:] = numpy.ascontiguousarray(array).view(numpy.uint8)
            return
        offsets = offset + numpy.arange(kind.lanes)
        data, positions = self.elements(step.buffer, kind, offsets[mask], "store")
        memory = self.buffers[step.buffer].memory
        if not memory.writable and mask.any():
            self.fail(f"store to '{memory.name}', which is read-only")
        kept = numpy.ascontiguousarray(array[mask])
        data[positions] = kept.view(numpy.uint8).reshape(len(kept), kind.dtype.bytes)

    def _address(self, node: ir.Address) -> int:
        pointer = self._pointer(node)
        return self.space.address_of(pointer.memory.data) + pointer.byte

    def _pointer(self, node: ir.Address) -> Pointer:
        pointer = self.buffers[node.buffer]
        byte = pointer.byte + self.integer(node.offset) * pointer.dtype.bytes
        return Pointer(pointer.memory, byte, pointer.dtype)

    def _at(self, address: ir.Value, offset: ir.Value, dtype: DType) -> numpy.ndarray:
        """Return the bytes of a scalar at an address."""
        where = self.integer(address) + self.integer(offset) * dtype.bytes
        if where % dtype.bytes:
            self.fail(f"misaligned access to {dtype} at address {where}")
        return self.space.bytes(where, dtype.bytes)

    def _load_at(self, node: ir.LoadAt) -> Any:
        raw = self._at(node.address, node.offset, node.type.dtype)
        return self.as_type(node.type, raw.view(node.type.dtype.numpy).copy())

    def _store_at(self, step: ir.StoreAt) -> None:
        value = numpy.ascontiguousarray(self.array(step.value))
        self._at(step.address, step.offset, step.value.type.dtype)[:] = value.view(numpy.uint8)

    def _prefetch(self, step: ir.Prefetch) -> None:
        self.integer(step.offset)

    def _stack(self, step: ir.Stack) -> None:
        size = step.count * step.dtype.bytes
        self.buffers[step.name] = uninitialised_memory(step.name, size, step.dtype)

    def _table(self, step: ir.Table) -> None:
        data = numpy.array(step.numbers, numpy.int32).view(numpy.uint8)
        self.buffers[step.name] = Pointer(Memory(step.name, data, False), 0, int32)

    # ---- statements ----------------------------------------------------------------------------

    def _let(self, step: ir.Let) -> None:
        self.names[step.name] = self.value(step.value)

    def _declare(self, step: ir.Declare) -> None:
        self.registers[step.name] = self.value(step.value)

    def _assign(self, step: ir.Assign) -> None:
        if step.name not in self.registers:
            self.fail(f"register '{step.name}' is not declared")
        self.registers[step.name] = self.value(step.value)

    def _for(self, step: ir.For) -> None:
        start, stop, width = (self.integer(v) for v in (step.start, step.stop, step.step))
        if width <= 0:
            self.fail(f"the loop over '{step.variable}' has step {width}")
        for index in range(start, stop, width):
            self.names[step.variable] = index
            self.run(step.body)

    def _while(self, step: ir.While) -> None:
        while self.array(step.condition)[0]:
            self.run(step.body)

    def _if(self, step: ir.If) -> None:
        self.run(step.then if self.array(step.condition)[0] else step.otherwise)

    def _switch(self, step: ir.Switch) -> None:
        number = int(self.array(step.value)[0])
        for case, body in step.cases:
            if case == number:
                self.run(body)

    def _call(self, step: ir.Call) -> None:
        result = self._call_function(step)
        if step.result is not None:
            if result is None:
                self.fail(f"'{step.function}' returns no value")
            self.names[step.result.name] = result

    def _call_function(self, step: ir.Call) -> Any:
        if step.function in self.functions:
            function = self.functions[str(step.function)]
            given = zip(function.parameters, step.arguments)
            arguments = [self._argument(parameter, value) for parameter, value in given]
            if len(step.arguments) != len(function.parameters):
                self.fail(f"'{function.name}' takes {len(function.parameters)} arguments")
            frame = (self.functions, function, arguments, self.space, self.others, self.item)
            return _Frame(*frame, tiles=self.tiles).result()
        if not isinstance(step.function, str):
            other = self.space.function_at(self.integer(step.function))
        elif step.function in self.others:
            other = self.others[step.function]
        else:
            self.fail(f"there is no function '{step.function}'")
        return other(*(int(self.array(argument)[0]) for argument in step.arguments))

    def _argument(self, parameter: ir.Pointer | ir.Scalar, value: ir.Value) -> Any:
        if isinstance(parameter, ir.Pointer):
            assert isinstance(value, ir.Address)
            return self._pointer(value)
        return self.value(value)

    def _return(self, step: ir.Return) -> None:
        raise _Returned(None if step.value is None else self.value(step.value))

    def _atomic(self, step: ir.Atomic) -> None:
        held = self._at(step.address, ir.constant(0), int64).view(numpy.int64)
        before = int(held[0])
        arguments = [self.integer(argument) for argument in step.arguments]
        if step.operation == "store":
            held[0] = arguments[0]
        elif step.operation == "add":
            held[0] = wrap(before + arguments[0])
        elif step.operation == "exchange_if" and before == arguments[0]:
            held[0] = arguments[1]
        if step.result is not None:
            self.names[step.result.name] = before

    def _no_op(self, step: ir.Fence | ir.Pause) -> None:
        """Do nothing: the interpreter is single-threaded."""

    _fence = _pause = _no_op


_RULES: dict[type, Callable[[_Frame, Any], Any]] = {
    **methods_of(_Frame), ir.Item: item, **STEPS, **TILE_STEPS
}  # fmt: skip
