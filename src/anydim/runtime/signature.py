"""The inputs and outputs of a program: names, element types and symbolic shapes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from anydim.base.dtypes import DType
from anydim.base.records import dataclass
from anydim.sizes import Box, Guard, Size, product

_NUMBER = re.compile(r"\d+")
_FEW = 3  # tensors from which a group is one text
PASSED_THROUGH = " (passed through)"  # marks an output that copies an input or a constant


@dataclass(frozen=True)
class TensorSpec:
    """A named tensor; its shape entries are size expressions over the dims of the box."""

    name: str
    dtype: DType
    shape: tuple[Size, ...]

    @property
    def key(self) -> str:
        """The name that callers use."""
        return self.name.removesuffix(PASSED_THROUGH)

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def bytes(self) -> Size:
        """Bytes of the tensor."""
        return product(self.shape) * self.dtype.bytes

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class Signature:
    """The inputs and outputs of a program called `name`, and the box of its sizes.

    `guards` are relations that each call must satisfy besides the bounds and constraints of the
    box. `noun` is the word for an input in errors.
    """

    name: str
    box: Box
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    guards: tuple[Guard, ...] = ()
    noun: str = "input"

    def __str__(self) -> str:
        """Its text; `past.0..29.key: float32[...]` are tensors that differ in a number only."""
        taken, given = (", ".join(_group(specs)) for specs in (self.inputs, self.outputs))
        return f"{self.name}({taken}) -> ({given})"


def _group(specs: Sequence[TensorSpec]) -> Iterator[str]:
    """Yield the texts of tensors, one for those whose names differ in one number only."""
    pending = {spec.name: spec for spec in specs}
    while pending:
        first = next(iter(pending.values()))
        runs = (_alike(first, number, pending) for number in _NUMBER.finditer(first.name))
        text, names = max(runs, key=lambda run: len(run[1]), default=("", []))
        if len(names) < _FEW:
            text, names = str(first), [first.name]
        yield text
        for name in names:
            del pending[name]


def _alike(
    first: TensorSpec, number: re.Match[str], specs: Mapping[str, TensorSpec]
) -> tuple[str, list[str]]:
    """Return the tensors that are `first` with the next numbers in its name, and their text."""
    before, after = first.name[: number.start()], first.name[number.end() :]
    names, last = [first.name], int(number[0])
    while True:
        name = f"{before}{last + 1}{after}"
        if name not in specs or replace(specs[name], name=first.name) != first:
            break
        names.append(name)
        last += 1
    return str(replace(first, name=f"{before}{number[0]}..{last}{after}")), names
