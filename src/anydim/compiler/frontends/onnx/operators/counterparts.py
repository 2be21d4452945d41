"""Operators of ONNX that the library has, too: their names, input counts and attributes in both.

Importer and export to engines read this table. An operator whose form depends on the opset, on
types or on contents has a row there as well, which goes first: `table.py` here, and
`passes/delegate/onnx_operators.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

from anydim.base.records import dataclass


@dataclass(frozen=True)
class Attribute:
    """An attribute by its names in the library and in ONNX, which has integers for flags."""

    library: str
    onnx: str
    is_flag: bool

    @staticmethod
    def of(text: str) -> Attribute:
        """Parse `axis`, `block=blocksize`, or a flag, `last=select_last_index?`."""
        library, _, onnx = text.removesuffix("?").partition("=")
        return Attribute(library, onnx or library, text.endswith("?"))


@dataclass(frozen=True)
class Counterpart:
    """The operator of the library that computes what an operator of ONNX does."""

    library: str
    inputs: int
    attributes: tuple[Attribute, ...]


def counterpart(library: str, inputs: int = 1, attributes: str = "") -> Counterpart:
    """A record from a text of attributes, as `Attribute.of` reads them."""
    return Counterpart(library, inputs, tuple(map(Attribute.of, attributes.split())))


UNARY = {
    "Abs": "abs", "Acos": "acos", "Acosh": "acosh", "Asin": "asin", "Asinh": "asinh",
    "Atan": "atan", "Atanh": "atanh", "BitwiseNot": "bit_not", "Ceil": "ceil", "Cos": "cos",
    "Cosh": "cosh", "Det": "det", "Erf": "erf", "Exp": "exp", "Floor": "floor",
    "HardSwish": "hard_swish", "Identity": "identity", "IsNaN": "is_nan", "Log": "log",
    "Mish": "mish", "Neg": "neg", "Not": "logical_not", "Reciprocal": "reciprocal", "Relu": "relu",
    "Round": "round", "Sigmoid": "sigmoid", "Sign": "sign", "Sin": "sin", "Sinh": "sinh",
    "Softplus": "softplus", "Softsign": "softsign", "Sqrt": "sqrt", "Tan": "tan", "Tanh": "tanh",
}  # fmt: skip
BINARY = {
    "Add": "add", "And": "logical_and", "BitwiseAnd": "bit_and", "BitwiseOr": "bit_or",
    "BitwiseXor": "bit_xor", "Div": "div", "Equal": "equal", "Greater": "greater",
    "GreaterOrEqual": "greater_equal", "Less": "less", "LessOrEqual": "less_equal",
    "MatMul": "matmul", "Max": "maximum", "Min": "minimum", "Mul": "mul", "Or": "logical_or",
    "Pow": "pow", "Sub": "sub", "Xor": "logical_xor",
}  # fmt: skip
"""Two inputs that broadcast."""
REDUCTIONS = {
    "ReduceL1": "reduce_l1", "ReduceL2": "reduce_l2", "ReduceLogSum": "reduce_log_sum",
    "ReduceLogSumExp": "reduce_log_sum_exp", "ReduceMax": "reduce_max",
    "ReduceMean": "reduce_mean", "ReduceMin": "reduce_min", "ReduceProd": "reduce_prod",
    "ReduceSum": "reduce_sum", "ReduceSumSquare": "reduce_sum_square",
}  # fmt: skip
"""ONNX has their axes as an attribute in old opsets, and as an input since."""
COUNTERPARTS: Mapping[str, Counterpart] = {
    **{onnx: counterpart(library) for onnx, library in UNARY.items()},
    **{onnx: counterpart(library, 2) for onnx, library in BINARY.items()},
    "ArgMax": counterpart("arg_max", 1, "axis keepdims? last=select_last_index?"),
    "ArgMin": counterpart("arg_min", 1, "axis keepdims? last=select_last_index?"),
    "BatchNormalization": counterpart("batch_norm", 5, "epsilon"),
    "Celu": counterpart("celu", 1, "alpha"),
    "Concat": counterpart("concat", 1, "axis"),
    "Einsum": counterpart("einsum", 1, "equation"),
    "Elu": counterpart("elu", 1, "alpha"),
    "Flatten": counterpart("flatten", 1, "axis"),
    "Gather": counterpart("gather", 2, "axis"),
    "GatherElements": counterpart("gather_elements", 2, "axis"),
    "GatherND": counterpart("gather_nd", 2, "batch_dims"),
    "Gemm": counterpart("gemm", 2, "alpha beta transpose_a=transA? transpose_b=transB?"),
    "HardSigmoid": counterpart("hard_sigmoid", 1, "alpha beta"),
    "InstanceNormalization": counterpart("instance_norm", 3, "epsilon"),
    "IsInf": counterpart("is_inf", 1, "negative=detect_negative? positive=detect_positive?"),
    "LeakyRelu": counterpart("leaky_relu", 1, "alpha"),
    "PRelu": counterpart("prelu", 2),
    "ScatterElements": counterpart("scatter_elements", 3, "reduction axis"),
    "ScatterND": counterpart("scatter_nd", 3, "reduction"),
    "Selu": counterpart("selu", 1, "alpha gamma"),
    "Shrink": counterpart("shrink", 1, "lambd bias"),
    "Swish": counterpart("swish", 1, "alpha"),
    "ThresholdedRelu": counterpart("thresholded_relu", 1, "alpha"),
    "Transpose": counterpart("transpose", 1, "perm"),
    "Where": counterpart("where", 3),
}
