"""Offline jobs: a model over files of items, on the workers of a Ray cluster."""

from __future__ import annotations

import glob
import json
import os
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from time import perf_counter
from typing import Any

from anydim.base import errors
from anydim.base.amounts import bytes_of
from anydim.base.errors import InputError, OptionError
from anydim.base.records import dataclass
from anydim.base.text import count_of, quote_list
from anydim.base.user_values import whole_within
from anydim.deploy.load import load
from anydim.serving.ray.items import Chunk, chunks_of
from anydim.serving.ray.packages import ray_module
from anydim.serving.ray.parts import finished_chunks
from anydim.serving.ray.worker import Prepare, Task, Worker, dtypes_of, outputs_of
from anydim.sizes import LARGEST

_RECORD = "_job.json"  # readers of Parquet folders skip names with _
_FORMAT = 1
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Job:
    """A job that is complete.

    Attributes:
        items: Items of all files, each of which the output has once.
        parts: Files of the output.
        run: Items that this call ran; the others were there.
        failed: Items of these without results; `error` says why.
        seconds: Time of this call.
        resident: Most bytes that a worker took.
    """

    items: int
    parts: int
    run: int
    failed: int
    seconds: float
    resident: int


def map_files(
    model: str | os.PathLike[str], files: str | Sequence[str], output: str | os.PathLike[str], *,
    memory: int | str = "1 GiB", workers: int = 2, threads: int = 1,
    columns: Mapping[str, str] | None = None, keep: Sequence[str] = (),
    outputs: Sequence[str] | None = None, prepare: Prepare | None = None, chunk: int = 16384,
    skip_errors: bool = False, progress: Progress | None = None,
) -> Job:  # fmt: skip
    """Run a saved model on each item of files, and write the results as Parquet files.

        anydim.serving.ray.map_files("encoder.anydim", "tokens/*.parquet", "embeddings",
                             outputs=["sentence_embedding"], keep=["id"], workers=8)

    The output has each item once, in order: column `item` is its number, in the order of the
    files. A call with the same arguments after an interruption runs what is missing. A worker that
    ends is replaced, and its chunk runs again. Results have the bits of a call of the item alone.
    Model, files and output are in a file system that all machines see.

    Args:
        model: The path of a saved model.
        files: Paths or patterns of Parquet files (`.parquet`) or lines of JSON (`.jsonl`,
            `.ndjson`).
        output: The folder of the results.
        memory: Most bytes of the process of a worker, weights included. Ray reserves as much memory
            of the machine.
        workers: How many workers run at once.
        threads: Threads of a call, and cores that Ray reserves for a worker.
        columns: Columns of inputs, where they have other names: `{"input_ids": "tokens"}`.
        keep: Columns that the output has, too.
        outputs: Names of the results. None: all.
        prepare: A function from an item, a dict by column, to what a call of the model takes; for
            texts that are to become tokens. Use the same function to resume.
        chunk: Items of a file of results at most: what a worker that ends loses.
        skip_errors: Items that the model refuses have no results, and a text in the column
            `error`. Otherwise the first of them ends the job.
        progress: Called with the items that are done and all items.

    Returns:
        What was done.

    Raises:
        InputError: The model refuses an item.
        MemoryLimitError: A worker, or an item, needs more memory.
        OptionError: An argument is wrong, or the folder has the results of another job.
        MissingError: Ray Data is not installed.
    """
    start = perf_counter()
    task = _task(model, output, memory, threads, columns, keep, outputs, prepare, skip_errors)
    whole_within("workers", workers, 1, LARGEST, "give how many workers run at once")
    whole_within("chunk", chunk, 1, LARGEST, "give how many items a file of results has")
    paths = _paths(files)
    chunks = chunks_of(paths, chunk)
    folder = Path(task.output)
    folder.mkdir(parents=True, exist_ok=True)
    _check(folder / _RECORD, _record(task, paths, chunk))
    there = finished_chunks(folder, len(chunks))
    missing = [each for each in chunks if each.number not in there]
    total, run = sum(each.count for each in chunks), sum(each.count for each in missing)
    failed, resident, done = 0, 0, total - run
    for row in _rows(task, missing, min(workers, len(missing))):
        if row["error"]:
            raise getattr(errors, row["kind"], InputError)(*row["error"].split("\n  ", 1))
        failed, resident = failed + row["failed"], max(resident, row["resident"])
        done += row["items"]
        if progress is not None:
            progress(done, total)
    lost = len(chunks) - len(finished_chunks(folder, len(chunks)))
    if lost:
        raise OptionError(f"{count_of(lost, 'part')} of {folder} are missing",
                          "other programs removed them; run the job again")  # fmt: skip
    return Job(total, len(chunks), run, failed, perf_counter() - start, resident)


def _rows(task: Task, chunks: Sequence[Chunk], workers: int) -> Any:
    """What workers report of each chunk, as they end."""
    if not chunks:
        return
    data = ray_module("ray.data")
    given = data.from_items([{"chunk": each.text()} for each in chunks],
                            override_num_blocks=len(chunks))  # fmt: skip
    made = given.map_batches(
        Worker, batch_size=1, fn_constructor_args=(task,), num_cpus=task.threads,
        memory=task.memory, compute=data.ActorPoolStrategy(size=workers),
    )  # fmt: skip
    yield from made.iter_rows()


def _task(
    model: Any, output: Any, memory: Any, threads: int, columns: Mapping[str, str] | None,
    keep: Sequence[str], outputs: Sequence[str] | None, prepare: Prepare | None, skip_errors: bool,
) -> Task:  # fmt: skip
    whole_within("threads", threads, 1, LARGEST, "give the threads of a call")
    path = os.path.abspath(os.fspath(model))
    found = load(path)
    inputs = tuple(dtypes_of(found))
    unknown = [name for name in columns or () if name not in inputs]
    if unknown:
        raise OptionError(f"columns: {found.name} has no input '{unknown[0]}'",
                          f"its inputs: {quote_list(inputs)}")  # fmt: skip
    return Task(
        path, os.path.abspath(os.fspath(output)), bytes_of(memory), threads,
        {name: (columns or {}).get(name, name) for name in inputs}, tuple(keep),
        outputs_of(found, outputs), prepare, skip_errors,
    )  # fmt: skip


def _paths(files: str | Sequence[str]) -> list[str]:
    """The files of patterns, each pattern's in the order of their names."""
    found: list[str] = []
    for each in [files] if isinstance(files, (str, os.PathLike)) else files:
        text = os.path.abspath(os.fspath(each))
        matches = sorted(glob.glob(text)) if glob.has_magic(text) else [text]
        if not matches:
            raise OptionError(f"no file is called {each}")
        found += matches
    twice = next((path for path in found if found.count(path) > 1), None)
    if twice is not None or not found:
        raise OptionError(f"{twice} is given twice" if twice else "there are no files")
    return found


def _record(task: Task, paths: Sequence[str], chunk: int) -> dict[str, Any]:
    """What the results of a job depend on."""
    with open(task.model, "rb") as file:
        model = sha256(file.read()).hexdigest()
    return {
        "format": _FORMAT, "model": model, "chunk": chunk, "prepared": task.prepare is not None,
        "files": [[path, os.path.getsize(path), os.stat(path).st_mtime_ns] for path in paths],
        "columns": dict(task.columns), "keep": list(task.keep), "outputs": list(task.outputs),
        "skip_errors": task.skip_errors,
    }  # fmt: skip


def _check(path: Path, record: Mapping[str, Any]) -> None:
    """Write the record of a job, or compare it with the one that is there."""
    try:
        known = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        own = path.with_name(f"{path.name}.{os.getpid()}")
        own.write_text(json.dumps(record, indent=1), "utf-8")
        os.replace(own, path)
        return
    except ValueError as error:
        raise OptionError(f"{path} is damaged: {error}", "give another folder") from None
    for name, value in record.items():
        if known.get(name) != value:
            raise OptionError(f"{path.parent} has the results of a job whose {name} differ",
                              "give another folder, or the same arguments")  # fmt: skip
