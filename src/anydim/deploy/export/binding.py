"""The code that binds the sizes of a program with regions: its inputs' dims, checks and shapes."""

from __future__ import annotations

from collections.abc import Iterable

from anydim.base.dtypes import uint8
from anydim.base.records import dataclass
from anydim.compiler.kernels import ir
from anydim.compiler.native.emit import emit
from anydim.deploy.export.arena import arena_of
from anydim.runtime.checks import Check
from anydim.runtime.program.binding import determined_dims
from anydim.runtime.program.program import Program
from anydim.runtime.program.segment import Segment
from anydim.runtime.signature import Signature, TensorSpec
from anydim.sizes import Box, Size, as_size


@dataclass(frozen=True)
class Binding:
    """Host code of `bind`, and its slots.

    `code` is None if it is part of the program's. `outputs` are the first slots of the outputs'
    sizes, None for those that data decides. `scratch` is the slot with the bytes of the block of
    segments. `arena_known`: whether the bytes of the arena follow from the sizes.
    """

    code: ir.Library | None
    checks: tuple[Check, ...]
    words: int
    shapes: int
    outputs: tuple[int | None, ...]
    scratch: int
    arena_known: bool


def binding_of(program: Program, updated: Iterable[str]) -> Binding:
    """Return the binding of a program whose inputs determine all dims that data does not.

    `updated` are the inputs that the program writes over.
    """
    whole = program.signature
    known = determined_dims(whole.box, whole.inputs, frozenset())
    copied = [spec for spec in whole.inputs if spec.name in set(updated)]
    arena = arena_of(program, known, copied)
    bytes, scratch = (as_size(0), as_size(0)) if arena is None else (arena.bytes, arena.scratch)
    fixed = [spec for spec in whole.outputs if _symbols(spec.shape) <= known]
    room = TensorSpec("scratch", uint8, (scratch,))
    signature = Signature(
        whole.name, _known_box(whole.box, known), whole.inputs, (*fixed, room),
        tuple(g for g in whole.guards if g.left.symbols | g.right.symbols <= known),
    )  # fmt: skip
    made = emit(Segment(signature, (), (), (), bytes), runs=False)
    slots = [made.layout.output_axis(number, 0) for number in range(len(fixed) + 1)]
    found = dict(zip((spec.name for spec in fixed), slots))
    outputs = tuple(found.get(spec.name) for spec in whole.outputs)
    return Binding(
        made.code, made.checks, made.layout.words, made.layout.input_shapes, outputs, slots[-1],
        arena is not None,
    )  # fmt: skip


def _symbols(sizes: Iterable[Size]) -> frozenset[str]:
    return frozenset().union(*(size.symbols for size in sizes))


def _known_box(box: Box, known: frozenset[str]) -> Box:
    dims = tuple(dim for dim in box.dims if dim.name in known)
    return Box(dims, tuple(size for size in box.constraints if size.symbols <= known))
