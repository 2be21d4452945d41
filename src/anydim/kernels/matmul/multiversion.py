"""Multiversioned launches: the sizes of a call select one of two kernels.

One kernel contains the functions and the operands of both. An operand that they pack differently
is stored twice. The range of the launch is the range of the selected kernel.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from anydim.base.dtypes import uint8
from anydim.kernels import ir
from anydim.kernels.ir import constant, variable
from anydim.kernels.launch import Argument, Launch
from anydim.kernels.naming import NUMBERED, named_kernel
from anydim.sizes import Condition, Size, maximum, minimum

CHOICE = "choice"


def multiversion_launch(choice: Condition, one: Launch, other: Launch, reason: str) -> Launch:
    """Return `one` where `choice` holds and `other` elsewhere; other fields are those of `one`.

    The functions of the two kernels must have different names.
    """
    names = {a: f"o{n}" for n, a in enumerate(dict.fromkeys((*one.arguments, *other.arguments)))}
    numbers: dict[Size, str] = {}
    own, others = _named("one", one, numbers), _named("other", other, numbers)
    sizes = own | others
    operands = [_operand(argument, name, one, other) for argument, name in names.items()]
    shared = {
        names[argument]
        for launch in (one, other)
        for argument, pointer in zip(launch.arguments, launch.kernel.main.parameters)
        if isinstance(pointer, ir.Pointer) and pointer.alias
    }
    main = ir.Function(
        "either",
        (
            *(ir.Pointer(o.name, o.dtype, alias=o.name in shared) for o in operands),
            *(ir.Scalar(name) for name in (*sizes, CHOICE, "start", "stop")),
            ir.Pointer("scratch", uint8),
        ),
        (
            ir.If(
                variable(CHOICE).differs(0),
                (_call(one, names, own),),
                (_call(other, names, others),),
            ),
        ),
    )
    kernels = (one.kernel, other.kernel)
    kernel = named_kernel(
        one.kernel.name.rpartition("_")[0],
        operands,
        (*sizes, CHOICE),
        (*(function for kernel in kernels for function in kernel.functions), main),
        {library.name: library for kernel in kernels for library in kernel.libraries}.values(),
    )
    return replace(
        one,
        kernel=kernel,
        arguments=tuple(names),
        sizes=(*sizes.values(), choice.flag),
        parallel=choice.where(one.parallel, other.parallel),
        grain=minimum(one.grain, other.grain),
        scratch=maximum(one.scratch, other.scratch),
        reason=reason,
        order=None,
        in_place=tuple(pair for pair in one.in_place if pair in other.in_place),
    )


def _named(variant: str, launch: Launch, numbers: dict[Size, str]) -> dict[str, Size]:
    """Return the sizes of a launch under their new names; a role is prefixed with its variant.

    Numbered sizes have no role: equal ones are shared by both variants.
    """
    return {
        numbers.setdefault(size, f"p{len(numbers)}")
        if NUMBERED.fullmatch(name)
        else f"{variant}_{name}": size
        for name, size in zip(launch.kernel.sizes, launch.sizes)
    }


def _operand(argument: Argument, name: str, *launches: Launch) -> ir.Operand:
    """Return the operand of an argument, under its new name."""
    found = [
        operand
        for launch in launches
        for own, operand in zip(launch.arguments, launch.kernel.operands)
        if own == argument
    ]
    return ir.Operand(name, found[0].dtype, any(operand.written for operand in found))


def _call(launch: Launch, names: Mapping[Argument, str], sizes: Iterable[str]) -> ir.Call:
    """Return the call of main to one of the two variants."""
    return ir.Call(
        launch.kernel.main.name,
        (
            *(ir.Address(names[argument], constant(0)) for argument in launch.arguments),
            *map(variable, sizes),
            variable("start"),
            variable("stop"),
            ir.Address("scratch", constant(0)),
        ),
    )
