"""What kernels of products share: parameters, calls by name, where packed constants lie."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol

from anydim.base.dtypes import DType, uint8
from anydim.kernels import ir
from anydim.kernels.launch import Argument, Launch, Machine, Packing, moved_bytes
from anydim.kernels.naming import named_kernel
from anydim.kernels.product.epilogue import PRODUCT, Output
from anydim.kernels.product.finish import finish_function
from anydim.kernels.product.sharing import GRAIN, Sharing
from anydim.kernels.schedule import print_schedule
from anydim.kernels.write.arithmetic import constant, times, variable
from anydim.kernels.write.elements import Context, SizeParameters
from anydim.lang.tree import Group, TensorType
from anydim.sizes import Size, as_size


def pointers_of(
    operands: Iterable[ir.Operand], shared: Collection[str] = ()
) -> tuple[ir.Pointer, ...]:
    """The pointers to operands; those that are `shared` may lie in the same bytes."""
    return tuple(ir.Pointer(o.name, o.dtype, o.written or o.name in shared) for o in operands)


def shared_names(in_place: Iterable[tuple[str, str]], buffers: Mapping[str, str]) -> frozenset[str]:
    """The operands that may lie in the same bytes."""
    return frozenset(buffers[tensor] for pair in in_place for tensor in pair)


def main_function(
    name: str, pointers: Sequence[ir.Pointer], sizes: Iterable[str], body: Sequence[ir.Step]
) -> ir.Function:
    """The function that a launch calls."""
    scalars = map(ir.Scalar, (*sizes, "start", "stop"))
    return ir.Function(name, (*pointers, *scalars, ir.Pointer("scratch", uint8)), tuple(body))


def call(function: ir.Function, **own: ir.Value | ir.Address) -> ir.Call:
    """A call that passes on whatever has the name of a parameter, but for its `own`."""
    arguments: list[ir.Value | ir.Address] = []
    for parameter in function.parameters:
        if parameter.name in own:
            arguments.append(own[parameter.name])
        elif isinstance(parameter, ir.Pointer):
            arguments.append(ir.Address(parameter.name, constant(0)))
        else:
            arguments.append(variable(parameter.name))
    return ir.Call(function.name, tuple(arguments))


def finish_of(
    group: Group, outputs: tuple[Output, ...], dtype: DType, lanes: int, loops: Iterable[str],
    sizes: SizeParameters, machine: Machine, buffers: Mapping[str, str],
    pointers: tuple[ir.Pointer, ...],
) -> ir.Function:  # fmt: skip
    """The function that computes what follows a product from its sums, which are of `dtype`."""
    types = {t.name: t.type for t in (*group.inputs, *group.outputs)}
    types[PRODUCT] = TensorType(dtype, ())
    context = Context(types, sizes, machine, buffers)
    return finish_function(outputs, dtype, lanes, tuple(loops), context, pointers)


class Writer(Protocol):
    """What writes the functions of a kernel of a product.

    `name` begins that of the kernel; `roles` are (tensor, operand). Sizes are complete when the
    functions are written.
    """

    name: str
    in_place: tuple[tuple[str, str], ...]

    @property
    def sizes(self) -> SizeParameters: ...
    @property
    def roles(self) -> Sequence[tuple[str, str]]: ...
    @property
    def operands(self) -> Sequence[ir.Operand]: ...
    @property
    def libraries(self) -> Sequence[ir.Library]: ...
    @property
    def sharing(self) -> Sharing: ...
    @property
    def scratch(self) -> Size: ...
    def functions(self) -> tuple[ir.Function, ...]: ...


def launch_of(
    writer: Writer, group: Group, schedule: object, packings: Mapping[str, Packing | None],
    work: Size, reason: str,
) -> Launch:  # fmt: skip
    """The launch of a product of `work` multiply-adds; `packings` are those of operands."""
    functions = writer.functions()
    return Launch(
        kernel=named_kernel(
            writer.name, writer.operands, writer.sizes.names, functions, writer.libraries
        ),
        arguments=tuple(Argument(tensor, packings.get(role)) for tensor, role in writer.roles),
        sizes=writer.sizes.sizes,
        parallel=writer.sharing.steps,
        grain=GRAIN,
        scratch=writer.scratch,
        flops=2 * work,
        moved=moved_bytes(group),
        schedule=print_schedule(schedule),
        reason=reason,
        in_place=writer.in_place,
    )


def packed_at(
    loops: Sequence[tuple[str, Size]], group: Size | int, role: Callable[[str, Size], ir.Value]
) -> list[ir.Value]:
    """The terms of where the loops are in a packed constant that has a `group` for each of them."""
    terms: list[ir.Value] = []
    inner = as_size(1)
    for name, extent in reversed(loops):
        terms.append(times(variable(name), role(f"{name}_packed", inner * group)))
        inner = inner * extent
    return terms
