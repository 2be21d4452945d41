"""Where steps read and write tensors: paths in the text, and the loops around them.

A path is the position of a step among its siblings, after that of the block it is in; the arms of
a branch add a number of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set

from anydim.base.records import dataclass
from anydim.lang.tree import Branch, Expr, Loop, OrderedStep, Read, Statement, Write
from anydim.lang.tree.affine import reads
from anydim.lang.tree.stepping import written_tensors

Path = tuple[int, ...]
ARMS = (-2, -1)  # numbers of the two arms of a branch in a path


@dataclass(frozen=True)
class Access:
    """One read or write of a tensor; `indices` None: all of its elements.

    `entry`: a read of the values that a loop or branch starts from, by the forward pass itself.
    """

    tensor: str
    indices: tuple[Expr, ...] | None
    path: Path
    loops: tuple[Loop, ...]
    step: OrderedStep | None = None  # the step that writes
    entry: bool = False


def at_paths(
    steps: Sequence[OrderedStep], path: Path = (), loops: tuple[Loop, ...] = ()
) -> Iterator[tuple[OrderedStep, Path, tuple[Loop, ...]]]:
    """Every step with its path and the loops around it, in textual order."""
    for number, step in enumerate(steps):
        here = (*path, number)
        yield step, here, loops
        if isinstance(step, Loop):
            yield from at_paths(step.body, here, (*loops, step))
        elif isinstance(step, Branch):
            for arm, body in zip(ARMS, (step.then, step.otherwise)):
                yield from at_paths(body, (*here, arm), loops)


def expressions(step: OrderedStep) -> tuple[Expr, ...]:
    """The expressions of a step, without those of steps in it."""
    if isinstance(step, Loop):
        return (step.start, step.stop)
    if isinstance(step, Branch):
        return (step.condition,)
    indices = step.indices if isinstance(step, Write) else ()
    return (*indices, step.body)


def reads_of(step: OrderedStep, path: Path, loops: tuple[Loop, ...]) -> Iterator[Access]:
    """The reads of a step itself."""
    for expr in expressions(step):
        for read in reads(expr):
            yield access_of(read, path, loops)


def access_of(read: Read, path: Path, loops: tuple[Loop, ...]) -> Access:
    """A read as an access; a flat read may be of any element."""
    return Access(read.tensor, None if read.flat else read.indices, path, loops)


def writes_in(
    steps: Sequence[OrderedStep], path: Path = (), loops: tuple[Loop, ...] = ()
) -> list[Access]:
    """The writes of steps, at any depth."""
    return [
        Access(step.target, step.indices if isinstance(step, Write) else None, here, around, step)
        for step, here, around in at_paths(steps, path, loops)
        if isinstance(step, (Statement, Write))
    ]


def exclusive(left: Path, right: Path) -> bool:
    """Whether two paths are in the two arms of one branch."""
    for a, b in zip(left, right):
        if a != b:
            return {a, b} == set(ARMS)
    return False


def defines(step: OrderedStep) -> bool:
    """Whether a step overwrites its elements, instead of combining with them."""
    if isinstance(step, Statement):
        return True
    return isinstance(step, Write) and (step.fresh or not step.combine)


def defined_first(tensor: str, steps: Sequence[OrderedStep], path: Path, reads: Set[Path]) -> bool:
    """Whether each run of a block defines all of a tensor before it reads it.

    `reads` are the paths of the reads of the tensor.
    """
    inside = {read for read in reads if read[: len(path)] == path}
    for number, step in enumerate(steps):
        here = (*path, number)
        own = {read for read in inside if read[: len(here)] == here}
        if isinstance(step, Branch) and (own or tensor in written_tensors((step,))):
            return here not in own and all(
                defined_first(tensor, body, (*here, arm), own) or (own == inside and unused)
                for arm, body in zip(ARMS, (step.then, step.otherwise))
                for unused in [not _is_accessed(tensor, body, (*here, arm), own)]
            )
        if isinstance(step, Loop) and own:
            return own == inside and here not in own and defined_first(tensor, step.body, here, own)
        if own or tensor in written_tensors((step,)):
            return isinstance(step, Statement) and here not in own
    return False


def _is_accessed(tensor: str, steps: Sequence[OrderedStep], path: Path, reads: Set[Path]) -> bool:
    return tensor in written_tensors(steps) or any(read[: len(path)] == path for read in reads)
