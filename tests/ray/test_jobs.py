"""Promise: a job over files has each item once, whoever is killed, within the memory of workers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.dataset
import pyarrow.parquet
import pytest

import anydim as ad
import anydim.serving.ray
from anydim.serving.ray.items import Chunk, chunks_of, items_of
from anydim.serving.ray.parts import PartFile, finished_chunks, part_of
from anydim.serving.ray.worker import Task, Worker
from examples.minilm.model import SMALL
from tests.ray.test_deployment import processes
from tests.unit.serving.models import encoder, images, same, scaled

RESULT = "sentence_embedding"
ROOT = Path(__file__).resolve().parents[2]


def rows(count: int, seed: int = 0) -> list[np.ndarray]:
    """Rows of tokens of 1 to 20 tokens."""
    random = np.random.default_rng(seed)
    return [random.integers(0, SMALL.vocabulary, n) for n in random.integers(1, 21, count)]


def parquet(path: Path, given: list[np.ndarray], **options: Any) -> None:
    table = {
        "id": np.arange(len(given)) * 3,
        "input_ids": pyarrow.array([r.tolist() for r in given]),
    }
    pyarrow.parquet.write_table(pyarrow.table(table), path, **options)


def lines(path: Path, given: list[np.ndarray], end: str = "\n") -> None:
    texts = [json.dumps({"id": 3 * n, "input_ids": row.tolist()}) for n, row in enumerate(given)]
    path.write_text("\n".join(texts) + end, "utf-8")


def results(output: Path) -> Any:
    return pyarrow.dataset.dataset(output, format="parquet").to_table()


def check(output: Path, given: list[np.ndarray]) -> None:
    """Each item is there once, in order, with the bits of a call alone."""
    found = results(output)
    assert found["item"].to_pylist() == list(range(len(given)))
    for row, got in zip(given, found[RESULT].to_pylist()):
        assert np.array_equal(np.float32(got), encoder()(input_ids=[row])[RESULT][0])


# ---- items and parts -----------------------------------------------------------------------------


@pytest.mark.parametrize("most", (1, 3, 7, 100))
@pytest.mark.parametrize("end", ("\n", ""))
def test_chunks_cover_files_without_gaps(tmp_path: Path, most: int, end: str) -> None:
    given = rows(23)
    parquet(tmp_path / "a.parquet", given[:10], row_group_size=4)
    lines(tmp_path / "b.jsonl", given[10:], end)
    paths = [str(tmp_path / name) for name in ("a.parquet", "b.jsonl")]
    chunks = chunks_of(paths, most)
    assert [each.number for each in chunks] == list(range(len(chunks)))
    assert all(each.count <= most for each in chunks)
    found = []
    for chunk in chunks:
        assert chunk.first == len(found)
        items = list(items_of(Chunk.of_text(chunk.text()), ["input_ids"]))
        assert len(items) == chunk.count and all(list(item) == ["input_ids"] for item in items)
        found += items
    for item, row in zip(found, given, strict=True):
        assert np.array_equal(item["input_ids"], row)
    assert [item["id"] for chunk in chunks for item in items_of(chunk, None)][:10] == [
        3 * n for n in range(10)
    ]


def test_lists_with_gaps_and_empty_files(tmp_path: Path) -> None:
    table = pyarrow.table({"x": [[1, 2], None, [3, None], []], "y": [1.5, None, 2.0, 3.0]})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    (chunk,) = chunks_of([str(tmp_path / "a.parquet")], 10)
    assert list(items_of(chunk, None)) == table.to_pylist()
    (tmp_path / "b.jsonl").write_bytes(b"")
    assert chunks_of([str(tmp_path / "b.jsonl")], 10) == []
    with pytest.raises(ad.OptionError, match="another format"):
        chunks_of([__file__], 10)


def test_a_part_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    chunk = Chunk(2, "", 20, 3, 0, 0)
    part = PartFile(tmp_path, chunk, ["id"], ["x", "y", "n"], True)
    part.write([({"id": 7}, None, "wrong")])
    shapes = (2, 3), (0, 3)
    arrays = [{"x": np.float32(range(n)), "y": np.ones(shape, np.int8), "n": np.float64(n)}
              for n, shape in enumerate(shapes)]  # fmt: skip
    part.write([({"id": 8}, arrays[0], None)])
    assert finished_chunks(tmp_path, 5) == set() and not list(tmp_path.iterdir())  # it was left
    part.discard()
    part = PartFile(tmp_path, chunk, ["id"], ["x", "y", "n"], True)
    part.write([({"id": 7}, None, "wrong")])
    part.write([({"id": n + 8}, each, None) for n, each in enumerate(arrays)])
    part.close()
    assert finished_chunks(tmp_path, 5) == {2}
    assert pyarrow.parquet.read_table(part_of(tmp_path, 2)).to_pylist() == [
        {"item": 20, "id": 7, "x": None, "y": None, "y.shape": None, "n": None, "error": "wrong"},
        {"item": 21, "id": 8, "x": [], "y": [1] * 6, "y.shape": [2, 3], "n": 0.0, "error": None},
        {"item": 22, "id": 9, "x": [0.0], "y": [], "y.shape": [0, 3], "n": 1.0, "error": None},
    ]
    part = PartFile(tmp_path, Chunk(3, "", 23, 1, 0, 0), [], ["x"], True)
    part.write([({}, None, "wrong")])
    part.close()
    assert results(tmp_path)["error"].to_pylist() == ["wrong", None, None, "wrong"]


# ---- workers -------------------------------------------------------------------------------------


def worked(folder: Path, output: Path, chunk: Chunk, **more: Any) -> dict[str, Any]:
    given: dict[str, Any] = {
        "model": str(folder / "encoder.anydim"), "output": str(output), "memory": 4 << 30,
        "threads": 1, "columns": {"input_ids": "input_ids"}, "keep": (), "outputs": (RESULT,),
        "prepare": None, "skip_errors": False, **more,
    }  # fmt: skip
    found = Worker(Task(**given))({"chunk": [chunk.text()]})
    return {name: value for name, (value,) in found.items()}


def test_items_that_the_model_refuses(folder: Path, tmp_path: Path) -> None:
    given = rows(9)
    given[2] = np.ones(21, np.int64)  # too long
    given[5] = np.int64([SMALL.vocabulary])  # no word: an error of the call
    lines(tmp_path / "a.jsonl", given)
    (chunk,) = chunks_of([str(tmp_path / "a.jsonl")], 100)
    found = worked(folder, tmp_path, chunk)
    assert found["kind"] == "DimError" and found["error"].startswith("item 2: ")
    assert finished_chunks(tmp_path, 1) == set()
    found = worked(folder, tmp_path, chunk, skip_errors=True)
    assert found["failed"] == 2 and not found["error"]
    got = pyarrow.parquet.read_table(part_of(tmp_path, 0)).to_pylist()
    assert [row["item"] for row in got] == list(range(9))
    assert "'seq' is 21" in got[2]["error"] and got[5]["error"] and got[2][RESULT] is None
    for number in set(range(9)) - {2, 5}:
        expected = encoder()(input_ids=[given[number]])[RESULT][0]
        assert np.array_equal(np.float32(got[number][RESULT]), expected)


@pytest.mark.parametrize("text, said", [
    ('{"input_ids": [1, 2.5]}', "numbers that int64 lacks"),
    ('{"input_ids": [1, [2]]}', "no array"), ('{"input_ids": ["a"]}', "no array"),
    ('{"id": 1}', "no value for input 'input_ids'"), ("[1]", "is no object of JSON"),
    ("{", "is no object of JSON"),
])  # fmt: skip
def test_wrong_items(folder: Path, tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "a.jsonl").write_text('{"input_ids": [1]}\n' + text + "\n", "utf-8")
    (chunk,) = chunks_of([str(tmp_path / "a.jsonl")], 100)
    found = worked(folder, tmp_path, chunk)
    assert said in found["error"] and "item 1" in found["error"]


def test_items_are_prepared_and_columns_kept(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "abc", "id": 4}\n{"text": "z", "id": 5}\n', "utf-8")
    (chunk,) = chunks_of([str(tmp_path / "a.jsonl")], 100)

    def prepare(item: dict[str, Any]) -> dict[str, np.ndarray]:
        return {"input_ids": np.int64([ord(each) - 97 for each in item["text"]])}

    worked(folder, tmp_path, chunk, prepare=prepare, keep=("id", "text"))
    got = pyarrow.parquet.read_table(part_of(tmp_path, 0)).to_pylist()
    assert [(row["id"], row["text"]) for row in got] == [(4, "abc"), (5, "z")]
    alone = encoder()(input_ids=[np.int64([0, 1, 2])])[RESULT][0]
    assert np.array_equal(np.float32(got[0][RESULT]), alone)


def test_an_item_that_does_not_fit_is_refused_with_bytes(folder: Path, tmp_path: Path) -> None:
    lines(tmp_path / "a.jsonl", rows(3))
    (chunk,) = chunks_of([str(tmp_path / "a.jsonl")], 100)
    worker = Worker(Task(str(folder / "encoder.anydim"), str(tmp_path), 4 << 30, 1,
                         {"input_ids": "input_ids"}, (), (RESULT,), None, False))  # fmt: skip
    worker._room = 6 << 20
    lines(tmp_path / "a.jsonl", [np.ones(20, np.int64)] * 3)
    (chunk,) = chunks_of([str(tmp_path / "a.jsonl")], 100)
    worker._form.costs.taken = lambda sizes: (1 << 30, 0, 0)
    found = worker({"chunk": [chunk.text()]})
    assert found["kind"] == ["MemoryLimitError"]
    assert "item 0: the item takes 1073741824 bytes" in found["error"][0]
    worker._room = 100_000
    found = worker({"chunk": [chunk.text()]})
    assert "row group 0 takes 0 bytes, and a worker has 100000 bytes" in found["error"][0]


MEMORY = """
import json, sys
from anydim.serving.ray.items import chunks_of
from anydim.serving.ray.worker import Task, Worker
model, path, output, limit = *sys.argv[1:4], int(sys.argv[4])
worker = Worker(Task(model, output, limit, 1, {"x": "x"}, (), ("y", "total"), None, False))
print(json.dumps([worker({"chunk": [each.text()]}) for each in chunks_of([path], 10**6)]))
"""


@pytest.mark.parametrize("limit", (340, 420))
def test_a_worker_stays_below_its_memory(tmp_path: Path, limit: int) -> None:
    """The results of a chunk take more than the limit."""
    scaled().save(tmp_path / "scaled.anydim")
    random = np.random.default_rng(0)
    values, sizes = random.random(1 << 20, np.float32), random.integers(0, 60_000, 4000)
    rows = [values[size : 2 * size] for size in sizes.tolist()]
    path, output, outcomes = tmp_path / "a.parquet", tmp_path / "out", list[Any]()
    output.mkdir()
    for group in (len(rows), 100):
        pyarrow.parquet.write_table(pyarrow.table({"x": rows}), path, use_dictionary=False,
                                    row_group_size=group)  # fmt: skip
        done = subprocess.run(
            [sys.executable, "-c", MEMORY, str(tmp_path / "scaled.anydim"), str(path),
             str(output), str(limit << 20)],
            capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        outcomes.append(json.loads(done.stdout))
    refused, *parts = outcomes[0][0], *outcomes[1]
    assert refused["kind"] == ["MemoryLimitError"] and "row group 0 takes" in refused["error"][0]
    assert len(parts) == 40 and all(each["error"] == [""] for each in parts)
    assert max(each["resident"][0] for each in parts) <= limit << 20
    got = results(output)
    assert got.num_rows == 4000
    for row, found in zip(rows[:20], got["y"][:20]):
        assert np.array_equal(np.float32(found.as_py()), row * 2)


# ---- jobs ----------------------------------------------------------------------------------------


def test_a_job_and_another_of_the_same_folder(cluster: Any, folder: Path, tmp_path: Path) -> None:
    given, seen = rows(300), list[tuple[int, int]]()
    parquet(tmp_path / "a.parquet", given[:130], row_group_size=50)
    lines(tmp_path / "b.jsonl", given[130:])
    files, output = [str(tmp_path / "*.parquet"), str(tmp_path / "b.jsonl")], tmp_path / "out"
    how: dict[str, Any] = {"outputs": [RESULT], "keep": ["id"], "chunk": 40, "memory": "600 MiB"}
    model = folder / "encoder.anydim"
    job = anydim.serving.ray.map_files(
        model, files, output, progress=lambda *each: seen.append(each), **how
    )
    assert (job.items, job.run, job.failed) == (300, 300, 0) and seen[-1] == (300, 300)
    assert 0 < job.resident < 600 << 20
    check(output, given)
    assert results(output)["id"].to_pylist() == [*range(0, 390, 3), *range(0, 510, 3)]
    before = {path: path.stat().st_mtime_ns for path in output.iterdir()}
    again = anydim.serving.ray.map_files(model, files, output, **how)
    assert (again.items, again.run) == (300, 0)
    assert before == {path: path.stat().st_mtime_ns for path in output.iterdir()}
    for other in ({"chunk": 41}, {"keep": []}, {"outputs": None}):
        with pytest.raises(ad.OptionError, match="the results of a job whose"):
            anydim.serving.ray.map_files(model, files, output, **{**how, **other})
    with pytest.raises(ad.OptionError, match="has no result 'nothing'"):
        anydim.serving.ray.map_files(model, files, output, **{**how, "outputs": ["nothing"]})
    with pytest.raises(ad.OptionError, match="no input 'ids'"):
        anydim.serving.ray.map_files(model, files, output, **{**how, "columns": {"ids": "x"}})


def test_a_worker_that_is_killed_in_the_middle(cluster: Any, folder: Path, tmp_path: Path) -> None:
    given = rows(4000, 1)
    parquet(tmp_path / "a.parquet", given)
    killed = list[int]()

    def kill(done: int, total: int) -> None:
        if done > total // 4 and not killed:
            found = processes("MapWorker(MapBatches(Worker))")
            assert len(found) == 2
            os.kill(found[0], signal.SIGKILL)
            killed.append(found[0])

    job = anydim.serving.ray.map_files(
        folder / "encoder.anydim", str(tmp_path / "a.parquet"), tmp_path / "out", memory="600 MiB",
        outputs=[RESULT], chunk=100, progress=kill,
    )  # fmt: skip
    assert killed and job.run == 4000
    check(tmp_path / "out", given)


SCRIPT = """
import sys, ray, anydim.serving.ray
ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=100 << 20)
job = anydim.serving.ray.map_files(sys.argv[1], sys.argv[2], sys.argv[3], memory="600 MiB",
                           outputs=["sentence_embedding"], chunk=100)
print(job.run)
"""


def test_a_job_that_is_killed_twice_is_resumed(cluster: Any, folder: Path, tmp_path: Path) -> None:
    given = rows(6000, 2)
    parquet(tmp_path / "a.parquet", given)
    output = tmp_path / "out"
    variables = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    variables.pop("RAY_ADDRESS", None)
    command = [sys.executable, "-c", SCRIPT, str(folder / "encoder.anydim"),
               str(tmp_path / "a.parquet"), str(output)]  # fmt: skip
    for parts in (8, 30, None):
        process = subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, text=True,
                                   stderr=subprocess.DEVNULL, start_new_session=True)  # fmt: skip
        timer = threading.Timer(120, process.kill)
        timer.start()
        while parts is not None and process.poll() is None:
            if len(list(output.glob("part-*"))) >= parts:
                os.killpg(process.pid, signal.SIGKILL)
                break
            time.sleep(0.02)
        said = process.communicate()[0]
        timer.cancel()
    assert process.returncode == 0 and 0 < int(said) <= 3000
    check(output, given)


def test_a_model_without_ragged_dims(cluster: Any, folder: Path, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    given = [random.standard_normal((1, 3, n)).astype(np.float32) for n in (4, 9, 4, 17)]
    texts = [json.dumps({"picture": each.tolist()}) for each in given]
    (tmp_path / "a.jsonl").write_text("\n".join(texts), "utf-8")
    anydim.serving.ray.map_files(
        folder / "images.anydim", str(tmp_path / "a.jsonl"), tmp_path / "out", workers=1,
        columns={"x": "picture"}, chunk=3, memory="600 MiB",
    )  # fmt: skip
    for each, got in zip(given, results(tmp_path / "out").to_pylist(), strict=True):
        made = np.float32(got["y"]).reshape(got["y.shape"])
        assert same({"y": made}, images()(each))
