"""Promise: a source that differs from a compiled one in its weights alone takes its program, in the
bits of its own compilation; one that differs in what the compiler decided by is compiled."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.external_data_helper import convert_model_to_external_data

import anydim as ad
from anydim.base import settings
from anydim.base.cache import DiskCache
from anydim.compiler.frontends.onnx.file.structure import StoredWeight, read_weight, structure_of
from anydim.deploy.exchange import rename_source
from tests.caches import empty_cache
from tests.fuzz.exchanged_weights import as_nodes

FLOAT = TensorProto.FLOAT
SIZES = (0, 1, 5, 16)
Weights = dict[str, numpy.ndarray]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path) -> Iterator[Path]:
    folder = empty_cache(tmp_path / "cache")
    with settings.override(cache_dir=folder, use_cache=True, keep_programs=True):
        yield tmp_path / "cache"


# ---- networks ----------------------------------------------------------------------------------


def _model(
    nodes: list[Any],
    x: list[Any],
    weights: Weights,
    other: Weights | None = None,
    kind: int = FLOAT,
) -> onnx.ModelProto:
    held = {**weights, **(other or {})}
    graph = helper.make_graph(
        nodes, "", [helper.make_tensor_value_info("x", kind, x)],
        [helper.make_tensor_value_info("y", FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in held.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def _floats(random: numpy.random.Generator, **shapes: tuple[int, ...]) -> Weights:
    return {
        name: random.uniform(-1, 1, shape).astype(numpy.float32) for name, shape in shapes.items()
    }


def product(random: numpy.random.Generator) -> onnx.ModelProto:
    """A large product, and a small bias."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Add", ["h", "b"], "y"),
    ]
    return _model(nodes, ["n", 40], _floats(random, w=(40, 33), b=(33,)))


def normalised(random: numpy.random.Generator) -> onnx.ModelProto:
    """Convolutions whose weights take the scales of a normalisation."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["c", "s", "b", "m", "v"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("Conv", ["r", "w2"], ["y"]),
    ]
    weights = _floats(random, w=(24, 3, 3, 3), w2=(8, 24, 1, 1), s=(24,), b=(24,), m=(24,), v=(24,))
    weights["v"] = numpy.abs(weights["v"])
    return _model(nodes, ["n", 3, 9, 9], weights)


def transposed(random: numpy.random.Generator) -> onnx.ModelProto:
    """Arithmetic of weights in the graph."""
    nodes = [
        helper.make_node("Transpose", ["w"], ["t"], perm=[1, 0]),
        helper.make_node("Mul", ["t", "s"], ["u"]),
        helper.make_node("ReduceMean", ["w", "axes"], ["m"], keepdims=0),
        helper.make_node("Sqrt", ["q"], ["r"]),
        helper.make_node("MatMul", ["x", "u"], ["h"]),
        helper.make_node("Add", ["h", "m"], ["g"]),
        helper.make_node("Mul", ["g", "r"], ["y"]),
    ]
    weights = _floats(random, w=(48, 32), s=(48,), q=(48,))
    weights["q"] = numpy.abs(weights["q"])
    return _model(nodes, ["n", 32], weights, {"axes": numpy.array([1])})


def recurrent(random: numpy.random.Generator) -> onnx.ModelProto:
    """An LSTM."""
    nodes = [helper.make_node("LSTM", ["x", "w", "r", "b"], ["y"], hidden_size=12)]
    return _model(nodes, ["n", 2, 7], _floats(random, w=(1, 48, 7), r=(1, 48, 12), b=(1, 96)))


def quantised(random: numpy.random.Generator) -> onnx.ModelProto:
    """A product with 8-bit weights, a scale for each channel."""
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s", "z"], ["d"], axis=1),
        helper.make_node("QuantizeLinear", ["x", "xs", "xz"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "xs", "xz"], ["e"]),
        helper.make_node("MatMul", ["e", "d"], ["y"]),
    ]
    weights = {
        "w": random.integers(-127, 128, (64, 20)).astype(numpy.int8),
        "s": random.uniform(0.01, 0.02, 20).astype(numpy.float32),
        "z": numpy.zeros(20, numpy.int8),
    }
    other = {"xs": numpy.float32(0.05), "xz": numpy.uint8(128)}
    return _model(nodes, ["n", 64], weights, {n: numpy.array(a) for n, a in other.items()})


def embedded(random: numpy.random.Generator) -> onnx.ModelProto:
    """A table that indices read, and a normalisation of rows."""
    nodes = [
        helper.make_node("Gather", ["t", "x"], ["h"]),
        helper.make_node("LayerNormalization", ["h", "s", "b"], ["y"]),
    ]
    weights = _floats(random, t=(60, 24), s=(24,), b=(24,))
    return _model(nodes, ["n", 3], weights, kind=TensorProto.INT64)


def separable(random: numpy.random.Generator) -> onnx.ModelProto:
    """A convolution for each channel, and a dense layer of a file from torch."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], group=6, pads=[1, 1, 1, 1]),
        helper.make_node("GlobalAveragePool", ["c"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Gemm", ["f", "g", "b"], ["y"], transB=1),
    ]
    return _model(nodes, ["n", 6, 8, 8], _floats(random, w=(6, 1, 3, 3), g=(10, 6), b=(10,)))


def halves(random: numpy.random.Generator) -> onnx.ModelProto:
    """Weights of 16 bits, converted when they are used."""
    nodes = [
        helper.make_node("Cast", ["w"], ["c"], to=FLOAT),
        helper.make_node("MatMul", ["x", "c"], ["y"]),
    ]
    weights = _floats(random, w=(16, 48))
    return _model(nodes, ["n", 16], {"w": weights["w"].astype(numpy.float16)})


NETWORKS = (
    product, normalised, transposed, recurrent, quantised, embedded, separable, halves,
)  # fmt: skip


def results(model: ad.Model) -> list[bytes]:
    """The results of calls at several sizes."""
    (spec,) = model.inputs
    found = []
    for size in SIZES:
        random = numpy.random.default_rng(size)
        shape = [size if not isinstance(each, int) else each for each in map(_number, spec.shape)]
        drawn = (
            random.integers(0, 60, shape) if spec.dtype.is_integer else random.normal(size=shape)
        )
        found.append(model(x=drawn.astype(spec.dtype.numpy))["y"].tobytes())
    return found


def _number(size: Any) -> int | str:
    return int(str(size)) if str(size).isdigit() else str(size)


def fresh(path: Path, tmp_path: Path) -> ad.Model:
    """The model compiled without any program of before."""
    with settings.override(keep_programs=False):
        return ad.compile(path)


def how(model: ad.Model) -> str:
    """'weights', 'load' or 'compiled'."""
    return next((word for word in ("weights", "load") if word in model.report.seconds), "compiled")


def saved(model: onnx.ModelProto, path: Path) -> Path:
    path.parent.mkdir(exist_ok=True, parents=True)
    onnx.save(model, path)
    return path


# ---- the same structure ------------------------------------------------------------------------


@pytest.mark.parametrize("network", NETWORKS)
def test_other_weights_take_the_program_in_the_bits_of_their_own(
    network: Callable[[numpy.random.Generator], onnx.ModelProto], tmp_path: Path
) -> None:
    first, *others = (
        saved(network(numpy.random.default_rng(seed)), tmp_path / f"{seed}.onnx")
        for seed in range(3)
    )
    assert how(ad.compile(first)) == "compiled"
    for path in others:
        found = ad.compile(path)
        assert how(found) == "weights"
        assert results(found) == results(fresh(path, tmp_path))
        assert how(ad.compile(path)) == "load"
    assert results(ad.compile(first)) == results(fresh(first, tmp_path))


@pytest.mark.parametrize("in_memory", [False, True])
@pytest.mark.parametrize("network", [product, normalised, quantised, embedded])
def test_weights_in_constant_nodes(
    network: Callable[[numpy.random.Generator], onnx.ModelProto], in_memory: bool, tmp_path: Path
) -> None:
    found = []
    for seed in range(3):
        model = network(numpy.random.default_rng(seed))
        names = [tensor.name for tensor in model.graph.initializer][::2]
        path = saved(as_nodes(model, names), tmp_path / f"{seed}.onnx")
        other = ad.compile(onnx.load(path) if in_memory else path)
        found.append(how(other))
        assert results(other) == results(fresh(path, tmp_path))
    assert found == ["compiled", "weights", "weights"]


def test_a_constant_node_with_the_name_of_an_input_is_an_error(tmp_path: Path) -> None:
    model = as_nodes(product(numpy.random.default_rng(0)), ["w", "b"])
    model.graph.node[1].output[0] = "x"
    with pytest.raises(ad.ModelError, match="'x'"):
        ad.compile(saved(model, tmp_path / "one.onnx"))


@pytest.mark.parametrize("network", [product, normalised, embedded])
def test_weights_rounded_to_bfloat16(
    network: Callable[[numpy.random.Generator], onnx.ModelProto], tmp_path: Path
) -> None:
    found = []
    for seed in range(3):
        path = saved(network(numpy.random.default_rng(seed)), tmp_path / f"{seed}.onnx")
        model = ad.compile(path, precision="bfloat16")
        found.append(how(model))
        with settings.override(keep_programs=False):
            own = ad.compile(path, precision="bfloat16")
        assert results(model) == results(own)
    assert found == ["compiled", "weights", "weights"]


def test_a_program_with_other_weights_is_as_if_it_had_been_compiled(tmp_path: Path) -> None:
    """All texts name the file; queries that need the compiler are answered by its own weights."""
    one, two = numpy.random.default_rng(1), numpy.random.default_rng(2)
    ad.compile(saved(product(one), tmp_path / "one.onnx"))
    path = saved(product(two), tmp_path / "two.onnx")
    found, own = ad.compile(path), fresh(path, tmp_path)
    assert how(found) == "weights" and found.check(samples=5)
    assert (found.name, str(found.plan(n=5)), found.explain()) == (
        own.name, str(own.plan(n=5)), own.explain()
    )  # fmt: skip
    found.save(tmp_path / "found.anydim")
    own.save(tmp_path / "own.anydim")
    assert (tmp_path / "found.anydim").read_bytes() == (tmp_path / "own.anydim").read_bytes()


def test_sources_in_memory(tmp_path: Path) -> None:
    models = [product(numpy.random.default_rng(seed)) for seed in range(3)]
    assert how(ad.compile(models[0])) == "compiled"
    assert how(ad.compile(models[1])) == "weights"
    found = ad.compile(models[2].SerializeToString())
    assert how(found) == "weights"
    path = saved(models[2], tmp_path / "one.onnx")
    assert results(found) == results(fresh(path, tmp_path))


def test_weights_as_lists_of_floats(tmp_path: Path) -> None:
    """`float_data` instead of bytes has the same structure."""

    def listed(seed: int) -> onnx.ModelProto:
        made = product(numpy.random.default_rng(seed))
        for tensor in made.graph.initializer:
            array = numpy_helper.to_array(tensor)
            tensor.CopyFrom(helper.make_tensor(tensor.name, FLOAT, array.shape, array.ravel()))
        return made

    ad.compile(saved(product(numpy.random.default_rng(0)), tmp_path / "raw.onnx"))
    path = saved(listed(1), tmp_path / "one.onnx")
    found = ad.compile(path)
    assert how(found) == "weights" and results(found) == results(fresh(path, tmp_path))


SPECIAL = {
    "zeros": lambda array: numpy.zeros_like(array),
    "one zero": lambda array: numpy.where(numpy.arange(array.size) == 3, 0, array.ravel()),
    "not a number": lambda array: numpy.where(numpy.arange(array.size) == 3, "nan", array.ravel()),
    "infinite": lambda array: numpy.where(numpy.arange(array.size) == 3, "inf", array.ravel()),
    "equal": lambda array: numpy.full_like(array, 0.5),
    "ones": lambda array: numpy.ones_like(array),
    "tiny": lambda array: array * 1e-42,
}


@pytest.mark.parametrize("network", [product, normalised, transposed])
@pytest.mark.parametrize("name", SPECIAL)
def test_special_weights(
    network: Callable[[numpy.random.Generator], onnx.ModelProto], name: str, tmp_path: Path
) -> None:
    """Each weight in turn is special: it takes the program or is compiled, in the same bits."""
    model = network(numpy.random.default_rng(0))
    ad.compile(saved(model, tmp_path / "plain.onnx"))
    for number, tensor in enumerate(model.graph.initializer):
        array = numpy_helper.to_array(tensor)
        if array.dtype != numpy.float32:
            continue
        special = SPECIAL[name](array).astype(numpy.float32).reshape(array.shape)
        other = onnx.ModelProto()
        other.CopyFrom(model)
        other.graph.initializer[number].CopyFrom(numpy_helper.from_array(special, tensor.name))
        path = saved(other, tmp_path / f"{number}.onnx")
        assert results(ad.compile(path)) == results(fresh(path, tmp_path))


# ---- another structure -------------------------------------------------------------------------


def changed(kind: str) -> onnx.ModelProto:
    """`transposed`, with one change besides its weights."""
    model = transposed(numpy.random.default_rng(9))
    graph = model.graph
    weights = {tensor.name: tensor for tensor in graph.initializer}
    if kind == "an axis":
        weights["axes"].CopyFrom(numpy_helper.from_array(numpy.array([-1]), "axes"))
    elif kind == "a name":
        graph.node[0].name = "turn"
    elif kind == "a type":
        array = numpy_helper.to_array(weights["w"]).astype(numpy.float64)
        weights["w"].CopyFrom(numpy_helper.from_array(array, "w"))
        graph.node.insert(0, helper.make_node("Cast", ["w"], ["w32"], to=FLOAT))
        for node in graph.node[1:]:
            node.input[:] = ["w32" if name == "w" else name for name in node.input]
    elif kind == "an operator":
        graph.node[3].op_type = "Abs"
    elif kind == "an input":
        graph.input[0].type.tensor_type.shape.dim[0].dim_param = "m"
    elif kind == "an opset":
        model.opset_import[0].version = 19
    return model


@pytest.mark.parametrize(
    "kind", ["an axis", "a name", "a type", "an operator", "an input", "an opset"]
)
def test_another_structure_is_compiled(kind: str, tmp_path: Path) -> None:
    ad.compile(saved(transposed(numpy.random.default_rng(0)), tmp_path / "one.onnx"))
    path = saved(changed(kind), tmp_path / "other.onnx")
    assert how(ad.compile(path)) == "compiled"
    assert how(ad.compile(saved(changed("nothing"), tmp_path / "same.onnx"))) == "weights"


def test_weights_that_decide_belong_to_the_structure(tmp_path: Path) -> None:
    """Arithmetic of small floats that becomes the sizes of a Resize."""

    def resized(scale: float, seed: int) -> onnx.ModelProto:
        nodes = [
            helper.make_node("Mul", ["s", "s"], ["t"]),
            helper.make_node("Conv", ["x", "w"], ["c"]),
            helper.make_node("Resize", ["c", "", "t"], ["y"], mode="nearest"),
        ]
        weights = _floats(numpy.random.default_rng(seed), w=(4, 3, 1, 1))
        weights["s"] = numpy.array([1, 1, scale, scale], numpy.float32)
        return _model(nodes, ["n", 3, 4, 4], weights)

    cases = (2.0, 0, "compiled"), (2.0, 1, "weights"), (1.5, 2, "compiled"), (1.5, 3, "weights")
    for number, (scale, seed, wanted) in enumerate((*cases, (2.0, 4, "weights"))):
        path = saved(resized(scale, seed), tmp_path / f"{number}.onnx")
        found = ad.compile(path)
        assert how(found) == wanted
        assert results(found) == results(fresh(path, tmp_path))


def test_a_fact_that_differs(tmp_path: Path) -> None:
    """A scale that is not finite is not folded into weights."""

    def scaled(seed: int, first: float) -> Path:
        model = normalised(numpy.random.default_rng(seed))
        (scales,) = (each for each in model.graph.initializer if each.name == "s")
        array = numpy_helper.to_array(scales).copy()
        array[0] = first
        scales.CopyFrom(numpy_helper.from_array(array, "s"))
        return saved(model, tmp_path / f"{seed}.onnx")

    paths = scaled(0, 1), scaled(1, numpy.inf), scaled(2, numpy.inf), scaled(3, 2)
    assert [how(ad.compile(path)) for path in paths] == [
        "compiled", "compiled", "weights", "weights"
    ]  # fmt: skip
    for path in paths:
        assert results(ad.compile(path)) == results(fresh(path, tmp_path))


def test_options_and_settings_belong_to_the_structure(tmp_path: Path) -> None:
    one, two = (saved(product(numpy.random.default_rng(s)), tmp_path / f"{s}.onnx") for s in (0, 1))
    ad.compile(one)
    assert how(ad.compile(two, dims={"n": (1, 9)})) == "compiled"
    assert how(ad.compile(two, threads=2)) == "compiled"
    assert how(ad.compile(two, precision="fast")) == "compiled"
    with settings.override(layout="channels_first"):
        assert how(ad.compile(two)) == "compiled"
    assert how(ad.compile(two)) == "weights"


def beside(model: onnx.ModelProto, path: Path, location: str = "one.data", size: int = 0) -> Path:
    """The model in a file, with external data in another one."""
    path.parent.mkdir(exist_ok=True, parents=True)
    onnx.save(model, path, save_as_external_data=True, location=location, size_threshold=size)
    return path


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("size", [0, 1024])
def test_weights_in_external_data(
    network: Callable[[numpy.random.Generator], onnx.ModelProto], size: int, tmp_path: Path
) -> None:
    """Whatever the name of their file; constants of the structure may be in it, too."""
    found = []
    for seed in range(3):
        model = network(numpy.random.default_rng(seed))
        path = beside(model, tmp_path / f"{seed}" / "one.onnx", f"{seed}.data", size)
        found.append(how(ad.compile(path)))
        assert results(ad.compile(path)) == results(fresh(path, tmp_path))
        assert how(ad.compile(path)) == "load"
    assert found == ["compiled", "weights", "weights"]


def test_external_data_that_are_no_weights_belong_to_the_structure(tmp_path: Path) -> None:
    """Axes in external data."""
    cases = ((1, 0, "compiled"), (-1, 1, "compiled"), (1, 2, "weights"), (-1, 3, "weights"))
    for axis, seed, wanted in cases:
        model = transposed(numpy.random.default_rng(seed))
        (axes,) = (each for each in model.graph.initializer if each.name == "axes")
        axes.CopyFrom(numpy_helper.from_array(numpy.array([axis]), "axes"))
        path = beside(model, tmp_path / f"{seed}" / "one.onnx")
        assert how(ad.compile(path)) == wanted
        assert results(ad.compile(path)) == results(fresh(path, tmp_path))


def test_external_data_of_nodes_are_part_of_no_structure(tmp_path: Path) -> None:
    """The contents of a Constant in the same file of data as an initializer."""

    def made(seed: int) -> Path:
        random = numpy.random.default_rng(seed)
        weights = _floats(random, w=(40, 33), c=(33,))
        value = numpy_helper.from_array(weights.pop("c"), "c")
        nodes = [
            helper.make_node("Constant", [], ["c"], value=value),
            helper.make_node("MatMul", ["x", "w"], ["h"]),
            helper.make_node("Add", ["h", "c"], "y"),
        ]
        model = _model(nodes, ["n", 40], weights)
        path = tmp_path / f"{seed}" / "one.onnx"
        path.parent.mkdir()
        convert_model_to_external_data(model, True, "one.data", 0, convert_attribute=True)
        onnx.save(model, path)
        return path

    paths = made(0), made(1)
    assert [how(ad.compile(path)) for path in paths] == ["compiled", "compiled"]
    for path in paths:
        assert results(ad.compile(path)) == results(fresh(path, tmp_path))


@pytest.mark.parametrize("damage", ["shorter", "gone", "link"])
def test_wrong_external_data_are_refused(damage: str, tmp_path: Path) -> None:
    """A file of the structure whose data cannot be read gets the error of its own compilation."""
    ad.compile(beside(product(numpy.random.default_rng(0)), tmp_path / "0" / "one.onnx"))
    path = beside(product(numpy.random.default_rng(1)), tmp_path / "1" / "one.onnx")
    data = path.with_name("one.data")
    if damage == "shorter":
        data.write_bytes(data.read_bytes()[:-1])
    else:
        data.unlink()
        if damage == "link":
            data.symlink_to(tmp_path / "0" / "one.data")
    with pytest.raises(ad.ModelError) as own:
        fresh(path, tmp_path)
    with pytest.raises(ad.ModelError) as found:
        ad.compile(path)
    assert str(found.value) == str(own.value)


# ---- files of the cache ------------------------------------------------------------------------


@pytest.mark.parametrize("damage", ["program", "structure", "record", "gone"])
def test_damaged_files_are_compiled_anew(damage: str, tmp_path: Path, cache: Path) -> None:
    one, two = (saved(product(numpy.random.default_rng(s)), tmp_path / f"{s}.onnx") for s in (0, 1))
    ad.compile(one)
    (program,) = (cache / "programs").glob("??/*")
    (structure,) = (cache / "structures").glob("??/*")
    if damage == "gone":
        program.unlink()
    else:
        file = structure if damage == "structure" else program
        data = bytearray(file.read_bytes())
        at = data.index(b'"steps"') if damage == "record" else len(data) // 2
        data[at] ^= 1
        file.write_bytes(data)
    with pytest.warns() if damage == "structure" else _nothing():
        found = ad.compile(two)
    assert how(found) in ("compiled", "weights")
    assert damage == "program" or how(found) == "compiled"
    assert results(found) == results(fresh(two, tmp_path))


class _nothing:
    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


def test_a_structure_lists_its_last_programs(tmp_path: Path, cache: Path) -> None:
    for seed in range(3):
        ad.compile(saved(product(numpy.random.default_rng(seed)), tmp_path / f"{seed}.onnx"))
    (structure,) = (cache / "structures").glob("??/*")
    payload = DiskCache(str(cache / "structures"), 1 << 20).get("".join(structure.parts[-2:]))
    assert payload is not None
    rows = json.loads(payload)
    assert len(rows) == 1


# ---- parts -------------------------------------------------------------------------------------


def test_structure_of_a_file() -> None:
    models = [product(numpy.random.default_rng(seed)) for seed in (0, 1)]
    data = [memoryview(model.SerializeToString()) for model in models]
    found = [structure_of(each) for each in data]
    assert found[0] is not None and found[1] is not None
    assert found[0].digest == found[1].digest
    assert [each.name for each in found[0].weights.values()] == ["w", "b"]
    for tensor, each in zip(models[1].graph.initializer, found[1].weights.values()):
        assert numpy.array_equal(
            read_weight(_content(data[1], each), each), numpy_helper.to_array(tensor)
        )


def _content(data: memoryview, stored: StoredWeight) -> memoryview:
    return data[stored.span.start : stored.span.stop]


@pytest.mark.parametrize("data", [b"", b"\xff" * 40, b"def f(x) -> (y) {}", b"\x3a\x80\x01\x2a"])
def test_no_structure(data: bytes) -> None:
    assert structure_of(memoryview(data)) is None


def test_names_of_sources_in_texts() -> None:
    text = b'["a.onnx","a.onnx: /b, a.onnx: /c","ba.onnx: /b","x/a.onnx: y","a.onnxx"]'
    wanted = b'["q\\"","q\\": /b, q\\": /c","ba.onnx: /b","x/a.onnx: y","a.onnxx"]'
    assert rename_source(text, "a.onnx", 'q"') == wanted
