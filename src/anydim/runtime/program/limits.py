"""Limits on the memory of a call, enforced at compile time or before a call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from anydim.base.amounts import bytes_of, exact_bytes_text
from anydim.base.errors import DimError, MemoryLimitError
from anydim.base.keywords import public
from anydim.base.records import dataclass
from anydim.runtime.program.memory import Memory, memory
from anydim.runtime.program.peak import peak
from anydim.runtime.program.program import Program

_SHOWN = 3  # number of values that an error names
_OTHERWISE = "lower the bounds, raise the limit, or refuse calls: MemoryLimit(..., per_call=True)"


@public
@dataclass(frozen=True, init=False)
class MemoryLimit:
    """Most bytes of memory of a call: `MemoryLimit("512 MiB")`.

    Args:
        bytes: A number of bytes, or a text with a unit: KiB, MiB, GiB, TiB (powers of 1024), kB,
            MB, GB, TB (powers of 1000).
        per_call: Refuse single calls. Otherwise, a model with larger sizes within its bounds is
            refused when it is compiled or loaded.

    Raises:
        OptionError: `bytes` is not a number of bytes.
    """

    bytes: int
    per_call: bool

    def __init__(self, bytes: int | str, per_call: bool = False) -> None:
        object.__setattr__(self, "bytes", bytes_of(bytes, "memory_limit"))
        object.__setattr__(self, "per_call", per_call)

    @staticmethod
    def of(given: Any) -> MemoryLimit:
        """Convert the argument `memory_limit`: a limit, a number of bytes or a text."""
        return given if isinstance(given, MemoryLimit) else MemoryLimit(given)

    def check(self, program: Program) -> None:
        """Raise MemoryLimitError for a program whose bound is above the limit.

        Without a bound, or with `per_call`, only if even the smallest sizes need more.
        """
        known = memory(program)
        bound = known.bound
        if bound is not None and bound <= self.bytes:
            return
        if bound is not None and not self.per_call:
            raise MemoryLimitError(
                f"{known.name}: a call may take {exact_bytes_text(bound)} of its own for "
                f"{known.box}, above the memory limit of {exact_bytes_text(self.bytes)}",
                "; ".join((*_fitting(known, self.bytes), _OTHERWISE)),
            )
        least = {dim.name: dim.lo for dim in known.box.dims}
        if known.box.contains(least) and known.bytes.evaluate(least) > self.bytes:
            raise self.error(program, least)

    def error(self, program: Program, sizes: Mapping[str, int]) -> MemoryLimitError:
        """Return the error for a call at these sizes."""
        known, found = memory(program), peak(program, sizes)
        at = ", ".join(f"{name} = {value}" for name, value in sizes.items()) or "its only size"
        parts = [f"{name} {exact_bytes_text(value)}" for name, value in found.parts[:_SHOWN]]
        more = f" and {len(found.parts) - _SHOWN} more" if len(found.parts) > _SHOWN else ""
        what = "takes" if program.straight is not None else "may take"
        told = [f"most lives {found.where}: {', '.join(parts)}{more}"]
        told += [*_fitting(known, self.bytes, sizes), "raise the limit, or use smaller sizes"]
        return MemoryLimitError(
            f"{known.name}: a call at {at} {what} {exact_bytes_text(found.bytes)} of its own, "
            f"above the memory limit of {exact_bytes_text(self.bytes)}",
            "; ".join(told),
        )


def _fitting(known: Memory, limit: int, sizes: Mapping[str, int] | None = None) -> Iterator[str]:
    """Yield, for each dim, the largest size that fits with the other sizes unchanged."""
    for dim in known.box.dims:
        others = {} if sizes is None else {n: v for n, v in sizes.items() if n != dim.name}
        try:
            found = known.largest(dim.name, limit, others)
        except (DimError, MemoryLimitError):
            continue
        if found:
            yield f"up to {dim.name} = {found} fits{' at the other sizes' if others else ''}"
