"""Promise: a model file that is broken, hostile or asks for too much gives a UserError that says
what is wrong, never another exception, a hang, or a file read outside the model's folder."""

from __future__ import annotations

import os
from contextlib import suppress

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import anydim as ad
from anydim.base.errors import InputError, ModelError, OptionError, UserError
from anydim.compiler.frontends.onnx import import_model
from anydim.compiler.frontends.onnx.outline import outline
from anydim.ort import InferenceSession
from anydim.ort.errors import InvalidGraph
from anydim.sizes import Dim
from tests.unit.compiler.frontends.models import compare, model, node

X = ["x f[n, 3]"]
W = np.arange(6, dtype=np.float32).reshape(3, 2)


def dense(**changes) -> onnx.ModelProto:
    return model([node("y = MatMul(x, w)")], X, ["y"], w=W, **changes)


def refused(source, problem: str, dims=None):
    with pytest.raises(UserError) as caught:
        import_model(source, dims)
    assert problem in str(caught.value)
    return caught.value


# ---- not a model -------------------------------------------------------------------------------


def test_what_is_no_model(tmp_path):
    refused(b"", "holds no graph")
    refused(b"hello world, this is no model", "is not an ONNX model")
    refused(b"\x00" * 100, "is not an ONNX model")
    refused(tmp_path / "absent.onnx", "absent.onnx: cannot be read")
    refused(tmp_path, "cannot be read")
    (tmp_path / "empty.onnx").touch()
    refused(tmp_path / "empty.onnx", "is empty")
    with pytest.raises(InputError, match="cannot be read from int"):
        import_model(3)


@pytest.mark.parametrize("first,hint", [
    (b"version https://git-lfs.github.com/spec/v1\noid sha256:12", "git lfs pull"),
    (b"GGUF\3\0\0\0", "ad.language_model"),
    (b'\x48\0\0\0\0\0\0\0{"__metadata__":{"format":"pt"}}', "ad.language_model"),
    (b"<!DOCTYPE html>\n<title>404</title>", "a web page"),
    (b"PK\3\4" + bytes(26) + b"archive/data.pkl", "torch.onnx.export"),
    (b"PK\3\4" + bytes(26) + b"manifest.json", "ad.load"),
])  # fmt: skip
def test_what_is_another_kind_of_file_is_said_to_be(tmp_path, first: bytes, hint: str):
    assert hint in refused(first + bytes(100), "is not an ONNX model").hint
    (tmp_path / "model.onnx").write_bytes(first + bytes(100))
    with pytest.raises(UserError, match="is not an ONNX model") as caught:
        outline(tmp_path / "model.onnx")
    assert hint in caught.value.hint


def test_every_truncation_is_refused_or_whole(tmp_path):
    data = dense().SerializeToString()
    path = tmp_path / "cut.onnx"
    for length in range(len(data)):
        path.write_bytes(data[:length])
        for source in (data[:length], path):
            with pytest.raises(UserError):
                import_model(source)
                raise InputError("what is left is a model of its own")


def test_large_weights_cut_short_are_refused(tmp_path):
    weights = np.ones((128, 512), np.float32)
    data = model([node("y = MatMul(x, w)")], ["x f[n, 128]"], ["y"], w=weights).SerializeToString()
    path = tmp_path / "large.onnx"
    for length in (*range(0, len(data), 9973), len(data) - 1, len(data) - 4000):
        path.write_bytes(data[:length])
        with pytest.raises(ModelError):
            import_model(path)
    path.write_bytes(data)
    assert import_model(path).constants["w"].array.flags.aligned


@pytest.mark.parametrize("seed", range(8))
def test_random_damage_gives_a_user_error_or_a_graph(seed):
    random = np.random.default_rng(seed)
    proto = model(
        [node("s = Shape(x)"), node("t = Concat(s, c)", axis=0), node("u = Reshape(x, t)"),
         node("v = Softmax(u)", axis=1), node("y = Transpose(v)", perm=[2, 0, 1])],
        X, ["y"], c=np.int64([1]),
    )  # fmt: skip
    data = np.frombuffer(proto.SerializeToString(), np.uint8)
    for _ in range(150):
        broken = data.copy()
        places = random.integers(0, len(data), random.integers(1, 5))
        broken[places] = random.integers(0, 256, len(places))
        with suppress(UserError):
            import_model(broken.tobytes())


# ---- frames ------------------------------------------------------------------------------------


def edited(edit) -> onnx.ModelProto:
    proto = dense()
    edit(proto)
    return proto


FRAMES = {
    "no opset": (lambda m: m.ClearField("opset_import"), "declares no opset"),
    "an old opset": (lambda m: setattr(m.opset_import[0], "version", 0), "opset 0; opsets 1 to"),
    "a future opset": (lambda m: setattr(m.opset_import[0], "version", 9999), "opset 9999"),
    "no outputs": (lambda m: m.graph.ClearField("output"), "has no outputs"),
    "an output nobody makes": (lambda m: setattr(m.graph.output[0], "name", "q"), "never computed"),
    "two inputs of one name": (lambda m: m.graph.input.append(m.graph.input[0]), "twice"),
    "two initializers": (lambda m: m.graph.initializer.append(m.graph.initializer[0]), "twice"),
    "a value made twice": (lambda m: m.graph.node.append(m.graph.node[0]), "defined twice"),
    "an input without a name": (lambda m: m.graph.input[0].ClearField("name"), "has no name"),
    "an input nobody gives": (lambda m: m.graph.ClearField("input"), "'x' is not defined"),
    "an input without a shape": (
        lambda m: m.graph.input[0].type.tensor_type.ClearField("shape"), "has no shape"),
    "a negative size": (
        lambda m: setattr(m.graph.input[0].type.tensor_type.shape.dim[1], "dim_value", -3),
        "has a size of -3"),
    "too many axes": (
        lambda m: m.graph.input[0].type.tensor_type.shape.dim.extend(
            m.graph.input[0].type.tensor_type.shape.dim[:1] * 100), "axes"),
    "a sparse initializer": (
        lambda m: m.graph.sparse_initializer.append(onnx.SparseTensorProto()), "sparse"),
    "an unknown element type": (
        lambda m: setattr(m.graph.input[0].type.tensor_type, "elem_type", 77), "number 77"),
    "a type that is missing": (
        lambda m: setattr(m.graph.input[0].type.tensor_type, "elem_type", 14), "complex64"),
    "no tensor": (lambda m: m.graph.input[0].type.Clear(), "it is no tensor"),
}  # fmt: skip


@pytest.mark.parametrize("name", FRAMES)
def test_frames(name):
    edit, problem = FRAMES[name]
    refused(edited(edit), problem)
    refused(edited(edit).SerializeToString(), problem)


def test_nodes_in_circles():
    a, b = node("a = Relu(b)"), node("b = Relu(a)")
    refused(model([a, b], X, ["b"]), "its input 'b' depends on its own result")
    refused(model([a, node("c = Relu(x)")], X, ["a"]), "its input 'b' is not defined")


def body_model(kind: str, twice: str) -> onnx.ModelProto:
    """A node with a body, whose inputs are `s` (state) and `e` (element); `twice` is one of them,
    and an initializer of the body."""
    value, make = helper.make_tensor_value_info, helper.make_node
    s, e = (value(name, TensorProto.FLOAT, [2]) for name in "se")
    held = [numpy_helper.from_array(np.float32([100, 100]), twice)] if twice else []
    out = value("o", TensorProto.FLOAT, [2])
    if kind == "Loop":
        going = value("c", TensorProto.BOOL, [])
        rest = [value("i", TensorProto.INT64, []), going]
        nodes = [make("Add", ["s", "s"], ["o"]), make("Identity", ["c"], ["d"])]
        done = value("d", TensorProto.BOOL, [])
        body = helper.make_graph(nodes, "b", [*rest, s], [done, out], held)
        made = [make("Loop", ["m", "", "x"], ["y"], body=body)]
    elif kind == "Scan":
        nodes = [make("Add", ["s", "e"], ["o"]), make("Neg", ["e"], ["p"])]
        results = [out, value("p", TensorProto.FLOAT, [2])]
        body = helper.make_graph(nodes, "b", [s, e], results, held)
        made = [
            make("Concat", ["x", "x"], ["both"], axis=0), make("Reshape", ["both", "two"], ["xs"]),
            make("Scan", ["x", "xs"], ["y", "z"], body=body, num_scan_inputs=1),
        ]  # fmt: skip
    else:
        body = helper.make_graph([make("Neg", ["e"], ["o"])], "b", [e], [out], held)
        made = [
            make("SequenceConstruct", ["x", "x"], ["q"]),
            make("SequenceMap", ["q"], ["r"], body=body),
            make("ConcatFromSequence", ["r"], ["y"], axis=0),
        ]
    counts = {"m": np.int64(3), "two": np.int64([2, 2])}
    inputs = [value("x", TensorProto.FLOAT, [2])]
    weights = [numpy_helper.from_array(array, name) for name, array in counts.items()]
    graph = helper.make_graph(made, "g", inputs, [value("y", TensorProto.FLOAT, None)], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize(
    ("kind", "twice"), [("Loop", "s"), ("Scan", "s"), ("Scan", "e"), ("SequenceMap", "e")]
)
def test_an_input_of_a_body_that_is_an_initializer_too(kind: str, twice: str):
    """The node gives its value, so it has two; onnxruntime refuses it as well."""
    assert ad.compile(body_model(kind, ""))(x=np.float32([1, 2]))["y"] is not None
    source = body_model(kind, twice)
    refused(source, f"input '{twice}' is also an initializer of the same body")
    with pytest.raises(InvalidGraph, match=f"input '{twice}' is also an initializer"):
        InferenceSession(source.SerializeToString())


# ---- tensors -----------------------------------------------------------------------------------


def weight(edit) -> onnx.ModelProto:
    return edited(lambda m: edit(m.graph.initializer[0]))


def as_floats(tensor, values):
    tensor.ClearField("raw_data")
    tensor.float_data.extend(values)


TENSORS = {
    "bytes that are missing": (lambda t: setattr(t, "raw_data", t.raw_data[:-1]), "holds 23 bytes"),
    "bytes too many": (lambda t: setattr(t, "raw_data", t.raw_data * 2), "holds 48 bytes"),
    "a negative size": (lambda t: t.dims.append(-1), "negative size"),
    "an enormous size": (lambda t: t.dims.extend([1 << 40, 1 << 40]), "too large"),
    "too many axes": (lambda t: t.dims.extend([1] * 5000), "axes"),
    "elements that are missing": (lambda t: as_floats(t, [1.0]), "holds 1 elements"),
    "a segment": (lambda t: t.segment.SetInParent(), "segments"),
    "another type": (lambda t: setattr(t, "data_type", 14), "element type complex64"),
    "no type": (lambda t: t.ClearField("data_type"), "element type undefined"),
}


@pytest.mark.parametrize("name", TENSORS)
def test_tensors(name):
    edit, problem = TENSORS[name]
    refused(weight(edit), problem)


def test_elements_in_typed_fields():
    for dtype in ("float32", "float64", "float16", "int64", "int32", "int8", "uint8", "bool"):
        array = np.array([[0, 1], [1, 0]]).astype(dtype)
        proto = model([node("y = Identity(c)")], X, ["y"], c=array)
        tensor = helper.make_tensor(
            "c", numpy_helper.from_array(array).data_type, array.shape, array.ravel()
        )
        proto.graph.initializer[0].CopyFrom(tensor)
        assert not proto.graph.initializer[0].raw_data
        compare(proto, {"x": np.zeros((1, 3), np.float32)})


def test_an_element_outside_its_type_is_refused():
    proto = model([node("y = Identity(c)")], X, ["y"], c=np.zeros(1, np.uint32))
    tensor = proto.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_type = TensorProto.UINT8
    tensor.int32_data.append(-1)
    refused(proto, "does not fit uint8")


# ---- external data -----------------------------------------------------------------------------


def with_external(folder, location, **entries):
    proto = dense()
    tensor = proto.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, text in {"location": location, **entries}.items():
        entry = tensor.external_data.add()
        entry.key, entry.value = key, str(text)
    path = folder / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


def test_external_data_is_mapped(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "w.bin").write_bytes(b"1234" + W.tobytes())
    path = with_external(tmp_path, "sub/w.bin", offset=4, length=24)
    assert import_model(path).constants or True
    graph = import_model(path)
    (constant,) = graph.constants.values()
    np.testing.assert_array_equal(constant.array, W)


@pytest.mark.parametrize(
    ("location", "entries", "problem"),
    [
        ("", {}, "there is no path"),
        ("../secret.bin", {}, "leaves the folder"),
        ("a/../../secret.bin", {}, "leaves the folder"),
        ("/etc/passwd", {}, "absolute"),
        ("C:secret.bin", {}, "absolute"),
        ("..\\secret.bin", {}, "separator"),
        ("w\x00.bin", {}, "control characters"),
        ("absent.bin", {}, "cannot be opened"),
        (".", {}, "is not a file of the model's folder"),
        ("link.bin", {}, "is a link out of the model's folder"),
        ("linked/secret.bin", {}, "is a link out of the model's folder"),
        ("loop.bin", {}, "cannot be opened"),
        ("w.bin", {"offset": "8"}, "needs bytes 8..32"),
        ("w.bin", {"offset": "-8"}, "not a number"),
        ("w.bin", {"offset": "9" * 30}, "not a number"),
        ("w.bin", {"length": "12"}, "holds 12 bytes"),
        ("w.bin", {"length": "x"}, "not a number"),
    ],
)
def test_external_data_stays_in_the_folder(tmp_path, location, entries, problem):
    folder = tmp_path / "models"
    folder.mkdir()
    for place in (folder / "w.bin", tmp_path / "secret.bin"):
        place.write_bytes(W.tobytes())
    os.symlink(tmp_path / "secret.bin", folder / "link.bin")
    os.symlink(tmp_path, folder / "linked")
    os.symlink(folder / "loop.bin", folder / "loop.bin")
    refused(with_external(folder, location, **entries), problem)


def test_external_data_needs_a_folder(tmp_path):
    (tmp_path / "w.bin").write_bytes(W.tobytes())
    refused(with_external(tmp_path, "w.bin").read_bytes(), "did not come from a file")
    constant = helper.make_node("Constant", [], ["w"], value=numpy_helper.from_array(W, "w"))
    tensor = constant.attribute[0].t
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="/etc/passwd")
    refused(model([constant, node("y = MatMul(x, w)")], X, ["y"]), "absolute")


# ---- nodes -------------------------------------------------------------------------------------


def test_all_unsupported_nodes_are_listed_at_once():
    nodes = [
        node("a = Swish(x)"), node("b = Relu(a)"), node("c = Absent(x)"),
        node("d = Nonsense(x)"),
        helper.make_node("Gelus", ["x"], ["e"], name="/theirs", domain="com.microsoft"),
        node("f = Reshape(x, a)"), node("g = Relu(x)", alpha=1.0), node("h = Cast(x)", to=14),
        node("y = Upsample(c)"),
    ]  # fmt: skip
    error = refused(model(nodes, X, ["y"], opset=18), "7 nodes that are not supported")
    text = str(error)
    for line in (
        "/a: Swish (opset 18): not an operator of this opset",
        "/c: Absent (opset 18): not an operator of this opset",
        "/d: Nonsense (opset 18): not an operator of this opset",
        "/theirs: Gelus (opset 18): no operator of domain 'com.microsoft'",
        "/g: Relu (opset 18): attribute 'alpha', which it does not have",
        "/h: Cast (opset 18): element type complex64",
        "/y: Upsample (opset 18): not an operator of this opset",
    ):
        assert line in text
    assert "/b" not in text and "/f" not in text  # they only follow from /a


NODES = {
    "sizes from data": ([node("i = Cast(x)", to=7), node("y = Reshape(x, i)")], {}, "a vector"),
    "an axis": ([node("y = Softmax(x)", axis=2**62)], {}, "axis 4611686018427387904"),
    "a permutation": ([node("y = Transpose(x)", perm=[0] * 1000)], {}, "does not order 2 axes"),
    "a missing input": ([node("y = MatMul(x, )")], {}, "input 1 is missing"),
    "too many inputs": ([node("y = Relu(x, x)")], {}, "2 inputs"),
    "a missing attribute": ([node("y = Concat(x, x)")], {}, "'axis' is missing"),
    "an attribute's type": ([node("y = Softmax(x)", axis=1.5)], {}, "is of another type"),
    "a shape of many axes": ([node("y = Reshape(x, s)")], {"s": np.ones(99, np.int64)}, "99 axes"),
    "a negative shape": ([node("y = Reshape(x, s)")], {"s": np.int64([-7])}, "is negative"),
    "elements that do not fit": ([node("y = Reshape(x, s)")], {"s": np.int64([4, 3])}, ""),
    "matrices that do not fit": ([node("y = MatMul(x, w)")], {"w": np.ones((4, 2), "f")}, "matmul"),
    "types that do not meet": ([node("y = Add(x, w)")], {"w": np.ones(3)}, "float64"),
    "a stride below 1": ([node("y = ConvTranspose(c, c)", strides=[-1, 1])],
                         {"c": np.ones((1, 1, 2, 2), "f")}, "below 1"),
    "a diagonal of no number": ([node("y = Trilu(x, s)")], {"s": np.zeros(0, np.int64)},
                                "0 numbers"),
    "samples by data": ([node("y = RoiAlign(c, r, i)")], {
        "c": np.ones((1, 1, 2, 2), "f"), "r": np.ones((1, 4), "f"), "i": np.int64([0])},
        "sampling_ratio 0"),
}  # fmt: skip


@pytest.mark.parametrize("name", NODES)
def test_nodes(name):
    nodes, constants, problem = NODES[name]
    if name == "elements that do not fit":
        graph = import_model(model(nodes, X, ["y"], **constants))
        assert graph.nodes  # which sizes fit is a guard's business
        return
    refused(model(nodes, X, ["y"], **constants), problem)


def test_enormous_results_are_not_made_while_importing():
    shape = np.int64([1 << 40, 1 << 40])
    graph = import_model(model([node("y = ConstantOfShape(s)")], X, ["y"], s=shape))
    assert str(graph.types["y"]) == f"float32[{1 << 40}, {1 << 40}]"
    tiled = model([node("y = Tile(c, r)")], X, ["y"], c=np.ones(2), r=np.int64([1 << 50]))
    assert import_model(tiled).nodes[-1].operator == "tile"


def test_an_enormous_stride_is_not_counted_up():
    c = np.ones((1, 1, 2, 2), "f")
    graph = import_model(
        model([node("y = ConvTranspose(c, c)", strides=[2**40, 1])], X, ["y"], c=c)
    )
    assert graph.types["y"].shape[2] == 2**40 + 2


def test_a_long_chain_is_no_deep_recursion():
    nodes = [node(f"v{i + 1} = Add(v{i}, v{i})") for i in range(3000)]
    graph = import_model(model([node("v0 = Relu(x)"), *nodes], X, ["v3000"]))
    assert len(graph.nodes) == 3001
    ones = [node("s0 = Shape(x)")] + [node(f"s{i + 1} = Mul(s{i}, s{i})") for i in range(5)]
    import_model(model([*ones, node("y = ConstantOfShape(s5)")], X, ["y"]))


# ---- dims --------------------------------------------------------------------------------------


def test_dims_get_bounds_by_name():
    graph = import_model(model([node("y = Relu(x)")], ["x f[batch, ?, 3]"], ["y"]),
                         {"batch": Dim(1, 8), "x_1": Dim(0, 4)})  # fmt: skip
    assert str(graph.box) == str(graph.box.__class__((Dim("batch", 1, 8), Dim("x_1", 0, 4))))
    assert str(graph.types["y"]) == "float32[batch, x_1, 3]"
    free = import_model(model([node("y = Relu(x)")], ["x f[batch, ?, 3]"], ["y"]))
    assert free.box.dims == (Dim("batch"), Dim("x_1"))


def test_dims_that_are_not_there():
    proto = model([node("y = Relu(x)")], ["x f[batch, seq]"], ["y"])
    with pytest.raises(OptionError) as caught:
        import_model(proto, {"bacth": Dim(0, 2)})
    assert "no dim 'bacth'" in str(caught.value) and "did you mean 'batch'" in str(caught.value)


def test_odd_names_of_dims():
    proto = model([node("y = Relu(x)")], ["x f[past seq + 1, past_seq__1, 0x]"], ["y"])
    graph = import_model(proto)
    assert [dim.name for dim in graph.box.dims] == ["past_seq___1", "past_seq__1", "_0x"]


# ---- what hostile models found -----------------------------------------------------------------


def test_numbers_that_are_none_or_several():
    none, several = np.zeros(0, np.int64), np.int64([1, 2])
    for given in (none, several):
        refused(model([node("y = Range(a, b, c)")], [], ["y"], a=given, b=np.int64(3),
                      c=np.int64(1)), "a range whose ends or step are")  # fmt: skip
    depth = model([node("y = OneHot(x, d, v)")], ["x l[n]"], ["y"], d=np.float32([np.nan]),
                  v=np.float32([0, 1]))  # fmt: skip
    refused(depth, "a depth of [nan]")


def test_strings_beside_a_branch_without_a_body():
    text = helper.make_node("StringConcat", ["s", "s"], ["t"])
    branch = helper.make_node("If", ["c"], ["y"])
    proto = model([text, branch], ["c b[]"], ["t"])
    proto.graph.input.append(helper.make_tensor_value_info("s", TensorProto.STRING, ["n"]))
    with suppress(UserError):  # the result does not need the branch
        ad.compile(proto)


# ---- strings, masks ------------------------------------------------------------------------------


def test_functions_that_call_functions_around_strings():
    """onnx would write out 10 ** 12 nodes before it says what the types are."""
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    functions = [
        helper.make_function(
            "own", f"f{depth}", ["b0"], ["b10"],
            [helper.make_node(f"f{depth + 1}" if depth < 11 else "f0", [f"b{i}"], [f"b{i + 1}"],
                              domain="own") for i in range(10)], opsets,
        )
        for depth in range(12)
    ]  # fmt: skip
    text = [helper.make_tensor_value_info(name, TensorProto.STRING, ["n"]) for name in "xy"]
    body = helper.make_graph([helper.make_node("f0", ["x"], ["y"], domain="own")], "g", *zip(text))
    made = helper.make_model(body, opset_imports=opsets, functions=functions)
    with pytest.raises(UserError):
        ad.compile(made)(x=np.array(["a"]))


def test_a_mask_without_axes():
    nodes = [node("y = Attention(q, k, v, m)")]
    given = [f"{name} f[1, 2, n, 4]" for name in "qkv"]
    made = model(nodes, [*given, "m f[]"], ["y"], opset=23)
    refused(made, "a mask of type float32[]")


def test_columns_without_three_axes():
    sizes = {"s": np.array([4, 4]), "b": np.array([2, 2])}
    made = model([node("y = Col2Im(x, s, b)")], ["x f[4, 9]"], ["y"], opset=18, **sizes)
    refused(made, "columns of type float32[4, 9]")


def test_a_node_around_strings_that_reads_what_it_makes():
    """What tells types natively would end the process."""
    encoder = node(
        "y = LabelEncoder(y)", domain="ai.onnx.ml", keys_strings=["a"], values_int64s=[1]
    )
    made = model([encoder], ["x f[n]"], ["z"])
    made.opset_import[0].CopyFrom(helper.make_opsetid("ai.onnx.ml", 4))
    with pytest.raises(UserError):
        ad.compile(made)(x=np.zeros(2, np.float32))


def test_attributes_of_columns_that_are_not_of_their_axes():
    constants = {"size": np.array([5, 5]), "block": np.array([2, 2])}
    text = "y = Col2Im(x, size, block)"
    for wrong in ({"pads": [0]}, {"strides": [1]}, {"dilations": [1, 1, 1]}):
        refused(model([node(text, **wrong)], ["x f[1, 4, 16]"], ["y"], **constants), "2 axes")


def test_weights_without_a_window():
    made = model([node("y = ConvInteger(x, w)")], ["x u[1, 1, 4]"], ["y"], w=np.uint8(3))
    refused(made, "weights of")


def test_heads_of_any_depth_compile_at_once():
    made = model([node("y = Attention(q, k, v)")], [f"{name} f[1, 2, 4, 8]" for name in "qk"]
                 + ["v f[1, 2, 4, 2147483647]"], ["y"], opset=23)  # fmt: skip
    assert "attention(" not in ad.compile(made).explain(details=True)
