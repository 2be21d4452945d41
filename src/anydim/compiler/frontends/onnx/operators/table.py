"""The table of ONNX operators: a row maps an operator to operators of the library.

A row's function takes an `OnnxNode` and returns its results, one or several, in ONNX's order; None
to use the function body of the standard. It raises `Unsupported` with the reason for unsupported
nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy

from anydim.base.dtypes import boolean, float64, uint8
from anydim.compiler.frontends.onnx.file.tensors import Unsupported, read_sparse
from anydim.compiler.frontends.onnx.operators import (
    attention,
    axes,
    indexing,
    loop_scan,
    norms,
    quantised,
    random,
    resize,
    sequences,
    shapes,
    signal,
    training,
    whole_numbers,
    windows,
)
from anydim.compiler.frontends.onnx.operators.branches import if_
from anydim.compiler.frontends.onnx.operators.call import OnnxNode, Result
from anydim.compiler.frontends.onnx.operators.counterparts import (
    BINARY,
    COUNTERPARTS,
    REDUCTIONS,
    Attribute,
)
from anydim.compiler.frontends.onnx.operators.indexing import scatter, tensor_scatter
from anydim.compiler.frontends.onnx.operators.ml import columns, linear, trees
from anydim.compiler.frontends.onnx.operators.recurrent import recurrent
from anydim.compiler.frontends.onnx.values.bindings import Known

Build: TypeAlias = "Callable[[OnnxNode], Result | Sequence[Result] | None]"


def same(name: str, inputs: int, attributes: Sequence[Attribute] = ()) -> Build:
    """The library's operator of this name; it has defaults for attributes that a node lacks."""

    def build(call: OnnxNode) -> Result:
        given = {each: call.attribute(each.onnx) for each in attributes}
        given = {each: value for each, value in given.items() if value is not None}
        own = {e.library: bool(v) if e.is_flag else v for e, v in given.items()}
        return call.emit(name, *(call.input(i) for i in range(inputs)), **own)

    return build


def binary(name: str) -> Build:
    """Two inputs that broadcast."""
    return lambda call: call.binary(name)


def prelu(call: OnnxNode) -> Result:
    """Before opset 7 a slope with one axis is per channel."""
    slope = call.input(1)
    if call.opset < 7 and call.type(1).rank == 1 and call.type(0).rank > 2:
        slope = call.emit("unsqueeze", slope, axes=tuple(range(1, call.type(0).rank - 1)))
    return call.emit("prelu", call.input(0), slope)


def chain(name: str) -> Build:
    """Any number of inputs, combined pairwise from the left."""

    def build(call: OnnxNode) -> Result:
        total = call.input(0)
        for position in range(1, len(call.inputs)):
            total = call.emit(name, total, call.input(position))
        return total

    return build


def mean(call: OnnxNode) -> Result:
    total = chain("add")(call)
    assert isinstance(total, str)
    return call.emit("div", total, call.number(len(call.inputs), call.type(0).dtype))


def gather_nd(call: OnnxNode) -> Result | Sequence[Result] | None:
    call.inputs = (call.inputs[0], call.with_constant_end(1))  # the end decides the rank
    return same("gather_nd", 2, COUNTERPARTS["GatherND"].attributes)(call)


def clip(call: OnnxNode) -> Result:
    """Bounds are attributes before opset 11, inputs since; both are optional."""
    value, dtype = call.input(0), call.type(0).dtype
    for position, operator, name in ((1, "maximum", "min"), (2, "minimum", "max")):
        if call.given(position):
            value = call.emit(operator, value, call.input(position))
        elif call.opset < 11 and name in call.attributes:
            value = call.emit(operator, value, call.number(call.attribute(name), dtype))
    return value


def identity(call: OnnxNode) -> Result:
    return call.held(0)


def power(call: OnnxNode) -> Result | Sequence[Result] | None:
    """Before opset 7 the second input is aligned at `axis`."""
    return binary("pow")(call) if call.opset < 7 else whole_numbers.power(call)


def shift(call: OnnxNode) -> Result:
    direction = call.attribute("direction")
    names = {"LEFT": "shift_left", "RIGHT": "shift_right"}
    if direction not in names:
        raise Unsupported(f"direction {direction!r}")
    return call.emit(names[direction], call.input(0), call.input(1))


def gelu(call: OnnxNode) -> Result:
    names = {"none": "gelu", "tanh": "gelu_tanh"}
    kind = call.attribute("approximate", "none")
    if kind not in names:
        raise Unsupported(f"approximate {kind!r}")
    return call.emit(names[kind], call.input(0))


def constant(call: OnnxNode) -> Result:
    """The value is in the one attribute that is given."""
    for name, dtype in (
        ("value_float", numpy.float32), ("value_floats", numpy.float32),
        ("value_int", numpy.int64), ("value_ints", numpy.int64),
    ):  # fmt: skip
        if name in call.attributes:
            return Known.of(numpy.array(call.attribute(name), dtype))
    value, sparse = call.attribute("value"), call.attribute("sparse_value")
    if value is not None:
        array = call.array(value)
    elif sparse is not None:
        array = read_sparse(sparse, call.scope.folder, call.source)
    else:
        raise Unsupported(f"a constant given by {', '.join(call.attributes) or 'nothing'}")
    name = call.emitter.fresh(f"{call.outputs[0]}/value")
    call.emitter.add_constant(name, array)
    return name


# ---- reductions and normalisations -------------------------------------------------------------


def reduction(name: str, axes_input_since: int) -> Build:
    def build(call: OnnxNode) -> Result:
        axes: Sequence[int] | None = call.attribute("axes")
        if call.opset >= axes_input_since:
            axes = call.integers(1) if call.given(1) else None
        if not axes:
            if call.attribute("noop_with_empty_axes"):
                axes = ()
            else:
                axes = None
        keep = bool(call.attribute("keepdims", 1))
        dtype = call.type(0).dtype
        if name == "reduce_l2" and dtype.is_integer:
            floats = call.as_type(call.input(0), float64)
            return call.as_type(call.emit(name, floats, axes=axes, keepdims=keep), dtype)
        if dtype != boolean:
            return call.emit(name, call.input(0), axes=axes, keepdims=keep)
        numbers = call.emit("cast", call.input(0), to=uint8)
        return call.emit("cast", call.emit(name, numbers, axes=axes, keepdims=keep), to=boolean)

    return build


def softmax(name: str) -> Build:
    """Before opset 13 all axes from `axis` on are flattened."""

    def build(call: OnnxNode) -> Result:
        rank = call.type(0).rank
        axis = call.attribute("axis", -1)
        if call.opset < 13:
            if not -rank <= axis <= rank:
                raise Unsupported(f"axis {axis} of a tensor with {rank} axes")
            axis = tuple(range(axis + rank if axis < 0 else axis, rank))
        return call.emit(name, call.input(0), axis=axis)

    return build


# ---- contractions ------------------------------------------------------------------------------


def einsum(call: OnnxNode) -> Result:
    inputs = (call.input(position) for position in range(len(call.inputs)))
    return call.emit("einsum", *inputs, equation=call.attribute("equation"))


OPERATORS: dict[str, Build] = {
    **{name: same(of.library, of.inputs, of.attributes) for name, of in COUNTERPARTS.items()},
    **{name: binary(library) for name, library in BINARY.items()},
    **{name: reduction(library, 18) for name, library in REDUCTIONS.items()},
    "ReduceSum": reduction("reduce_sum", 13),
    "AffineGrid": resize.affine_grid,
    "Attention": attention.attention,
    "AveragePool": windows.pool("average_pool", count_padding="count_include_pad"),
    "BatchNormalization": norms.batch_norm,
    "Bernoulli": random.bernoulli,
    "BitCast": quantised.bit_cast,
    "BitShift": shift,
    "BlackmanWindow": signal.window(0.42, 0.5, 0.08),
    "Cast": quantised.cast,
    "CastLike": quantised.cast_like,
    "Clip": clip,
    "Col2Im": axes.columns_to_image,
    "Compress": indexing.compress_slices,
    "Concat": shapes.concat,
    "ConcatFromSequence": sequences.concat_from,
    "Constant": constant,
    "ConstantOfShape": shapes.constant_of_shape,
    "Conv": windows.convolution,
    "ConvInteger": quantised.conv_integer,
    "ConvTranspose": resize.convolution_transpose,
    "CumProd": axes.cumulative("cum_prod"),
    "CumSum": axes.cumulative("cum_sum"),
    "DFT": signal.fourier_transform,
    "DeformConv": resize.deformable_convolution,
    "DepthToSpace": axes.depth_to_space,
    "DequantizeLinear": quantised.dequantize,
    "Dropout": random.dropout,
    "DynamicQuantizeLinear": quantised.dynamic_quantize,
    "Einsum": einsum,
    "Expand": shapes.expand,
    "EyeLike": axes.eye_like,
    "Flatten": shapes.flatten,
    "GRU": recurrent("gru"),
    "GatherND": gather_nd,
    "Gelu": gelu,
    "Gemm": whole_numbers.gemm,
    "GlobalAveragePool": windows.global_pool("reduce_mean"),
    "GlobalLpPool": axes.global_lp_pool,
    "GlobalMaxPool": windows.global_pool("reduce_max"),
    "GridSample": resize.grid_sample,
    "HammingWindow": signal.window(25 / 46, 21 / 46, 0.0),
    "HannWindow": signal.window(0.5, 0.5, 0.0),
    "Hardmax": axes.hardmax,
    "Identity": identity,
    "If": if_,
    "IsInf": whole_numbers.is_inf,
    "IsNaN": whole_numbers.is_nan,
    "LRN": axes.local_response,
    "LSTM": recurrent("lstm"),
    "LayerNormalization": norms.layer_norm,
    "LogSoftmax": softmax("log_softmax"),
    "Loop": loop_scan.loop,
    "LpNormalization": axes.lp_normalization,
    "LpPool": windows.pool("lp_pool", p="p"),
    "MatMulInteger": quantised.matmul_integer,
    "Max": chain("maximum"),
    "MaxPool": windows.max_pool,
    "MaxUnpool": windows.max_unpool,
    "Mean": mean,
    "MeanVarianceNormalization": norms.mean_variance_norm,
    "MelWeightMatrix": signal.mel_weights,
    "Min": chain("minimum"),
    "Mod": whole_numbers.modulo, "Div": whole_numbers.div,
    "Multinomial": random.multinomial,
    "NonMaxSuppression": indexing.suppressed_boxes,
    "NonZero": indexing.non_zero,
    "OneHot": shapes.one_hot,
    "Optional": sequences.optional,
    "OptionalGetElement": sequences.get_element,
    "OptionalHasElement": sequences.has_element,
    "PRelu": prelu,
    "Pad": shapes.pad,
    "Pow": power,
    "QLinearConv": quantised.qlinear_conv,
    "QLinearMatMul": quantised.qlinear_matmul,
    "QuantizeLinear": quantised.quantize,
    "RMSNormalization": norms.rms_norm,
    "RNN": recurrent("rnn"),
    "RandomNormal": random.random("random_normal"),
    "RandomNormalLike": random.random("random_normal"),
    "RandomUniform": random.random("random_uniform"),
    "RandomUniformLike": random.random("random_uniform"),
    "Range": shapes.range_,
    "Reshape": shapes.reshape,
    "Resize": resize.resize,
    "ReverseSequence": axes.reverse_sequence,
    "RoiAlign": resize.roi_align,
    "RotaryEmbedding": attention.rotary_embedding,
    "STFT": signal.short_time_transform,
    "Scan": loop_scan.scan,
    "Scatter": scatter("scatter_elements"),
    "ScatterElements": scatter("scatter_elements"),
    "ScatterND": scatter("scatter_nd"),
    "SequenceAt": sequences.at,
    "SequenceConstruct": sequences.construct,
    "SequenceEmpty": sequences.empty,
    "SequenceErase": sequences.erase,
    "SequenceInsert": sequences.insert,
    "SequenceLength": sequences.length,
    "SequenceMap": sequences.sequence_map,
    "Shape": shapes.shape,
    "Shrink": whole_numbers.as_floats(whole_numbers.shrink),
    "Size": shapes.size,
    "Slice": shapes.slice_,
    "Softmax": softmax("softmax"),
    "SpaceToDepth": axes.space_to_depth,
    "Split": shapes.split,
    "SplitToSequence": sequences.split_to,
    "Squeeze": shapes.squeeze,
    "Sum": chain("add"),
    "TfIdfVectorizer": signal.tf_idf,
    "TensorScatter": tensor_scatter,
    "Tile": shapes.tile,
    "TopK": indexing.top_k,
    "Trilu": shapes.trilu,
    "Unique": indexing.unique_elements,
    "Unsqueeze": shapes.unsqueeze,
    "Upsample": resize.resize,
    "ai.onnx.ml.ArrayFeatureExtractor": columns.array_feature_extractor,
    "ai.onnx.ml.Binarizer": columns.binarizer,
    "ai.onnx.ml.FeatureVectorizer": columns.feature_vectorizer,
    "ai.onnx.ml.Imputer": columns.imputer,
    "ai.onnx.ml.LabelEncoder": columns.label_encoder,
    "ai.onnx.ml.LinearClassifier": linear.linear_classifier,
    "ai.onnx.ml.LinearRegressor": linear.linear_regressor,
    "ai.onnx.ml.Normalizer": columns.normalizer,
    "ai.onnx.ml.OneHotEncoder": columns.one_hot,
    "ai.onnx.ml.SVMClassifier": linear.svm_classifier,
    "ai.onnx.ml.SVMRegressor": linear.svm_regressor,
    "ai.onnx.ml.Scaler": columns.scaler,
    "ai.onnx.ml.TreeEnsemble": trees.tree_ensemble,
    "ai.onnx.ml.TreeEnsembleClassifier": trees.tree_classifier,
    "ai.onnx.ml.TreeEnsembleRegressor": trees.tree_regressor,
    "ai.onnx.preview.training.Adagrad": training.optimiser(
        "adagrad", 3, decay="decay_factor", epsilon="epsilon", norm="norm_coefficient"),
    "ai.onnx.preview.training.Adam": training.optimiser(
        "adam", 4, alpha="alpha", beta="beta", epsilon="epsilon", norm="norm_coefficient",
        shrink="norm_coefficient_post"),
    "ai.onnx.preview.training.Momentum": training.optimiser(
        "momentum", 3, alpha="alpha", beta="beta", norm="norm_coefficient"),
}  # fmt: skip
"""ONNX operator type -> its builder; other domains as domain.type."""
