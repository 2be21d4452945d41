"""What the schedule pass hands to the program: a kernel, and what one launch of it needs.

A template turns a `Group` into a `Launch`. Everything that depends on sizes is a size expression,
so one launch record serves every size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from anydim.base.dtypes import DType, int64
from anydim.base.errors import InternalError
from anydim.base.records import dataclass
from anydim.kernels.ir import Kernel, Operand
from anydim.lang.tree import Group
from anydim.sizes import Size, as_size, product

STATUS = Operand("status", int64, written=True)  # of kernels that check indices
TF32 = "tf32"  # float32 with a fraction of 10 bits, as a feature
STATUS_TENSOR = "$status"  # what its argument is called


@dataclass(frozen=True)
class Machine:
    """What templates may know of a target: its vector unit and caches.

    `lanes(dtype)` counts elements of a vector register; `registers` counts vector registers.
    Cache sizes are bytes of one core's share. `fused` says that a * b + c is rounded once. A vector
    has `most_lanes` at most, 0: any number. `warps` of items multiply fragments of matrices of 16
    bits, and copy beside other work; with `tf32` those of float32 too, whose factors are rounded.
    One that `permutes` picks lanes out of two vectors by numbers that are computed. What a launch
    moves is gone from all caches from `kept_bytes` on (0: nobody knows).
    With `tiles` registers hold matrices of bytes, as `ir.Tiles` says. `threads` share a launch (0:
    nobody knows how many); results are the same on any number of them.
    """

    vector_bytes: int = 32
    registers: int = 16
    l1_bytes: int = 32 * 1024
    l2_bytes: int = 512 * 1024
    fused: bool = True
    most_lanes: int = 0
    warps: bool = False
    tf32: bool = False
    tiles: bool = False
    threads: int = 0
    permutes: bool = False
    kept_bytes: int = 0

    def lanes(self, dtype: DType) -> int:
        return self.lanes_of(dtype.bytes)

    def at_most(self, lanes: int) -> int:
        """So many lanes, or as many as a vector may have."""
        return min(lanes, self.most_lanes) if self.most_lanes else lanes

    def lanes_of(self, bytes: int) -> int:
        """Elements of so many bytes in a vector register."""
        return self.at_most(max(1, self.vector_bytes // bytes))


def filled(lanes: int, extent: int | None, least: int = 1) -> int:
    """Half as many lanes as often as they hold all of an extent; `least` or more."""
    while extent is not None and lanes > least and lanes // 2 >= extent:
        lanes //= 2
    return lanes


@dataclass(frozen=True)
class Panels:
    """Packing of a constant matrix operand: [groups..., ceil(n/width)][k][width], zero padded.

    `groups`, `k`, `n` give for each role the (size, stride) pairs, outermost first, over the flat
    row-major constant; all are plain ints because the operand is constant. 64-byte aligned.
    """

    width: int
    batch: tuple[tuple[int, int], ...]
    k: tuple[tuple[int, int], ...]
    n: tuple[tuple[int, int], ...]
    offset: int = 0


def known_number(size: Size) -> int:
    """A size of a constant that is packed; they are all known."""
    if size.constant is None:
        raise InternalError(f"size {size} of a packed constant is not constant")
    return size.constant


def known_parts(part: Sequence[tuple[Size, Size]]) -> tuple[tuple[int, int], ...]:
    """Sizes and strides of a constant that is packed."""
    return tuple((known_number(size), known_number(stride)) for size, stride in part)


def are_known(*parts: Sequence[tuple[Size, Size]]) -> bool:
    """Whether a constant with these sizes and strides can be packed when it is loaded."""
    return all(size.constant is not None for part in parts for pair in part for size in pair)


def moved_bytes(group: Group) -> Size:
    """Bytes of all that a group reads and writes, each tensor once."""
    tensors = (*group.inputs, *group.outputs)
    return sum((product(t.type.shape) * t.type.dtype.bytes for t in tensors), as_size(0))


@dataclass(frozen=True)
class ProductPanels(Panels):
    """Panels of a constant whose two axes `taps` are multiplied by a matrix first, on both sides.

    Every pair of rows of `matrix` then makes a group: [groups..., pairs, ceil(n/width)][k][width].
    """

    taps: tuple[tuple[int, int], ...] = ()
    matrix: tuple[tuple[float, ...], ...] = ()


@dataclass(frozen=True)
class BytesPanels:
    """Packing of a constant factor of a product of bytes; see `matmul/int8/packed_layout.py`.

    `batch`, `own` (rows or columns), `taps` and `k` give (size, stride) pairs as in `Panels`.
    `width` columns make a panel; rows are panels of one. `flipped` bytes change by 128, after
    which they are `unsigned` or not; their sums are multiplied by `factor`. Panels go on in units
    of `depth` words, zero padded; `spare` more such panels may be read, whatever they hold.
    """

    width: int
    batch: tuple[tuple[int, int], ...]
    own: tuple[tuple[int, int], ...]
    taps: tuple[tuple[int, int], ...]
    k: tuple[tuple[int, int], ...]
    offset: int
    flipped: bool
    unsigned: bool
    factor: int
    depth: int = 1
    spare: int = 0


@dataclass(frozen=True)
class NarrowPanels:
    """Packing of weights of 4 or 8 bits: [ceil(n/width)][k], padded with zeros to `depth` of k.

    `k` and `n` give (size, stride). Of 8 bits there is a byte for each, [k][width]; of 4 bits a
    word of eight of them along k, the first one in its low bits, each 8 more than it is.
    """

    width: int
    bits: int
    k: tuple[int, int]
    n: tuple[int, int]
    depth: int


Packing = Panels | BytesPanels | NarrowPanels


@dataclass(frozen=True)
class Argument:
    """An operand of a launch: the tensor's name in the group, and its packing when constant.

    `words` are what an operand holds that is no tensor of the group: int64 numbers, of this process
    perhaps.
    `STATUS_TENSOR` is an int64 word for each check of the group: it holds
    `runtime.positions.FINE` before the launch, and after it an index that failed, if any did.
    """

    tensor: str
    packing: Packing | None = None
    words: tuple[int, ...] = ()


@dataclass(frozen=True)
class Launch:
    """One kernel call of the host program.

    `arguments` match kernel.operands, `sizes` match kernel.sizes. The parallel range is
    0:parallel, cut into at most one part per thread, no part smaller than `grain`. A `grain` below
    0 has stages of so many positions, one after the other; threads share a stage. Each thread
    gets `scratch` bytes, the same ones where there are stages. `flops` and `moved` (bytes) estimate
    the work, for reports.
    `schedule` is the printed schedule that made the kernel; `reason` says why it was chosen.
    `order` is the place in `sizes` of the number that has the kernel walk its part of the parallel
    range from the end when it is 1; None where a kernel has no such number.
    `in_place` are pairs (result, operand) of tensors that may lie in the same bytes: an element of
    the operand is read before that of the result is written, and never afterwards.
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

    def in_loop(self, counter: str) -> Launch:
        """The launch in a loop: every other iteration goes backwards.

        What the last iteration read last is still in a cache: of weights as large as the cache,
        read again and again in one order, nothing would be left when it is wanted.
        """
        iteration = Size.symbol(counter)
        return self.ordered(iteration - 2 * (iteration // 2))

    def ordered(self, backwards: Size | int) -> Launch:
        """The launch walking from the end where `backwards` is 1, if it can."""
        place = self.order
        if place is None:
            return self
        sizes = (*self.sizes[:place], as_size(backwards), *self.sizes[place + 1 :])
        return replace(self, sizes=sizes)
