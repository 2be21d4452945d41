"""Arrays that a caller passes for the results of a ragged call (`out=`).

A ragged result is written into the values of an `ad.Ragged`, or into a list of arrays, one per row.
Rows that lie one after another in memory are written by the call, others by a copy after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy

from anydim.base.errors import InputError
from anydim.base.text import count_of
from anydim.runtime.executable import Executable
from anydim.runtime.lists import RaggedPort
from anydim.runtime.output_arrays import called_into, fill, given_by_name, output_array
from anydim.runtime.ragged import Lengths, Packing, Ragged, RowSizes, parts_of, together
from anydim.runtime.signature import TensorSpec

Unpack = Callable[[Mapping[str, Any]], dict[str, Any]]


class RaggedOutput:
    """The arrays that a caller passes for the results of one call, checked.

    `direct` are arrays for the results of the program, `copied` the rows that are filled after the
    call, both by result name. Raises InputError for arrays that do not fit.
    """

    def __init__(
        self, executable: Executable[Any], packing: Packing, out: Any, lengths: Lengths,
        shared: Mapping[str, int],
    ) -> None:  # fmt: skip
        signature = executable.signature
        self._executable, self._model = executable, signature.name
        specs = {spec.key: spec for spec in signature.outputs}
        self.given = given_by_name(_whole(out, packing, specs), list(specs), signature.name)
        self.direct: dict[str, Any] = {}
        self.copied: dict[str, list[numpy.ndarray]] = {}
        every: list[tuple[str, numpy.ndarray]] = []
        for name, value in self.given.items():
            port = packing.results.get(name)
            if port is None:
                self.direct[name] = value
                every.append((name, output_array(value, specs[name], signature.name)))
                continue
            rows, whole = self._rows(name, value, specs[name], port)
            self._check_rows(name, rows, _shapes(port, lengths, shared))
            every += [(name, row) for row in rows]
            if whole is None:
                self.copied[name] = rows
            else:
                self.direct[name] = whole
        _check_apart(signature.name, every)

    def _rows(
        self, name: str, value: Any, spec: TensorSpec, port: RaggedPort
    ) -> tuple[list[numpy.ndarray], numpy.ndarray | None]:
        """Return arrays for the rows of a result, and one for all if they lie back to back."""
        where = f"{self._model}: the array for '{name}'"
        parts = parts_of(value)
        if parts is not None:
            whole = output_array(parts[0], spec, self._model)
            rows = list(Ragged(whole, *parts[1:]))
            return rows, whole.reshape(-1) if port.flat else whole
        if not isinstance(value, (list, tuple)):
            raise InputError(
                f"{where} is {type(value).__name__}, and the result is ragged",
                "pass ad.Ragged(values, offsets), or a list with one array per row",
            )
        rows = [output_array(row, spec, self._model) for row in value]
        flat = [row.reshape(-1) for row in rows] if port.flat else rows
        return rows, together(flat, writeable=True) if rows else None

    def _check_rows(
        self, name: str, rows: Sequence[numpy.ndarray], shapes: Sequence[tuple[int, ...]]
    ) -> None:
        """Raise InputError unless the rows have these shapes."""
        where = f"{self._model}: the array for '{name}'"
        if len(rows) != len(shapes):
            raise InputError(
                f"{where} has {count_of(len(rows), 'row')}, the result has {len(shapes)}"
            )
        for number, (row, shape) in enumerate(zip(rows, shapes)):
            if row.shape != shape:
                wanted = ", ".join(map(str, shape))
                raise InputError(
                    f"{where}, row {number}: its shape is {list(row.shape)}, "
                    f"the result's [{wanted}]"
                )

    def fill_results(self, feeds: Mapping[str, Any], unpack: Unpack) -> dict[str, Any]:
        """Call the program, fill the arrays, and return all results."""
        results, _ = called_into(self._executable, feeds, self.direct)
        seen = unpack(results)
        for name, rows in self.copied.items():
            for row, found in zip(rows, seen[name]):
                fill(row, found)
        return {**seen, **self.given}


def _whole(out: Any, packing: Packing, specs: Mapping[str, TensorSpec]) -> Any:
    """`out` as a sequence or mapping over results; the rows of a single result are one."""
    if (
        len(specs) == 1
        and specs.keys() <= packing.results.keys()
        and isinstance(out, (list, tuple))
    ):
        if all(hasattr(each, "shape") for each in out):
            return (out,)
    return out


def _shapes(
    port: RaggedPort, lengths: Lengths, shared: Mapping[str, int]
) -> Sequence[tuple[int, ...]]:
    """The shape of a result in each row."""
    if port.shape:
        return list(zip(*map(RowSizes(lengths, shared).of, port.shape)))
    return [()] * len(next(iter(lengths.values())))


def _check_apart(model: str, arrays: Iterable[tuple[str, numpy.ndarray]]) -> None:
    """Raise InputError for contiguous arrays that share memory."""
    spans = sorted(
        (array.ctypes.data, array.ctypes.data + array.nbytes, name)
        for name, array in arrays if array.nbytes
    )  # fmt: skip
    for (_, end, left), (start, _, right) in pairwise(spans):
        if start < end and left == right:
            raise InputError(
                f"{model}: rows of the array for '{left}' share memory",
                "pass a separate array for each row",
            )
        if start < end:
            raise InputError(
                f"{model}: the arrays for '{left}' and '{right}' share memory",
                "pass a separate array for each result",
            )
