"""Program -> the text of its host module: `bind` (sizes, checks, slots) and `run` (launches).

Both take one pointer to a block (`runtime/layout.py`). `run` finds the kernel of each launch in a
table, so that what a launch runs is no matter of its code. The module calls `anydim_launch` and
`anydim_wake` (`native/threads.py`) by name and has no other external symbols.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from anydim.native.arithmetic import DECLARATIONS, LARGEST, Arithmetic, Lines, Term
from anydim.native.entry import Entry, negation, verdict
from anydim.program.segment import ALIGNMENT, Segment, Site
from anydim.runtime.checks import Check
from anydim.runtime.layout import ARENA, ARENA_BYTES, CODE, CONSTANTS, PARALLEL, POOL, Layout
from anydim.runtime.positions import FINE
from anydim.sizes import Size, align_up

STEPS_PER_FUNCTION = 16  # keeps register allocation of long programs cheap
ATTRIBUTES = "nounwind noinline optnone"  # compiles in a third of the time, runs as fast
BIND, RUN = "anydim_bind", "anydim_run"


@dataclass(frozen=True)
class Host:
    """The host module of a program: its text, and what runtime needs to call it."""

    text: str
    layout: Layout
    checks: tuple[Check, ...]


def emit(program: Segment) -> Host:
    """The host module; raises GraphError when the inputs do not tell every needed dim."""
    layout = Layout.of(program.signature, len(program.slots), len(program.positions))
    bind, checks = _bind(program, layout)
    parts = [DECLARATIONS, bind, _run(program, layout, RUN)]
    return Host("\n".join(parts), layout, checks)


def emit_segment(program: Segment, prefix: str) -> Host:
    """The module of a program that is a step of a region; its functions are `part_names(prefix)`.

    The caller writes the dims; nothing but the size of numbers is left to be checked.
    """
    layout = Layout.of(program.signature, len(program.slots), len(program.positions))
    bind, run = part_names(prefix)
    parts = [DECLARATIONS, _bind_given(program, layout, bind), _run(program, layout, run)]
    return Host("\n".join(parts), layout, (Check("large"),))


def part_names(prefix: str) -> tuple[str, str]:
    """The functions of a segment: its bind and its run."""
    return f"{prefix}_bind", f"{prefix}_run"


# ---- bind --------------------------------------------------------------------------------------


def _bind(program: Segment, layout: Layout) -> tuple[str, tuple[Check, ...]]:
    signature, lines = program.signature, Lines()
    entry = Entry(signature, lines, layout.input_axis, needed=_needed(program))
    entry.solve()
    others: dict[str, Term] = {}
    for number, dim in enumerate(signature.box.dims):
        if dim.name not in entry.dims:  # nothing depends on it
            others[dim.name] = Term(str(min(dim.lo, LARGEST)), dim.range)
        value = (entry.dims | others)[dim.name].name
        lines.store_word("%block", layout.first_dim + number, value)
    code = verdict(lines, entry.inside(), 1)
    lines.add(f"%bad = icmp ne i64 {code}, 0")
    lines.add("br i1 %bad, label %outside, label %inside")
    lines.text.append("outside:")
    lines.add(f"ret i64 {code}")
    lines.text.append("inside:")
    arithmetic = entry.within(others)
    holding = entry.between(arithmetic)
    _results(program, layout, arithmetic)
    holding.append(negation(lines, arithmetic.overflow))
    lines.add(f"ret i64 {verdict(lines, holding, 1 + len(entry.first))}")
    return _function(BIND, lines), entry.first + entry.second


def _bind_given(program: Segment, layout: Layout, name: str) -> str:
    """Sizes from dims that the caller has written and checked; 1 when one does not fit 64 bits."""
    lines = Lines()
    dims = {
        dim.name: Term(lines.load_word("%block", layout.first_dim + number), dim.range)
        for number, dim in enumerate(program.signature.box.dims)
        if dim.name in needed_dims(program)
    }
    arithmetic = Arithmetic(lines, dims)
    _results(program, layout, arithmetic)
    lines.add(f"ret i64 {verdict(lines, [negation(lines, arithmetic.overflow)], 1)}")
    return _function(name, lines)


def _function(name: str, lines: Lines) -> str:
    body = "\n".join(lines.text)
    return f"define i64 @{name}(ptr %block) {ATTRIBUTES} {{\n{body}\n}}\n"


def _needed(program: Segment) -> frozenset[str]:
    signature = program.signature
    sizes = [*signature.box.constraints]
    sizes += [size for spec in signature.inputs for size in spec.shape]
    sizes += [side for guard in signature.guards for side in (guard.left, guard.right)]
    return needed_dims(program).union(*(size.symbols for size in sizes))


def needed_dims(program: Segment) -> frozenset[str]:
    """The dims that what the program does depends on, beside what it checks."""
    sizes = [*program.slots, *(z for spec in program.signature.outputs for z in spec.shape)]
    return frozenset().union(*(size.symbols for size in sizes))


def _results(program: Segment, layout: Layout, arithmetic: Arithmetic) -> None:
    """Write output shapes, slots, arena bytes, and whether any launch can use several threads."""
    lines = arithmetic.lines
    for number, spec in enumerate(program.signature.outputs):
        for axis, size in enumerate(spec.shape):
            word = layout.output_axis(number, axis)
            lines.store_word("%block", word, arithmetic.size(size))
    for number, size in enumerate(program.slots):
        lines.store_word("%block", layout.first_slot + number, arithmetic.size(size))
    lines.store_word("%block", ARENA_BYTES, arithmetic.size(program.total_bytes))
    several = "false"
    wide = {(step.parallel, max(1, step.grain)) for step in program.sites}
    for parallel, grain in sorted(wide, key=str) if program.threads > 1 else ():
        enough = arithmetic.holds(arithmetic.size(parallel), ">=", str(2 * grain))
        several = lines.let(f"or i1 {several}, {enough}")
    lines.store_word("%block", PARALLEL, lines.let(f"zext i1 {several} to i64"))


# ---- run ---------------------------------------------------------------------------------------


def _run(program: Segment, layout: Layout, name: str) -> str:
    """All launches; returns the code of the first checked index that left its axis, else 0."""
    starts = range(0, len(program.sites), STEPS_PER_FUNCTION)
    chunks = [program.sites[start : start + STEPS_PER_FUNCTION] for start in starts]
    functions = [
        _chunk(number, start, steps, program, layout)
        for number, (start, steps) in enumerate(zip(starts, chunks))
    ]
    lines = Lines()
    lines.add(f"call void @anydim_wake(ptr {lines.load_word('%block', POOL, 'ptr')})")
    words = range(layout.first_status, layout.first_status + layout.statuses)
    for word in words:
        lines.store_word("%block", word, str(FINE))
    for number in range(len(chunks)):
        lines.add(f"call void @part{number}(ptr %block)")
    found = [lines.load_word("%block", word) for word in words]
    inside = [lines.let(f"icmp eq i64 {index}, {FINE}") for index in found]
    lines.add(f"ret i64 {verdict(lines, inside, 1)}")
    return (
        "declare void @anydim_launch(ptr, ptr, ptr, i64, i64, ptr, i64)\n"
        "declare void @anydim_wake(ptr)\n"
        f"{''.join(functions)}"
        f"{_function(name, lines)}"
    )


def _chunk(
    number: int, first: int, steps: Sequence[Site], program: Segment, layout: Layout
) -> str:
    lines = Lines()
    words = max(len(step.operands) + len(step.sizes) for step in steps)
    lines.add(f"%arguments = alloca [{max(words, 1)} x i64], align 16")
    chunk = _Chunk(program, layout, lines)
    for site, step in enumerate(steps, first):
        chunk.launch(site, step)
    lines.add("ret void")
    body = "\n".join(lines.text)
    return f"define internal void @part{number}(ptr %block) {ATTRIBUTES} {{\n{body}\n}}\n"


class _Chunk:
    """The body of a function that does some of the launches; loads each word once."""

    def __init__(self, program: Segment, layout: Layout, lines: Lines) -> None:
        self.program, self.layout, self.lines = program, layout, lines
        self.slots = {size: layout.first_slot + n for n, size in enumerate(program.slots)}
        signature = program.signature
        interface = (*signature.inputs, *signature.outputs)
        self.pointers = {s.name: layout.pointer(n) for n, s in enumerate(interface)}
        self.constants = {name: n for n, name in enumerate(program.constants)}
        self.loaded: dict[tuple[str, int], str] = {}
        self.buffers: dict[str, str] = {}
        arena, pool = self.load("%block", ARENA, "ptr"), self.load("%block", POOL, "ptr")
        values = self.size(align_up(program.arena_bytes, ALIGNMENT))
        scratch = lines.let(f"getelementptr i8, ptr {arena}, i64 {values}")
        self.arena, self.pool, self.scratch = arena, pool, scratch
        self.stride = self.size(program.scratch_stride)
        self.code = self.load("%block", CODE, "ptr")

    def load(self, base: str, word: int, type: str = "i64") -> str:
        if (base, word) not in self.loaded:
            self.loaded[base, word] = self.lines.load_word(base, word, type)
        return self.loaded[base, word]

    def size(self, size: Size) -> str:
        constant = size.constant
        return self.load("%block", self.slots[size]) if constant is None else str(constant)

    def buffer(self, name: str) -> str:
        if name not in self.buffers:
            self.buffers[name] = self._pointer(name)
        return self.buffers[name]

    def _pointer(self, name: str) -> str:
        buffer = self.program.buffer[name]
        if buffer.kind == "constant":
            table = self.load("%block", CONSTANTS, "ptr")
            return self.load(table, self.constants[name], "ptr")
        if buffer.kind == "status":
            assert buffer.offset is not None and buffer.offset.constant is not None
            return self.lines.word("%block", self.layout.first_status + buffer.offset.constant // 8)
        if buffer.kind == "arena":
            assert buffer.offset is not None
            offset = self.size(buffer.offset)
            return self.lines.let(f"getelementptr i8, ptr {self.arena}, i64 {offset}")
        return self.load("%block", self.pointers[name], "ptr")

    def launch(self, site: int, step: Site) -> None:
        for word, (type, value) in enumerate(self._arguments(step)):
            self.lines.store_word("%arguments", word, value, type)
        parallel = self.size(step.parallel)
        entry = self.lines.load_word(self.code, site, "ptr")
        self.lines.add(
            f"call void @anydim_launch(ptr {self.pool}, ptr {entry}, ptr %arguments, "
            f"i64 {parallel}, i64 {max(1, step.grain)}, ptr {self.scratch}, i64 {self.stride})"
        )

    def _arguments(self, step: Site) -> Iterator[tuple[str, str]]:
        for name in step.operands:
            yield "ptr", self.buffer(name)
        for size in step.sizes:
            yield "i64", self.size(size)
