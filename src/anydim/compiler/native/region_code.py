"""Shared code generation of region steps: slots, checks, sizes, values, nested regions.

Steps are emitted in order into one function. On a failure it returns the failure's number; the
caller of the program releases the blocks of the call.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from anydim.base.dtypes import boolean
from anydim.base.errors import GraphError
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.ir import Like
from anydim.compiler.native.arithmetic import LARGEST, Arithmetic, RangedValue
from anydim.compiler.native.blocks import ALLOCATE, DEVICE, DROP, HOLD, SYSTEM, Memory
from anydim.compiler.native.body import TRUE, Body, parameter
from anydim.compiler.native.device_emit import call_device
from anydim.compiler.native.entry import Entry, EntryChecks, verdict
from anydim.runtime import context, slots
from anydim.runtime.checks import Check
from anydim.runtime.failures import Failure
from anydim.runtime.program.binding import determined_dims
from anydim.runtime.program.program import Program
from anydim.runtime.program.region import CopyStep, Region, ReleaseStep, SegmentStep, copies
from anydim.runtime.program.region_layout import RegionLayout, RegionSlots, Target, ValueSlots
from anydim.runtime.signature import Signature, TensorSpec
from anydim.sizes import Box, Size, product

MAIN = "anydim_regions"
BLOCK = parameter("block")


def memory_of(device: str) -> Memory:
    """Return the memory of a device, '' is the host."""
    return DEVICE if device else SYSTEM


def function_name(program: Program, number: int) -> str:
    """Return the symbol of a region."""
    return MAIN if number == len(program.regions) - 1 else f"anydim_region{number}"


class _Dims(dict[str, RangedValue]):
    """Values of dims, loaded at first use."""

    def __init__(self, body: Body, words: Mapping[str, int], signature: Signature) -> None:
        super().__init__()
        self.body, self.words = body, words
        self.where, self.box = signature.name, signature.box

    def __missing__(self, name: str) -> RangedValue:
        if name not in self.words:
            raise GraphError(
                f"{self.where}: no input determines the size of dim '{name}'",
                "some input needs an axis whose size is that dim, or linear in it",
            )
        value = self.body.load(BLOCK, self.words[name])
        self[name] = RangedValue(value, self.box.dim(name).range)
        return self[name]


class Code:
    """Emits the function of a region; `known` are the dims with values so far.

    `prefixes` are those of the names of each segment's functions.
    """

    def __init__(
        self, program: Program, number: int, layout: RegionLayout, failures: list[Failure],
        prefixes: Sequence[str],
    ) -> None:  # fmt: skip
        self.prefixes = prefixes
        self.program, self.number, self.layout, self.failures = program, number, layout, failures
        self.region = program.regions[number]
        self.slots: RegionSlots = layout.regions[number]
        self.body = Body()
        self.known: set[str] = set()
        steps, before = self.region.steps, sum(1 for _ in copies(program.regions[:number]))
        own = [index for index, step in enumerate(steps) if isinstance(step, CopyStep)]
        self.copies = {index: before + n for n, index in enumerate(own, 1)}  # numbers of copies
        main = number == len(program.regions) - 1
        self.shared = _shared_values(self.region) if main else {}
        self.resident = resident_copies(self.region) if main else {}
        self.coming: dict[str, tuple[str, int]] = {}  # values in transfer from devices: event slots

    # ---- slots, failures ---------------------------------------------------------------

    def load(self, word: int) -> ir.Value:
        return self.body.load(BLOCK, word)

    def store(self, word: int, value: Like) -> None:
        self.body.store(BLOCK, word, value)

    def address(self, word: int) -> ir.Value:
        """Return the address of a slot."""
        return self.body.let(BLOCK + 8 * word)

    def copy(self, source: int, target: int, words: int = 1) -> None:
        for word in range(words):
            self.store(target + word, self.load(source + word))

    def leave_unless(self, flag: ir.Value, failure: Failure) -> None:
        """Emit: return the number of a failure unless `flag` holds."""
        self.leave_first([(flag, failure)])

    def leave_first(self, checks: Sequence[tuple[ir.Value, Failure]]) -> None:
        """Emit: return the number of the first failure whose flag does not hold."""
        checks = [(flag, failure) for flag, failure in checks if flag is not TRUE]
        if not checks:
            return
        first = len(self.failures) + 1
        self.failures += [failure for _, failure in checks]
        self.leave_with(verdict(self.body, [flag for flag, _ in checks], first))

    def leave_with(self, code: ir.Value, offset: int = 0) -> None:
        """Emit: return `code` + `offset` unless the code is 0."""
        with self.body.when(code.differs(0)):
            self.body.give(code + offset)

    def failure(self, kind: str, source: str = "", **more: Any) -> Failure:
        """Record a failure of a step from `source`; native code reports it by its number."""
        if kind == "time" and self.program.loops:
            kind = "loop"
        name = source or self.region.signature.name
        words = {dim: self.slots.dims[dim] for dim in self.region.signature.box.names
                 if dim in self.known}  # fmt: skip
        signature = replace(self.region.signature, name=name, guards=(), noun="size")
        return replace(Failure(kind, signature, words), **more)

    # ---- sizes ---------------------------------------------------------------------------------

    def arithmetic(self, dims: Mapping[str, RangedValue] | None = None) -> Arithmetic:
        """Return arithmetic over the known dims, for use inside the current `with` block."""
        known = {dim: self.slots.dims[dim] for dim in self.known}
        found = _Dims(self.body, known, self.region.signature)
        found.update(dims or {})
        return Arithmetic(self.body, found)

    def fits(self, arithmetic: Arithmetic, source: str = "") -> None:
        """Emit: fail if a size of `arithmetic` overflowed so far."""
        failed = self.failure("check", source, check=Check("large"))
        self.leave_unless(arithmetic.fits, failed)

    def determine(
        self, where: str, noun: str, specs: Sequence[TensorSpec], values: Sequence[ValueSlots],
        found: frozenset[str] = frozenset(), everything: bool = False,
    ) -> None:  # fmt: skip
        """Emit: compute dims from shapes, then check shapes and what relates new dims.

        `found` are dims with values that had none before; `everything`: check all constraints and
        guards.
        """
        signature = self._event(where, noun, specs, found, everything)

        def axis(tensor: int, axis: int) -> int:
            return values[tensor].shape + axis

        spoken = _symbols(signature)
        dims = self.arithmetic().symbols
        given = {name: dims[name] for name in sorted(self.known & spoken)}
        checks = EntryChecks.of(signature, given=frozenset(given))
        entry = Entry(signature, checks, self.body, BLOCK, axis, given)
        entry.solve()
        for source in checks.sources:
            self.store(self.slots.dims[source.dim], entry.dims[source.dim].value)
        self.known |= {source.dim for source in checks.sources}
        shapes = tuple(
            tuple(value.shape + axis for axis in range(spec.rank))
            for spec, value in zip(specs, values)
        )

        def failed(check: Check) -> Failure:
            return replace(self.failure("check"), signature=signature, check=check, shapes=shapes)

        self.leave_first([(f, failed(c)) for f, c in zip(entry.inside(), checks.first)])
        arithmetic = entry.within()
        holding = entry.between(arithmetic)
        holding.append(arithmetic.fits)
        self.leave_first([(f, failed(c)) for f, c in zip(holding, checks.second)])

    def _event(
        self, where: str, noun: str, specs: Sequence[TensorSpec], found: frozenset[str],
        everything: bool,
    ) -> Signature:  # fmt: skip
        """Return a signature of the given shapes with the checks that they make possible."""
        whole = self.region.signature
        before = frozenset() if everything else frozenset(self.known - found)
        after = frozenset(self.known) | determined_dims(whole.box, specs, frozenset(self.known))

        def new(dims: frozenset[str]) -> bool:
            return dims <= after and (everything or not dims <= before)

        constraints = tuple(size for size in whole.box.constraints if new(size.symbols))
        guards = tuple(g for g in whole.guards if new(g.left.symbols | g.right.symbols))
        box = Box(whole.box.dims, constraints)
        return Signature(where, box, tuple(specs), (), guards, noun)

    # ---- values --------------------------------------------------------------------------------

    def value(self, name: str) -> ValueSlots:
        return self.slots.values[name]

    def spec(self, name: str) -> TensorSpec:
        return self.region.values[name]

    def copy_value(self, source: ValueSlots, target: ValueSlots, rank: int) -> None:
        """Copy the slots of a value."""
        self.copy(source.data, target.data)
        self.copy(source.owner, target.owner)
        self.copy(source.shape, target.shape, rank)

    def allocate(self, bytes: ir.Value, source: str, device: str = "") -> tuple[ir.Value, ir.Value]:
        """Allocate a block; returns it and the address of its bytes."""
        where = self.home(device) if device else BLOCK
        block = self.body.ask(memory_of(device).function(ALLOCATE), where, bytes)
        self.leave_unless(block.differs(0), self.failure("memory", source, found=context.FOUND))
        return block, self.body.let(memory_of(device).data(self.body, block))

    def target(self, name: str) -> Target | None:
        """Return the slots for the destination of a slice of an outer stack, if the value is
        one."""
        outputs = self.region.signature.outputs
        found = (n for n in self.slots.targets if outputs[n].name == name)
        return next((self.slots.targets[n] for n in found), None)

    def store_block(self, value: ValueSlots, block: ir.Value, memory: ir.Value) -> None:
        """Set block and address of a value."""
        self.store(value.owner, block)
        self.store(value.data, memory)

    def drop(self, owner: int, device: str = "") -> None:
        """Release the block in a slot."""
        where = self.home(device) if device else BLOCK
        self.body.call(memory_of(device).function(DROP), where, self.load(owner))

    def hold(self, owner: int) -> None:
        """Retain the block in a slot."""
        self.body.call(HOLD, self.load(owner))

    def copy_bytes(
        self, target: ir.Value, source: ir.Value, bytes: ir.Value, device: str = ""
    ) -> None:
        """Copy within the memory of a device."""
        if device:
            self.do(device, slots.COPY_WITHIN, target, source, bytes, 0)
        else:
            self.body.call(self.load(context.COPY), target, source, bytes)

    def fill(self, target: ir.Value, bytes: ir.Value, device: str = "") -> None:
        """Fill with zeros."""
        if device:
            self.do(device, slots.FILL, target, 0, bytes)
        else:
            self.body.call(self.load(context.FILL), target, 0, bytes)

    # ---- devices -------------------------------------------------------------------------------

    def device(self, value: str) -> str:
        """Return the device of a value, '' is the host."""
        return self.region.devices.get(value, "")

    def home(self, device: str) -> ir.Value:
        """Return the address of a device's slots."""
        return self.address(self.layout.homes[device])

    def do(self, device: str, verb: int, *given: ir.Value | int) -> None:
        """Emit a call of an entry point of a device, and fail if it fails."""
        failed = call_device(self.body, self.home(device), verb, *given)
        self.leave_unless(failed.equals(0), self.failure("device", found=self.layout.homes[device]))

    def on_host(self, device: str) -> ir.Value:
        """Whether a device works in host memory."""
        return self.body.load(self.home(device), slots.ON_HOST).differs(0)

    def event(self, device: str) -> ir.Value:
        """Emit the recording of an event after all commands of the device so far; return it."""
        event = call_device(self.body, self.home(device), slots.RECORD)
        self.leave_unless(event.differs(0), self.failure("device", found=self.layout.homes[device]))
        return event

    def wait_for(self, values: Iterable[str]) -> None:
        """Emit waits for those of the values that are still being copied to the host."""
        for value in values:
            if value in self.coming:
                device, word = self.coming.pop(value)
                self.do(device, slots.WAIT, self.load(word))

    # ---- other regions -------------------------------------------------------------------------

    def enter(self, number: int, source: str, own: str = "") -> None:
        """Emit copies of dims to another region, except for its `own`, with checks of bounds."""
        callee = self.program.regions[number]
        words = self.layout.regions[number].dims
        checks = []
        for name in sorted(callee.given - {own}):
            value = self.load(self.slots.dims[name])
            self.store(words[name], value)
            here, other = self.region.signature.box.dim(name), callee.signature.box.dim(name)
            if other.lo > here.lo or (other.hi is not None and other.hi != here.hi):
                failed = replace(self.failure("given", source, dim=name),
                                 signature=replace(callee.signature, name=source))  # fmt: skip
                checks.append((self.body.let(value >= other.lo), failed))
                high = LARGEST if other.hi is None else min(other.hi, LARGEST)
                checks.append((self.body.let(value <= high), failed))
        self.leave_first(checks)

    def give(self, name: str, region: int, input: int) -> None:
        """Bind an input of a region to a value of this one."""
        spec = self.program.regions[region].signature.inputs[input]
        target = self.layout.regions[region].values[spec.name]
        self.copy_value(self.value(name), target, spec.rank)

    def run(self, region: int) -> None:
        name = function_name(self.program, region)
        self.leave_with(self.body.ask(name, BLOCK))

    def use(self, region: int, given: Sequence[str], makes: Sequence[str], source: str) -> None:
        """Emit one run of a region, whose results become values of this one."""
        self.enter(region, source)
        for input, name in enumerate(given):
            self.give(name, region, input)
        self.run(region)
        for name, result in zip(makes, self.layout.regions[region].results):
            self.copy_value(result, self.value(name), self.spec(name).rank)

    def check_results(self, makes: Sequence[str], source: str) -> None:
        """Emit checks of the shapes of results, which may determine dims."""
        specs = [self.spec(name) for name in makes]
        values = [self.value(name) for name in makes]
        self.determine(source or self.region.signature.name, "result", specs, values)

    def truth(self, value: ValueSlots) -> ir.Value:
        """Return the flag of a bool scalar."""
        return self.body.load(self.load(value.data), 0, boolean)


def _shared_values(region: Region) -> dict[str, str]:
    """Return the values that a device in host memory shares with the host instead of copying.

    They map names on the device to names on the host: inputs, which the caller owns, and results
    of segments on such a device, which the call owns. Neither is released before all work of the
    call is done.
    """
    inputs = {spec.name for spec in region.signature.inputs}
    results = {spec.name for spec in region.signature.outputs}
    made = {name for step in region.steps if isinstance(step, SegmentStep) for name in step.makes}
    lent: dict[str, str] = {}
    for step in (step for step in region.steps if isinstance(step, CopyStep)):
        if not step.origin and step.value in inputs:
            lent[step.made] = step.value
        elif not step.target and step.made in results and step.value in made:
            lent[step.value] = step.made
    return lent


def resident_copies(region: Region) -> dict[int, str]:
    """Return the copies, by step number, that a caller can avoid by arrays on the device.

    They map to an input that no other step reads, or a result that no step reads and that a segment
    on the device made. The slot of the copy's event is nonzero at the start of a call that avoids
    it.
    """
    shared, steps = _shared_values(region), region.steps
    reads = [name for step in steps if not isinstance(step, ReleaseStep) for name in step.reads]
    results = [spec.name for spec in region.signature.outputs]
    updated = {name for step in region.segments for name in dict(step.updates).values()}
    found, taken = {}, set[str]()
    for number, step in enumerate(steps):
        if not isinstance(step, CopyStep) or step.value in taken:
            continue
        if shared.get(step.made) == step.value and step.made not in updated:
            if reads.count(step.value) == 1 and step.value not in results:
                found[number] = step.value
        elif shared.get(step.value) == step.made and step.value not in updated:
            if step.made not in reads and results.count(step.made) == 1:
                found[number] = step.made
                taken.add(step.value)
    return found


def tensor_bytes(spec: TensorSpec) -> Size:
    """Return the bytes of a tensor."""
    return product(spec.shape) * spec.dtype.bytes


def _symbols(signature: Signature) -> frozenset[str]:
    """Return the dims in shapes, constraints and guards."""
    sizes = [size for spec in signature.inputs for size in spec.shape]
    sizes += signature.box.constraints
    sizes += [side for guard in signature.guards for side in (guard.left, guard.right)]
    return frozenset().union(*(size.symbols for size in sizes))
