"""Rows of different sizes on the command line: how their sizes are written, and random ones."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import numpy

from anydim.base.errors import OptionError
from anydim.base.records import dataclass
from anydim.base.text import count_of, quote_list
from anydim.cli import arrays
from anydim.cli.options import Command, Request
from anydim.deploy.container import is_saved
from anydim.runtime.lists import RaggedPort
from anydim.runtime.program.callable_program import CallableProgram
from anydim.runtime.program.inputs import Ranges, draw
from anydim.runtime.program.padding import natural
from anydim.runtime.ragged import Packing
from anydim.runtime.signature import TensorSpec
from anydim.sizes import Size

_NATURAL = re.compile(r"natural(?::(?P<rows>\d+))?")
_LIST = re.compile(r"\d+(x\d+)*(,\d+(x\d+)*)*")
_FORMS = "natural, natural:64, 3,17,300, or a file with the sizes of a row in each line"
Arrays = dict[str, numpy.ndarray]


@dataclass(frozen=True)
class RowSizes:
    """Sizes of rows as they are given: those of each row, or a number of natural rows."""

    text: str
    rows: tuple[tuple[int, ...], ...] = ()
    natural: int = 0


class LengthsType(click.ParamType):
    """natural, natural:64, 3,17,300, 32x100,32x64 or a file"""

    name = "lengths"

    def convert(self, value: Any, param: Any, context: Any) -> RowSizes:
        """Raises OptionError for another form, and for a file that cannot be read."""
        text = str(value).replace(" ", "")
        found = _NATURAL.fullmatch(text)
        if found is not None:
            return RowSizes(text, natural=int(found["rows"] or 32))
        if _LIST.fullmatch(text):
            return RowSizes(text, tuple(_sizes(row, value) for row in text.split(",")))
        try:
            lines = Path(str(value)).read_text("utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is no text"
            raise OptionError(
                f"--lengths {value}: expected sizes of rows, or a file: {reason}", f"give {_FORMS}"
            ) from None
        rows = tuple(_sizes(line, value) for line in lines if line.strip())
        if not rows:
            raise OptionError(f"--lengths {value}: the file has no rows", f"give {_FORMS}")
        return RowSizes(Path(str(value)).name, rows)


def _sizes(row: str, value: Any) -> tuple[int, ...]:
    parts = re.split(r"[x,\s]+", row.strip())
    if not all(part.isdecimal() for part in parts):
        raise OptionError(f"--lengths {value}: '{row.strip()}' is no size", f"give {_FORMS}")
    return tuple(map(int, parts))


def lengths_option(multiple: bool, help: str) -> Any:
    """The sizes of the rows of a ragged batch."""

    def decorate(command: Command) -> Command:
        return click.option(
            "--lengths", type=LengthsType(), multiple=multiple, metavar="SIZES",
            help=f"{help} natural: 32 rows (natural:64 for 64) with lengths of sentences, "
            "lognormal with median 22; 3,17,300; 32x100,32x64 for two ragged dims; or a file with "
            "the sizes of a row in each line.",
        )(command)  # fmt: skip

    return decorate


def ragged_request(request: Request) -> Request:
    """The request with ragged dims, found where neither it nor a definition names them."""
    if request.ragged is not None or is_saved(request.model):
        return request
    if import_module("anydim.compiler.frontends.table").own_kind(request.model):
        return request
    return replace(request, ragged="auto")


def packing_of(model: CallableProgram) -> Packing:
    """The conversions of rows; raises OptionError for a model without ragged dims."""
    if not any(isinstance(port, RaggedPort) for port in model.lists.values()):
        raise OptionError(
            f"--lengths: {model.name} has no ragged dims", "compile it with --ragged auto"
        )
    return Packing(model.name, model.lists, {spec.name: spec for spec in model.inputs})


def row_lengths(packing: Packing, given: RowSizes) -> dict[str, list[int]]:
    """The sizes of rows by ragged dim; raises OptionError or DimError where they do not fit."""
    dims = list(packing.dims.values())
    if not given.rows:
        return natural(dims, given.natural)
    wrong = next((row for row in given.rows if len(row) != len(dims)), None)
    if wrong is not None:
        form = "x".join(["SIZE"] * len(dims))
        raise OptionError(
            f"--lengths {given.text}: a row has {count_of(len(wrong), 'size')}, and "
            f"{count_of(len(dims), 'dim')} of {packing.model} are ragged: "
            f"{quote_list(packing.dims)}",
            f"write {form},{form},...",
        )
    columns = zip(*given.rows)
    return packing.known_lengths({dim.name: list(c) for dim, c in zip(dims, columns)})


class Rows:
    """Random rows for a model without ragged dims: alone, padded, and as a ragged batch.

    `alone` are the inputs of a call for each row. Inputs that mark padding are ones.
    """

    def __init__(
        self, plain: CallableProgram, packing: Packing, lengths: Mapping[str, Sequence[int]],
        others: Mapping[str, int], seed: int, integers: Ranges,
    ) -> None:  # fmt: skip
        arrays.check_integers(plain, integers)
        self._packing, self._specs = packing, plain.inputs
        self._batch = Size.symbol(packing.rows_dim)
        self._masks = {name for name, port in packing.inputs.items() if port.ones}
        self.results = {spec.key: self._axis(spec) for spec in plain.outputs}
        ranges, chance = {**plain.index_ranges, **integers}, numpy.random.default_rng(seed)
        shared: Arrays = {}
        self.alone: list[Arrays] = []
        for row in zip(*lengths.values()):
            sizes = {**others, packing.rows_dim: 1, **dict(zip(lengths, row))}
            sizes = arrays.sizes_of(plain, sizes)
            made = {
                spec.name: numpy.ones([s.evaluate(sizes) for s in spec.shape], spec.dtype.numpy)
                if spec.name in self._masks
                else draw(spec, sizes, chance, ranges.get(spec.name, (0, 1)))
                for spec in self._specs
            }  # fmt: skip
            for spec in self._specs:
                if self._axis(spec) is None:
                    made[spec.name] = shared.setdefault(spec.name, made[spec.name])
            self.alone.append(made)

    def _axis(self, spec: TensorSpec) -> int | None:
        return spec.shape.index(self._batch) if self._batch in spec.shape else None

    def pad(self) -> Arrays:
        """All rows in arrays, padded behind with zeros to the longest."""
        made: Arrays = {}
        for spec in self._specs:
            axis, parts = self._axis(spec), [row[spec.name] for row in self.alone]
            if axis is None:
                made[spec.name] = parts[0]
                continue
            shape = [max(sizes) for sizes in zip(*(part.shape for part in parts))]
            shape[axis] = len(parts)
            whole = numpy.zeros(shape, spec.dtype.numpy)
            for number, part in enumerate(parts):
                place = [slice(size) for size in part.shape]
                place[axis] = slice(number, number + 1)
                whole[tuple(place)] = part
            made[spec.name] = whole
        return made

    def as_ragged(self) -> dict[str, Any]:
        """All rows as a ragged model takes them."""
        made: dict[str, Any] = {}
        for spec in self._specs:
            axis, parts = self._axis(spec), [row[spec.name] for row in self.alone]
            if spec.name in self._masks:
                continue
            if spec.name in self._packing.inputs:
                made[spec.name] = [part.squeeze(axis) for part in parts]
            else:
                made[spec.name] = parts[0] if axis is None else numpy.concatenate(parts, axis)
        return made
