"""Promise: a program gets from anydim.ort what it gets from onnxruntime, exceptions included.

Every function here is a program: it runs on both, and what it returns or raises is compared.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from typing import Any

import numpy
import onnxruntime
import pytest

import anydim.ort
from tests.unit.ort import tiny
from tests.unit.ort.tiny import FLOAT, X, node, value

Program = Callable[[Any], Any]


def quiet(o: Any) -> Any:
    options = o.SessionOptions()
    options.log_severity_level = 4
    return options


def session(o: Any, model: bytes, **options: Any) -> Any:
    return o.InferenceSession(model, quiet(o), providers=["CPUExecutionProvider"], **options)


def run(o: Any, model: bytes, names: Any = None, **feed: Any) -> Any:
    return session(o, model).run(names, feed)


def told(args: Any) -> Any:
    return [(arg.name, arg.type, arg.shape, str(arg)) for arg in args]


def about(o: Any) -> Any:
    s = session(o, tiny.ADD)
    meta = s.get_modelmeta()
    names = ("custom_metadata_map", "description", "domain", "graph_name", "producer_name")
    return (
        told(s.get_inputs()), told(s.get_outputs()), told(s.get_overridable_initializers()),
        [getattr(meta, name) for name in (*names, "graph_description", "version")],
        s.get_providers(), s.get_provider_options(), s.end_profiling(),
        s.get_session_options().log_severity_level, o.get_device(),
        "CPUExecutionProvider" in o.get_available_providers(),
        [info.name for info in s.get_input_memory_infos()],
    )  # fmt: skip


def free_dims(o: Any) -> Any:
    options = quiet(o)
    options.add_free_dimension_override_by_name("n", 2)
    options.add_free_dimension_override_by_name("unknown", 5)
    s = o.InferenceSession(tiny.ADD, options)
    return told(s.get_inputs()), told(s.get_outputs()), s.run(None, {"x": X})


def outside_free_dim(o: Any) -> Any:
    options = quiet(o)
    options.add_free_dimension_override_by_name("n", 7)
    return o.InferenceSession(tiny.ADD, options).run(None, {"x": X})


def initializer(o: Any) -> Any:
    options = quiet(o)
    other = o.OrtValue.ortvalue_from_numpy(numpy.full(3, 10, numpy.float32))
    options.add_initializer("w", other)
    return o.InferenceSession(tiny.ADD, options).run(None, {"x": X})


def options(o: Any) -> Any:
    made = o.SessionOptions()
    names = [name for name in dir(onnxruntime.SessionOptions()) if name[0] != "_"]
    plain = [name for name in names if not callable(getattr(onnxruntime.SessionOptions, name, 1))]
    made.add_session_config_entry("a", "b")
    made.graph_optimization_level = o.GraphOptimizationLevel.ORT_ENABLE_BASIC
    made.execution_mode = o.ExecutionMode.ORT_SEQUENTIAL
    made.intra_op_num_threads = 1
    values = [(name, getattr(made, name)) for name in plain]
    return (
        made.get_session_config_entry("a"), made.has_providers(),
        [(name, v if isinstance(v, (int, str)) else int(v)) for name, v in values],
    )  # fmt: skip


def run_options(o: Any) -> Any:
    made = o.RunOptions()
    made.logid = "one"
    made.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    first = session(o, tiny.ADD).run(["y"], {"x": X}, made)
    return first, made.terminate, made.get_run_config_entry("memory.enable_memory_arena_shrinkage")


def terminated(o: Any) -> Any:
    made = o.RunOptions()
    made.terminate = True
    return session(o, tiny.ADD).run(["y"], {"x": X}, made)


def ort_value(o: Any) -> Any:
    v = o.OrtValue.ortvalue_from_numpy(X)
    w = o.OrtValue.ortvalue_from_shape_and_type([2, 3], numpy.float32)
    w.update_inplace(X)
    return (
        v.shape(), v.data_type(), v.element_type(), v.is_tensor(), v.is_tensor_sequence(),
        v.is_sparse_tensor(), v.has_value(), v.device_name(), v.tensor_size_in_bytes(), v.numpy(),
        v.data_ptr() == X.ctypes.data, v.__dlpack_device__(), numpy.from_dlpack(v),
        numpy.asarray(v), w.numpy(), o.OrtValue.from_dlpack(X).numpy(),
        o.OrtValue.ortvalue_from_shape_and_type([2], 10).data_type(),
        o.OrtValue.ortvalue_from_numpy(X.T).numpy(),
    )  # fmt: skip


def ort_values(o: Any) -> Any:
    s = session(o, tiny.ADD)
    v = o.OrtValue.ortvalue_from_numpy(X)
    results = s.run_with_ort_values(["z", "y"], {"x": v})
    return [r.numpy() for r in results], s.run(["y"], {"x": v})


def binding(o: Any) -> Any:
    s = session(o, tiny.ADD)
    b = s.io_binding()
    given, y = X.copy(), numpy.zeros((2, 3), numpy.float32)
    z = o.OrtValue.ortvalue_from_numpy(numpy.zeros((2, 3), numpy.float32))
    b.bind_input("x", "cpu", 0, numpy.float32, [2, 3], given.ctypes.data)
    b.bind_output("y", "cpu", 0, numpy.float32, [2, 3], y.ctypes.data)
    b.bind_ortvalue_output("z", z)
    s.run_with_iobinding(b)
    first = y.copy(), z.numpy().copy(), [v.shape() for v in b.get_outputs()]
    given += 1
    s.run_with_iobinding(b)
    second = (
        y,
        z.numpy().copy(),
        b.copy_outputs_to_cpu(),
        b.get_outputs()[0].data_ptr() == y.ctypes.data,
    )
    b.clear_binding_outputs()
    b.clear_binding_inputs()
    b.bind_cpu_input("x", X[:1])
    b.bind_output("z")
    s.run_with_iobinding(b)
    return first, second, b.copy_outputs_to_cpu()


def runs_again(o: Any) -> Any:
    s = session(o, tiny.ADD)
    feeds: list[dict[str, Any]] = [
        {"x": X}, {"x": X + 1}, {"x": X[:1]}, {"x": X[:0]}, {"x": X}, {"x": X.astype("d")},
        {"x": X[:, :2]}, {"x": X[0]}, {"x": numpy.asfortranarray(X)}, {}, {"q": X}, {"x": X},
        {"x": X, "q": X}, {"x": o.OrtValue.ortvalue_from_numpy(X)}, {"x": X.tolist()}, {"x": X},
    ]  # fmt: skip
    names: list[Any] = [None, ["z"], ["y", "z", "y"], ["q"]]
    found = [outcome(lambda _, n=n, f=f: s.run(n, f), o) for f in feeds for n in names]
    first, second = s.run(None, {"x": X}), s.run(None, {"x": X})
    return found, any(numpy.shares_memory(*pair) for pair in zip(first, second))


def overrides_again(o: Any) -> Any:
    s = session(o, tiny.OVERRIDABLE)
    feeds = ({"x": X}, {"x": X, "w": 3 * tiny.W}, {"x": X}, {"x": X, "w": tiny.W[:2]}, {"x": X})
    return [outcome(lambda _, f=f: s.run(None, f), o) for f in feeds]


def bound_again(o: Any) -> Any:
    s = session(o, tiny.ADD)
    b = s.io_binding()
    given, y = X.copy(), numpy.zeros((2, 3), numpy.float32)
    b.bind_cpu_input("x", given)
    b.bind_output("y", "cpu", 0, numpy.float32, [2, 3], y.ctypes.data)
    b.bind_output("z")
    found = []
    for number in range(4):
        given[...] = X + number
        s.run_with_iobinding(b)
        found.append([y.copy(), *b.copy_outputs_to_cpu()])
    kept = b.get_outputs()
    s.run_with_iobinding(b)
    found.append([each.numpy().copy() for each in kept])
    b.bind_cpu_input("x", X[:1])
    wrong = outcome(lambda _: s.run_with_iobinding(b), o)
    b.clear_binding_outputs()
    b.bind_output("z")
    for _ in range(3):
        s.run_with_iobinding(b)
        found.append(b.copy_outputs_to_cpu())
    return found, wrong


def bound_over_input(o: Any) -> Any:
    s = session(o, tiny.ADD)
    b = s.io_binding()
    shared = o.OrtValue.ortvalue_from_numpy(X.copy())
    b.bind_ortvalue_input("x", shared)
    b.bind_ortvalue_output("z", shared)
    s.run_with_iobinding(b)
    return shared.numpy().copy()


def bound_to_wrong_shape(o: Any) -> Any:
    s = session(o, tiny.ADD)
    b = s.io_binding()
    b.bind_cpu_input("x", X)
    b.bind_ortvalue_output("y", o.OrtValue.ortvalue_from_numpy(numpy.zeros((5, 3), "f")))
    s.run_with_iobinding(b)


def bound_to_wrong_type(o: Any) -> Any:
    s = session(o, tiny.ADD)
    b = s.io_binding()
    b.bind_cpu_input("x", X)
    b.bind_ortvalue_output("y", o.OrtValue.ortvalue_from_numpy(numpy.zeros((2, 3))))
    s.run_with_iobinding(b)


def asynchronous(o: Any) -> Any:
    done, got = threading.Event(), []

    def callback(results: Any, data: Any, problem: str) -> None:
        got.append((results, data, problem))
        done.set()

    session(o, tiny.ADD).run_async(["y"], {"x": X}, callback, "data")
    assert done.wait(30)
    return got


def other_providers(o: Any) -> Any:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        made = o.InferenceSession(
            tiny.ADD, quiet(o), ["CUDAExecutionProvider", ("CPUExecutionProvider", {"a": 1})]
        )
    said = [w for w in caught if "CUDAExecutionProvider" in str(w.message)]
    return made.get_providers(), len(said)


def kept_names(o: Any) -> Any:
    s = session(o, tiny.OVERRIDABLE)
    return told(s.get_inputs()), told(s.get_overridable_initializers()), s.run(None, {"x": X})


PROGRAMS: dict[str, Program] = {
    program.__name__: program
    for program in (
        about, free_dims, outside_free_dim, initializer, options, run_options, terminated,
        ort_value, ort_values, binding, runs_again, overrides_again, bound_again,
        bound_over_input, bound_to_wrong_shape, bound_to_wrong_type, asynchronous, other_providers,
        kept_names,
    )
}  # fmt: skip
PROGRAMS |= {
    # ---- results: their order, all of them, twice
    "all": lambda o: run(o, tiny.ADD, None, x=X),
    "none": lambda o: run(o, tiny.ADD, [], x=X),
    "order": lambda o: run(o, tiny.ADD, ["z", "y", "z"], x=X),
    "no rows": lambda o: run(o, tiny.ADD, x=X[:0]),
    "one row": lambda o: run(o, tiny.ADD, x=X[:1]),
    "columns first": lambda o: run(o, tiny.ADD, x=numpy.asfortranarray(X)),
    "every second": lambda o: run(o, tiny.ADD, x=numpy.repeat(X, 2, axis=0)[::2]),
    # ---- inputs
    "list": lambda o: run(o, tiny.ADD, x=[[1.0, 2.0, 3.0]]),
    "list of integers": lambda o: run(o, tiny.ADD, x=[[1, 2, 3]]),
    "list of bools": lambda o: run(o, tiny.NOT, x=[True, False]),
    "ragged list": lambda o: run(o, tiny.ADD, x=[[1, 2, 3], [1]]),
    "tuple": lambda o: run(o, tiny.ADD, x=((1.0, 2.0, 3.0),)),
    "number": lambda o: run(o, tiny.SCALAR, x=2.0),
    "scalar of numpy": lambda o: run(o, tiny.SCALAR, x=numpy.float32(2)),
    "scalar": lambda o: run(o, tiny.SCALAR, x=numpy.array(2, numpy.float32)),
    "text": lambda o: run(o, tiny.ADD, x="text"),
    "missing": lambda o: run(o, tiny.ADD),
    "unknown input": lambda o: run(o, tiny.ADD, x=X, q=X),
    "unknown output": lambda o: run(o, tiny.ADD, ["q"], x=X),
    "rank": lambda o: run(o, tiny.ADD, x=X[0]),
    "size": lambda o: run(o, tiny.ADD, x=numpy.ones((2, 4), numpy.float32)),
    "type": lambda o: run(o, tiny.ADD, x=X.astype("d")),
    "int32 for int64": lambda o: run(o, tiny.EMPTY_NODES, x=numpy.ones(2, numpy.int32)),
    "outputs as text": lambda o: run(o, tiny.ADD, "y", x=X),
    "feed as list": lambda o: session(o, tiny.ADD).run(None, [X]),
    "options as number": lambda o: session(o, tiny.ADD).run(None, {"x": X}, 5),
    "index outside": lambda o: run(o, tiny.GATHER, x=X[0], i=numpy.array([7])),
    "strings": lambda o: run(o, tiny.STRINGS, x=numpy.array(["a", "bc"])),
    "objects": lambda o: run(o, tiny.STRINGS, x=numpy.array(["a", "bc"], object)),
    "list of strings": lambda o: run(o, tiny.STRINGS, x=["a", "bc"]),
    "floats for strings": lambda o: run(o, tiny.STRINGS, x=X[0]),
    "sequence": lambda o: run(o, tiny.SEQUENCE, x=[X, X[:1]]),
    "sequence asked": lambda o: told(session(o, tiny.SEQUENCE).get_inputs()),
    "array for sequence": lambda o: run(o, tiny.SEQUENCE, x=X),
    # ---- what a file leaves open
    "overridden": lambda o: run(o, tiny.OVERRIDABLE, x=X, w=numpy.zeros(3, numpy.float32)),
    "overridden, type": lambda o: run(o, tiny.OVERRIDABLE, x=X, w=numpy.zeros(3)),
    "overridden, size": lambda o: run(o, tiny.OVERRIDABLE, x=X, w=numpy.zeros(4, numpy.float32)),
    "one name, one size": lambda o: run(o, tiny.TWO, a=X, b=X),
    "one name, two sizes": lambda o: run(o, tiny.TWO, a=X, b=X[:1]),
    "no rank": lambda o: [run(o, tiny.RANKLESS, x=x) for x in (X, X[0], X[None])],
    "no rank asked": lambda o: told(session(o, tiny.RANKLESS).get_inputs()),
    "open axes": lambda o: (
        told(session(o, tiny.OPEN).get_inputs()), run(o, tiny.OPEN, x=X[None, None])
    ),
    # ---- models
    "no file": lambda o: o.InferenceSession("/there/is/no.onnx", quiet(o)),
    "garbage": lambda o: session(o, b"garbage"),
    "nothing": lambda o: session(o, b""),
    "number as model": lambda o: session(o, 5),
    "unknown operator": lambda o: session(o, tiny.refused([node("Foo", ["x"], ["y"])])),
    "unknown domain": lambda o: session(
        o, tiny.refused([node("Foo", ["x"], ["y"], domain="mine")])
    ),
    "undefined input": lambda o: session(o, tiny.refused([node("Relu", ["q"], ["y"])])),
    "two types": lambda o: session(o, tiny.refused([node("Add", ["x", "i"], ["y"])])),
    "too few inputs": lambda o: session(o, tiny.refused([node("Conv", ["x"], ["y"])])),
    "opset to come": lambda o: session(o, tiny.refused([node("Relu", ["x"], ["y"])], opset=99)),
    "output of none": lambda o: session(o, tiny.refused([node("Relu", ["x"], ["y"])], "z")),
    # ---- objects
    "option unknown": lambda o: setattr(o.SessionOptions(), "foo", 5),
    "option of text": lambda o: setattr(o.SessionOptions(), "intra_op_num_threads", "a"),
    "level as number": lambda o: setattr(o.SessionOptions(), "graph_optimization_level", 1),
    "entry unknown": lambda o: o.SessionOptions().get_session_config_entry("no"),
    "run entry unknown": lambda o: o.RunOptions().get_run_config_entry("no"),
    "value of a list": lambda o: o.OrtValue.ortvalue_from_numpy([1, 2]),
    "value of strings": lambda o: o.OrtValue.ortvalue_from_numpy(numpy.array(["a"])),
    "value on a device": lambda o: o.OrtValue.ortvalue_from_numpy(X, "cuda", 0),
    "value of another size": lambda o: o.OrtValue.ortvalue_from_numpy(X).update_inplace(X[:1]),
    "bound unknown": lambda o: session(o, tiny.ADD).io_binding().bind_cpu_input("q", X),
    "bound nothing": lambda o: session(o, tiny.ADD).run_with_iobinding(
        session(o, tiny.ADD).io_binding()
    ),
    "bound list": lambda o: session(o, tiny.ADD).io_binding().bind_cpu_input("x", [[1.0]]),
}  # fmt: skip


def outcome(program: Program, o: Any) -> Any:
    """What a program returns, or the kind of its exception as `except` sees it."""
    try:
        return "returned", program(o)
    except Exception as error:
        kinds = (ValueError, TypeError, RuntimeError, AttributeError)
        builtin = next((kind.__name__ for kind in kinds if isinstance(error, kind)), "")
        return "raised", builtin or type(error).__name__


def same(left: Any, right: Any) -> bool:
    if isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, numpy.ndarray):
        if left.dtype != right.dtype or left.shape != right.shape:
            return False
        return numpy.array_equal(left, right)
    return left == right


@pytest.mark.sampled(most=34)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_does_the_same_on_both(name: str) -> None:
    expected, came = (outcome(PROGRAMS[name], o) for o in (onnxruntime, anydim.ort))
    assert same(expected, came), f"onnxruntime: {expected}\nanydim.ort: {came}"


@pytest.mark.parametrize(
    "name", ["missing", "unknown input", "unknown output", "rank", "size", "type", "no file"]
)
def test_texts_that_programs_look_for_are_the_same(name: str) -> None:
    texts = []
    for o in (onnxruntime, anydim.ort):
        with pytest.raises(Exception) as caught:
            PROGRAMS[name](o)
        texts.append(str(caught.value))
    assert texts[1].startswith(texts[0])


def test_every_name_that_programs_use_is_there() -> None:
    names = [
        "ExecutionMode",
        "ExecutionOrder",
        "GraphOptimizationLevel",
        "IOBinding",
        "InferenceSession",
        "ModelMetadata",
        "NodeArg",
        "OrtDevice",
        "OrtMemoryInfo",
        "OrtValue",
        "RunOptions",
        "SessionOptions",
        "SparseTensor",
        "__version__",
        "disable_telemetry_events",
        "enable_telemetry_events",
        "get_all_providers",
        "get_available_providers",
        "get_build_info",
        "get_device",
        "get_version_string",
        "has_collective_ops",
        "preload_dlls",
        "print_debug_info",
        "set_default_logger_severity",
        "set_default_logger_verbosity",
        "set_seed",
    ]
    for name in names:
        assert hasattr(onnxruntime, name) and hasattr(anydim.ort, name), name


def test_a_dim_by_denotation_gets_a_size() -> None:
    import onnx

    made = onnx.ModelProto.FromString(tiny.ADD)
    made.graph.input[0].type.tensor_type.shape.dim[0].denotation = "DATA_BATCH"
    shapes = []
    for o in (onnxruntime, anydim.ort):
        options = quiet(o)
        options.add_free_dimension_override_by_denotation("DATA_BATCH", 4)
        shapes.append(o.InferenceSession(made.SerializeToString(), options).get_inputs()[0].shape)
    assert shapes[0] == shapes[1] == [4, 3]


def test_outputs_without_a_declared_shape_are_told_by_the_model() -> None:
    made = tiny.model(
        [node("Transpose", ["x"], ["y"], perm=[1, 0])],
        [value("x", FLOAT, ["n", 3])], [value("y", FLOAT, None)],
    )  # fmt: skip
    expected, came = (told(session(o, made).get_outputs()) for o in (onnxruntime, anydim.ort))
    assert expected == came == told(session(anydim.ort, made).get_outputs())
