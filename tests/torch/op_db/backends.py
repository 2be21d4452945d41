"""What runs an exported program: a function of tensors, made from a program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Run = Callable[[tuple[torch.Tensor, ...]], list[Any]]


class Refused(Exception):
    """The backend says that it does not support a program."""


def anydim(program: Any) -> Run:
    """anydim's compiler; sizes are free within the program's ranges."""
    import anydim as ad

    try:
        model = ad.compile(program)
    except ad.UserError as error:
        raise Refused(str(error)) from None

    def run(tensors: tuple[torch.Tensor, ...]) -> list[Any]:
        return list(model(*tensors).values())

    return run


def eager(program: Any) -> Run:
    """torch itself, on the exported program."""
    module = program.module(check_guards=False)

    def run(tensors: tuple[torch.Tensor, ...]) -> list[Any]:
        made = module(*tensors)
        return list(torch.utils._pytree.tree_leaves(made))

    return run


BACKENDS: dict[str, Callable[[Any], Run]] = {"anydim": anydim, "eager": eager}
