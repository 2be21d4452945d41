"""Regions -> the text of a module: a function for each region, which returns 0 or a failure.

All functions take the memory of the call (`region_layout.py`). A value made by a step is held by
its region until its last reader has run; whoever passes it on holds it too. Inputs of a region are
held by whoever runs it. Results change hands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from anydim.program import arithmetic, blocks
from anydim.program.arithmetic import LARGEST, Arithmetic, Lines, Term
from anydim.program.binding import told
from anydim.program.emit import needed_dims, part_names
from anydim.program.entry import Entry, negation, verdict
from anydim.program.region import (
    BranchStep,
    CallStep,
    FindStep,
    RegionProgram,
    ReleaseStep,
    SegmentStep,
    Step,
)
from anydim.program.region_layout import Place, RegionLayout, RegionPlaces, region_layout
from anydim.runtime import context
from anydim.runtime.checks import Check
from anydim.runtime.failures import Failure
from anydim.runtime.layout import ARENA, ARENA_BYTES, PARALLEL, POOL
from anydim.runtime.signature import Signature, TensorSpec
from anydim.sizes import Box, Guard, Size, product

MAIN = "anydim_regions"


@dataclass(frozen=True)
class RegionHost:
    """The module of all regions, where its words are, and what its failures mean."""

    text: str
    layout: RegionLayout
    failures: tuple[Failure, ...]


def emit_regions(program: RegionProgram) -> RegionHost:
    """The module of a program; GraphError when a region's inputs do not tell a dim it needs."""
    layout = region_layout(program)
    failures: list[Failure] = []
    functions = [
        RegionCode(program, number, layout, failures).function()
        for number in range(len(program.regions))
    ]
    parts = [
        f"declare i64 @{name}(ptr)"
        for number in range(len(program.segments))
        for name in part_names(segment_name(number))
    ]
    text = "\n".join([arithmetic.DECLARATIONS, blocks.DECLARATIONS, *parts, "", *functions])
    return RegionHost(text, layout, tuple(failures))


def segment_name(number: int) -> str:
    """What the functions of a segment begin with; segments count through all regions."""
    return f"anydim_segment{number}"


def function_name(program: RegionProgram, number: int) -> str:
    """The function of a region."""
    return MAIN if number == len(program.regions) - 1 else f"anydim_region{number}"


class _Dims(dict[str, Term]):
    """Operands of dims, loaded when first asked for."""

    def __init__(self, lines: Lines, words: Mapping[str, int], box: Box) -> None:
        super().__init__()
        self.lines, self.words, self.box = lines, words, box

    def __missing__(self, name: str) -> Term:
        value = self.lines.load_word("%block", self.words[name])
        self[name] = Term(value, self.box.dim(name).range)
        return self[name]


class RegionCode:
    """The function of one region; `known` are the dims that have values so far."""

    def __init__(
        self, program: RegionProgram, number: int, layout: RegionLayout, failures: list[Failure]
    ) -> None:
        self.program, self.number, self.layout, self.failures = program, number, layout, failures
        self.region = program.regions[number]
        self.places: RegionPlaces = layout.regions[number]
        self.lines = Lines()
        self.known: set[str] = set()
        self._labels = 0
        self._first_segment = sum(len(r.segments) for r in program.regions[:number])

    def function(self) -> str:
        """The text of the function."""
        self.known |= self.region.given
        inputs = self.region.signature.inputs
        shapes = [self.places.values[spec.name] for spec in inputs]
        self.tell(self.region.signature.name, "input", inputs, shapes, everything=True)
        for number, step in enumerate(self.region.steps):
            _STEPS[type(step)](self, number, step)
        self._results()
        self.lines.add("ret i64 0")
        name = function_name(self.program, self.number)
        linkage = "" if name == MAIN else "internal "
        body = "\n".join(self.lines.text)
        return f"define {linkage}i64 @{name}(ptr %block) nounwind {{\n{body}\n}}\n"

    # ---- words, labels, failures ---------------------------------------------------------------

    def load(self, word: int, type: str = "i64") -> str:
        return self.lines.load_word("%block", word, type)

    def store(self, word: int, value: str, type: str = "i64") -> None:
        self.lines.store_word("%block", word, value, type)

    def copy(self, source: int, target: int, words: int = 1) -> None:
        for word in range(words):
            self.store(target + word, self.load(source + word))

    def label(self, name: str) -> str:
        """A new label."""
        self._labels += 1
        return f"{name}{self._labels}"

    def start(self, label: str) -> None:
        """Here the block of instructions begins that a label names."""
        self.lines.text.append(f"{label}:")

    def leave_unless(self, flag: str, failure: Failure) -> None:
        """Return the number of a failure where a flag does not hold."""
        self.leave_first([(flag, failure)])

    def leave_first(self, checks: Sequence[tuple[str, Failure]]) -> None:
        """Return the number of the first failure whose flag does not hold."""
        checks = [(flag, failure) for flag, failure in checks if flag != "true"]
        if not checks:
            return
        first = len(self.failures) + 1
        self.failures += [failure for _, failure in checks]
        self.leave_with(verdict(self.lines, [flag for flag, _ in checks], first))

    def leave_with(self, code: str, offset: int = 0) -> None:
        """Return a code, moved by an offset, unless it is 0."""
        out, on = self.label("out"), self.label("on")
        failed = self.lines.let(f"icmp ne i64 {code}, 0")
        self.lines.add(f"br i1 {failed}, label %{out}, label %{on}")
        self.start(out)
        self.lines.add(f"ret i64 {self.lines.let(f'add i64 {code}, {offset}')}")
        self.start(on)

    def failure(self, kind: str, source: str = "", **more: object) -> Failure:
        """A failure of a step that comes from `source`."""
        name = source or self.region.signature.name
        words = {dim: self.places.dims[dim] for dim in self.region.signature.box.names
                 if dim in self.known}  # fmt: skip
        signature = replace(self.region.signature, name=name, guards=())
        return replace(Failure(kind, signature, words), **more)  # type: ignore[arg-type]

    # ---- sizes ---------------------------------------------------------------------------------

    def arithmetic(self, dims: Mapping[str, Term] | None = None) -> Arithmetic:
        """Sizes over the dims that are known; for use where the next label does not end it."""
        known = {dim: self.places.dims[dim] for dim in self.known}
        found = _Dims(self.lines, known, self.region.signature.box)
        found.update(dims or {})
        return Arithmetic(self.lines, found)

    def fits(self, arithmetic: Arithmetic, source: str = "") -> None:
        """Leave when something in the sizes computed so far did not fit."""
        failed = self.failure("check", source, check=Check("large"))
        self.leave_unless(negation(self.lines, arithmetic.overflow), failed)

    def tell(
        self, where: str, noun: str, specs: Sequence[TensorSpec], places: Sequence[Place],
        found: frozenset[str] = frozenset(), everything: bool = False,
    ) -> None:  # fmt: skip
        """Find dims by shapes that came, check shapes, and whatever speaks of dims known only now.

        `found` are dims that have values, but had none before; `everything` checks what speaks of
        the other ones too.
        """
        signature = self._event(where, noun, specs, found, everything)

        def axis(tensor: int, axis: int) -> int:
            return places[tensor].shape + axis

        spoken = _symbols(signature)
        dims = self.arithmetic().symbols
        given = {name: dims[name] for name in sorted(self.known & spoken)}
        entry = Entry(signature, self.lines, axis, given)
        entry.solve()
        for source in entry.sources:
            self.store(self.places.dims[source.dim], entry.dims[source.dim].name)
        self.known |= {source.dim for source in entry.sources}
        shapes = tuple(
            tuple(place.shape + axis for axis in range(spec.rank))
            for spec, place in zip(specs, places)
        )

        def failed(check: Check) -> Failure:
            return replace(self.failure("check"), signature=signature, check=check, shapes=shapes)

        self.leave_first([(f, failed(c)) for f, c in zip(entry.inside(), entry.first)])
        arithmetic = entry.within()
        holding = entry.between(arithmetic)
        holding.append(negation(self.lines, arithmetic.overflow))
        self.leave_first([(f, failed(c)) for f, c in zip(holding, entry.second)])

    def _event(
        self, where: str, noun: str, specs: Sequence[TensorSpec], found: frozenset[str],
        everything: bool,
    ) -> Signature:  # fmt: skip
        """The shapes that come and what has to hold from now on, as the signature of a program."""
        whole = self.region.signature
        before = frozenset() if everything else frozenset(self.known - found)
        after = frozenset(self.known) | told(whole.box, specs, frozenset(self.known))

        def new(dims: frozenset[str]) -> bool:
            return dims <= after and (everything or not dims <= before)

        constraints = tuple(size for size in whole.box.constraints if new(size.symbols))
        guards = tuple(g for g in whole.guards if new(g.left.symbols | g.right.symbols))
        box = Box(whole.box.dims, constraints)
        return Signature(where, box, tuple(specs), (), guards, noun)

    # ---- values --------------------------------------------------------------------------------

    def place(self, name: str) -> Place:
        return self.places.values[name]

    def spec(self, name: str) -> TensorSpec:
        return self.region.values[name]

    def hand(self, source: Place, target: Place, rank: int) -> None:
        """Copy the words of a value."""
        self.copy(source.data, target.data)
        self.copy(source.owner, target.owner)
        self.copy(source.shape, target.shape, rank)

    def allocate(self, bytes: str, source: str) -> tuple[str, str]:
        """A new block and the address of its bytes."""
        block = self.lines.let(f"call ptr @anydim_allocate(ptr %block, i64 {bytes})")
        there = self.lines.let(f"icmp ne ptr {block}, null")
        self.leave_unless(there, self.failure("memory", source))
        return block, self.lines.let(f"getelementptr i8, ptr {block}, i64 {context.HEAD}")

    def drop(self, owner: int) -> None:
        block = self.load(owner, "ptr")
        self.lines.add(f"call void @anydim_drop(ptr %block, ptr {block})")

    def release(self, number: int, step: ReleaseStep) -> None:
        for name in step.reads:
            self.drop(self.place(name).owner)

    def _results(self) -> None:
        outputs, places = self.region.signature.outputs, self.places
        for spec, target, moved in zip(outputs, places.results, places.moved):
            if not moved:
                self.hand(self.place(spec.name), target, spec.rank)
                owner = self.load(target.owner, "ptr")
                self.lines.add(f"call void @anydim_hold(ptr {owner})")

    # ---- segments ------------------------------------------------------------------------------

    def segment(self, number: int, step: SegmentStep) -> None:
        program, place = step.program, self.places.segments[number]
        before = sum(isinstance(other, SegmentStep) for other in self.region.steps[:number])
        ordinal = self._first_segment + before
        bind, run = part_names(segment_name(ordinal))
        lines, layout = self.lines, place.layout
        for input, name in enumerate(step.reads):
            self.copy(self.place(name).data, place.base + layout.pointer(input))
        self._bind(number, step, bind)
        if program.total_bytes.constant != 0:
            bytes = self.load(place.base + ARENA_BYTES)
            arena = lines.let(f"call ptr @anydim_arena(ptr %block, i64 {bytes})")
            there = lines.let(f"icmp ne ptr {arena}, null")
            self.leave_unless(there, self.failure("memory", step.source))
            self.store(place.base + ARENA, arena, "ptr")
        for output, name in enumerate(step.makes):
            size = tensor_bytes(self.spec(name)).constant
            bytes = self.load(place.bytes + output) if size is None else str(size)
            block, memory = self.allocate(bytes, step.source)
            self.store(self.place(name).owner, block, "ptr")
            self.store(self.place(name).data, memory, "ptr")
        if program.threads > 1:
            several = lines.let(f"icmp ne i64 {self.load(place.base + PARALLEL)}, 0")
            pool = self.load(context.POOL, "ptr")
            self.store(
                place.base + POOL, lines.let(f"select i1 {several}, ptr {pool}, ptr null"), "ptr"
            )
        code = lines.let(f"call i64 @{run}(ptr {lines.word('%block', place.base)})")
        if program.positions:
            offset = len(self.failures)
            first = place.base + layout.first_status
            self.failures += [
                self.failure("position", step.source, position=position, found=first + word)
                for word, position in enumerate(program.positions)
            ]
            self.leave_with(code, offset)

    def _bind(self, number: int, step: SegmentStep, bind: str) -> None:
        """Sizes of the segment, unless they are those of the last time."""
        program, place, lines = step.program, self.places.segments[number], self.lines
        names = program.signature.box.names
        first = place.base + place.layout.first_dim
        used = [dim for dim in names if dim in needed_dims(program)]
        changed = lines.let(f"icmp eq i64 {self.load(place.bound)}, 0")
        for dim in used:
            now, before = self.load(self.places.dims[dim]), self.load(first + names.index(dim))
            differs = lines.let(f"icmp ne i64 {now}, {before}")
            changed = lines.let(f"or i1 {changed}, {differs}")
        again, ready = self.label("bind"), self.label("bound")
        lines.add(f"br i1 {changed}, label %{again}, label %{ready}")
        self.start(again)
        self.store(place.bound, "0")
        for dim in used:
            self.copy(self.places.dims[dim], first + names.index(dim))
        failed = self.failure("check", step.source, check=Check("large"))
        code = lines.let(f"call i64 @{bind}(ptr {lines.word('%block', place.base)})")
        self.leave_unless(lines.let(f"icmp eq i64 {code}, 0"), failed)
        arithmetic = self.arithmetic()
        for output, name in enumerate(step.makes):
            size = tensor_bytes(self.spec(name))
            if size.constant is None:
                self.store(place.bytes + output, arithmetic.size(size))
        self.fits(arithmetic, step.source)
        self.store(place.bound, "1")
        lines.add(f"br label %{ready}")
        self.start(ready)

    # ---- found dims ----------------------------------------------------------------------------

    def find(self, number: int, step: FindStep) -> None:
        spec, place = self.spec(step.value), self.place(step.value)
        if spec.rank and spec.shape[0].constant != len(step.dims):
            came = self.load(place.shape)
            failed = self.failure(
                "count", step.source, dim=", ".join(step.dims), found=place.shape
            )
            self.leave_unless(self.lines.let(f"icmp eq i64 {came}, {len(step.dims)}"), failed)
        data = self.load(place.data, "ptr")
        self.known |= set(step.dims)
        checks = []
        for number, name in enumerate(step.dims):
            value = self.lines.load_word(data, number)
            self.store(self.places.dims[name], value)
            dim = self.region.signature.box.dim(name)
            failed = self.failure("found", step.source, dim=name)
            checks.append((self.lines.let(f"icmp sge i64 {value}, {dim.lo}"), failed))
            if dim.hi is not None:
                high = min(dim.hi, LARGEST)
                checks.append((self.lines.let(f"icmp sle i64 {value}, {high}"), failed))
        self.leave_first(checks)
        where = step.source or self.region.signature.name
        self.tell(where, "size", (), (), found=frozenset(step.dims))

    # ---- other regions -------------------------------------------------------------------------

    def enter(self, number: int, source: str) -> None:
        """Give a region the dims that it has from here."""
        callee = self.program.regions[number]
        words = self.layout.regions[number].dims
        checks = []
        for name in sorted(callee.given):
            value = self.load(self.places.dims[name])
            self.store(words[name], value)
            own, other = self.region.signature.box.dim(name), callee.signature.box.dim(name)
            if other.lo > own.lo or (other.hi is not None and other.hi != own.hi):
                failed = replace(self.failure("given", source, dim=name),
                                 signature=replace(callee.signature, name=source))  # fmt: skip
                checks.append((self.lines.let(f"icmp sge i64 {value}, {other.lo}"), failed))
                high = LARGEST if other.hi is None else min(other.hi, LARGEST)
                checks.append((self.lines.let(f"icmp sle i64 {value}, {high}"), failed))
        self.leave_first(checks)

    def give(self, name: str, region: int, input: int) -> None:
        """Let an input of a region be a value of this one."""
        spec = self.program.regions[region].signature.inputs[input]
        target = self.layout.regions[region].values[spec.name]
        self.hand(self.place(name), target, spec.rank)

    def run(self, region: int) -> None:
        name = function_name(self.program, region)
        self.leave_with(self.lines.let(f"call i64 @{name}(ptr %block)"))

    def use(self, region: int, given: Sequence[str], makes: Sequence[str], source: str) -> None:
        """Run a region once; its results become values of this one."""
        self.enter(region, source)
        for input, name in enumerate(given):
            self.give(name, region, input)
        self.run(region)
        for name, result in zip(makes, self.layout.regions[region].results):
            self.hand(result, self.place(name), self.spec(name).rank)

    def made(self, makes: Sequence[str], source: str) -> None:
        """Check the shapes of results that came, which may tell dims."""
        specs = [self.spec(name) for name in makes]
        places = [self.place(name) for name in makes]
        self.tell(source or self.region.signature.name, "result", specs, places)

    def call(self, number: int, step: CallStep) -> None:
        self.use(step.region, step.given, step.makes, step.source)
        self.made(step.makes, step.source)

    def branch(self, number: int, step: BranchStep) -> None:
        lines = self.lines
        then, otherwise, join = self.label("then"), self.label("else"), self.label("join")
        if isinstance(step.condition, Guard):
            guard, arithmetic = step.condition, self.arithmetic()
            left, right = arithmetic.size(guard.left), arithmetic.size(guard.right)
            holds = arithmetic.holds(left, guard.relation, right)
            self.fits(arithmetic, step.source)
        else:
            holds = self.truth(self.place(step.condition))
        lines.add(f"br i1 {holds}, label %{then}, label %{otherwise}")
        for label, region in ((then, step.then), (otherwise, step.otherwise)):
            self.start(label)
            self.use(region, step.given, step.makes, step.source)
            lines.add(f"br label %{join}")
        self.start(join)
        self.made(step.makes, step.source)

    def truth(self, place: Place) -> str:
        """An i1 operand: the bool scalar at a place."""
        data = self.load(place.data, "ptr")
        return self.lines.let(f"icmp ne i8 {self.lines.let(f'load i8, ptr {data}')}, 0")


_STEPS: dict[type[Step], Callable[..., None]] = {
    SegmentStep: RegionCode.segment,
    FindStep: RegionCode.find,
    BranchStep: RegionCode.branch,
    CallStep: RegionCode.call,
    ReleaseStep: RegionCode.release,
}


def tensor_bytes(spec: TensorSpec) -> Size:
    """Bytes of a tensor."""
    return product(spec.shape) * spec.dtype.bytes


def _symbols(signature: Signature) -> frozenset[str]:
    """The dims that shapes, constraints and guards speak of."""
    sizes = [size for spec in signature.inputs for size in spec.shape]
    sizes += signature.box.constraints
    sizes += [side for guard in signature.guards for side in (guard.left, guard.right)]
    return frozenset().union(*(size.symbols for size in sizes))
