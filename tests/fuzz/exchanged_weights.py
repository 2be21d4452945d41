"""Two random models of one structure: the second, made from the program of the first or loaded into
its model, has the bits of its own compilation.

A source that does not fit is refused with a reason, and the model keeps what it has.

Some weights of both are in Constant nodes. Those of the second are drawn anew, or have equal rows,
zeros, one value, not a number, infinity, or numbers without a normal form.
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy
import onnx
from onnx import helper, numpy_helper

import anydim as ad
from anydim.base import settings
from tests.caches import empty_cache
from tests.fuzz import networks, onnx_nodes
from tests.fuzz.onnx_models import Models
from tests.fuzz.onnx_peers import feeds_of, text
from tests.fuzz.runner import Outcome, run_texts

CALLS = 3
REFUSED = ("depend", "no weights that can be exchanged")


def random_pair(seed: int) -> tuple[Models, onnx.ModelProto, onnx.ModelProto]:
    """A random model twice, with other weights of floats."""
    made = networks.random_network(seed) if seed % 2 else onnx_nodes.random_model(seed)
    one, two = made.model(), made.model()
    for tensor in two.graph.initializer:
        array = numpy_helper.to_array(tensor)
        if array.dtype.kind == "f" and array.size > 1:
            other = redrawn(array, numpy.random.default_rng((seed, len(tensor.name))), made)
            tensor.CopyFrom(numpy_helper.from_array(other, tensor.name))
    inputs = {value.name for value in one.graph.input}
    names = [each.name for each in one.graph.initializer if each.name not in inputs]
    moved = {name for name in names if seed % 3 and made.one((True, False))}
    return made, as_nodes(one, moved), as_nodes(two, moved)


def as_nodes(model: onnx.ModelProto, names: Collection[str]) -> onnx.ModelProto:
    """The model with initializers of these names in Constant nodes."""
    graph = model.graph
    tensors = [each for each in graph.initializer if each.name in names]
    rest = [each for each in graph.initializer if each.name not in names]
    nodes = [helper.make_node("Constant", [], [each.name], value=each) for each in tensors]
    nodes += graph.node
    for field, values in (("node", nodes), ("initializer", rest)):
        graph.ClearField(field)
        getattr(graph, field).extend(values)
    return model


def redrawn(array: numpy.ndarray, random: numpy.random.Generator, m: Models) -> numpy.ndarray:
    """Other elements of the same type and shape."""
    made = array * random.uniform(0.5, 1.5, array.shape)
    flat = made.reshape(-1)
    kind = m.one(("plain", "plain", "plain", "rows", "zeros", "one", "nan", "inf", "tiny"))
    if kind == "rows":
        made[...] = made[:1]
    elif kind in ("zeros", "one"):
        made[...] = float(kind == "one")
    elif kind == "tiny":
        made *= 1e-42
    elif kind != "plain":
        flat[random.integers(flat.size)] = float(kind)
    return made.astype(array.dtype)


def fault(seed: int) -> str:
    """What differs; '' for nothing."""
    made, one, two = random_pair(seed)
    data = one.SerializeToString(), two.SerializeToString()
    with settings.override(keep_programs=False):
        first, own = (compiled(each) for each in data)
    cached = {"use_cache": True, "keep_programs": True}
    with tempfile.TemporaryDirectory() as name:
        folder = empty_cache(Path(name, "cache"))
        with settings.override(cache_dir=folder, **cached):
            model, found = (compiled(each) for each in data)
    if not isinstance(own, ad.Model) or not isinstance(found, ad.Model):
        return "" if own == found else f"compile: {found}, and {own} alone"
    assert isinstance(model, ad.Model)
    try:
        model.load_weights(data[1])
        loaded = own
    except ad.UserError as error:
        if not any(text in str(error) for text in REFUSED):
            return f"load_weights: {error}"
        loaded = first
    for sizes in islice(networks.points(made), CALLS):
        feeds = feeds_of(made, sizes)
        for name, mine, other in (("compile", found, own), ("load_weights", model, loaded)):
            if results(mine, feeds) != results(other, feeds):
                return f"{name}: results at {sizes} are not those of a compilation"
    return wrong_fault(model, two, feeds_of(made, next(iter(networks.points(made)))), seed)


def wrong_fault(
    model: ad.Model, source: onnx.ModelProto, feeds: dict[str, numpy.ndarray], seed: int
) -> str:
    """What is wrong with the answer to sources that do not fit a model; '' for nothing."""
    before, given = results(model, feeds), wrong_sources(source, numpy.random.default_rng(seed))
    for name, wrong in given:
        try:
            model.load_weights(wrong)
        except ad.InternalError as error:
            return f"load_weights, {name}: {error}"
        except ad.UserError as error:
            if not error.hint:
                return f"load_weights, {name}: {error} says nothing to do"
            if results(model, feeds) != before:
                return f"load_weights, {name}: refused, and the results are others"
            continue
        if name.startswith("without"):  # what a program depends on may be left out
            before = results(model, feeds)
            continue
        own = None if isinstance(wrong, dict) else compiled(wrong)
        if not isinstance(own, ad.Model) or results(own, feeds) != results(model, feeds):
            return f"load_weights, {name}: taken, and the results are not those of a compilation"
        before = results(model, feeds)
    return ""


def wrong_sources(
    source: onnx.ModelProto, random: numpy.random.Generator
) -> Iterator[tuple[str, Any]]:
    """Files and arrays by name with one thing changed, and what that is."""
    arrays = {each.name: numpy_helper.to_array(each) for each in source.graph.initializer}
    floats = [name for name, array in arrays.items() if array.dtype.kind == "f"]
    if not floats:
        return
    name = floats[random.integers(len(floats))]
    array = arrays[name]
    others = {
        "another type": array.astype("f8" if array.dtype != "f8" else "f4"),
        "integers": numpy.zeros(array.shape, "i4"), "another axis": array[None],
        "more rows": numpy.concatenate([array, array]) if array.ndim else array[None],
        "no rows": array[:0] if array.ndim else array[None],
        "turned": array.T if array.ndim > 1 and array.shape != array.T.shape else array[None],
    }  # fmt: skip
    for what, other in others.items():
        yield f"{what} of '{name}'", with_tensor(source, name, other).SerializeToString()
        yield f"{what} of '{name}' by name", {**arrays, name: other}
    yield f"without '{name}' by name", {key: arrays[key] for key in arrays if key != name}
    yield "one more by name", {**arrays, f"{name}.more": array}
    yield f"'{name}' called otherwise", renamed(source, name).SerializeToString()
    more = with_tensor(source, f"{name}.more", array)
    yield "one more", more.SerializeToString()
    data = source.SerializeToString()
    yield "cut", data[: int(random.integers(len(data)))]
    other_network = networks.random_network(int(random.integers(1 << 30)) * 2 + 1).model()
    yield "another network", other_network.SerializeToString()


def with_tensor(source: onnx.ModelProto, name: str, array: numpy.ndarray) -> onnx.ModelProto:
    """The model with another tensor, or one more."""
    made = onnx.ModelProto()
    made.CopyFrom(source)
    found = [each for each in made.graph.initializer if each.name == name]
    tensor = found[0] if found else made.graph.initializer.add()
    tensor.CopyFrom(numpy_helper.from_array(numpy.ascontiguousarray(array), name))
    return made


def renamed(source: onnx.ModelProto, name: str) -> onnx.ModelProto:
    """The model whose initializer, and what reads it, has another name."""
    made = onnx.ModelProto()
    made.CopyFrom(source)
    for tensor in made.graph.initializer:
        if tensor.name == name:
            tensor.name = f"{name}.other"
    for node in made.graph.node:
        node.input[:] = [f"{name}.other" if each == name else each for each in node.input]
    return made


def compiled(data: bytes) -> ad.Model | str:
    """The model, or the error of a file whose weights are sizes that do not fit, such as scales."""
    try:
        return ad.compile(data)
    except ad.ModelError as error:
        return str(error)


def results(model: ad.Model, feeds: dict[str, numpy.ndarray]) -> object:
    """The bytes of all results, or the kind of error."""
    names = {value.name for value in model.inputs}
    try:
        made = model(**{name: array for name, array in feeds.items() if name in names})
    except ad.UserError as error:
        return type(error)
    return {name: numpy.asarray(each).tobytes() for name, each in made.items()}


def run(seeds: range, small: bool = True) -> Iterator[Outcome]:
    """The outcomes of these seeds, in order."""
    return run_texts(seeds, small, fault, lambda seed: text(random_pair(seed)[2]))
