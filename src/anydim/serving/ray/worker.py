"""A worker of a job: it runs the items of a chunk within its memory, and writes their results."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy

from anydim.base.amounts import exact_bytes_text
from anydim.base.errors import InputError, MemoryLimitError, OptionError, UserError
from anydim.base.records import dataclass
from anydim.base.text import quote_list
from anydim.deploy.load import load
from anydim.runtime.lists import RaggedPort
from anydim.runtime.program.batches.layout import error_of_item
from anydim.runtime.program.callable_program import CallableProgram
from anydim.serving.batcher import form_of
from anydim.serving.process_memory import bound_the_allocator, most_resident_bytes, room_within
from anydim.serving.ray.items import Chunk, Item, items_of, read_bytes
from anydim.serving.ray.packages import ray_module
from anydim.serving.ray.parts import PartFile, Row, warm_up

WINDOW = 2048  # most items that are held at once
_USES = 6  # equal parts of the memory: items, results, their copies, a call, what is written, spare
_FILES = 48 << 20  # bytes that reading and writing files takes, whatever the items
_LEAST_SHARE = 1 << 20
Prepare = Callable[[Item], Any]


@dataclass(frozen=True)
class Task:
    """What a job does with each item; see `map_files`."""

    model: str
    output: str
    memory: int
    threads: int
    columns: Mapping[str, str]  # of inputs
    keep: tuple[str, ...]
    outputs: tuple[str, ...]
    prepare: Prepare | None
    skip_errors: bool

    @property
    def read(self) -> list[str] | None:
        """The columns that are read of input files; None: all."""
        if self.prepare is not None:
            return None
        return list(dict.fromkeys((*self.columns.values(), *self.keep)))


class Worker:
    """Runs chunks, one after the other; a class of Ray Data."""

    def __init__(self, task: Task) -> None:
        bound_the_allocator()
        self._task = task
        self._model: CallableProgram = load(task.model, threads=task.threads)
        self._form = form_of(self._model)
        self._dtypes = dtypes_of(self._model)
        pyarrow = ray_module("pyarrow")
        pyarrow.set_memory_pool(pyarrow.system_memory_pool())  # returns what is freed
        warm_up(task.keep)
        gc.collect()
        later = self._model.executable.constant_bytes + _FILES
        self._room = room_within(task.memory, later=later)
        self._share = self._room // _USES

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Run the chunk of a batch of one row; what it took, or the text of an error."""
        (text,) = batch["chunk"]
        chunk, start, failed, error, kind = Chunk.of_text(str(text)), perf_counter(), 0, "", ""
        try:
            failed = self._run(chunk)
        except UserError as found:
            error, kind = str(found), type(found).__name__
        most = most_resident_bytes()
        row = {"number": chunk.number, "items": chunk.count, "failed": failed, "error": error,
               "kind": kind, "seconds": perf_counter() - start, "resident": most}  # fmt: skip
        return {name: [value] for name, value in row.items()}

    def _run(self, chunk: Chunk) -> int:
        """Write the part of a chunk; how many items failed."""
        task, failed = self._task, 0
        held = read_bytes(chunk, task.read)
        self._share = (self._room - held) // _USES
        if self._share < _LEAST_SHARE:
            raise MemoryLimitError(
                f"{chunk.path}: row group {chunk.group} takes {exact_bytes_text(held)}, and a "
                f"worker has {exact_bytes_text(self._room)} for it and its results",
                "raise the memory of workers, or write the file in smaller row groups",
            )
        part = PartFile(Path(task.output), chunk, task.keep, task.outputs, task.skip_errors)
        try:
            for items, inputs in self._windows(chunk):
                rows = [_row(*each) for each in zip(items, self._results(inputs))]
                failed += sum(error is not None for _, _, error in rows)
                part.write(rows)
            part.close()
        except BaseException:
            part.discard()
            raise
        return failed

    def _windows(self, chunk: Chunk) -> Iterator[tuple[list[Item], list[Any]]]:
        """The items of a chunk and their inputs, as many at a time as memory allows."""
        items, inputs, bytes = list[Item](), list[Any](), 0
        for number, item in enumerate(items_of(chunk, self._task.read)):
            try:
                given, own = self._read(item)
            except UserError as error:
                if not self._task.skip_errors:
                    raise error_of_item(chunk.first + number, error) from None
                given, own = error, 0
            if items and (bytes + own > self._share or len(items) >= WINDOW):
                yield items, inputs
                items, inputs, bytes = [], [], 0
            items.append(item)
            inputs.append(given)
            bytes += own
        if items:
            yield items, inputs

    def _read(self, item: Item) -> tuple[Any, int]:
        """The inputs of an item, and the bytes of these and of its results."""
        task = self._task
        if task.prepare is not None:
            given = task.prepare(item)
        else:
            given = {
                name: _array(name, item.get(column), self._dtypes[name])
                for name, column in task.columns.items()
            }
        found = self._form.read(given, task.outputs)
        own = found.input_bytes + found.output_bytes
        arena, inputs, outputs = self._form.costs.bytes_of_call(found.sizes)
        most = max(own, arena + inputs + outputs)
        if most > self._share:
            raise MemoryLimitError(
                f"the item takes {exact_bytes_text(most)}, and a worker has "
                f"{exact_bytes_text(self._share)} for it", "raise the memory of workers",
            )  # fmt: skip
        return given, own

    def _results(self, inputs: Sequence[Any]) -> list[Any]:
        """The results of inputs, or the error of each."""
        found = list(inputs)
        there = [number for number, each in enumerate(inputs) if not isinstance(each, UserError)]
        try:
            results: list[Any] = self._map([inputs[number] for number in there])
        except UserError:
            if not self._task.skip_errors:
                raise
            results = [self._alone(inputs[number]) for number in there]
        for number, result in zip(there, results):
            found[number] = result
        return found

    def _map(self, inputs: list[Any]) -> list[Any]:
        outputs, share = list(self._task.outputs), self._share
        return list(self._model.map(inputs, share, outputs=outputs, window=WINDOW))

    def _alone(self, given: Any) -> Any:
        try:
            return self._map([given])[0]
        except UserError as error:
            return error


def _row(item: Item, result: Any) -> Row:
    if isinstance(result, UserError):
        return item, None, str(result)
    return item, result, None


def dtypes_of(model: CallableProgram) -> dict[str, numpy.dtype]:
    """The dtype of each input, as the source of a model has them."""
    specs = {spec.name: spec for spec in model.inputs}
    found = {}
    for name in model.input_names():
        port = model.lists.get(name)
        spec = specs[port.values] if isinstance(port, RaggedPort) else specs[name]
        found[name] = spec.dtype.numpy
    return found


def outputs_of(model: CallableProgram, wanted: Sequence[str] | None) -> tuple[str, ...]:
    """The names of results; raises OptionError for an unknown one."""
    known = [spec.key for spec in model.outputs]
    unknown = [name for name in wanted or () if name not in known]
    if unknown:
        raise OptionError(f"{model.name} has no result '{unknown[0]}'",
                          f"its results: {quote_list(known)}")  # fmt: skip
    return tuple(known if wanted is None else wanted)


def _array(name: str, value: Any, dtype: numpy.dtype) -> numpy.ndarray:
    """A value of an item as an input; raises InputError for one that does not fit."""
    if value is None:
        raise InputError(f"it has no value for input '{name}'")
    try:
        found = numpy.asarray(value)
        if found.dtype == dtype:
            return found
        made = found.astype(dtype) if found.size else numpy.zeros(found.shape, dtype)
    except (ValueError, TypeError, OverflowError) as error:
        raise InputError(f"its value for input '{name}' is no array: {error}") from None
    is_whole = dtype.kind in "iub"
    if is_whole and found.size and (found.dtype.kind not in "iub" or (made != found).any()):
        raise InputError(f"its value for input '{name}' has numbers that {dtype} lacks")
    return made
