"""Calls of models with strings: operators on strings run before and after the native part."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from anydim.base.errors import InputError, OptionError
from anydim.base.text import listed
from anydim.program.callable_program import CallableProgram
from anydim.runtime.arrays import by_name
from anydim.runtime.string_operators import READERS

Part = Callable[[Mapping[str, Any]], Mapping[str, Any]]


class StringCalls(CallableProgram):
    """A model around its native part `core`, which may be missing.

    `early` and `late` run on the host; `readers` are the kinds of the inputs (`READERS`), by name.
    Queries of sizes, memory and kernels refer to `core`.
    """

    on_strings = True
    core: CallableProgram | None

    def surround(
        self, name: str, early: Part, late: Part, readers: Mapping[str, str], outputs: list[str]
    ) -> None:
        """Set the parts on strings."""
        self._called, self._early, self._late = name, early, late
        self._readers, self._results, self._lists = dict(readers), outputs, {}

    @property
    def name(self) -> str:
        return self._called

    def input_names(self) -> list[str]:
        return list(self._readers)

    @property
    def ports(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Inputs and outputs, each with `name`, `type` as onnxruntime writes it, and `shape`."""
        raise NotImplementedError

    def __call__(self, *values: Any, **named: Any) -> dict[str, Any]:
        """Run the model: strings on the host, the rest in native code. Raises InputError."""
        if values:
            named = by_name(self.name, list(self._readers), values, named)
        other = self.serving(named)
        if other is not self:
            return other(**named)
        known = self.before(named)
        if self.core is not None:
            known |= self.core(**self.native_inputs(known))
        return self.after(known)

    def before(self, named: Mapping[str, Any], called: str = "") -> dict[str, Any]:
        """The values that are known before native code runs. Raises InputError, which calls the
        model so, or by its name."""
        names = list(self._readers)
        unknown = [name for name in named if name not in self._readers]
        missing = [name for name in names if name not in named]
        if unknown or missing:
            problem = f"has no input '{unknown[0]}'" if unknown else f"needs input '{missing[0]}'"
            raise InputError(f"{called or self.name} {problem}", f"its inputs are {listed(names)}")
        known = {name: READERS[self._readers[name]](name, value) for name, value in named.items()}
        known |= self._early(known)
        return known

    def native_inputs(self, known: Mapping[str, Any]) -> dict[str, Any]:
        """The inputs of native code, of the values that are known before it."""
        return {spec.name: known[spec.name] for spec in self.core.inputs} if self.core else {}

    def after(self, known: Mapping[str, Any]) -> dict[str, Any]:
        """The results, of the values that are known after native code ran."""
        found = {**known, **self._late(known)}
        return {name: found[name] for name in self._results}

    def _limit_as(self, other: CallableProgram) -> None:
        if isinstance(other, StringCalls) and self.core is not None and other.core is not None:
            self.core._limit_as(other.core)

    def map(self, *_: Any, **__: Any) -> Any:
        """Raise OptionError: the memory of strings is unknown."""
        raise OptionError(f"{self.name} works on strings", "call it for each item")

    def trim(self) -> int:
        return self.core.trim() if self.core is not None else 0

    def __repr__(self) -> str:
        return f"<anydim model {self.name} with strings>"

    def _repr_html_(self) -> None:
        """Return None: the plain text is shown."""

    def __reduce__(self) -> tuple[Any, ...]:
        assert self._made is not None
        return self._made, ()
