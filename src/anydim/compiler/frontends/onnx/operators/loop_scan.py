"""The rows of Loop and Scan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy

from anydim.base.dtypes import boolean
from anydim.compiler.frontends.onnx.file.tensors import Unsupported
from anydim.compiler.frontends.onnx.operators.call import Body, OnnxNode
from anydim.compiler.frontends.onnx.operators.iterations import Iterations, trips_of
from anydim.compiler.frontends.onnx.values.bindings import Binding, Known
from anydim.compiler.frontends.onnx.values.data_sizes import scalar_size
from anydim.sizes import Guard, Size, as_size


def loop(call: OnnxNode) -> Sequence[Binding]:
    """Loop: at most M iterations while the condition holds."""
    proto = call.attribute("body")
    carried = [call.held(position) for position in range(2, len(call.inputs))]
    names = [value.name for value in proto.input]
    if len(names) != 2 + len(carried) or len(proto.output) < 1 + len(carried):
        raise Unsupported(f"a body with {len(names)} inputs and {len(proto.output)} results")
    trips = _trips(call) if call.given(0) else None
    first, never = _first(call)
    trips = as_size(0) if never else trips

    def bind(body: Body, counter: Size) -> None:
        body.bind(names[0], Known.size(counter))
        body.bind(names[1], Known.of(numpy.array(True)))

    iterations = Iterations(call, proto, trips, first, names[2:], lambda body: True, bind)
    return iterations.run(carried, [False] * (len(proto.output) - 1 - len(carried)))


def _trips(call: OnnxNode) -> Size | None:
    kind = call.type(0)
    if not kind.dtype.is_integer or any(size.constant != 1 for size in kind.shape):
        raise Unsupported(f"a number of iterations of type {kind}")
    return trips_of(scalar_size(call, call.nodes, call.input(0), "trips"), call)


def _first(call: OnnxNode) -> tuple[str | None, bool]:
    """(the condition for the first iteration if it is data, whether it is known to be false)"""
    if not call.given(1):
        return None, False
    name, kind = call.input(1), call.type(1)
    if kind.dtype != boolean or any(size.constant != 1 for size in kind.shape):
        raise Unsupported(f"a condition of type {kind}")
    known = call.emitter.known.get(name)
    if known is not None and not known.has_sizes:
        return None, not bool(known.array.all())
    return (call.emit("reshape", name, shape=()) if kind.rank else name), False


# ---- Scan --------------------------------------------------------------------------------------


def scan(call: OnnxNode) -> Sequence[Binding]:
    """Scan: an iteration for each slice of some inputs; before opset 9, per batch entry."""
    if call.opset < 9:
        return _scan_batches(call)
    proto, count = call.attribute("body"), call.attribute("num_scan_inputs")
    states = len(call.inputs) - count
    stacked = len(proto.output) - states
    if not (0 < count <= len(call.inputs) == len(proto.input) and stacked >= 0):
        raise Unsupported(f"{count} scan inputs of {len(call.inputs)}")
    held = [call.held(position) for position in range(states)]
    inputs = [call.input(states + number) for number in range(count)]
    axes = _axes(call, "scan_input_axes", inputs)
    back = _list(call, "scan_input_directions", count)
    trips = _same_extents(call, [call.emitter.types[x].shape[a] for x, a in zip(inputs, axes)])
    names = [value.name for value in proto.input]

    def bind(body: Body, counter: Size) -> None:
        for name, value, axis, reverse in zip(names[states:], inputs, axes, back):
            at = trips - 1 - counter if reverse else counter
            body.bind(name, slice_at(body, body.outside(value), axis, at))

    iterations = Iterations(call, proto, trips, None, names[:states], lambda body: False, bind)
    reverse = [bool(flag) for flag in _list(call, "scan_output_directions", stacked)]
    results = iterations.run(held, reverse)
    out_axes = _list(call, "scan_output_axes", stacked)
    for number, axis in enumerate(out_axes, start=states):
        results[number] = _move_first_axis(call, str(results[number]), axis)
    return results


def slice_at(body: Body, value: str, axis: int, at: Size) -> str:
    """One slice of a tensor, without its axis."""
    bounds = {"starts": (at,), "ends": (at + 1,), "axes": (axis,)}
    return body.emit("squeeze", body.emit("slice", value, **bounds), axes=(axis,))


def _list(call: OnnxNode, name: str, count: int) -> Sequence[int]:
    values = call.attribute(name) or (0,) * count
    if len(values) != count:
        raise Unsupported(f"{len(values)} {name} for {count}")
    return tuple(values)


def _axes(call: OnnxNode, name: str, values: Sequence[str]) -> list[int]:
    given = zip(_list(call, name, len(values)), values)
    return [call.axis(axis, call.kind(value).rank) for axis, value in given]


def _same_extents(call: OnnxNode, extents: Sequence[Size]) -> Size:
    """The number of slices, with guards that it is equal for all."""
    for extent in extents[1:]:
        if not call.proved(extents[0], "==", extent):
            message = f"{call.source}: its scan inputs have equal numbers of slices"
            call.emitter.guards.append(Guard(extents[0], "==", extent, message))
    return extents[0]


def _move_first_axis(call: OnnxNode, value: str, axis: int) -> str:
    """Move the first axis of a stacked result to another index."""
    rank = call.kind(value).rank
    order = list(range(1, rank))
    order.insert(call.axis(axis, rank), 0)
    if order == sorted(order):
        return value
    return call.emit("transpose", value, perm=tuple(order))


def _scan_batches(call: OnnxNode) -> Sequence[Binding]:
    """Scan of opset 8: [batch, ...] states, [batch, sequence, ...] inputs."""
    if call.given(0):
        raise Unsupported("sequence_lens")
    proto, count = call.attribute("body"), call.attribute("num_scan_inputs")
    states = len(call.inputs) - 1 - count
    inputs = [call.input(position) for position in range(1, len(call.inputs))]
    if not 0 < count <= len(inputs) == len(proto.input):
        raise Unsupported(f"{count} scan inputs of {len(inputs)}")
    types = [call.emitter.types[name] for name in inputs]
    if any(kind.rank < 1 + (number >= states) for number, kind in enumerate(types)):
        raise Unsupported("states need a batch axis, scan inputs a sequence axis too")
    batch = _same_extents(call, [kind.shape[0] for kind in types])
    trips = _same_extents(call, [kind.shape[1] for kind in types[states:]])
    back = _list(call, "directions", count)
    return _over_batch(call, proto, inputs, states, batch, trips, back)


def _over_batch(
    call: OnnxNode, proto: Any, inputs: Sequence[str], states: int, batch: Size, trips: Size,
    back: Sequence[int],
) -> Sequence[Binding]:  # fmt: skip
    """A loop over the batch, whose body is a loop over the sequence of one entry."""
    names = [value.name for value in proto.input]
    entry = _entry(proto, states, back)

    def bind(body: Body, counter: Size) -> None:
        body.bind("scan8/trips", Known.size(trips))
        body.bind("scan8/last", Known.size(trips - 1))
        for number, (name, value) in enumerate(zip(names, inputs)):
            name = name if number < states else f"scan8/{name}"
            body.bind(name, slice_at(body, body.outside(value), 0, counter))

    iterations = Iterations(call, entry, batch, None, (), lambda body: False, bind)
    return iterations.run((), (False,) * len(proto.output))


def _entry(proto: Any, states: int, back: Sequence[int]) -> Any:
    """The graph of one batch entry: a Loop that gathers a slice of each input per iteration."""
    import onnx

    names = [value.name for value in proto.input]
    node = onnx.helper.make_node
    body = onnx.GraphProto(name=f"{proto.name}/iteration", initializer=proto.initializer)
    for name, kind in (("scan8/iteration", 7), ("scan8/going", 9)):
        body.input.append(onnx.helper.make_tensor_value_info(name, kind, ()))
    body.input.extend(proto.input[:states])
    for name, reverse in zip(names[states:], back):
        at = f"scan8/{name}/at" if reverse else "scan8/iteration"
        if reverse:
            body.node.append(node("Sub", ["scan8/last", "scan8/iteration"], [at]))
        body.node.append(node("Gather", [f"scan8/{name}", at], [name], axis=0))
    body.node.extend(proto.node)
    body.output.append(body.input[1])
    body.output.extend(proto.output)
    results = [f"scan8/{value.name}/all" for value in proto.output]
    entry = onnx.GraphProto(name=proto.name)
    loop = node("Loop", ["scan8/trips", "", *names[:states]], results, body=body)
    entry.node.append(loop)
    entry.output.extend(onnx.ValueInfoProto(name=name) for name in results)
    return entry
