"""Models of torch modules whose results have the structure that the module returns."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anydim.model import Model


class ModuleResults:
    """The call of a model of a module: its results are a tuple, a dataclass, or a class that is
    known to torch's pytree, such as `ModelOutput` of transformers.

    `_returned` are the names and plain values that the module returns, in the structure `_spec`.
    """

    _core: Any
    _returned: tuple[Any, ...]
    _spec: Any

    def __call__(self, *values: Any, **named: Any) -> Any:
        """Run the model. Raises as a model."""
        from torch.utils._pytree import tree_unflatten

        found = self._core(*values, **named)
        leaves = (found.get(each, each) if isinstance(each, str) else each
                  for each in self._returned)  # fmt: skip
        return tree_unflatten(leaves, self._spec)

    def __reduce__(self) -> tuple[Any, ...]:
        return structured, (self._core, self._returned, self._spec)


def structured(core: Model, returned: Sequence[Any], spec: Any) -> Model:
    """A model whose calls return a structure. All other methods give results by name."""
    kind: Any = type(core)
    made: Any = object.__new__(_class(kind))
    made.__dict__.update(core.__dict__)
    made._core, made._returned, made._spec = core, tuple(returned), spec
    found: Model = made
    return found


@cache
def _class(kind: Any) -> Any:
    return type(kind.__name__, (ModuleResults, kind), {"__module__": kind.__module__})
