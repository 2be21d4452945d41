"""Models with inputs of undeclared rank, which is taken from calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from anydim.base.errors import OptionError
from anydim.model import Model
from anydim.program.callable_program import CallableProgram
from anydim.runtime.arrays import by_name
from anydim.runtime.variations import Variable

Serving = Callable[[Any, Mapping[str, Any]], CallableProgram | None]


class UnrankedModel(Model):
    """Compiled at the first call, and again at the first call with other ranks.

    Queries of sizes, memory and kernels refer to the ranks of the first call.
    """

    def __init__(self, variable: Variable, serving: Serving) -> None:
        self.variable = variable
        self._compiled_for: Serving = serving
        self._made = None
        self._first: CallableProgram | None = None

    def serving(self, given: Mapping[str, Any]) -> CallableProgram:
        found = self._compiled_for(self._first, given) or self
        if self._first is None:
            self._first = found
        return found

    def __call__(self, *values: Any, **named: Any) -> dict[str, Any]:
        """Run the model; compiles for new ranks."""
        out = (
            {"out": named.pop("out")} if "out" in named and "out" not in self.input_names() else {}
        )
        given = by_name(self.name, self.input_names(), values, named)
        return self.serving(given)(**given, **out)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if self._first is None:
            first = self.variable.open[0]
            raise OptionError(
                f"{self.name}: the rank of input '{first}' is not known before the first call",
                f"give the number of its axes: dims={{'{first}': 3}}, --dim {first}=3",
            )
        return getattr(self._first, name)

    @property
    def name(self) -> str:
        return self.variable.name

    def input_names(self) -> list[str]:
        return list(self.variable.inputs)

    def __reduce__(self) -> tuple[Any, ...]:
        return self._made, ()

    def __repr__(self) -> str:
        takes = ", ".join(self.variable.inputs)
        return f"<anydim model {self.name}({takes}), compiled by its first call>"
