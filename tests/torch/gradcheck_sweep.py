"""torch's gradcheck of every definition of the repository that has a derivative.

    python -m tests.torch.gradcheck_sweep                  # all of them: some minutes
    python -m tests.torch.gradcheck_sweep --match norm     # those whose names hold a text

Definitions run as operators of torch, in float64, at sizes 0, 1 and primes. Arguments are those of
`python -m tests.gradient_sweep`, which compares derivatives with differences by numpy.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click
import numpy as np
import torch
from torch.autograd.gradcheck import GradcheckError, gradcheck

from anydim.api.compile_options import Options
from anydim.api.definitions import Function
from anydim.api.derivatives import derive_vjp
from anydim.base.errors import InternalError, LanguageError, UserError
from anydim.compiler.passes.options import PLAIN
from anydim.lang.surface.syntax import Definition
from tests.definition_texts import arguments, definitions
from tests.gradient_sweep import DRAWS, ROUNDING, SIZES
from tests.gradients import values

MOST = 64  # elements of whole Jacobians; those of larger arguments are compared by projection
NO_CALL, RIGHT = "no call with floats is valid", "right"


def outcome(definition: Definition) -> str:
    """`RIGHT`, or why there is nothing to check, or 'wrong: ...' with the first error."""
    if definition.ragged:
        return "a definition with ragged sizes is no operator of torch"
    function = Function(definition, {}, Options(threads=1).changed(schedules=PLAIN))
    found = [_at_size(function, n) for n in SIZES]
    bad = next((text for text in found if text not in (RIGHT, NO_CALL)), None)
    return bad or (RIGHT if RIGHT in found else NO_CALL)


def _at_size(function: Function, n: int) -> str:
    """The outcome for arguments of size n; arguments beside a kink are drawn again."""
    text = NO_CALL
    for seed in range(DRAWS):
        arrays, attributes = arguments(function.definition, n, seed)
        try:
            found = values(function.definition, arrays, attributes)
        except (UserError, LookupError):
            continue
        try:
            derive_vjp(function.definition, arrays, attributes, {})
        except UserError as error:
            return f"no derivative: {_line(error)}"
        if not all(np.isfinite(each).all() for each in found):
            continue
        try:
            checked(function, arrays, attributes)
        except LanguageError as error:
            return f"its derivative is refused: {_line(error)}"
        except (GradcheckError, UserError, InternalError, RuntimeError) as error:
            text = f"wrong: size {n}: {_line(error)}"
        else:
            return RIGHT
    return text


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]


def checked(
    function: Callable[..., Any], arrays: Sequence[np.ndarray], attributes: Mapping[str, Any]
) -> None:
    """gradcheck of a definition. Raises GradcheckError where the derivative is another one."""
    tensors = [tensor_of(array) for array in arrays]
    for tensor in tensors:
        tensor.requires_grad_(tensor.is_floating_point())
    large = max((t.numel() for t in tensors if t.requires_grad), default=0) > MOST

    def floats(*given: torch.Tensor) -> list[torch.Tensor]:
        made = function(*given, **attributes)
        return [r for r in (made if isinstance(made, tuple) else [made]) if r.is_floating_point()]

    gradcheck(floats, tensors, fast_mode=large)


def tensor_of(array: np.ndarray) -> torch.Tensor:
    """A contiguous copy; gradcheck refuses the strides that numpy gives empty arrays."""
    shared = torch.from_numpy(np.ascontiguousarray(array).reshape(array.shape))
    return torch.empty(array.shape, dtype=shared.dtype).copy_(shared)


@click.command(help=__doc__)
@click.option("--match", default="")
@click.option("--skip", default=0, help="Leave out the first definitions.")
def main(match: str, skip: int) -> None:
    torch.set_num_threads(1)
    kinds: Counter[str] = Counter()
    for name, definition in list(definitions().items())[skip:]:
        if match not in name:
            continue
        start = time.perf_counter()
        found = ROUNDING.get(name) or outcome(definition)
        kinds[found if found == RIGHT else found.partition(":")[0]] += 1
        print(f"{name}: {found} ({time.perf_counter() - start:.1f} s)", flush=True)
    for kind, count in kinds.most_common():
        print(f"{count}: {kind}")
    sys.exit(kinds["wrong"] > 0)


if __name__ == "__main__":
    main()
