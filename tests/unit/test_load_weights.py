"""Promise: `load_weights` gives a model the weights of another source, in the bits of its own
compilation; whatever is refused leaves the model as it was."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy
import onnx
import pytest
from onnx import helper, numpy_helper

import anydim as ad
from anydim.base import settings
from tests.caches import empty_cache
from tests.unit.test_structures import (
    NETWORKS,
    SPECIAL,
    beside,
    fresh,
    how,
    normalised,
    product,
    results,
    saved,
    transposed,
)

Network = Callable[[numpy.random.Generator], onnx.ModelProto]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path) -> Iterator[None]:
    folder = empty_cache(tmp_path / "cache")
    with settings.override(cache_dir=folder, use_cache=True, keep_programs=True):
        yield


def network(make: Network, seed: int) -> onnx.ModelProto:
    return make(numpy.random.default_rng(seed))


def weights(model: onnx.ModelProto) -> dict[str, numpy.ndarray]:
    return {each.name: numpy_helper.to_array(each) for each in model.graph.initializer}


def file(make: Network, seed: int, folder: Path) -> Path:
    return saved(network(make, seed), folder / f"{seed}.onnx")


FORMS: dict[str, Callable[[onnx.ModelProto, Path], Any]] = {
    "path": lambda model, path: saved(model, path),
    "text": lambda model, path: str(saved(model, path)),
    "external data": lambda model, path: beside(model, path, "w.data"),
    "bytes": lambda model, path: model.SerializeToString(),
    "bytearray": lambda model, path: bytearray(model.SerializeToString()),
    "ModelProto": lambda model, path: model,
    "arrays": lambda model, path: weights(model),
}


@pytest.mark.parametrize(
    "make, form", [*((product, form) for form in FORMS), *((make, "path") for make in NETWORKS)]
)
def test_the_bits_of_a_compilation(make: Network, form: str, tmp_path: Path) -> None:
    source = tmp_path / "one.onnx"
    first = network(make, 0)
    if form == "external data":
        beside(first, source, "one.data")
    else:
        saved(first, source)
    model = ad.compile(source)
    before = results(model)
    for seed in (1, 2) if make is product else (1,):
        own = results(fresh(file(make, seed, tmp_path), tmp_path))
        given = FORMS[form](network(make, seed), tmp_path / f"{seed}" / "other.onnx")
        model.load_weights(given)
        assert results(model) == own != before
    model.load_weights(source)
    assert results(model) == before


@pytest.mark.parametrize("form", ["path", "bytes", "ModelProto"])
@pytest.mark.parametrize("given", ["path", "arrays"])
def test_models_without_a_cache(form: str, given: str, tmp_path: Path) -> None:
    with settings.override(keep_programs=False):
        model = ad.compile(FORMS[form](network(product, 0), tmp_path / "one.onnx"))
    path = file(product, 1, tmp_path)
    model.load_weights(path if given == "path" else weights(network(product, 1)))
    assert results(model) == results(fresh(path, tmp_path))


@pytest.mark.parametrize("given", ["path", "bytes", "arrays"])
@pytest.mark.parametrize("kept", [False, True])
def test_all_that_a_model_says_is_of_the_new_weights(
    given: str, kept: bool, tmp_path: Path
) -> None:
    with settings.override(keep_programs=kept):
        model = ad.compile(file(normalised, 0, tmp_path))
    path = file(normalised, 1, tmp_path)
    own, others = fresh(path, tmp_path), weights(network(normalised, 1))
    model.load_weights(
        {"path": path, "bytes": path.read_bytes(), "arrays": others}[given]
    )  # fmt: skip
    assert model.check(samples=4)
    held = {name: each.elements for name, each in model.graph.constants.items()}
    assert {name for name in others if numpy.array_equal(held.get(name), others[name])} >= {"w2"}
    model.save(tmp_path / "saved.anydim")
    assert results(ad.load(tmp_path / "saved.anydim")) == results(own)
    model.save(tmp_path / "older.anydim", targets="x86-64-v3")
    assert results(ad.load(tmp_path / "older.anydim", level="x86-64-v3"))
    assert results(pickle.loads(pickle.dumps(model))) == results(own)
    again = ad.compile(file(normalised, 0, tmp_path))
    assert results(again) != results(own)


def test_arrays_are_the_callers(tmp_path: Path) -> None:
    """A model holds copies: of arrays, and of a file."""
    model = ad.compile(file(transposed, 0, tmp_path))
    path, given = file(transposed, 1, tmp_path), weights(network(transposed, 1))
    own = results(fresh(path, tmp_path))
    given = {name: numpy.array(array) for name, array in given.items()}
    model.load_weights(given)
    for array in given.values():
        array[...] = 0
    assert results(model) == own
    model.load_weights(path)
    data = bytearray(path.read_bytes())
    data[:] = bytes(len(data))
    path.write_bytes(data)
    assert results(model) == own
    with pytest.raises(ad.OptionError, match="has changed since its weights were loaded"):
        model.check(samples=1)


@pytest.mark.parametrize("view", ["strided", "big endian", "fortran", "unaligned", "torch"])
def test_views_and_tensors(view: str, tmp_path: Path) -> None:
    model = ad.compile(file(product, 0, tmp_path))
    given: dict[str, Any] = weights(network(product, 1))
    w = given["w"]
    if view == "strided":
        given["w"] = numpy.repeat(w, 2, axis=1)[:, ::2]
    elif view == "big endian":
        given["w"] = w.astype(">f4")
    elif view == "fortran":
        given["w"] = numpy.asfortranarray(w)
    elif view == "unaligned":
        given["w"] = (
            numpy.frombuffer(b"x" + w.tobytes(), numpy.uint8)[1:].view("f4").reshape(w.shape)
        )
    else:
        torch = pytest.importorskip("torch")
        given = {name: torch.from_numpy(array.copy()) for name, array in given.items()}
    model.load_weights(given)
    assert results(model) == results(fresh(file(product, 1, tmp_path), tmp_path))


@pytest.mark.parametrize("make", [product, normalised])
@pytest.mark.parametrize("name", SPECIAL)
def test_special_weights(make: Network, name: str, tmp_path: Path) -> None:
    """They have the bits of a compilation, or are refused where it decides by them."""
    model, plain = ad.compile(file(make, 0, tmp_path)), weights(network(make, 0))
    before, refused = results(model), 0
    for key, array in plain.items():
        if array.dtype != numpy.float32:
            continue
        special = SPECIAL[name](array).astype(numpy.float32).reshape(array.shape)
        other = network(make, 0)
        (tensor,) = (each for each in other.graph.initializer if each.name == key)
        tensor.CopyFrom(numpy_helper.from_array(special, key))
        try:
            model.load_weights(plain | {key: special})
        except ad.ModelError as error:
            assert "finite, or zero" in str(error)
            assert results(model) == before
            refused += 1
            continue
        assert results(model) == results(fresh(saved(other, tmp_path / "other.onnx"), tmp_path))
        model.load_weights(plain)
    assert not refused or name in ("not a number", "infinite")


def test_calls_in_progress_end_with_the_weights_of_their_beginning(tmp_path: Path) -> None:
    """Each result of many threads is of the one or of the other file, as a whole."""
    model = ad.compile(file(normalised, 0, tmp_path), arenas=3)
    paths = [file(normalised, seed, tmp_path) for seed in range(2)]
    x = numpy.random.default_rng(0).normal(size=(4, 3, 9, 9)).astype(numpy.float32)
    wanted = {fresh(path, tmp_path)(x=x)["y"].tobytes() for path in paths}
    stopped, wrong, done = threading.Event(), [], []

    def call() -> None:
        while not stopped.is_set():
            found = model(x=x)["y"].tobytes()
            done.append(found)
            if found not in wanted:
                wrong.append(found)

    threads = [threading.Thread(target=call) for _ in range(3)]
    for thread in threads:
        thread.start()
    for turn in range(6):
        model.load_weights(paths[turn % 2])
        assert model(x=x)["y"].tobytes() == fresh_bytes(wanted, paths, turn, x, tmp_path)
    stopped.set()
    for thread in threads:
        thread.join()
    assert not wrong and set(done) == wanted


_known: dict[Path, bytes] = {}


def fresh_bytes(
    wanted: set[bytes], paths: list[Path], turn: int, x: numpy.ndarray, folder: Path
) -> bytes:
    path = paths[turn % 2]
    if path not in _known:
        _known[path] = fresh(path, folder)(x=x)["y"].tobytes()
    assert _known[path] in wanted
    return _known[path]


# ---- what is refused ---------------------------------------------------------------------------


def refused(model: Any, given: Any, kind: type[Exception], *texts: str) -> None:
    before = results(model)
    with pytest.raises(kind) as error:
        model.load_weights(given)
    said = str(error.value)
    assert all(text in said for text in texts), said
    assert getattr(error.value, "hint", ""), "an error says what to do"
    assert results(model) == before


WRONG: dict[str, tuple[Callable[[dict[str, Any]], Any], tuple[str, ...]]] = {
    "unknown": (lambda w: {**w, "ww": w["w"]}, ("no weight 'ww'", "'w'")),
    "no text": (lambda w: {**w, 3: w["w"]}, ("no weight 3",)),
    "missing": (lambda w: {"w": w["w"]}, ("weight 'b' of", "is missing", "give all 2")),
    "empty": (lambda w: {}, ("weight 'w' of", "missing")),
    "shape": (lambda w: {**w, "b": w["b"][None]}, ("'b'", "float32[1, 33]", "float32[33]")),
    "turned": (lambda w: {**w, "w": w["w"].T}, ("'w'", "float32[33, 40]", "float32[40, 33]")),
    "dtype": (lambda w: {**w, "b": w["b"].astype("f8")}, ("'b'", "float64[33]", "float32[33]")),
    "None": (lambda w: {**w, "b": None}, ("'b'", "None", "float32[33]")),
    "list": (lambda w: {**w, "b": [0.0] * 33}, ("'b'", "float32[33]")),
    "objects": (lambda w: {**w, "b": w["b"].astype(object)}, ("'b'", "object", "float32[33]")),
    "masked": (lambda w: {**w, "b": numpy.ma.masked_array(w["b"], w["b"] > 0)}, ("'b'",)),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_arrays(case: str, tmp_path: Path) -> None:
    model = ad.compile(file(product, 0, tmp_path))
    change, texts = WRONG[case]
    refused(model, change(weights(network(product, 1))), ad.OptionError, *texts)


@pytest.mark.parametrize("given", [None, 3, 2.5, [], (), object(), {1, 2}, True])
def test_no_sources(given: Any, tmp_path: Path) -> None:
    model = ad.compile(file(product, 0, tmp_path))
    refused(model, given, ad.OptionError, "is no source of weights")


@pytest.mark.parametrize("data", [b"", b"x" * 99, b"def f(x) -> (y) {}"])
@pytest.mark.parametrize("form", ["bytes", "path"])
def test_files_that_are_none(data: bytes, form: str, tmp_path: Path) -> None:
    path = tmp_path / "other.onnx"
    path.write_bytes(data)
    model = ad.compile(file(product, 0, tmp_path))
    refused(model, data if form == "bytes" else path, ad.ModelError, "no ONNX model")
    refused(model, tmp_path / "none.onnx", ad.ModelError, "none.onnx", "No such file")
    refused(model, tmp_path, ad.ModelError, "cannot be read")


def test_other_structures(tmp_path: Path) -> None:
    model = ad.compile(file(product, 0, tmp_path))
    refused(model, file(normalised, 1, tmp_path), ad.ModelError, "'w' is float32[24, 3, 3, 3]")
    other = network(product, 1)
    other.graph.node[0].name = "first"
    refused(model, other, ad.ModelError, "nodes, or contents that are no weights, differ")
    half = network(product, 1)
    half.graph.initializer[1].CopyFrom(numpy_helper.from_array(numpy.zeros(1, "f4"), "b"))
    refused(model, half, ad.ModelError, "has another structure")
    wide = network(product, 1)
    wide.graph.initializer[1].CopyFrom(numpy_helper.from_array(numpy.zeros((1, 33), "f4"), "b"))
    refused(model, wide, ad.ModelError, "'b' is float32[1, 33]", "float32[33]")


def test_contents_that_decide(tmp_path: Path) -> None:
    """They may be left out, and must be equal if given."""
    path = file(transposed, 0, tmp_path)
    model, given = ad.compile(path), weights(network(transposed, 1))
    refused(model, {**given, "axes": numpy.array([0])}, ad.OptionError, "'axes'", "depends")
    model.load_weights(given)
    own = results(model)
    del given["axes"]
    model.load_weights(given)
    assert results(model) == own == results(fresh(file(transposed, 1, tmp_path), tmp_path))


# ---- kinds of models ---------------------------------------------------------------------------


def builder(seed: int, **options: Any) -> ad.Builder:
    random = numpy.random.default_rng(seed)
    g = ad.Builder("layer")
    x = g.input("x", ad.float32, (g.dim("b"), g.dim("n", 0, 64), 12))
    w = g.constant(random.normal(size=(12, 12)).astype("f4"), name="w")
    h = g.matmul(x, w) * 0.5 + g.constant(random.normal(size=12).astype("f4"), name="b")
    g.output("y", g.softmax(h + g.constant(numpy.arange(12, dtype="f4")), axis=-1))
    return g


def of_builder(seed: int) -> dict[str, numpy.ndarray]:
    random = numpy.random.default_rng(seed)
    return {
        "w": random.normal(size=(12, 12)).astype("f4"),
        "b": random.normal(size=12).astype("f4"),
    }


OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "buckets": {"strategy": "buckets(n=[3, 9])"},
    "exact": {"strategy": "exact(limit=4)"},
    "pad": {"strategy": "pad(n=8)"},
    "threads": {"threads": 2},
    "arenas": {"arenas": 1, "wait": 5.0},
    "limit": {"memory_limit": ad.MemoryLimit("64 MiB", per_call=True)},
}


@pytest.mark.parametrize("options", OPTIONS)
def test_a_builder_with_named_constants(options: str) -> None:
    given = OPTIONS[options]
    model, own = ad.compile(builder(0), **given), ad.compile(builder(1), **given)
    x = numpy.random.default_rng(5).normal(size=(2, 9, 12)).astype("f4")
    for _ in range(3):
        assert model(x=x)["y"].tobytes() != own(x=x)["y"].tobytes()
    model.load_weights(of_builder(1))
    for _ in range(3):
        assert model(x=x)["y"].tobytes() == own(x=x)["y"].tobytes()
    assert model.check(samples=3)
    again = pickle.loads(pickle.dumps(model))
    assert again(x=x)["y"].tobytes() == own(x=x)["y"].tobytes()
    with pytest.raises(ad.OptionError, match="no weight 'constant'"):
        model.load_weights({**of_builder(1), "constant": numpy.arange(12, dtype="f4")})
    with pytest.raises(ad.OptionError, match="give arrays by name"):
        model.load_weights(product(numpy.random.default_rng(0)))


@pytest.mark.parametrize("special", (0.0, numpy.nan, numpy.inf, 1e-38))
def test_weights_in_bytes(special: float) -> None:
    """Those of products with precision int8 are quantised again, of float32 and of codes."""

    def layers(seed: int) -> tuple[ad.Builder, dict[str, numpy.ndarray]]:
        random, g = numpy.random.default_rng(seed), ad.Builder("layers")
        given = {"w": random.normal(size=(96, 64)).astype("f4"),
                 "scales": random.random((32, 2)).astype("f4")}  # fmt: skip
        given["w"][:, seed] = special
        codes = numpy.random.default_rng(9).integers(-127, 127, (32, 64)).astype("i1")
        h = g.matmul(g.input("x", ad.float32, (g.dim("n", 0, 64), 96)),
                     g.constant(given["w"], name="w"))  # fmt: skip
        scales = g.constant(given["scales"], name="scales")
        last = g.dequantize(g.constant(codes), scales, axis=1, block=32)
        g.output("y", g.matmul(h, g.transpose(last)))
        g.output("h", h)
        return g, given

    (first, _), (second, given) = layers(0), layers(1)
    model, own = (ad.compile(each, precision="int8", threads=1) for each in (first, second))
    assert "2 of 2 products" in str(model.report)
    x = numpy.random.default_rng(5).normal(size=(5, 96)).astype("f4")
    before, expected = ({n: v.tobytes() for n, v in each(x=x).items()} for each in (model, own))
    model.load_weights(given)
    assert {n: v.tobytes() for n, v in model(x=x).items()} == expected != before


def test_ragged_batches() -> None:
    model = ad.compile(builder(0), ragged={"n": "b"})
    own = ad.compile(builder(1), ragged={"n": "b"})
    rows = [numpy.random.default_rng(n).normal(size=(n, 12)).astype("f4") for n in (1, 5, 2)]
    model(x=rows)
    model.load_weights(of_builder(1))
    for mine, theirs in zip(model(x=rows)["y"], own(x=rows)["y"]):
        assert mine.tobytes() == theirs.tobytes()


def test_values_of_sizes_that_weights_are_part_of(tmp_path: Path) -> None:
    """A table that only sizes index is kept between calls, and made anew from other weights."""

    def table(seed: int) -> ad.Builder:
        g = ad.Builder("table")
        x = g.input("x", ad.float32, (g.dim("n", 0, 64), 64))
        held = numpy.random.default_rng(seed).normal(size=(64, 64)).astype("f4")
        w = g.constant(held, name="w")
        rows = g.exp(g.matmul(w[: x.shape[0]], w))
        g.output("y", g.add(x, rows))
        return g

    model, own = ad.compile(table(0)), ad.compile(table(1))
    x = numpy.ones((40, 64), numpy.float32)
    for _ in range(3):
        model(x=x)
    model.load_weights(
        {"w": numpy.random.default_rng(1).normal(size=(64, 64)).astype("f4")}
    )  # fmt: skip
    for _ in range(3):
        assert model(x=x)["y"].tobytes() == own(x=x)["y"].tobytes()


def test_loops(tmp_path: Path) -> None:
    """A program of regions."""

    def looped(seed: int) -> Path:
        body = helper.make_graph(
            [helper.make_node("MatMul", ["v", "w"], ["m"]),
             helper.make_node("Tanh", ["m"], ["o"]),
             helper.make_node("Identity", ["c"], ["d"])],
            "body",
            [helper.make_tensor_value_info("i", 7, []), helper.make_tensor_value_info("c", 9, []),
             helper.make_tensor_value_info("v", 1, ["n", 8])],
            [helper.make_tensor_value_info("d", 9, []),
             helper.make_tensor_value_info("o", 1, ["n", 8])],
        )  # fmt: skip
        w = numpy.random.default_rng(seed).normal(size=(8, 8)).astype("f4")
        graph = helper.make_graph(
            [helper.make_node("Loop", ["k", "", "x"], ["y"], body=body)], "loop",
            [helper.make_tensor_value_info("k", 7, []),
             helper.make_tensor_value_info("x", 1, ["n", 8])],
            [helper.make_tensor_value_info("y", 1, None)],
            [numpy_helper.from_array(w, "w")],
        )  # fmt: skip
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
        return saved(made, tmp_path / f"{seed}.onnx")

    model, path = ad.compile(looped(0)), looped(1)
    x, k = numpy.random.default_rng(5).normal(size=(3, 8)).astype("f4"), numpy.int64(4)
    for _ in range(3):
        before = model(x=x, k=k)["y"].tobytes()
    model.load_weights(path)
    own = fresh(path, tmp_path)
    for _ in range(3):
        assert model(x=x, k=k)["y"].tobytes() == own(x=x, k=k)["y"].tobytes() != before


def test_models_without_such_weights(tmp_path: Path) -> None:
    g = ad.Builder("unnamed")
    x = g.input("x", ad.float32, (g.dim("n"), 4))
    g.output("y", g.matmul(x, g.constant(numpy.ones((4, 4), "f4"))))
    model = ad.compile(g)
    with pytest.raises(ad.OptionError, match="no weights that can be exchanged"):
        model.load_weights({"w": numpy.ones((4, 4), "f4")})
    path = file(product, 0, tmp_path)
    ad.compile(path).save(tmp_path / "saved.anydim")
    with pytest.raises(ad.OptionError, match="saved file"):
        ad.load(tmp_path / "saved.anydim").load_weights(path)


@pytest.mark.parametrize("part", ["device", "engine"])
def test_parts_elsewhere(part: str) -> None:
    if part == "engine":
        pytest.importorskip("onnxruntime")
        placed: dict[str, Any] = {"placement": {"MatMul*": "onnxruntime"}}
    else:
        placed = {"devices": {"a": "cpu"}, "placement": {"*": "a"}}
    model = ad.compile(network(product, 0), **placed)
    with pytest.raises(ad.OptionError, match="parts on"):
        model.load_weights(network(product, 1))


def test_models_of_many_programs() -> None:
    """Calls may give an initializer, or decide the rank of an input."""
    given = network(product, 0)
    given.graph.input.add().CopyFrom(helper.make_tensor_value_info("b", 1, [33]))
    model = ad.compile(given)
    refused(model, network(product, 1), ad.OptionError, "may give initializers")
    unranked = network(product, 0)
    unranked.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", 1, None))
    with pytest.raises(ad.OptionError, match="rank of input 'x'"):
        ad.compile(unranked).load_weights(weights(network(product, 1)))


def test_a_model_of_the_cache_has_its_weights_exchanged(tmp_path: Path) -> None:
    """Loading weights does not change what the cache holds."""
    one, two = file(product, 0, tmp_path), file(product, 1, tmp_path)
    before = results(ad.compile(one))
    model = ad.compile(one)
    assert how(model) == "load"
    model.load_weights(two)
    assert results(ad.compile(one)) == before
    assert results(ad.compile(two)) == results(model)
