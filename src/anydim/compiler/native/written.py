"""Emits the sizes that launches need into the slots of a call's block.

Many sizes are split into functions of `PER_FUNCTION` sizes each, since compile time grows faster
than the length of a function. Subexpressions come first; later functions reload them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from anydim.compiler.kernels import ir
from anydim.compiler.kernels.ir import constant, select
from anydim.compiler.native.arithmetic import Arithmetic, RangedValue
from anydim.compiler.native.body import FALSE, ONE, ZERO, Body, as_int64, parameter
from anydim.compiler.native.threads import WORTH_WAKING
from anydim.runtime.layout import ARENA_BYTES, BEHIND, BYTES, EMPTY, PARALLEL, Layout
from anydim.runtime.program.segment import Segment
from anydim.sizes import Atom, Factor, Interval, Size

MAX_INLINE_SIZES = 256  # sizes in the function that checks the dims
PER_FUNCTION = 64
_BLOCK = parameter("block")


def emit_sizes(program: Segment, layout: Layout, arithmetic: Arithmetic) -> Iterator[ir.Function]:
    """Emit output shapes, sizes, bytes, and whether any launch can use several threads.

    Yields the functions that precede the one that this is emitted into.
    """
    body = arithmetic.body
    for number, spec in enumerate(program.signature.outputs):
        for axis, size in enumerate(spec.shape):
            body.store(_BLOCK, layout.output_axis(number, axis), arithmetic.size(size))
    words = {size: layout.first_slot + number for number, size in enumerate(program.slots)}
    wide = Counter(step.shared for step in program.sites[program.first_launch :])
    ranges = sorted(wide, key=_in_order) if program.threads > 1 else []
    if len(words) <= MAX_INLINE_SIZES:
        for size, word in words.items():
            body.store(_BLOCK, word, arithmetic.size(size))
        _write_bytes(program, layout, arithmetic, arithmetic.size)
        _emit_parallel([(*range, wide[range]) for range in ranges], arithmetic)
        return
    parts = _Parts(program, layout, words, arithmetic.symbols)
    body.store(_BLOCK, PARALLEL, ZERO)
    for function in parts.functions(ranges):
        yield function
        arithmetic.require(body.let(body.ask(function.name, _BLOCK).equals(1)))

    def again(size: Size) -> ir.Value:
        fixed = size.constant
        return body.load(_BLOCK, words[size]) if fixed is None else constant(fixed)

    _write_bytes(program, layout, arithmetic, again)


def _write_bytes(
    program: Segment, layout: Layout, arithmetic: Arithmetic, value: Callable[[Size], ir.Value]
) -> None:
    """Emit the bytes of the arena and of setup blocks, initially empty.

    Small blocks are part of the arena.
    """
    body, end, shared = arithmetic.body, value(program.total_bytes), ZERO
    for number, setup in enumerate(program.setups):
        bytes, first = value(setup.bytes), layout.setup(number)
        small = body.let(bytes < setup.least)
        body.store(_BLOCK, first + BYTES, select(small, 0, bytes))
        body.store(_BLOCK, first + BEHIND, select(small, end, -1))
        body.store(_BLOCK, first + EMPTY, 1)
        end = body.let(end + select(small, bytes, 0))
        shared = body.let(shared + select(small, 0, bytes))
    if program.setups:
        body.store(_BLOCK, layout.setup(0) - 1, shared)
    body.store(_BLOCK, ARENA_BYTES, end)


def _in_order(range: tuple[Size, Size]) -> str:
    parallel, grain = range
    return f"({parallel!r}, {grain})"  # as text, for the same order in every process


def _emit_parallel(ranges: Sequence[tuple[Size, Size, int]], arithmetic: Arithmetic) -> None:
    """Emit whether any of the parallel ranges is worth a second thread: 1, and whether all together
    are worth waking it: `WORTH_WAKING`.

    `ranges` has (range, grain size, number of launches).
    """
    body, several, grains = arithmetic.body, FALSE, ZERO
    for parallel, grain, often in ranges:
        length, least = arithmetic.size(parallel), arithmetic.size(grain)
        enough = length >= 2 * least
        several = body.let(enough if several is FALSE else several | enough)
        grains = body.let(grains + length / least * often)
    if several is FALSE:
        body.store(_BLOCK, PARALLEL, ZERO)
        return
    much = as_int64(grains >= WORTH_WAKING) * (WORTH_WAKING - 1) + 1
    body.store(_BLOCK, PARALLEL, as_int64(several) * much)


class _Parts:
    """Functions that compute some sizes each; `dims` are the values of the symbols."""

    def __init__(
        self, program: Segment, layout: Layout, words: Mapping[Size, int],
        dims: Mapping[str, RangedValue],
    ) -> None:  # fmt: skip
        names = program.signature.box.names
        self.words = words
        self.symbols = {n: (layout.first_dim + names.index(n), dims[n].range) for n in dims}
        self.atoms: dict[Factor, tuple[int, Interval]] = {}  # emitted atoms: slot and range

    def functions(self, ranges: Sequence[tuple[Size, Size]]) -> Iterator[ir.Function]:
        """Yield the functions; each returns 1 if all its sizes fit, otherwise 0."""
        order = sorted(self.words, key=lambda size: (size.depth, size.atom is None))
        for number, start in enumerate(range(0, len(order), PER_FUNCTION)):
            yield self._sizes(f"sizes{number}", order[start : start + PER_FUNCTION])
        for number, start in enumerate(range(0, len(ranges), PER_FUNCTION)):
            yield self._ranges(f"several{number}", ranges[start : start + PER_FUNCTION])

    def _sizes(self, name: str, sizes: Sequence[Size]) -> ir.Function:
        arithmetic = self._arithmetic_for(sizes)
        body = arithmetic.body
        for size in sizes:
            body.store(_BLOCK, self.words[size], arithmetic.size(size))
        for size in sizes:
            if isinstance(size.atom, Atom):
                self.atoms[size.atom] = self.words[size], arithmetic.atoms[size.atom].range
        body.give(as_int64(arithmetic.fits))
        return body.function(name, ("block",), quick=True)

    def _ranges(self, name: str, ranges: Sequence[tuple[Size, Size]]) -> ir.Function:
        body, several = Body(), FALSE
        for parallel, grain in ranges:
            length, least = (self._reload(body, size) for size in (parallel, grain))
            several = body.let((length >= 2 * least) | several)
        word = as_int64(several) * WORTH_WAKING
        body.store(_BLOCK, PARALLEL, body.load(_BLOCK, PARALLEL) | word)
        body.give(ONE)
        return body.function(name, ("block",), quick=True)

    def _reload(self, body: Body, size: Size) -> ir.Value:
        """Reload the value of a size."""
        fixed = size.constant
        return body.load(_BLOCK, self.words[size]) if fixed is None else constant(fixed)

    def _arithmetic_for(self, sizes: Sequence[Size]) -> Arithmetic:
        """Return arithmetic in a new function, on the dims and emitted atoms of the sizes."""
        body = Body()
        symbols: dict[str, RangedValue] = {}
        atoms: dict[Factor, RangedValue] = {}
        pending = [atom for size in sizes for monomial in size.coefficients for atom in monomial]
        visited: set[Factor] = set()
        while pending:
            atom = pending.pop()
            if atom in visited:
                continue
            visited.add(atom)
            if not isinstance(atom, Atom):
                symbols[atom] = self._loaded(body, *self.symbols[atom])
            elif atom in self.atoms:
                atoms[atom] = self._loaded(body, *self.atoms[atom])
            else:
                pending += [a for part in atom.arguments for m in part.coefficients for a in m]
        return Arithmetic(body, symbols, atoms=atoms)

    def _loaded(self, body: Body, word: int, range: Interval) -> RangedValue:
        return RangedValue(body.load(_BLOCK, word), range)
