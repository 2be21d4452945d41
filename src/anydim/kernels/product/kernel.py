"""What kernels of products share: parameters, calls by name, where packed constants lie."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from anydim.base.dtypes import DType, uint8
from anydim.kernels import ir
from anydim.kernels.ir import constant, variable
from anydim.kernels.launch import Machine
from anydim.kernels.product.epilogue import PRODUCT, Output
from anydim.kernels.product.finish import finish_function
from anydim.kernels.write.elements import Context, SizeParameters
from anydim.kernels.write.writer import Writer
from anydim.lang.tree import Group, TensorType
from anydim.sizes import Size, as_size


def operands_of(
    roles: Iterable[tuple[str, str]], packed: Mapping[str, DType], group: Group,
    outputs: Iterable[Output],
) -> tuple[ir.Operand, ...]:  # fmt: skip
    """The operands for (tensor, operand), those of `packed` tensors with their own types."""
    written = {output.tensor for output in outputs}
    return tuple(
        ir.Operand(role, packed.get(role, group.type_of(tensor).dtype), tensor in written)
        for tensor, role in roles
    )


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


def function_library(
    name: str, parameters: Iterable[ir.Pointer | ir.Scalar], write: Callable[[Writer], None]
) -> ir.Library:
    """A library of one function of the same name, which `write` writes when it is asked for."""
    own = tuple(parameters)

    def made() -> tuple[ir.Function, ...]:
        code = Writer()
        write(code)
        return (ir.Function(name, own, code.written, public=True),)

    return ir.Library(name, made, identity=name)


def call(function: ir.Function, **own: ir.Value | ir.Address) -> ir.Call:
    """A call that passes on whatever has the name of a parameter, but for its `own`."""
    arguments: list[ir.Value | ir.Address] = []
    for parameter in function.parameters:
        if parameter.name in own:
            arguments.append(own[parameter.name])
        elif isinstance(parameter, ir.Pointer):
            arguments.append(ir.Address(parameter.name, constant(0)))
        else:
            arguments.append(ir.Var(parameter.type, parameter.name))
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


def packed_at(
    loops: Sequence[tuple[str, Size]], group: Size | int, role: Callable[[str, Size], ir.Value]
) -> list[ir.Value]:
    """The terms of where the loops are in a packed constant that has a `group` for each of them."""
    terms: list[ir.Value] = []
    inner = as_size(1)
    for name, extent in reversed(loops):
        terms.append(variable(name) * role(f"{name}_packed", inner * group))
        inner = inner * extent
    return terms
