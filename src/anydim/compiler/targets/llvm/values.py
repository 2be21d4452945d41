"""Emits expressions of loop IR as LLVM instructions."""

from __future__ import annotations

import operator
from collections.abc import Callable

import numpy

from anydim.base.dtypes import DTYPES, DType, boolean, int8, int32, int64, uint16
from anydim.base.errors import InternalError
from anydim.base.records import dataclass
from anydim.compiler.kernels import ir
from anydim.compiler.targets.llvm.convert import convert
from anydim.compiler.targets.llvm.emitter import Emitter
from anydim.compiler.targets.llvm.functions import apply
from anydim.compiler.targets.llvm.lanes import Lanes
from anydim.compiler.targets.llvm.loop_pointers import LoopPointers
from anydim.compiler.targets.llvm.spelling import constant, memory_text, suffix, type_text
from anydim.compiler.targets.llvm.wasm_masks import (
    has_masks,
    lane_mask,
    load_lanes,
    masked_pointer,
)
from anydim.compiler.targets.visitor import methods_of
from anydim.lang.functions import compute

ZERO = "@zero"  # eight bytes of zeros, read by masked-off scalar loads


@dataclass(frozen=True)
class Buffer:
    """A pointer and the element type that `Address` counts in."""

    pointer: str
    dtype: DType


Sum = tuple[tuple[str, ...], int]  # summands: names, and a constant
_FOLDED: dict[str, Callable[[int, int], int]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "min": min, "max": max,
    "bit_and": operator.and_,
}  # fmt: skip
_PERMUTED = {2: "hi", 4: "d", 8: "q"}  # LLVM's suffix of elements, by bytes
_HALF = 1 << 63  # int64 values are -_HALF to _HALF - 1
_DIVISIONS = frozenset(("quotient", "floordiv", "mod"))
# Bytes within which WebAssembly adds to an address without wrapping: its stack, which is larger,
# comes first in memory, so that no address of data is below.
_NEAR = 1 << 16
_WASM_FLAGS = 16  # lanes of flags that WebAssembly makes bits of in one instruction


class Values:
    """Writes the values of one function; `names`, `registers`, `buffers` map names to operands."""

    def __init__(self, emitter: Emitter) -> None:
        self.emitter = emitter
        self.names: dict[str, str] = {}
        self.registers: dict[str, tuple[str, ir.Type]] = {}
        self.buffers: dict[str, Buffer] = {}
        self.first_lane: set[str] = set()  # masks of only the first lane
        self.loops: list[LoopPointers] = []  # around the present position, in WebAssembly
        self._sums: dict[str, Sum] = {}

    def value(self, node: ir.Value) -> str:
        """Return the operand of a value, emitting its instructions."""
        operand: str = _RULES[type(node)](self, node)
        return operand

    def _const(self, node: ir.Const) -> str:
        return constant(node.type.dtype, node.value, node.type.lanes)

    def _var(self, node: ir.Var) -> str:
        if node.name not in self.names:
            raise InternalError(f"loop IR uses '{node.name}' before its definition")
        return self.names[node.name]

    def _get(self, node: ir.Get) -> str:
        if node.name not in self.registers:
            raise InternalError(f"loop IR reads register '{node.name}' before its assignment")
        return self.registers[node.name][0]

    def _op(self, node: ir.Op) -> str:
        arguments = [self.value(argument) for argument in node.arguments]
        kind = node.arguments[-1].type
        if kind == ir.INDEX and (known := _fold(node.function, arguments)):
            return known
        result = apply(self.emitter, node.function, kind.dtype, kind.lanes, arguments)
        if node.function == "less" and _is_iota(arguments[0]):
            if arguments[1] == constant(kind.dtype, 1, kind.lanes):
                self.first_lane.add(result)
        if kind == ir.INDEX and node.function in ("add", "sub", "mul"):
            self.note_sum(node.function, result, *arguments)
        return result

    def _convert(self, node: ir.Convert) -> str:
        have = node.argument.type
        lanes = Lanes(self.emitter, have.dtype, have.lanes)
        return convert(lanes, self.value(node.argument), node.type.dtype)

    def _bitcast(self, node: ir.Bitcast) -> str:
        have = node.argument.type
        value = self.value(node.argument)
        source = type_text(have.dtype, have.lanes)
        target = type_text(node.type.dtype, node.type.lanes)
        if source == target:
            return value
        is_wasm = self.emitter.module.processor.is_wasm
        if is_wasm and have.dtype == boolean and have.lanes > _WASM_FLAGS:
            return self._bits_of_flags(value, have.lanes)
        return self.emitter.pure(f"bitcast {source} {value} to {target}", (value,))

    def _bits_of_flags(self, value: str, lanes: int) -> str:
        """Return flags as bits by 16: for more, LLVM 22 moves lanes one by one, or aborts."""
        wide = Lanes(self.emitter, boolean, lanes).cast("sext", value, int8)
        bits = Lanes(self.emitter, DTYPES[f"uint{lanes}"], 1)
        part, small = Lanes(self.emitter, int8, _WASM_FLAGS), Lanes(self.emitter, uint16, 1)
        found = bits.constant(0)
        for first in range(0, lanes, _WASM_FLAGS):
            picks = tuple(range(first, first + _WASM_FLAGS))
            some = self._shuffle_vectors(int8, lanes, wide, wide, picks)
            flags = part.compare("icmp slt", some, part.constant(0))
            number = self.emitter.pure(f"bitcast {part.flags} {flags} to {small.text}", (flags,))
            shifted = bits.binary("shl", small.cast("zext", number, bits.dtype), str(first))
            found = bits.binary("or", found, shifted)
        return found

    # ---- addresses -----------------------------------------------------------------------------

    def summands(self, operand: str) -> Sum:
        """Return an index value as a sum."""
        if not operand.startswith("%"):
            return (), int(operand)
        return self._sums.get(operand, ((operand,), 0))

    def note_sum(self, function: str, result: str, a: str, b: str) -> None:
        """Record an index value as a sum, so that addresses can be decomposed."""
        if not result.startswith("%"):
            return
        (left, left_number), (right, right_number) = self.summands(a), self.summands(b)
        if function == "add":
            self._sums[result] = (left + right, left_number + right_number)
        elif function == "sub" and not right:
            self._sums[result] = (left, left_number - right_number)
        elif function == "mul" and (not left or not right) and left_number * right_number:
            names, number, factor = left, left_number, right_number
            if not left:
                names, number, factor = right, right_number, left_number
            if len(names) + (number != 0) > 1 and len(names) <= 3:
                scaled = tuple(self._times(name, factor) for name in names)
                self._sums[result] = (scaled, number * factor)

    def _terms(self, node: ir.Value) -> Sum:
        """Return an offset as a sum: its summands are emitted, not the sum itself."""
        if isinstance(node, ir.Const):
            return (), int(node.value)
        if isinstance(node, ir.Op) and node.type == ir.INDEX and node.function == "add":
            (left, number), (right, more) = map(self._terms, node.arguments)
            return left + right, number + more
        return self.summands(self.value(node))

    def _times(self, name: str, factor: int) -> str:
        return self.emitter.pure(f"mul i64 {name}, {factor}", (name,))

    def pointer(self, buffer: str, offset: ir.Value, dtype: DType, mask: str = "") -> str:
        """Return the address of an element, its loop-invariant part first; see `_further`."""
        if buffer not in self.buffers:
            raise InternalError(f"loop IR uses an unknown buffer '{buffer}'")
        return self._further(self.buffers[buffer].pointer, offset, dtype, mask)

    def pointer_at(self, address: ir.Value, offset: ir.Value, dtype: DType) -> str:
        """Return an int64 address plus an offset in elements as a pointer."""
        number = self.value(address)
        pointer = self.emitter.pure(f"inttoptr i64 {number} to ptr", (number,))
        return self._further(pointer, offset, dtype)

    def _further(self, pointer: str, offset: ir.Value, dtype: DType, mask: str = "") -> str:
        """Return an address plus an offset; by `mask`, 32 bits of 1 or 0, near 0 instead."""
        emitter = self.emitter
        names, number = self._terms(offset)
        text = memory_text(dtype)
        for name in sorted(names, key=emitter.depth) if names else ():
            moved = (loop.at(pointer, name, text) for loop in self.loops)
            pointer = next(filter(None, moved), None) or emitter.pure(
                f"getelementptr {text}, ptr {pointer}, i64 {name}", (pointer, name)
            )
        near = emitter.module.processor.is_wasm and 0 <= number * dtype.bytes <= _NEAR
        if mask and near:
            pointer = masked_pointer(emitter, pointer, mask)
        if number:
            plain = f"getelementptr{' nuw' if near else ''} {text}"
            pointer = emitter.pure(f"{plain}, ptr {pointer}, i64 {number}", (pointer,))
        return masked_pointer(emitter, pointer, mask) if mask and not near else pointer

    def address(self, node: ir.Address) -> str:
        if node.buffer not in self.buffers:
            raise InternalError(f"loop IR uses an unknown buffer '{node.buffer}'")
        return self.pointer(node.buffer, node.offset, self.buffers[node.buffer].dtype)

    def _address(self, node: ir.Address) -> str:
        """Return an address as an int64."""
        pointer = self.address(node)
        return self.emitter.pure(f"ptrtoint ptr {pointer} to i64", (pointer,))

    # ---- memory --------------------------------------------------------------------------------

    def _load_at(self, node: ir.LoadAt) -> str:
        dtype = node.type.dtype
        pointer = self.pointer_at(node.address, node.offset, dtype)
        text = f"load {memory_text(dtype)}, ptr {pointer}, align {dtype.bytes}"
        return self._from_memory(node.type, self.emitter.once(text))

    def _load(self, node: ir.Load) -> str:
        dtype, lanes = node.type.dtype, node.type.lanes
        memory, mask = memory_text(dtype, lanes), ""
        if node.mask is not None:
            mask = self.value(node.mask)
            if self.emitter.module.processor.is_wasm and has_masks(dtype, lanes):
                some = lane_mask(self.emitter, mask, lanes)
                pointer = self.pointer(node.buffer, node.offset, dtype, some)
                found = load_lanes(self.emitter, dtype, lanes, pointer, mask)
                return self._from_memory(node.type, found)
        pointer = self.pointer(node.buffer, node.offset, dtype)
        if not mask:
            return self._from_memory(
                node.type, self.emitter.once(f"load {memory}, ptr {pointer}, align {dtype.bytes}")
            )
        if lanes == 1:
            text = f"select i1 {mask}, ptr {pointer}, ptr {ZERO}"
            pointer = self.emitter.pure(text, (mask, pointer))
            loaded = self.emitter.once(f"load {memory}, ptr {pointer}, align {dtype.bytes}")
            return self._from_memory(node.type, loaded)
        flags = type_text(boolean, lanes)
        call = self.emitter.call_text(
            memory,
            f"llvm.masked.load.{_memory_suffix(node.type)}.p0",
            ((f"ptr align {dtype.bytes}", pointer), (flags, mask), (memory, "zeroinitializer")),
        )
        return self._from_memory(node.type, self.emitter.once(call))

    def _gather(self, node: ir.Gather) -> str:
        dtype, lanes = node.type.dtype, node.type.lanes
        offsets = self.value(node.offsets)
        memory = memory_text(dtype, lanes)
        pointers = self.emitter.pure(
            f"getelementptr {memory_text(dtype)}, ptr {self.buffers[node.buffer].pointer}, "
            f"{type_text(int64, lanes)} {offsets}",
            (self.buffers[node.buffer].pointer, offsets),
        )
        mask = constant(boolean, True, lanes) if node.mask is None else self.value(node.mask)
        call = self.emitter.call_text(
            memory,
            f"llvm.masked.gather.{_memory_suffix(node.type)}.v{lanes}p0",
            (
                (f"<{lanes} x ptr> align {dtype.bytes}", pointers),
                (type_text(boolean, lanes), mask),
                (memory, "zeroinitializer"),
            ),
        )
        return self._from_memory(node.type, self.emitter.once(call))

    def _from_memory(self, kind: ir.Type, loaded: str) -> str:
        if kind.dtype != boolean:
            return loaded
        zero = "0" if kind.lanes == 1 else "zeroinitializer"
        text = f"icmp ne {memory_text(boolean, kind.lanes)} {loaded}, {zero}"
        return self.emitter.pure(text, (loaded,))

    def to_memory(self, kind: ir.Type, value: str) -> str:
        """Convert a value to its type in memory."""
        if kind.dtype != boolean:
            return value
        flags, memory = type_text(boolean, kind.lanes), memory_text(boolean, kind.lanes)
        return self.emitter.pure(f"zext {flags} {value} to {memory}", (value,))

    # ---- lanes ---------------------------------------------------------------------------------

    def _splat(self, node: ir.Splat) -> str:
        scalar, lanes = self.value(node.argument), node.type.lanes
        if lanes == 1:
            return scalar
        if not scalar.startswith("%"):
            return f"splat ({type_text(node.type.dtype)} {scalar})"
        vector, element = type_text(node.type.dtype, lanes), type_text(node.type.dtype)
        first = self.emitter.pure(
            f"insertelement {vector} poison, {element} {scalar}, i64 0", (scalar,)
        )
        zeros = f"<{lanes} x i32> zeroinitializer"
        return self.emitter.pure(
            f"shufflevector {vector} {first}, {vector} poison, {zeros}", (first,)
        )

    def _iota(self, node: ir.Iota) -> str:
        dtype, lanes = node.type.dtype, node.type.lanes
        if lanes == 1:
            return constant(dtype, 0)
        element = type_text(dtype)
        return f"<{', '.join(f'{element} {constant(dtype, i)}' for i in range(lanes))}>"

    def _shuffle(self, node: ir.Shuffle) -> str:
        """Shuffle lanes; flags as integers, since LLVM moves single bits one after the other."""
        left, right = self.value(node.left), self.value(node.right)
        kind, lanes = node.left.type.dtype, node.left.type.lanes
        if kind != boolean:
            return self._shuffle_vectors(kind, lanes, left, right, node.lanes)
        wide, flags = int32 if lanes <= 16 else int8, Lanes(self.emitter, boolean, lanes)
        left, right = (flags.cast("sext", side, wide) for side in (left, right))
        shuffled = self._shuffle_vectors(wide, lanes, left, right, node.lanes)
        made = Lanes(self.emitter, wide, len(node.lanes))
        return made.compare("icmp slt", shuffled, made.constant(0))

    def _shuffle_vectors(
        self, kind: DType, lanes: int, left: str, right: str, picks: tuple[int, ...]
    ) -> str:
        vector, indices = type_text(kind, lanes), ", ".join(f"i32 {lane}" for lane in picks)
        return self.emitter.pure(
            f"shufflevector {vector} {left}, {vector} {right}, <{len(picks)} x i32> <{indices}>",
            (left, right),
        )

    def _permute(self, node: ir.Permute) -> str:
        """Permute by one instruction; bytes as 16-bit numbers, as few machines permute bytes."""
        kind, lanes = node.type.dtype, node.type.lanes
        indices = self.value(node.places)
        wide = DTYPES[f"int{8 * max(kind.bytes, 2)}"]
        numbers = Lanes(self.emitter, int32, lanes)
        if wide != int32:
            indices = numbers.cast("trunc" if wide.bytes < 4 else "zext", indices, wide)
        have, bits = Lanes(self.emitter, kind, lanes), Lanes(self.emitter, wide, lanes)
        cast = "zext" if kind.bytes < wide.bytes else "bitcast"
        left, right = (have.cast(cast, self.value(side), wide) for side in (node.left, node.right))
        name = f"llvm.x86.avx512.vpermi2var.{_PERMUTED[wide.bytes]}.{8 * wide.bytes * lanes}"
        permuted = self.emitter.intrinsic(
            bits.text, name, *((bits.text, v) for v in (left, indices, right))
        )
        return bits.cast("trunc" if cast == "zext" else cast, permuted, kind)

    def _extract(self, node: ir.Extract) -> str:
        value, kind = self.value(node.argument), node.argument.type
        if kind.lanes == 1:
            return value
        text = f"extractelement {type_text(kind.dtype, kind.lanes)} {value}, i64 {node.lane}"
        return self.emitter.pure(text, (value,))

    def _reduce(self, node: ir.Reduce) -> str:
        kind = node.argument.type
        value = self.value(node.argument)
        if kind.lanes == 1:
            return value
        if kind.dtype.is_float and node.function in ("add", "mul") and kind.dtype.bits > 16:
            return self._reduce_float(node.function, kind, value)
        if kind.dtype == boolean and node.function in ("max", "min"):
            return self._reduce_flags(node.function, kind, value)
        return self._reduce_by_halves(node.function, kind, value)

    def _reduce_flags(self, function: str, kind: ir.Type, value: str) -> str:
        """Whether any lane holds, or whether all do."""
        name = f"llvm.vector.reduce.{'or' if function == 'max' else 'and'}.v{kind.lanes}i1"
        flags = type_text(boolean, kind.lanes)
        return self.emitter.pure(self.emitter.call_text("i1", name, ((flags, value),)), (value,))

    def _reduce_float(self, function: str, kind: ir.Type, value: str) -> str:
        element, vector = type_text(kind.dtype), type_text(kind.dtype, kind.lanes)
        name = f"llvm.vector.reduce.f{function}.{suffix(kind.dtype, kind.lanes)}"
        first = constant(kind.dtype, -0.0 if function == "add" else 1.0)
        call = self.emitter.call_text(element, name, ((element, first), (vector, value)))
        return self.emitter.pure(call.replace("call ", "call reassoc ", 1), (value,))

    def _reduce_by_halves(self, function: str, kind: ir.Type, value: str) -> str:
        lanes = kind.lanes
        while lanes > 1:
            vector, half = type_text(kind.dtype, lanes), lanes // 2
            parts = []
            for start in (0, half):
                picks = ", ".join(f"i32 {start + i}" for i in range(half))
                text = f"shufflevector {vector} {value}, {vector} poison, <{half} x i32> <{picks}>"
                if half == 1:
                    text = f"extractelement {vector} {value}, i64 {start}"
                parts.append(self.emitter.pure(text, (value,)))
            value = apply(self.emitter, function, kind.dtype, half, parts)
            lanes = half
        return value


def _memory_suffix(kind: ir.Type) -> str:
    return f"v{kind.lanes}i8" if kind.dtype == boolean else suffix(kind.dtype, kind.lanes)


def _fold(function: str, arguments: list[str]) -> str | None:
    """Fold an index function of constants."""
    division = function in _DIVISIONS
    if not (division or function in _FOLDED) or any(text[0] == "%" for text in arguments):
        return None
    left, right = map(int, arguments)
    if not division:
        return str((_FOLDED[function](left, right) + _HALF) % (2 * _HALF) - _HALF)
    if not right:
        return None
    with numpy.errstate(over="ignore"):
        return str(int(compute(function, [numpy.int64(left), numpy.int64(right)])))


def _is_iota(text: str) -> bool:
    """Whether an operand is the vector of lane numbers, the only nonuniform vector constant."""
    return text.startswith("<")


_RULES = methods_of(Values)
