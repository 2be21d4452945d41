"""Indices of flattened axes, and the kernel around the body of a work-group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.arithmetic import quotient
from anydim.compiler.kernels.codegen.scalar_lowering import Context, SizeParameters
from anydim.compiler.kernels.codegen.writer import Writer
from anydim.compiler.kernels.ir import Like, apply, operate
from anydim.compiler.kernels.launch import Launch, Machine, moved_bytes
from anydim.compiler.kernels.operands import Operands
from anydim.lang.tree import Axis, Group, TensorType
from anydim.lang.tree.bounds_checks import has_checks
from anydim.sizes import Size


class Work(Writer):
    """The steps of a work-item, and their shared state: tensors, sizes, names of values."""

    def __init__(
        self, group: Group, machine: Machine, more: Mapping[str, TensorType] | None = None
    ) -> None:
        super().__init__()
        self.group = group
        self.touched = Operands.of(group, (statement.body for statement in group.statements))
        self.results = {tensor.name for tensor in group.outputs}
        self.buffers = self.touched.buffers
        self.types = {**self.touched.types, **(more or {})}
        self.sizes = SizeParameters()
        self.context = Context(self.types, self.sizes, machine, self.buffers)

    def fresh(self, letter: str = "i") -> str:
        """Return a name that is not in use, here or in an expression."""
        return self.context.fresh("i" if letter == "v" else letter)

    def indices(self, flat: ir.Value, axes: Sequence[Axis]) -> dict[str, ir.Value]:
        """Return the index on each axis for a flat row-major index."""
        found: dict[str, ir.Value] = {}
        for axis in reversed(axes[1:]):
            extent = self.sizes.value(axis.extent)
            if axis.extent.constant == 1:
                found[axis.name] = ir.Const(ir.INDEX, 0)
                continue
            found[axis.name] = self.let(remainder(flat, extent))
            flat = self.let(quotient(flat, extent))
        if axes:
            found[axes[0].name] = flat
        return found

    @staticmethod
    def group_reduction(function: str, value: ir.Value, shared: str, items: int) -> list[ir.Step]:
        """Return a reduction over all work-items, to the first element of a local array."""
        item, kind = ir.Item(), value.type
        steps: list[ir.Step] = [ir.Store(shared, item, value), ir.Barrier()]
        half = items // 2
        while half:
            pair = (ir.Load(kind, shared, at) for at in (item, item + half))
            store = ir.Store(shared, item, operate(function, *pair))
            steps += [ir.If(item < half, (store,)), ir.Barrier()]
            half //= 2
        return steps

    def launch(
        self, name: str, body: Sequence[ir.Step], items: int, locals: Sequence[ir.Local], *,
        parallel: Size, flops: Size, schedule: object, reason: str,
        in_place: tuple[tuple[str, str], ...] = (),
    ) -> Launch:  # fmt: skip
        """Return the launch of `parallel` work-groups of `items` work-items."""
        work = flops, moved_bytes(self.group)
        return self.touched.launch(
            name, self.sizes, body, schedule, reason, parallel=parallel, work=work, group=items,
            locals=locals, in_place=in_place,
        )  # fmt: skip


def remainder(value: ir.Value, divisor: Like) -> ir.Value:
    """Return the remainder of an index divided by `divisor`."""
    return apply("fmod", value, value.like(divisor))


def plain(group: Group) -> bool:
    """Whether a group has no ordered loops and no index checks."""
    return not group.steps and not any(has_checks(s.body) for s in group.statements)
