"""Results that reuse the buffer of an operand at its last use.

A kernel lists the results that it can write where it reads an operand (`Launch.in_place`). The
buffer is reused if the operand has no later reader and both have the same size in bytes. If the
result is a graph output, the operand moves into the caller's array and is written there.

A loop updates a tensor in place if each iteration replaces a part of it by a result that its
segment can write where it reads the same part:

    for r: old = part(whole, first(r)); new = put(old, ...); whole = joined(new at first(r))
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from anydim.compiler.passes.schedule import Scheduled
from anydim.runtime.program.region import LoopStep, PartStep, Region, SegmentStep, Step
from anydim.sizes import Size, product

Rename = Callable[[str], str]


def in_place(
    launches: Sequence[Scheduled], root: Rename, given: Collection[str], results: Collection[str],
    bytes_of: Callable[[str], Size],
) -> Iterator[tuple[str, str]]:  # fmt: skip
    """Pairs (made, read) of values that may share a buffer, in launch order.

    `root` maps a value to the name of its buffer. `given` (inputs and constants) and `results` have
    readers other than launches.
    """
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for number, item in number_launches(launches):
        for value in map(root, (*item.reads, *item.writes)):
            first.setdefault(value, number)
            last[value] = number
    for number, item in number_launches(launches):
        operands = [root(value) for value in item.reads]
        for result, operand in item.launch.in_place:
            made, read = root(item.values[result]), root(item.values[operand])
            if read in given or read in results or operands.count(read) != 1:
                continue
            if first[made] != number or last[read] != number or bytes_of(made) != bytes_of(read):
                continue
            last[read] = -1  # it is reused by one result
            first[made] = -1
            yield made, read


def number_launches(launches: Sequence[Scheduled]) -> Iterator[tuple[int, Scheduled]]:
    """Launches with numbers in order; launches of one group share a number."""
    number = 0
    for item in launches:
        yield number, item
        number += not item.goes_on


def updates(
    launches: Sequence[Scheduled], root: Rename, inputs: Collection[str], results: Collection[str],
    bytes_of: Callable[[str], Size],
) -> Iterator[tuple[str, str]]:  # fmt: skip
    """Pairs (result, input) that may be the same array of the caller.

    No other launch reads the input afterwards: the launch that makes the result reads the input
    where the kernel allows it; earlier launches do not touch the result.
    """
    used: dict[str, list[int]] = {}
    for number, item in number_launches(launches):
        for value in map(root, (*item.reads, *item.writes)):
            used.setdefault(value, []).append(number)
    for number, item in number_launches(launches):
        for result, operand in item.launch.in_place:
            made, read = root(item.values[result]), root(item.values[operand])
            if made not in results or read not in inputs or bytes_of(made) != bytes_of(read):
                continue
            once = [root(value) for value in item.reads].count(read) == 1
            if used[made][0] == number == used[read][-1] and once:
                yield made, read


# ---- loops ---------------------------------------------------------------------------------------


def updated_loops(regions: Sequence[Region]) -> tuple[Region, ...]:
    """Mark what loops update in place: results of segments, and stacks over inputs of the program.

    A stack that the program returns takes the memory of an input that no other step reads.
    """
    found = list(regions)
    loops = defaultdict[int, list[LoopStep]](list)
    for region in regions:
        for step in region.steps:
            if isinstance(step, LoopStep):
                loops[step.body].append(step)
    for body, own in loops.items():
        found[body] = _with_updates(found[body], own)
    main = found[-1]
    readers = _readers(main)
    inputs = {spec.name for spec in main.signature.inputs if readers[spec.name] == 1}
    outputs = {spec.name for spec in main.signature.outputs}
    steps = (_over_inputs(step, inputs, outputs, found) for step in main.steps)
    return (*found[:-1], replace(main, steps=tuple(steps)))


def _readers(region: Region) -> Mapping[str, int]:
    """How often each value is read or returned."""
    names = Counter(name for step in region.steps for name in step.reads)
    names.update(spec.name for spec in region.signature.outputs)
    return names


def _with_updates(body: Region, loops: Sequence[LoopStep]) -> Region:
    """The body of equal loops with the results that its segments write in place, in all of them."""
    first, *others = (dict(_parts_replaced(body, loop)) for loop in loops)
    pairs = {old: new for old, new in first.items() if all(o.get(old) == new for o in others)}
    steps = tuple(
        step if not isinstance(step, SegmentStep)
        else replace(step, updates=tuple(
            pair for pair in step.segment.updates if pairs.get(pair[1]) == pair[0]
        ))
        for step in body.steps
    )  # fmt: skip
    return replace(body, steps=steps)


def _parts_replaced(body: Region, loop: LoopStep) -> Iterator[tuple[str, str]]:
    """Yield parts of stacks that one segment reads, and the value that replaces each."""
    readers = _readers(body)
    parts = {step.made: step for step in body.steps if isinstance(step, PartStep)}
    first = len(loop.carried) + (loop.condition is not None)
    histories = iter(body.signature.inputs[len(loop.carried) :])
    for stack, result in zip(loop.stacks, body.signature.outputs[first:]):
        history = next(histories) if stack.history else None
        whole = parts.get(result.name)
        if history is None or whole is None or whole.first != 0 or readers[result.name] != 1:
            continue
        first_element = stack.position * product(history.shape[1:])
        for old in parts.values():
            alone = readers[old.value] == 1 and _read_last(body, old.made, whole.value)
            if old.value == history.name and old.first == first_element and alone:
                yield old.made, whole.value


def _read_last(body: Region, old: str, new: str) -> bool:
    """Whether the segment that makes a value is the last step that reads another one.

    All steps that read it are segments, whose results share no memory with their inputs.
    """
    reading = [step for step in body.steps if old in step.reads]
    if not reading or not all(isinstance(step, SegmentStep) for step in reading):
        return False
    outputs = {spec.name for spec in body.signature.outputs}
    return new in reading[-1].makes and old not in outputs


def _over_inputs(
    step: Step, inputs: Collection[str], outputs: Collection[str], regions: Sequence[Region]
) -> Step:
    """A loop whose stacks take the memory of inputs where its body updates them in place."""
    if not isinstance(step, LoopStep):
        return step
    body = regions[step.body]
    made = {made for part in body.segments for made, _ in part.updates}
    wholes = {part.made for part in body.steps if isinstance(part, PartStep) and part.value in made}
    first = len(step.carried) + (step.condition is not None)
    results = body.signature.outputs[first:]
    stacks = tuple(
        replace(stack, in_place=result.name in wholes and name in outputs
                and stack.initial in inputs)
        for name, stack, result in zip(step.makes[len(step.carried) :], step.stacks, results)
    )  # fmt: skip
    return replace(step, stacks=stacks)
