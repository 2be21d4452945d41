"""Variants of a site: adapt a kernel to the operands and sizes of the kernel it replaces.

A variant with a specialised size ignores that parameter: `fitted` gives the kernel of any launch
the interface of a recipe, so that host code, which stores what the recipe names, is independent of
the variant that runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from anydim.base.errors import InternalError
from anydim.compiler.kernels.ir import INDEX, Const, Kernel, Let, Scalar, Step
from anydim.compiler.kernels.launch import Launch
from anydim.compiler.kernels.naming import NUMBERED, named_kernel
from anydim.runtime.program.recipe import Recipe


def size_names(launch: Launch) -> tuple[str, ...]:
    """Names of a launch's sizes: their expressions, or the kernel's own names for them."""
    return tuple(
        str(size) if NUMBERED.fullmatch(name) else name
        for name, size in zip(launch.kernel.sizes, launch.sizes)
    )


def fit_kernel(launch: Launch, recipe: Recipe) -> Kernel:
    """The kernel of a launch with the interface of a recipe; unchanged if they are equal.

    Sizes that are constant in the kernel are ignored; those that the recipe does not name become
    constants in it. Raises InternalError if the kernel needs another operand or dynamic size.
    """
    kernel, names = launch.kernel, size_names(launch)
    operands = [argument.tensor for argument in launch.arguments]
    if tuple(operands) == recipe.operands and names == recipe.sizes:
        return kernel
    if sorted(operands) != sorted(recipe.operands):
        raise InternalError(f"'{kernel.name}' takes {operands}, not {recipe.operands}")
    _, scalars, _ = parameters_of(kernel)
    order = positions_of(operands, recipe.operands)
    own = {name: scalar for name, scalar in zip(names, scalars) if name in recipe.sizes}
    sizes = [own.get(name, Scalar(f"known.{n}")) for n, name in enumerate(recipe.sizes)]
    known = []
    for name, scalar, size in zip(names, scalars, launch.sizes):
        if own.get(name) is scalar:
            continue
        if size.constant is None:
            raise InternalError(f"'{kernel.name}' needs {name}, which a site does not give it")
        known.append(Let(scalar.name, Const(INDEX, size.constant)))
    prefix = kernel.name.rpartition("_")[0]
    return with_interface(kernel, order, sizes, known, prefix)


def positions_of(names: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """Index in `names` of each of `wanted`; equal names are matched in order."""
    found = {name: [n for n, other in enumerate(names) if other == name] for name in names}
    return [found[name].pop(0) for name in wanted]


def with_interface(
    kernel: Kernel, order: Sequence[int], sizes: Sequence[Scalar], steps: Sequence[Step],
    prefix: str,
) -> Kernel:  # fmt: skip
    """The kernel with reordered operands and parameters `sizes`; executes `steps` first."""
    pointers, _, rest = parameters_of(kernel)
    main = replace(
        kernel.main,
        parameters=(*(pointers[n] for n in order), *sizes, *rest),
        body=(*steps, *kernel.main.body),
    )
    return named_kernel(
        prefix, [kernel.operands[n] for n in order], [size.name for size in sizes],
        (*kernel.functions[:-1], main), kernel.libraries, kernel.group, kernel.locals,
    )  # fmt: skip


def parameters_of(kernel: Kernel) -> tuple[list[Any], list[Any], list[Any]]:
    """Parameters of `main`: operands, sizes, and the rest."""
    first, second = len(kernel.operands), len(kernel.operands) + len(kernel.sizes)
    parameters = list(kernel.main.parameters)
    return parameters[:first], parameters[first:second], parameters[second:]
