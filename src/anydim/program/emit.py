"""Program -> the text of its host module: `bind` (sizes, checks, slots) and `run` (launches).

Both take one pointer to a block (`runtime/layout.py`). The module calls the kernels and
`anydim_launch` (`program/threads.py`) by name and has no other external symbols.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from anydim.base.errors import InternalError
from anydim.program.arithmetic import DECLARATIONS, LARGEST, Arithmetic, Lines, Term
from anydim.program.binding import Source, first_checks, second_checks, solve
from anydim.program.steps import ALIGNMENT, LaunchStep, Program
from anydim.runtime.checks import Check
from anydim.runtime.layout import ARENA, ARENA_BYTES, CONSTANTS, PARALLEL, POOL, Layout
from anydim.runtime.positions import FINE
from anydim.sizes import Interval, Size, align_up
from anydim.targets.llvm.spelling import symbol

STEPS_PER_FUNCTION = 16  # keeps register allocation of long programs cheap
ATTRIBUTES = "nounwind noinline optnone"  # compiles in a third of the time, runs as fast
BIND, RUN = "anydim_bind", "anydim_run"


@dataclass(frozen=True)
class Host:
    """The host module of a program: its text, and what runtime needs to call it."""

    text: str
    layout: Layout
    checks: tuple[Check, ...]


def emit(program: Program) -> Host:
    """The host module; raises GraphError when the inputs do not tell every needed dim."""
    _verify(program)
    layout = Layout.of(program.signature, len(program.slots), len(program.positions))
    bind, checks = _bind(program, layout)
    parts = [DECLARATIONS, bind, _run(program, layout)]
    return Host("\n".join(parts), layout, checks)


def _verify(program: Program) -> None:
    kernels = {kernel.name: kernel for kernel in program.kernels}
    if len(kernels) != len(program.kernels):
        raise InternalError("two kernels of a program have one name")
    for step in program.steps:
        kernel = kernels.get(step.kernel)
        if kernel is None:
            raise InternalError(f"a launch of '{step.kernel}', which the program does not hold")
        operands, sizes = len(kernel.operands), len(kernel.sizes)
        if len(step.operands) != operands or len(step.sizes) != sizes:
            raise InternalError(f"'{step.kernel}' takes {operands} operands and {sizes} sizes")
        for name in step.operands:
            if name not in program.buffer:
                raise InternalError(f"'{step.kernel}' is launched on the unknown buffer '{name}'")


# ---- bind --------------------------------------------------------------------------------------


def _bind(program: Program, layout: Layout) -> tuple[str, tuple[Check, ...]]:
    signature, lines = program.signature, Lines()
    sources = solve(signature, _needed(program))
    dims, solved, overflow = _dims(program, layout, sources, lines)
    first = first_checks(signature, sources)
    code = _verdict(lines, [(_first_check(c, dims, solved, program, lines)) for c in first], 1)
    lines.add(f"%bad = icmp ne i64 {code}, 0")
    lines.add("br i1 %bad, label %outside, label %inside")
    lines.text.append("outside:")
    lines.add(f"ret i64 {code}")
    lines.text.append("inside:")
    known = {d.name: Term(dims[d.name].name, d.range) for d in signature.box.dims}
    arithmetic = Arithmetic(lines, known, overflow)
    second = second_checks(signature, sources)
    holding = [_second_check(c, arithmetic, layout) for c in second if c.kind != "large"]
    _results(program, layout, arithmetic)
    holding.append(_negation(lines, arithmetic.overflow))
    verdict = _verdict(lines, holding, 1 + len(first))
    lines.add(f"ret i64 {verdict}")
    body = "\n".join(lines.text)
    return f"define i64 @{BIND}(ptr %block) {ATTRIBUTES} {{\n{body}\n}}\n", first + second


def _needed(program: Program) -> frozenset[str]:
    signature = program.signature
    sizes = [*program.slots, *signature.box.constraints]
    sizes += [size for spec in (*signature.inputs, *signature.outputs) for size in spec.shape]
    sizes += [side for guard in signature.guards for side in (guard.left, guard.right)]
    return frozenset().union(*(size.symbols for size in sizes))


def _dims(
    program: Program, layout: Layout, sources: Sequence[Source], lines: Lines
) -> tuple[dict[str, Term], dict[str, str], str]:
    """Operands for all dims, i1 operands for those that may have no solution, and overflow."""
    dims: dict[str, Term] = {}
    arithmetic = Arithmetic(lines, dims)
    solved: dict[str, str] = {}
    for source in sources:
        value = lines.load_word("%block", layout.input_axis(source.input, source.axis))
        if source.rest != 0:
            value = lines.let(f"sub i64 {value}, {arithmetic.size(source.rest)}")
        if not source.direct:
            value, solved[source.dim] = _quotient(value, arithmetic.size(source.factor), lines)
        dims[source.dim] = Term(value, Interval())
    for number, dim in enumerate(program.signature.box.dims):
        if dim.name not in dims:  # nothing depends on it
            dims[dim.name] = Term(str(min(dim.lo, LARGEST)), dim.range)
        lines.store_word("%block", layout.first_dim + number, dims[dim.name].name)
    return dims, solved, arithmetic.overflow


def _quotient(value: str, factor: str, lines: Lines) -> tuple[str, str]:
    """value / factor, and an i1 operand that says whether there is just one whole solution."""
    let = lines.let
    usable = let(f"icmp sgt i64 {factor}, 0")
    divisor = let(f"select i1 {usable}, i64 {factor}, i64 1")
    quotient = let(f"sdiv i64 {value}, {divisor}")
    rest = let(f"srem i64 {value}, {divisor}")
    exact = let(f"icmp eq i64 {rest}, 0")
    return quotient, let(f"and i1 {exact}, {usable}")


def _first_check(
    check: Check, dims: dict[str, Term], solved: dict[str, str], program: Program, lines: Lines
) -> str:
    dim, value = program.signature.box.dim(check.dim), dims[check.dim].name
    if check.kind == "multiple":
        return solved[check.dim]
    if check.kind == "low":
        return lines.let(f"icmp sge i64 {value}, {min(dim.lo, LARGEST)}")
    assert dim.hi is not None
    return lines.let(f"icmp sle i64 {value}, {min(dim.hi, LARGEST)}")


def _second_check(check: Check, arithmetic: Arithmetic, layout: Layout) -> str:
    if check.kind == "guard":
        guard = check.guard
        assert guard is not None
        left, right = arithmetic.size(guard.left), arithmetic.size(guard.right)
        return arithmetic.holds(left, guard.relation, right)
    assert check.size is not None
    value = arithmetic.size(check.size)
    if check.kind == "constraint":
        return arithmetic.holds(value, ">=", "0")
    came = arithmetic.lines.load_word("%block", layout.input_axis(check.input, check.axis))
    return arithmetic.holds(came, "==", value)


def _results(program: Program, layout: Layout, arithmetic: Arithmetic) -> None:
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
    wide = {(step.parallel, max(1, step.grain)) for step in program.steps}
    for parallel, grain in sorted(wide, key=str) if program.threads > 1 else ():
        enough = arithmetic.holds(arithmetic.size(parallel), ">=", str(2 * grain))
        several = lines.let(f"or i1 {several}, {enough}")
    lines.store_word("%block", PARALLEL, lines.let(f"zext i1 {several} to i64"))


def _negation(lines: Lines, flag: str) -> str:
    return "true" if flag == "false" else lines.let(f"xor i1 {flag}, true")


def _verdict(lines: Lines, holding: Sequence[str], first: int) -> str:
    """0 when all flags hold, else the code of the first that does not; codes count from `first`."""
    code = "0"
    for number in reversed(range(len(holding))):
        code = lines.let(f"select i1 {holding[number]}, i64 {code}, i64 {first + number}")
    return code


# ---- run ---------------------------------------------------------------------------------------


def _run(program: Program, layout: Layout) -> str:
    """All launches; returns the code of the first checked index that left its axis, else 0."""
    starts = range(0, len(program.steps), STEPS_PER_FUNCTION)
    chunks = [program.steps[start : start + STEPS_PER_FUNCTION] for start in starts]
    functions = [_chunk(n, steps, program, layout) for n, steps in enumerate(chunks)]
    kernels = sorted({step.kernel for step in program.steps})
    declarations = "".join(f"declare void {symbol(name)}(ptr, i64, i64, ptr)\n" for name in kernels)
    lines = Lines()
    lines.add(f"call void @anydim_wake(ptr {lines.load_word('%block', POOL, 'ptr')})")
    words = range(layout.first_status, layout.first_status + layout.statuses)
    for word in words:
        lines.store_word("%block", word, str(FINE))
    for number in range(len(chunks)):
        lines.add(f"call void @part{number}(ptr %block)")
    found = [lines.load_word("%block", word) for word in words]
    inside = [lines.let(f"icmp eq i64 {index}, {FINE}") for index in found]
    lines.add(f"ret i64 {_verdict(lines, inside, 1)}")
    body = "\n".join(lines.text)
    return (
        "declare void @anydim_launch(ptr, ptr, ptr, i64, i64, ptr, i64)\n"
        "declare void @anydim_wake(ptr)\n"
        f"{declarations}\n{''.join(functions)}"
        f"define i64 @{RUN}(ptr %block) {ATTRIBUTES} {{\n{body}\n}}\n"
    )


def _chunk(number: int, steps: Sequence[LaunchStep], program: Program, layout: Layout) -> str:
    lines = Lines()
    words = max(len(step.operands) + len(step.sizes) for step in steps)
    lines.add(f"%arguments = alloca [{max(words, 1)} x i64], align 16")
    chunk = _Chunk(program, layout, lines)
    for step in steps:
        chunk.launch(step)
    lines.add("ret void")
    body = "\n".join(lines.text)
    return f"define internal void @part{number}(ptr %block) {ATTRIBUTES} {{\n{body}\n}}\n"


class _Chunk:
    """The body of a function that does some of the launches; loads each word once."""

    def __init__(self, program: Program, layout: Layout, lines: Lines) -> None:
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

    def launch(self, step: LaunchStep) -> None:
        for word, (type, value) in enumerate(self._arguments(step)):
            self.lines.store_word("%arguments", word, value, type)
        parallel = self.size(step.parallel)
        self.lines.add(
            f"call void @anydim_launch(ptr {self.pool}, ptr {symbol(step.kernel)}, ptr %arguments, "
            f"i64 {parallel}, i64 {max(1, step.grain)}, ptr {self.scratch}, i64 {self.stride})"
        )

    def _arguments(self, step: LaunchStep) -> Iterator[tuple[str, str]]:
        for name in step.operands:
            yield "ptr", self.buffer(name)
        for size in step.sizes:
            yield "i64", self.size(size)
