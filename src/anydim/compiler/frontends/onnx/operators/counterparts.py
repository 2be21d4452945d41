"""Operators of ONNX that the library has, too: their names, input counts and common attributes.

Importer and export to engines read this table. An operator whose form depends on the opset, on
types or on contents has a row there as well, which goes first: `table.py` here, and
`passes/delegate/onnx_operators.py`. Attributes have the same names in ONNX and in the library.
"""

from __future__ import annotations

from collections.abc import Mapping

from anydim.base.records import dataclass


@dataclass(frozen=True)
class Counterpart:
    """The operator of the library that computes what an operator of ONNX does."""

    library: str
    inputs: int = 1
    attributes: tuple[str, ...] = ()


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
    **{onnx: Counterpart(library) for onnx, library in UNARY.items()},
    **{onnx: Counterpart(library, 2) for onnx, library in BINARY.items()},
    "Celu": Counterpart("celu", 1, ("alpha",)),
    "Concat": Counterpart("concat", 1, ("axis",)),
    "Einsum": Counterpart("einsum", 1, ("equation",)),
    "Elu": Counterpart("elu", 1, ("alpha",)),
    "Flatten": Counterpart("flatten", 1, ("axis",)),
    "Gather": Counterpart("gather", 2, ("axis",)),
    "GatherElements": Counterpart("gather_elements", 2, ("axis",)),
    "GatherND": Counterpart("gather_nd", 2, ("batch_dims",)),
    "HardSigmoid": Counterpart("hard_sigmoid", 1, ("alpha", "beta")),
    "InstanceNormalization": Counterpart("instance_norm", 3, ("epsilon",)),
    "BatchNormalization": Counterpart("batch_norm", 5, ("epsilon",)),
    "LeakyRelu": Counterpart("leaky_relu", 1, ("alpha",)),
    "PRelu": Counterpart("prelu", 2),
    "Selu": Counterpart("selu", 1, ("alpha", "gamma")),
    "Shrink": Counterpart("shrink", 1, ("lambd", "bias")),
    "Swish": Counterpart("swish", 1, ("alpha",)),
    "ThresholdedRelu": Counterpart("thresholded_relu", 1, ("alpha",)),
    "Transpose": Counterpart("transpose", 1, ("perm",)),
    "Where": Counterpart("where", 3),
}
