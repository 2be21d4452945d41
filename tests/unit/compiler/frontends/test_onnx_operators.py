"""Each row of the ONNX table, at several opsets and sizes, against onnx's reference evaluator."""

from __future__ import annotations

import numpy as np
import pytest

from anydim.compiler.frontends.onnx import import_model
from anydim.compiler.graph.evaluate import evaluate
from anydim.compiler.graph.verify import verify
from tests.unit.compiler.frontends import quantised_rows
from tests.unit.compiler.frontends.models import compare, model, node

SIZES = [(0, 1), (1, 1), (3, 2), (8, 5)]
X, XY = ["x f[n, 3, m]"], ["x f[n, 3, m]", "y f[3, 1]"]

UNARY = [
    "Abs", "Atan", "Asinh", "Ceil", "Cos", "Cosh", "Erf", "Exp", "Floor", "HardSwish", "IsNaN",
    "Mish", "Neg", "Reciprocal", "Relu", "Round", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus",
    "Softsign", "Sqrt", "Tan", "Tanh", "Identity", "IsInf", "Selu", "Elu", "Celu", "HardSigmoid",
    "LeakyRelu", "ThresholdedRelu", "Shrink", "Log", "Acos", "Acosh", "Asin", "Atanh",
]  # fmt: skip
BINARY = ["Add", "Sub", "Mul", "Div", "Pow", "Equal", "Greater", "GreaterOrEqual", "Less",
          "LessOrEqual", "PRelu", "Max", "Min", "Sum", "Mean"]  # fmt: skip
LOGICAL = ["And", "Or", "Xor"]
BITS = ["BitwiseAnd", "BitwiseOr", "BitwiseXor"]
REDUCTIONS = ["ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean",
              "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare"]  # fmt: skip

i64 = np.int64
SLICE, FIRST = node("z = Slice(x, start, end, axis, step)"), -(2**63)


def bounds(start, end, axis, step):
    numbers = {"start": start, "end": end, "axis": axis, "step": step}
    return {name: i64([number]) for name, number in numbers.items()}


ROWS = {
    **{f"{name}": (18, X, [node(f"z = {name}(x)")], {}) for name in UNARY},
    **{f"{name}": (18, XY, [node(f"z = {name}(x, y)")], {}) for name in BINARY},
    **{name: (18, ["x b[n, 3]", "y b[3]"], [node(f"z = {name}(x, y)")], {}) for name in LOGICAL},
    **{name: (18, ["x l[n, 3]", "y l[3]"], [node(f"z = {name}(x, y)")], {}) for name in BITS},
    **{f"{name}": (18, X, [node(f"z = {name}(x, a)", keepdims=0)], {"a": i64([0, -1])})
       for name in REDUCTIONS},
    **{f"{name} 13": (11, X, [node(f"z = {name}(x)", axes=[1])], {}) for name in REDUCTIONS},
    "ReduceSum all": (13, X, [node("z = ReduceSum(x)")], {}),
    "ReduceSum none": (13, X, [node("z = ReduceSum(x)", noop_with_empty_axes=1)], {}),
    "ReduceMax bool": (20, ["x b[n, 3]"], [node("z = ReduceMax(x, a)")], {"a": i64([1])}),
    "Not": (18, ["x b[n]"], [node("z = Not(x)")], {}),
    "BitwiseNot": (18, ["x i[n]"], [node("z = BitwiseNot(x)")], {}),
    "BitShift": (18, [], [node("z = BitShift(a, b)", direction="LEFT")],
                 {"a": np.uint8([1, 2, 3]), "b": np.uint8([1, 2, 3])}),
    "Mod": (18, ["x i[n]"], [node("z = Mod(x, c)")], {"c": np.int32([-3])}),
    "Mod fmod": (18, XY, [node("z = Mod(x, y)", fmod=1)], {}),
    "Div int": (18, ["x i[n]"], [node("z = Div(x, c)")], {"c": np.int32([-2])}),
    "Gelu": (20, X, [node("z = Gelu(x)")], {}),
    "Gelu tanh": (20, X, [node("z = Gelu(x)", approximate="tanh")], {}),
    "Swish": (24, X, [node("z = Swish(x)")], {}),
    "Where": (18, ["x f[n, 3]", "c b[n, 1]"], [node("z = Where(c, x, y)")],
              {"y": np.float32([1, 2, 3])}),
    "Clip": (13, X, [node("z = Clip(x, a, b)")], {"a": np.float32(-1), "b": np.float32(1)}),
    "Clip high": (13, X, [node("z = Clip(x, , b)")], {"b": np.float32(1)}),
    "Clip 6": (7, X, [node("z = Clip(x)", min=-1.0, max=0.5)], {}),
    "Cast": (18, X, [node("z = Cast(x)", to=7)], {}),
    "Cast same": (18, X, [node("z = Cast(x)", to=1)], {}),
    "CastLike": (18, X, [node("z = CastLike(x, a)")], {"a": np.float64(0)}),
    "Dropout": (13, X, [node("z, mask = Dropout(x)")], {}),
    "Softmax": (13, X, [node("z = Softmax(x)", axis=1)], {}),
    "LogSoftmax": (13, X, [node("z = LogSoftmax(x)")], {}),
    "LayerNormalization": (17, X, [node("z, mean, inv = LayerNormalization(x, s, b)", axis=1)], {
        "s": np.ones((3, 1), np.float32), "b": np.zeros((1, 1), np.float32)}),
    "LayerNormalization half": (17, ["x h[n, 4]"], [node("z = LayerNormalization(x, s)")], {
        "s": np.ones(4, np.float16)}),
    "BatchNormalization": (15, X, [node("z = BatchNormalization(x, s, b, m, v)")], {
        "s": np.float32([1, 2, 3]), "b": np.float32([1, 2, 3]), "m": np.float32([0, 1, 0]),
        "v": np.float32([1, 2, 1])}),
    "MatMul": (13, ["x f[n, 3, m]", "y f[m, 4]"], [node("z = MatMul(x, y)")], {}),
    "Gemm": (13, ["x f[n, 3]", "y f[m, 3]", "c f[m]"], [
        node("z = Gemm(x, y, c)", transB=1, alpha=0.5, beta=2.0)], {}),
    "Gemm bare": (13, ["x f[n, m]", "y f[m, 4]"], [node("z = Gemm(x, y)")], {}),
    "Gemm bias": (13, ["x f[n, m]", "y f[m, 4]"], [node("z = Gemm(x, y, c)")], {
        "c": np.ones((1, 4), np.float32)}),
    "Einsum": (12, ["x f[n, 3, m]", "y f[m, 2]"], [
        node("z = Einsum(x, y)", equation="...ij,jk->...ki")], {}),
    "Transpose": (13, X, [node("z = Transpose(x)", perm=[2, 0, 1])], {}),
    "Transpose all": (13, X, [node("z = Transpose(x)")], {}),
    "Flatten": (13, X, [node("z = Flatten(x)", axis=2)], {}),
    "Slice back to the start": (13, X, [SLICE], bounds(1, FIRST, 1, -1)),
    "Slice back, free": (13, X, [SLICE], bounds(4, FIRST, 2, -1)),
    "Slice from far": (13, X, [SLICE], bounds(-FIRST - 1, FIRST, 2, -2)),
    "Slice of all": (13, X, [SLICE], bounds(FIRST, -FIRST - 1, 2, 1)),
    "Squeeze 11": (11, ["x f[n, 1, 3]"], [node("z = Squeeze(x)", axes=[1])], {}),
    "Squeeze": (13, ["x f[n, 1, 3]"], [node("z = Squeeze(x, a)")], {"a": i64([-2])}),
    "Squeeze fixed": (13, ["x f[1, 3]"], [node("z = Squeeze(x)")], {}),
    "Unsqueeze 11": (11, X, [node("z = Unsqueeze(x)", axes=[0, 4])], {}),
    "Unsqueeze": (13, X, [node("z = Unsqueeze(x, a)")], {"a": i64([-1, 0])}),
    "Concat": (13, ["x f[n, 3]", "y f[m, 3]"], [node("z = Concat(x, y, x)", axis=0)], {}),
    "Concat many": (13, ["x f[n]"], [node(f"z = Concat({', '.join('x' * 40)})", axis=0)], {}),
    "Split": (13, ["x f[n, 6]"], [node("z, w = Split(x, s)", axis=1)], {"s": i64([2, 4])}),
    "Split 11": (11, ["x f[n, 6]"], [node("z, w = Split(x)", axis=-1, split=[1, 5])], {}),
    "Split even": (13, ["x f[n, 6]"], [node("z, w = Split(x)", axis=1)], {}),
    "Split uneven": (18, ["x f[n, 7]"], [node("u, v, w = Split(x)", axis=1, num_outputs=3)], {}),
    "Slice 9": (9, X, [node("z = Slice(x)", starts=[1, -2], ends=[9, -1], axes=[0, 1])], {}),
    "Slice": (13, X, [node("z = Slice(x, s, e, a, t)")], {
        "s": i64([-1, 0]), "e": i64([-(2**62), 2**62]), "a": i64([0, 2]), "t": i64([-2, 2])}),
    "Slice half": (13, X, [node("z = Slice(x, s, e)")], {"s": i64([1]), "e": i64([-1])}),
    "Tile": (13, X, [node("z = Tile(x, r)")], {"r": i64([2, 1, 3])}),
    "Pad": (13, X, [node("z = Pad(x, p, v)")], {"p": i64([1, 0, 0, 2, 0, 1]),
                                               "v": np.float32(7)}),
    "Pad axes": (18, X, [node("z = Pad(x, p, , a)", mode="edge")], {"p": i64([1, 2]),
                                                                  "a": i64([1])}),
    "Pad 2": (7, X, [node("z = Pad(x)", pads=[0, 1, 0, 0, 0, 0], value=2.0)], {}),
    "Gather": (13, ["x f[n, 9]"], [node("z = Gather(x, i)", axis=1)], {
        "i": i64([[0, -1], [3, 2]])}),
    "GatherElements": (13, ["x f[n, 9]"], [node("z = GatherElements(x, i)", axis=1)], {
        "i": np.zeros((0, 2), i64)}),
    "GatherND": (13, ["x f[4, 5, n]"], [node("z = GatherND(x, i)")], {"i": i64([[0, 1], [-1, 2]])}),
    "OneHot": (11, ["x l[n]"], [node("z = OneHot(x, d, v)", axis=0)], {
        "d": i64(5), "v": np.float32([0, 2])}),
    "Trilu": (14, ["x f[n, 3, m]"], [node("z = Trilu(x, k)", upper=0)], {"k": i64(1)}),
    "Constant": (13, X, [node("c = Constant()", value_floats=[1.0, 2.0, 3.0]),
                         node("d = Unsqueeze(c, a)"), node("z = Mul(x, d)")], {"a": i64([-1])}),
    "Size": (13, X, [node("z = Size(x)")], {}),
    "Shape": (15, X, [node("z = Shape(x)", start=-2)], {}),
    # windows
    "Conv": (18, ["x f[n, 3, m, 5]"], [
        node("z = Conv(x, w, b)", pads=[1, 2, 1, 0], strides=[2, 1], dilations=[1, 2])],
        {"w": np.float32(np.arange(36).reshape(2, 3, 3, 2) % 5), "b": np.float32([1, 2])}),
    "Conv groups": (11, ["x f[n, 4, m, 5]"], [
        node("z = Conv(x, w)", group=2, auto_pad="SAME_UPPER", kernel_shape=[2, 3])],
        {"w": np.float32(np.arange(48).reshape(4, 2, 2, 3) % 7)}),
    "MaxPool": (12, ["x f[n, 2, m, 5]"], [
        node("z = MaxPool(x)", kernel_shape=[2, 3], strides=[2, 1], pads=[1, 1, 0, 1])], {}),
    "AveragePool": (19, ["x f[n, 2, 7, 5]"], [
        node("z = AveragePool(x)", kernel_shape=[2, 3], pads=[1, 1, 0, 1],
             count_include_pad=1)], {}),
    "LpPool": (18, ["x f[n, 2, 6]"], [node("z = LpPool(x)", kernel_shape=[2], p=3)], {}),
    "GlobalAveragePool": (18, ["x f[n, 2, 3, 4]"], [node("z = GlobalAveragePool(x)")], {}),
    "GlobalMaxPool": (18, ["x f[n, 2, 3, 4]"], [node("z = GlobalMaxPool(x)")], {}),
    "ConvTranspose": (11, ["x f[n, 4, 3, 5]"], [
        node("z = ConvTranspose(x, w)", strides=[2, 1], pads=[1, 0, 0, 1],
             output_padding=[1, 0])],
        {"w": np.float32(np.arange(48).reshape(4, 2, 2, 3) % 7)}),
    "Resize": (13, ["x f[n, 1, 4, 5]"], [
        node("z = Resize(x, , f)", mode="linear")], {"f": np.float32([1, 1, 1.5, 0.6])}),
    "Resize sizes": (13, ["x f[2, 1, 4, 5]"], [
        node("z = Resize(x, , , s)", mode="cubic")], {"s": i64([2, 1, 7, 3])}),
    # along an axis
    "InstanceNormalization": (18, ["x f[n, 3, 2, 4]"], [
        node("z = InstanceNormalization(x, s, s)")], {"s": np.float32([1, 2, 3])}),
    "LRN": (13, ["x f[5, 5, m, 2]"], [node("z = LRN(x)", size=3, alpha=0.5, beta=0.5)], {}),
    "LpNormalization": (18, X, [node("z = LpNormalization(x)", axis=1)], {}),
    "ArgMax": (13, X, [node("z = ArgMax(x)", axis=1)], {}),
    "ArgMin": (13, ["x i[n, 3, m]"], [
        node("z = ArgMin(x)", axis=1, keepdims=0, select_last_index=1)], {}),
    "Hardmax": (13, X, [node("z = Hardmax(x)", axis=1)], {}),
    "CumSum": (14, X, [node("z = CumSum(x, a)", exclusive=1)], {"a": i64(0)}),
    "CumProd": (26, X, [node("z = CumProd(x, a)", reverse=1)], {"a": i64(-1)}),
    "DepthToSpace": (13, ["x f[n, 8, m, 2]"], [
        node("z = DepthToSpace(x)", blocksize=2, mode="CRD")], {}),
    "SpaceToDepth": (13, ["x f[n, m, 4, 2]"], [node("z = SpaceToDepth(x)", blocksize=2)], {}),
    "EyeLike": (9, ["x f[n, m]"], [node("z = EyeLike(x)", k=-1, dtype=6)], {}),
    # operators that the standard writes in terms of others
    "RMSNormalization": (23, X, [node("z = RMSNormalization(x, s)", axis=1)], {
        "s": np.ones((3, 1), np.float32)}),
    "MeanVarianceNormalization": (18, X, [
        node("z = MeanVarianceNormalization(x)", axes=[0, 2])], {}),
    "GroupNormalization": (21, ["x f[n, 4, m]"], [
        node("z = GroupNormalization(x, s, s)", num_groups=2)], {"s": np.float32([1, 2, 3, 4])}),
    "SoftmaxCrossEntropyLoss": (18, ["x f[n, 3]", "t l[n]"], [
        node("z = SoftmaxCrossEntropyLoss(x, t)", reduction="sum")], {}),
    # sizes as values
    "Reshape zero": (13, X, [node("z = Reshape(x, s)")], {"s": i64([0, -1])}),
    "Reshape shape": (13, ["x f[n, m, 6]"], [
        node("s = Shape(x)"), node("a = Slice(s, zero, two)"), node("t = Concat(a, c)", axis=0),
        node("z = Reshape(x, t)")], {"zero": i64([0]), "two": i64([2]), "c": i64([2, -1])}),
    "Expand": (13, ["x f[n, 1]", "y f[m]"], [node("s = Shape(y)"), node("z = Expand(x, s)")], {}),
    "Range": (13, ["x f[n, 3]"], [
        node("s = Shape(x)"), node("e = Gather(s, zero)"), node("z = Range(zero, e, two)")],
        {"zero": i64(0), "two": i64(2)}),
    "Range by a size": (13, ["x f[n, 3]", "v f[m]"], [
        node("s = Shape(x)"), node("e = Gather(s, zero)"), node("t = Shape(v)"),
        node("b = Gather(t, zero)"), node("o = Add(b, one)"), node("d = Neg(o)"),
        node("w = Range(two, e, o)"), node("y = Range(e, two, d)"),
        node("z = Concat(w, y)", axis=0)],
        {"zero": i64(0), "one": i64(1), "two": i64(2)}),
    "Range of floats": (13, ["x f[n, 3]"], [
        node("s = Shape(x)"), node("e = Gather(s, zero)"), node("f = Cast(e)", to=1),
        node("z = Range(low, f, two)"), node("y = Range(half, f, two)")],
        {"zero": i64(0), "low": np.float32(-3), "half": np.float32(0.5), "two": np.float32(2)}),
    "ConstantOfShape": (13, X, [node("s = Shape(x)"), node("z = ConstantOfShape(s)")], {}),
    "sizes as data": (13, X, [
        node("s = Shape(x)"), node("f = Cast(s)", to=1), node("p = ReduceProd(f)", keepdims=0),
        node("z = Div(x, p)")], {}),
    "size arithmetic": (13, ["x f[n, 3, m]"], [
        node("s = Shape(x)"), node("a = Gather(s, two)"), node("h = Div(a, two)"),
        node("b = Sub(a, h)"), node("c = Mul(h, two)"), node("m = Mod(a, two)"),
        node("u = Unsqueeze(b, zeros)"), node("t = Concat(u, ones)", axis=0),
        node("z = ConstantOfShape(t)"), node("y = Add(c, m)")],
        {"two": i64(2), "zeros": i64([0]), "ones": i64([1])}),
    **quantised_rows.ROWS,
    "a minus one by Where": (13, ["x f[n, 3, m]"], [
        node("s = Shape(x)"), node("q = Equal(c, minus)"), node("t = Where(q, s, c)"),
        node("z = Expand(x, t)")], {"c": i64([-1, 3, -1]), "minus": i64([-1])}),
}  # fmt: skip


# The reference refuses to reduce nothing to its extreme, and to reshape nothing by -1.
NOT_EMPTY = {"ReduceMax", "ReduceMin", "ReduceMax 13", "ReduceMin 13", "Flatten", "Reshape zero",
             "Reshape shape", "GroupNormalization", "GlobalAveragePool",
             "ConvTranspose", "Resize", "Resize sizes", "DynamicQuantizeLinear",
             "SoftmaxCrossEntropyLoss"}  # fmt: skip


def feed(inputs: list[str], n: int, m: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(n * 10 + m)
    values = {}
    for text in inputs:
        name, kind = text.split(" ", 1)
        sizes = {"n": n, "m": m}
        parts = [part.strip() for part in kind[2:-1].split(",")]
        shape = [sizes[part] if part in sizes else int(part) for part in parts]
        dtype = {"f": "float32", "d": "float64", "h": "float16", "l": "int64", "i": "int32",
                 "b": "bool", "u": "uint8", "s": "int8"}[kind[0]]  # fmt: skip
        data = random.uniform(-2, 2, shape) if kind[0] in "fdh" else random.integers(0, 3, shape)
        values[name] = data.astype(dtype)
    return values


# tested beside numpy, onnxruntime or the tests of onnx: control flow, sequences, recurrences;
# random numbers in test_onnx_random.py
ELSEWHERE = {
    "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform",  # test_onnx_random.py
    "Compress", "ConcatFromSequence", "GRU", "GlobalLpPool", "If", "LSTM", "Loop",
    "NonMaxSuppression", "NonZero", "Optional", "OptionalGetElement", "OptionalHasElement", "RNN",
    "Scan", "SequenceAt", "SequenceConstruct",
    "SequenceEmpty", "SequenceErase", "SequenceInsert", "SequenceLength", "SequenceMap",
    "SplitToSequence", "TopK", "Unique",
    *(f"ai.onnx.ml.{name}" for name in (  # test_onnx_learned.py, test_onnx_trees.py
        "FeatureVectorizer", "Imputer", "LabelEncoder", "LinearClassifier", "LinearRegressor",
        "Normalizer", "OneHotEncoder", "SVMClassifier", "SVMRegressor", "Scaler",
        "TreeEnsembleClassifier", "TreeEnsembleRegressor",
    )),
}  # fmt: skip


@pytest.mark.sampled(most=79)
@pytest.mark.parametrize("name", ROWS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_row_means_what_onnx_says(name):
    opset, inputs, nodes, constants = ROWS[name]
    if name == "GatherElements":
        constants = {"i": np.array([[0, -1]], np.int64)}
        inputs = ["x f[1, 9]"]
    read = {value for n in nodes for value in n.input}
    made = [value for n in nodes for value in n.output]
    outputs = [value for value in made if value not in read]
    proto = model(nodes, inputs, outputs, opset, **constants)
    graph = verify(import_model(proto.SerializeToString()))
    for n, m in SIZES:
        if name in NOT_EMPTY and not n:
            continue
        compare(proto, feed(inputs, n, m), graph)


@pytest.mark.parametrize("p", [1, 2, 3])
def test_global_lp_pool(p):
    """onnx's reference lacks it."""
    graph = import_model(model([node("z = GlobalLpPool(x)", p=p)], ["x f[n, 2, m, 3]"], ["z"]))
    values = feed(["x f[n, 2, m, 3]"], 4, 5)
    expected = (np.abs(values["x"]) ** p).sum((2, 3), keepdims=True) ** (1 / p)
    np.testing.assert_allclose(evaluate(graph, values)["z"], expected, rtol=1e-5)


def test_signals_without_an_axis_of_parts_are_real():
    """As onnxruntime has them; onnx's reference does not."""
    nodes = [node("z = STFT(x, step, , length)", onesided=1)]
    constants = {"step": i64(3), "length": i64(8)}
    flat, deep = (
        import_model(model(nodes, [f"x f[n, {shape}]"], ["z"], **constants))
        for shape in ("m", "m, 1")
    )
    for n, m in ((0, 8), (2, 8), (3, 33)):
        x = feed(["x f[n, m]"], n, m)["x"]
        made = evaluate(flat, {"x": x})["z"]
        assert made.shape == (n, (m - 8) // 3 + 1, 5, 2)
        np.testing.assert_array_equal(made, evaluate(deep, {"x": x[..., None]})["z"])


def test_softmax_before_opset_13_flattens():
    proto = model([node("z = Softmax(x)")], ["x f[n, 3, m]"], ["z"], opset=11)
    graph = import_model(proto)
    assert graph.nodes[0].attributes["axis"] == (1, 2)


def test_a_range_by_a_dim_guards_that_it_steps():
    """Where bags begin, as torch exports EmbeddingBag: 0, m, 2 m, ... before n m."""
    nodes = [
        node("s = Shape(x)"), node("e = Size(x)"), node("m = Gather(s, one)"),
        node("z = Range(zero, e, m)"),
    ]  # fmt: skip
    graph = import_model(model(nodes, ["x f[n, m]"], ["z"], zero=i64(0), one=i64(1)))
    (guard,) = graph.guards
    assert (guard.left, guard.relation, str(guard.right)) == (1, "<=", "m")
    for n, m in ((0, 1), (1, 1), (3, 7), (5, 2)):
        z = evaluate(graph, {"x": np.zeros((n, m), np.float32)})["z"]
        np.testing.assert_array_equal(z, np.arange(n) * m)


def test_a_range_of_floats_up_to_a_size_finds_no_dim():
    _, inputs, nodes, constants = ROWS["Range of floats"]
    graph = import_model(model(nodes, inputs, ["y", "z"], **constants))
    assert str(graph.types["z"]) == "float32[n//2 + 2]"
    assert [str(dim) for dim in graph.types["y"].shape] == ["y.count"]  # from 0.5: data decides
    (guard,) = graph.guards
    assert (str(guard.left), guard.relation, guard.right) == ("n", "<=", 1 << 24)


def test_shape_arithmetic_leaves_no_nodes():
    _, inputs, nodes, constants = ROWS["Reshape shape"]
    graph = import_model(model(nodes, inputs, ["z"], **constants))
    assert [n.operator for n in graph.nodes] == ["reshape"]
    assert str(graph.types["z"]) == "float32[n, m, 2, 3]"
    assert not graph.constants
