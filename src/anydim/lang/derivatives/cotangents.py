"""State of the backward pass under construction: names, definitions and blocks of cotangents.

A cotangent lives in the innermost block that has every access of its tensor, if the tensor is
defined there as a whole; else it lives for all of the backward pass and starts from zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field

from anydim.base.dtypes import DType, float32
from anydim.base.records import dataclass
from anydim.lang.derivatives.accesses import (
    ARMS,
    Access,
    Path,
    at_paths,
    defined_first,
    defines,
    exclusive,
    reads_of,
    writes_in,
)
from anydim.lang.derivatives.algebra import ZERO
from anydim.lang.derivatives.flow import carries
from anydim.lang.derivatives.survival import size_of, slope_in
from anydim.lang.resolve.scope import new_name
from anydim.lang.tree import (
    Axis,
    Branch,
    Expr,
    Index,
    Loop,
    OrderedStep,
    Read,
    Statement,
    TensorType,
    Write,
)


@dataclass
class Block:
    """A block of the backward pass while it is written."""

    path: Path
    steps: list[OrderedStep] = field(default_factory=list)
    defined: set[str] = field(default_factory=set)  # tensors whose cotangent it has


def axes_of(kind: TensorType, stem: str = "i") -> tuple[Axis, ...]:
    """Axes over all elements of a tensor."""
    return tuple(Axis(f"{stem}{number}", size) for number, size in enumerate(kind.shape))


def indices_of(axes: Sequence[Axis]) -> tuple[Expr, ...]:
    """The indices that axes are."""
    return tuple(Index(axis.name) for axis in axes)


def copy_tensor(target: str, source: str, kind: TensorType) -> Statement:
    """A copy of all of a tensor."""
    axes = axes_of(kind)
    return Statement(target, axes, Read(source, indices_of(axes)))


def wide(dtype: DType) -> DType:
    """The type in which cotangents of a type are summed."""
    return float32 if dtype.bits < float32.bits else dtype


@dataclass
class Cotangents:
    """The cotangents of the active tensors of `steps`.

    `types` has the types of all tensors and grows; `given` are the parameters that hold the
    cotangents of results.
    """

    steps: Sequence[OrderedStep]
    types: dict[str, TensorType]
    active: frozenset[str]
    given: dict[str, str]
    taken: set[str]
    names: dict[str, str] = field(default_factory=dict)
    blocks: list[Block] = field(default_factory=lambda: [Block(())])
    homes: Mapping[str, Path] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.homes = homes(self.steps, self.active - self.given.keys())
        self.names.update(self.given)
        self.blocks[0].defined.update(self.given)

    # ---- names ---------------------------------------------------------------------------------

    def temporary(self, stem: str, kind: TensorType) -> str:
        """A new tensor."""
        name = new_name(stem, self.taken)
        self.types[name] = kind
        return name

    def name(self, tensor: str) -> str:
        """The tensor that holds a cotangent."""
        if tensor not in self.names:
            kind = self.types[tensor]
            kind = TensorType(wide(kind.dtype), kind.shape)
            self.names[tensor] = self.temporary(f"d{tensor}", kind)
        return self.names[tensor]

    # ---- definitions ---------------------------------------------------------------------------

    @property
    def block(self) -> Block:
        return self.blocks[-1]

    def emit(self, step: OrderedStep) -> None:
        """Append a step to the block that is being written."""
        self.block.steps.append(step)

    def home(self, tensor: str) -> Block:
        """The block that defines a cotangent."""
        path = self.homes.get(tensor, ())
        return next(block for block in self.blocks if block.path == path)

    def is_defined(self, tensor: str) -> bool:
        return tensor in self.home(tensor).defined

    def start(self, tensor: str) -> None:
        """Initialise an accumulator of a cotangent: zero, or a copy of the given one."""
        home = self.home(tensor)
        if tensor not in home.defined:
            home.steps.append(self.zero(tensor))
            home.defined.add(tensor)
        elif tensor in self.given and self.names[tensor] == self.given[tensor]:
            source = self.given[tensor]
            kind = TensorType(wide(self.types[source].dtype), self.types[source].shape)
            self.names[tensor] = self.temporary(source, kind)
            home.steps.append(copy_tensor(self.names[tensor], source, kind))

    def zero(self, tensor: str) -> Statement:
        """The cotangent as a tensor of zeros."""
        return Statement(self.name(tensor), axes_of(self.types[tensor]), ZERO)

    def changes(self, tensor: str) -> bool:
        """Whether the backward pass writes a cotangent that was given or is defined before."""
        adds = any(
            isinstance(step, (Statement, Write)) and carries(step.body, {tensor})
            for step, _, _ in at_paths(self.steps)
        )
        return adds or self.rewritten(tensor)

    def rewritten(self, tensor: str) -> bool:
        """Whether an element of a tensor may be defined more than once."""
        home = self.homes.get(tensor, ())
        found = [
            access for access in writes_in(self.steps)
            if access.tensor == tensor and access.step is not None and defines(access.step)
        ]  # fmt: skip
        if not all(_is_once(access, home) for access in found):
            return True
        return any(
            not _is_apart(left, right)
            for number, left in enumerate(found) for right in found[:number]
        )  # fmt: skip


def _is_once(access: Access, home: Path) -> bool:
    """Whether the iterations of all loops inside `home` write different elements."""
    variables = [loop.variable for loop in _inside(access, home)]
    for variable in variables:
        sizes = [size_of(index) for index in access.indices or ()]
        if not any(
            size is not None and slope_in(size, variable)
            and size.symbols & {*variables} == {variable}
            for size in sizes
        ):  # fmt: skip
            return False
    return True


def _inside(access: Access, home: Path) -> tuple[Loop, ...]:
    """The loops around an access that are inside of a block."""
    outside = sum(1 for number in home if number >= 0)
    return access.loops[min(outside, len(access.loops)) :] if home else access.loops


def _is_apart(left: Access, right: Access) -> bool:
    """Whether two writes never write the same element."""
    if left.indices is None or right.indices is None:
        return exclusive(left.path, right.path) and left.indices == right.indices
    sizes = [(size_of(a), size_of(b)) for a, b in zip(left.indices, right.indices)]
    if exclusive(left.path, right.path):
        return all(a == b for a, b in sizes)
    return any(
        a is not None and b is not None and (a - b).constant not in (None, 0)
        and not {loop.variable for loop in left.loops} & (a.symbols | b.symbols)
        for a, b in sizes
    )  # fmt: skip


def homes(steps: Sequence[OrderedStep], tensors: frozenset[str] | set[str]) -> dict[str, Path]:
    """The block of each tensor, where that is not the outermost one."""
    blocks = {(): steps, **dict(_blocks(steps))}
    reads: dict[str, set[Path]] = {tensor: set() for tensor in tensors}
    prefix: dict[str, Path] = {}
    for access in _accesses(steps):
        if access.tensor in reads:
            within = prefix.get(access.tensor, access.path[:-1])
            prefix[access.tensor] = _common(within, access.path[:-1])
            if access.step is None:
                reads[access.tensor].add(access.path)
    return {
        tensor: path for tensor, path in prefix.items()
        if path in blocks and path and defined_first(tensor, blocks[path], path, reads[tensor])
    }  # fmt: skip


def _blocks(steps: Sequence[OrderedStep]) -> Iterator[tuple[Path, Sequence[OrderedStep]]]:
    for step, path, _ in at_paths(steps):
        if isinstance(step, Loop):
            yield path, step.body
        elif isinstance(step, Branch):
            yield from (((*path, ARMS[0]), step.then), ((*path, ARMS[1]), step.otherwise))


def _accesses(steps: Sequence[OrderedStep]) -> Iterator[Access]:
    for step, path, loops in at_paths(steps):
        yield from reads_of(step, path, loops)
        if isinstance(step, (Statement, Write)):
            yield Access(step.target, None, path, loops, step)


def _common(left: Path, right: Path) -> Path:
    number = 0
    while number < min(len(left), len(right)) and left[number] == right[number]:
        number += 1
    return left[:number]
