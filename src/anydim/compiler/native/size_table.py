"""Sizes by a table: many sizes are numbers in constant memory that one function of all programs
reads. Straight code of hundreds of sizes was a third of a program's LLVM code.

Each size is computed once from others. A value has a number; a table of int32s holds, one after
another:

    loads      count; slots of the block: the first values
    constants  count; low and high halves: the next values
    runs       operation, count, operands of each row by number: a value per row; 0 ends the runs
    spans      count; of each: first slot, count, the values that are stored from that slot on
    ranges     count; of each: length, grain size, number of launches with this parallel range

Rows of one operation that do not depend on others follow each other, so that few branches are
mispredicted. Sums, products and divisors are checked: the function returns 1 if all sizes fit
64 bits and no divisor is 0, otherwise 0.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from anydim.base.dtypes import int32, int64
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.ir import apply, convert, greatest, least, select
from anydim.compiler.native.body import Body, as_int64, overflows, parameter
from anydim.runtime.layout import PARALLEL, WORTH_WAKING
from anydim.sizes import LARGEST, Atom, Factor, Size

COMPUTE = "anydim_sizes"
MOST_VALUES = 4096  # of a table: they are in the stack frame of its caller
_BLOCK, _TABLE, _VALUES = parameter("block"), parameter("table"), parameter("values")
_LOAD, _CONSTANT = "load", "constant"
_OPERATIONS = ("add", "mul", "floordiv", "mod", "min", "max", "where", "shift", "mask")

_BY_BITS: dict[str, tuple[str, Callable[[int], int]]] = {  # by powers of two
    "floordiv": ("shift", lambda divisor: divisor.bit_length() - 1),
    "mod": ("mask", lambda divisor: divisor - 1),
}

_Node = tuple[str | int, ...]  # operation and numbers of other nodes; or a slot, or a constant


class SizeTable:
    """A table in the making.

    `slots` are those of the dims, by name, `done` those of sizes that other tables have stored.
    """

    def __init__(self, slots: Mapping[str, int], done: Mapping[Size, int] | None = None) -> None:
        self._slots, self._done = slots, dict(done or {})
        self._nodes: dict[_Node, int] = {}
        self._constants: dict[int, int] = {}  # node -> value
        self._atoms: dict[Factor, int] = {}
        self._stored: dict[int, int] = {}  # slot -> node
        self._ranges: list[tuple[int, int, int]] = []
        for size, slot in self._done.items():
            if isinstance(size.atom, Atom):
                self._atoms[size.atom] = self._node(_LOAD, slot)

    def __len__(self) -> int:
        return len(self._nodes)

    # ---- values ---------------------------------------------------------------------------------

    def value(self, size: Size) -> int:
        """Return the node of a size."""
        if size in self._done:
            return self._node(_LOAD, self._done[size])
        return size.fold(self._constant, self._symbol, self._apply, self._atoms)

    def store(self, slot: int, node: int) -> None:
        """Store a value in a slot of the block."""
        self._stored[slot] = node

    def range(self, length: Size, grain: Size, launches: int) -> None:
        """Count a parallel range of launches."""
        self._ranges.append((self.value(length), self.value(grain), launches))

    def _node(self, *node: str | int) -> int:
        return self._nodes.setdefault(node, len(self._nodes))

    def _symbol(self, name: str) -> int:
        return self._node(_LOAD, self._slots[name])

    def _constant(self, value: int) -> int:
        if abs(value) > LARGEST:  # unreachable: no call has this size
            most = self._constant(LARGEST)
            return self._node("add", most, most)
        node = self._node(_CONSTANT, value)
        self._constants[node] = value
        return node

    def _apply(self, function: str, operands: tuple[int, ...]) -> int:
        divisor = self._constants.get(operands[1], 0)
        if function in _BY_BITS and divisor > 0 and divisor.bit_count() == 1:
            operation, operand = _BY_BITS[function]
            return self._node(operation, operands[0], self._constant(operand(divisor)))
        return self._node(function, *operands)

    # ---- the table ------------------------------------------------------------------------------

    def numbers(self) -> tuple[tuple[int, ...], int]:
        """Return the table, and the number of its values."""
        nodes = list(self._nodes)
        place: dict[int, int] = {}
        numbers: list[int] = []
        for kind in (_LOAD, _CONSTANT):
            found = [number for number, node in enumerate(nodes) if node[0] == kind]
            numbers.append(len(found))
            for number in found:
                place[number] = len(place)
                value = int(nodes[number][1])
                numbers += [value] if kind == _LOAD else _halves(value)
        for operation, rows in _runs(nodes):
            numbers += [1 + _OPERATIONS.index(operation), len(rows)]
            for number in rows:
                numbers += [place[int(each)] for each in nodes[number][1:]]
                place[number] = len(place)
        spans = list(_spans(self._stored))
        numbers += [0, len(spans)]
        for first, values in spans:
            numbers += [first, len(values), *(place[each] for each in values)]
        numbers.append(len(self._ranges))
        for length, grain, launches in self._ranges:
            numbers += [place[length], place[grain], launches]
        return tuple(numbers), len(place)


def _halves(value: int) -> list[int]:
    low = value & 0xFFFFFFFF
    return [low - (low >> 31 << 32), value >> 32]


def _runs(nodes: list[_Node]) -> Iterator[tuple[str, list[int]]]:
    """Yield the rows in an order in which operands come first: runs of one operation, long ones."""
    users: dict[int, list[int]] = defaultdict(list)
    waiting: dict[int, int] = {}
    ready: dict[str, list[int]] = {operation: [] for operation in _OPERATIONS}
    for number, (operation, *operands) in enumerate(nodes):
        if operation in (_LOAD, _CONSTANT):
            continue
        inner = {int(each) for each in operands if nodes[int(each)][0] not in (_LOAD, _CONSTANT)}
        waiting[number] = len(inner)
        for each in inner:
            users[each].append(number)
        if not inner:
            ready[str(operation)].append(number)
    while any(ready.values()):
        operation = max(ready, key=lambda each: len(ready[each]))
        rows = ready[operation]
        for number in rows:  # grows meanwhile
            for user in users[number]:
                waiting[user] -= 1
                if not waiting[user]:
                    ready[str(nodes[user][0])].append(user)
        ready[operation] = []
        yield operation, rows


def _spans(stored: Mapping[int, int]) -> Iterator[tuple[int, list[int]]]:
    """Yield runs of consecutive slots with their nodes."""
    first, values = 0, list[int]()
    for slot in sorted(stored):
        if values and slot != first + len(values):
            yield first, values
            values = []
        if not values:
            first = slot
        values.append(stored[slot])
    if values:
        yield first, values


# ---- the function that reads tables -------------------------------------------------------------


def size_table_code() -> Iterator[ir.Function]:
    """Yield `anydim_sizes(block, table, values)`: it computes and stores the sizes of a table."""
    yield _Reader().function()


class _Reader:
    """The body of the function. `at` is the next number of the table, `made` counts values."""

    def __init__(self) -> None:
        self.body = Body()
        self.at, self.made = self.body.variable(0), self.body.variable(0)
        self.bad = self.body.variable(False)

    def function(self) -> ir.Function:
        self._read_leaves()
        self._compute_runs()
        self._store_spans()
        self._count_ranges()
        self.body.give(as_int64(~self.bad()))
        return self.body.function(COMPUTE, ("block", "table", "values"), public=True)

    def _number(self, at: ir.Value) -> ir.Value:
        return convert(self.body.load(_TABLE, at, int32), int64)

    def _value(self, at: ir.Value) -> ir.Value:
        """Return the value whose number is in the table."""
        return self.body.load(_VALUES, self._number(at))

    def _take(self) -> ir.Value:
        number = self.body.let(self._number(self.at()))
        self.at += 1
        return number

    def _read_leaves(self) -> None:
        body, loads = self.body, self._take()
        first = self.at()
        with body.range(0, loads) as row:
            body.store(_VALUES, row, body.load(_BLOCK, self._number(first + row)))
        self.at += loads
        constants = self._take()
        low = self.at()
        with body.range(0, constants) as row:
            at = body.let(low + 2 * row)
            halves = self._number(at) & 0xFFFFFFFF, self._number(at + 1) << 32
            body.store(_VALUES, loads + row, halves[0] | halves[1])
        self.at += 2 * constants
        self.made.set(loads + constants)

    def _compute_runs(self) -> None:
        body = self.body
        operation = body.variable(self._take())
        with body.loop(lambda: operation().differs(0)):
            count = self._take()
            for number, name in enumerate(_OPERATIONS, 1):
                with body.when(operation().equals(number)):
                    self._compute_rows(name, count)
            self.made += count
            operation.set(self._take())

    def _compute_rows(self, operation: str, count: ir.Value) -> None:
        body, first, made = self.body, self.at(), self.made()
        operands = 3 if operation == "where" else 2
        with body.range(0, count) as row:
            at = body.let(first + operands * row)
            values = [self._value(at + number) for number in range(operands)]
            body.store(_VALUES, made + row, self._compute(operation, *values))
        self.at += operands * count

    def _compute(self, operation: str, left: ir.Value, *others: ir.Value) -> ir.Value:
        right = others[0]
        if operation == "where":
            return select(left >= 0, *others)
        if operation in ("add", "mul"):
            self._fail_if(overflows(operation, left, right))
        elif operation in ("floordiv", "mod"):
            self._fail_if(right.equals(0))
        return _COMPUTED[operation](left, right)

    def _fail_if(self, flag: ir.Value) -> None:
        self.bad.set(self.bad() | flag)

    def _store_spans(self) -> None:
        body = self.body
        with body.range(0, self._take()):
            slot, count = self._take(), self._take()
            first = self.at()
            with body.range(0, count) as row:
                body.store(_BLOCK, slot + row, self._value(first + row))
            self.at += count

    def _count_ranges(self) -> None:
        """Store whether threads are worthwhile, as `written.py` emits it."""
        body, count = self.body, self._take()
        several, grains, first = body.variable(False), body.variable(0), self.at()
        with body.when(count > 0):
            with body.range(0, count) as row:
                at = body.let(first + 3 * row)
                length, grain = self._value(at), self._value(at + 1)
                several.set(several() | (length >= 2 * grain))
                grains += length / grain * self._number(at + 2)
            body.store(_BLOCK, PARALLEL, worth_of_threads(several(), grains()))


_COMPUTED: dict[str, Callable[[ir.Value, ir.Value], ir.Value]] = {
    "min": least,
    "max": greatest,
    "shift": lambda value, bits: value >> bits,
    "mask": lambda value, bits: value & bits,
    **{name: partial(apply, name) for name in ("add", "mul", "floordiv", "mod")},
}


def worth_of_threads(several: ir.Value, grains: ir.Value) -> ir.Value:
    """Return the slot PARALLEL: whether any launch can use several threads, and whether all are
    worth waking them."""
    much = as_int64(grains >= WORTH_WAKING) * (WORTH_WAKING - 1) + 1
    return as_int64(several) * much
