"""Launches: a kernel and the parameters of one call of it, from the schedule pass to the program.

A template lowers a `Group` to a `Launch`. Everything that depends on sizes is a size expression, so
one launch record serves every size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from anydim.base.dtypes import DType, int64
from anydim.base.errors import InternalError
from anydim.base.records import dataclass
from anydim.compiler.kernels.ir import Kernel, Operand
from anydim.compiler.kernels.limits import DEFAULTS, Limits
from anydim.lang.tree import Group
from anydim.runtime.panels import Packing
from anydim.sizes import Condition, Size, as_size, product

STATUS = Operand("status", int64, written=True)  # operand of kernels that check indices
TF32 = "tf32"  # name of the feature: float32 with a 10-bit fraction
STATUS_TENSOR = "$status"  # name of its argument


@dataclass(frozen=True)
class Machine:
    """Properties of a target that templates may use: its vector unit and caches.

    `lanes(dtype)` counts elements of a vector register; `registers` counts vector registers. Cache
    sizes are bytes of one core's share. `fused`: a * b + c is rounded once. A vector has at most
    `max_lanes`, 0: no limit. `warps` of threads multiply fragments of 16-bit matrices and have
    async copies; with `tf32` also of float32 matrices, whose factors are rounded. `permutes`: has a
    two-vector permute with computed indices. `llc_bytes`: a launch that moves as many bytes or
    more evicts all of its data from all caches (0: unknown). `tiles`: has matrix registers, see
    `ir.Tiles`. `threads` share a launch (0: unknown); results do not depend on their number.
    `limits` between versions were measured on the machine, or are defaults. `pairs`: adds products
    of bfloat16 pairs in one instruction ('dot_bfloat16'); `pair_tiles`: tiles do (`ir.TilePairs`).
    `touches`: has no prefetches; a block is read ahead instead. `library`: its driver has a library
    of matrix products.
    """

    vector_bytes: int = 32
    registers: int = 16
    l1_bytes: int = 32 * 1024
    l2_bytes: int = 512 * 1024
    fused: bool = True
    max_lanes: int = 0
    warps: bool = False
    tf32: bool = False
    tiles: bool = False
    threads: int = 0
    permutes: bool = False
    llc_bytes: int = 0
    limits: Limits = DEFAULTS
    pairs: bool = False
    pair_tiles: bool = False
    touches: bool = False
    library: bool = False

    def lanes(self, dtype: DType) -> int:
        return self.lanes_of(dtype.bytes)

    def at_most(self, lanes: int) -> int:
        """`lanes`, clamped to `max_lanes`."""
        return min(lanes, self.max_lanes) if self.max_lanes else lanes

    def lanes_of(self, bytes: int) -> int:
        """Elements of `bytes` bytes in a vector register."""
        return self.at_most(max(1, self.vector_bytes // bytes))


def halved_lanes(lanes: int, extent: int | None, least: int = 1) -> int:
    """`lanes`, halved while half of them still hold all of an extent; `least` or more."""
    while extent is not None and lanes > least and lanes // 2 >= extent:
        lanes //= 2
    return lanes


def known_number(size: Size) -> int:
    """The value of a size of a packed constant; all such sizes are constants."""
    if size.constant is None:
        raise InternalError(f"size {size} of a packed constant is not constant")
    return size.constant


def known_parts(part: Sequence[tuple[Size, Size]]) -> tuple[tuple[int, int], ...]:
    """Sizes and strides of a packed constant."""
    return tuple((known_number(size), known_number(stride)) for size, stride in part)


def are_known(*parts: Sequence[tuple[Size, Size]]) -> bool:
    """Whether a constant with these sizes and strides can be packed at load time."""
    return all(size.constant is not None for part in parts for pair in part for size in pair)


def moved_bytes(group: Group) -> Size:
    """Bytes of all tensors that a group reads and writes, each counted once."""
    tensors = (*group.inputs, *group.outputs)
    return sum((product(t.type.shape) * t.type.dtype.bytes for t in tensors), as_size(0))


@dataclass(frozen=True)
class Argument:
    """An operand of a launch: the tensor's name in the group, and its packing when it is constant.

    `words` are the int64 contents of an operand that is no tensor of the group; they may be valid
    in this process only. `STATUS_TENSOR` is an int64 slot for each check of the group:
    `runtime.positions.FINE` before the launch, and an index that failed, if any, after it.
    """

    tensor: str
    packing: Packing | None = None
    words: tuple[int, ...] = ()


@dataclass(frozen=True)
class Launch:
    """One kernel call of the host program.

    `arguments` match kernel.operands, `sizes` match kernel.sizes. The parallel range is 0:parallel,
    cut into at most one part per thread, no part smaller than `grain`. A negative `grain` means
    stages of -grain positions each, run one after the other; threads share a stage. Each thread
    gets `scratch` bytes, the same ones in all stages. `flops` and `moved` (bytes) estimate the
    work, for reports. `schedule` is the printed schedule that made the kernel; `reason` says why it
    was chosen. `order` is the index in `sizes` of the number that reverses the kernel's walk over
    its part of the parallel range when it is 1; None when the kernel has no such number. `in_place`
    holds pairs (result, operand) of tensors that may share a buffer: an element of the operand is
    read before the same element of the result is written, and never afterwards. `versions` are the
    names and conditions of the ways to compute, if there are several: a call takes the first one
    whose condition holds.
    """

    kernel: Kernel
    arguments: tuple[Argument, ...]
    sizes: tuple[Size, ...]
    parallel: Size
    grain: Size | int
    scratch: Size
    flops: Size
    moved: Size
    schedule: str
    reason: str
    order: int | None = None
    in_place: tuple[tuple[str, str], ...] = ()
    versions: tuple[tuple[str, Condition], ...] = ()

    def in_loop(self, counter: str) -> Launch:
        """The launch in a loop: every other iteration runs backwards.

        The data that the last iteration read last is still in a cache. Weights as large as the
        cache, read repeatedly in one order, would always be evicted before their next use.
        """
        iteration = Size.symbol(counter)
        return self.walk_from_end(iteration - 2 * (iteration // 2))

    def walk_from_end(self, backwards: Size | int) -> Launch:
        """The launch, walking from the end where `backwards` is 1 if the kernel supports it."""
        position = self.order
        if position is None:
            return self
        sizes = (*self.sizes[:position], as_size(backwards), *self.sizes[position + 1 :])
        return replace(self, sizes=sizes)
