"""Records of the operators whose text depends on ranks or attributes: one row each."""

from __future__ import annotations

from anydim.base.dtypes import float32, int64, uint8
from anydim.base.frozen import FrozenMapping
from anydim.compiler.graph.operator import REQUIRED, Operator, Writer
from anydim.compiler.ops import (
    blocks,
    contractions,
    elements,
    indexing,
    joins,
    quantisation,
    random,
    recurrent,
    reductions,
    resampling,
    rotary,
    sampling,
    scattering,
    selecting,
    shapes,
    spectral,
    transposed,
    windows,
)
from anydim.compiler.ops.reductions import Reduction, Softmax

_REDUCED: dict[str, object] = {"axes": None, "keepdims": False}
_WINDOW: dict[str, object] = {"strides": None, "dilations": None, "pads": None}
_POOL = {**_WINDOW, "kernel": REQUIRED, "ceil": False}
_FROM_END: dict[str, object] = {"from_end": True}  # whether negative indices count from the end
_POSITIVE = (0.1, 4.0)


def _row(
    name: str,
    kind: str,
    text: Writer,
    attributes: dict[str, object] | None = None,
    domain: tuple[float, float] = (-3.0, 3.0),
    doc: str = "",
) -> Operator:
    doc = doc or (text.__doc__ or "").strip().splitlines()[0]
    return Operator(name, text, kind, doc, FrozenMapping(attributes or {}), domain, f"<{name}>")


def _reduction(
    name: str, combine: str, doc: str, element: str = "{x}", finish: str = "{t}",
    domain: tuple[float, float] = (-3.0, 3.0),
) -> Operator:  # fmt: skip
    text = Reduction(name, combine, element, finish)
    return Operator(name, text, "reduction", doc, FrozenMapping(_REDUCED), domain, f"<{name}>")


RECORDS = (
    _row("pow", "elementwise", elements.power, domain=_POSITIVE),
    # reductions
    _reduction("reduce_sum", "+", "the sum along axes"),
    _reduction("reduce_mean", "+", "the mean along axes", finish="{t} / cast<T>({count})"),
    _reduction("reduce_max", "max", "the largest element along axes"),
    _reduction("reduce_min", "min", "the smallest element along axes"),
    _reduction("reduce_prod", "*", "the product along axes"),
    _reduction("reduce_l1", "+", "the sum of magnitudes along axes", "abs({x})"),
    _reduction("reduce_l2", "+", "the root of the sum of squares", "{x} * {x}", "sqrt({t})"),
    _reduction("reduce_sum_square", "+", "the sum of squares along axes", "{x} * {x}"),
    _reduction("reduce_log_sum", "+", "the log of the sum", finish="log({t})", domain=_POSITIVE),
    _row("reduce_log_sum_exp", "reduction", reductions.log_sum_exp, _REDUCED),
    # normalisations
    _row("softmax", "normalise", Softmax("softmax", False), {"axis": -1},
         doc="Softmax along an axis."),
    _row("log_softmax", "normalise", Softmax("log_softmax", True), {"axis": -1},
         doc="The logarithm of softmax."),
    _row("layer_norm", "normalise", reductions.layer_norm,
         {"axis": -1, "epsilon": 1e-5, "statistics": False}),
    _row("hardmax", "normalise", selecting.hardmax, {"axis": -1}),
    _row("rotary_embedding", "elementwise", rotary.rotary_embedding,
         {"interleaved": False, "width": None}),
    # contractions
    _row("matmul", "contraction", contractions.matmul),
    _row("gemm", "contraction", contractions.gemm,
         {"alpha": 1.0, "beta": 1.0, "transpose_a": False, "transpose_b": False}),
    _row("einsum", "contraction", contractions.einsum, {"equation": REQUIRED}),
    _row("matmul_integer", "contraction", quantisation.matmul_integer),
    # small numbers
    _row("cast_saturated", "elementwise", quantisation.cast_saturated, {"to": REQUIRED}),
    _row("cast_exponent", "elementwise", quantisation.cast_exponent,
         {"rounding": "up", "saturate": True}),
    _row("bit_cast", "elementwise", quantisation.bit_cast, {"to": REQUIRED}),
    _row("quantize", "elementwise", quantisation.quantize,
         {"to": uint8, "work": None, "saturate": True, "axis": 1, "block": 0}),
    _row("dequantize", "elementwise", quantisation.dequantize,
         {"to": None, "axis": 1, "block": 0}),
    _row("requantize", "elementwise", quantisation.requantize, {"to": uint8}),
    _row("unpack_bits", "elementwise", quantisation.unpack_bits, {"bits": REQUIRED}),
    # windows
    _row("conv_integer", "window", quantisation.conv_integer, {**_WINDOW, "groups": 1}),
    _row("conv", "window", windows.convolution, {**_WINDOW, "groups": 1}),
    _row("conv_transpose", "window", transposed.transposed_convolution,
         {"strides": None, "dilations": None, "before": REQUIRED, "sizes": REQUIRED, "groups": 1}),
    _row("resize", "window", resampling.resize,
         {"sizes": REQUIRED, "scales": None, "mode": "nearest", "coordinates": "half_pixel",
          "rounding": "round_prefer_floor", "cubic": -0.75, "exclude_outside": False,
          "antialias": False, "outside": 0.0, "scaled": False}),
    _row("grid_sample", "window", sampling.grid_sample,
         {"mode": "linear", "padding": "zeros", "corners": False}),
    _row("affine_grid", "window", sampling.affine_grid, {"sizes": REQUIRED, "corners": False}),
    _row("roi_align", "window", sampling.roi_align,
         {"sizes": REQUIRED, "samples": REQUIRED, "scale": 1.0, "half_pixel": True,
          "largest": False}),
    _row("deform_conv", "window", sampling.deformable_convolution,
         {**_WINDOW, "groups": 1, "offset_groups": 1, "biased": False, "masked": False}),
    _row("max_pool", "window", windows.max_pool,
         {**_POOL, "indices": False, "columns_first": False}),
    _row("average_pool", "window", windows.average_pool, {**_POOL, "count_padding": False}),
    _row("lp_pool", "window", windows.lp_pool, {**_POOL, "p": 2}),
    # recurrent layers
    _row("rnn", "recurrent", recurrent.RNN, recurrent.COMMON,
         doc="One direction of a simple (Elman) recurrent layer."),
    _row("gru", "recurrent", recurrent.GRU,
         {**recurrent.COMMON, "linear_before_reset": False},
         doc="One direction of a gated recurrent unit (GRU) layer."),
    _row("lstm", "recurrent", recurrent.LSTM, {**recurrent.COMMON, "input_forget": False},
         doc="One direction of a long short-term memory (LSTM) layer."),
    # frequencies
    _row("mel_weights", "signal", spectral.mel_weights,
         {"bins": REQUIRED, "length": REQUIRED, "dtype": float32}, domain=(0.5, 3.0)),
    _row("cosine_window", "source", spectral.cosine_window,
         {"size": REQUIRED, "weights": (0.5, 0.5, 0.0), "periodic": True, "dtype": float32}),
    # views and other movement
    _row("transpose", "view", shapes.transpose, {"perm": None}),
    _row("reshape", "view", shapes.reshape, {"shape": REQUIRED}),
    _row("flatten", "view", shapes.flatten, {"axis": 1}),
    _row("expand", "view", shapes.expand, {"shape": REQUIRED}),
    _row("squeeze", "view", shapes.squeeze, {"axes": None}),
    _row("unsqueeze", "view", shapes.unsqueeze, {"axes": REQUIRED}),
    _row("slice", "view", shapes.slice_,
         {"starts": REQUIRED, "ends": REQUIRED, "axes": None, "steps": None}),
    _row("split", "view", joins.split, {"axis": 0, "sizes": REQUIRED}),
    _row("concat", "movement", joins.concat, {"axis": 0}),
    _row("put", "movement", joins.put, {"axis": 0, "first": REQUIRED}),
    _row("tile", "movement", joins.tile, {"repeats": REQUIRED}),
    _row("pad", "movement", joins.pad,
         {"before": REQUIRED, "after": REQUIRED, "mode": "constant"}),
    # indices as data, sizes as data
    _row("gather", "index", indexing.gather, {"axis": 0, **_FROM_END}),
    _row("gather_elements", "index", indexing.gather_elements, {"axis": 0, **_FROM_END}),
    _row("gather_nd", "index", indexing.gather_nd, {"batch_dims": 0, **_FROM_END}),
    _row("scatter_elements", "index", scattering.scatter_elements,
         {"axis": 0, "reduction": "none", **_FROM_END}),
    _row("scatter_nd", "index", scattering.scatter_nd, {"reduction": "none", **_FROM_END}),
    _row("tensor_scatter", "index", scattering.tensor_scatter, {"axis": -2, "circular": False}),
    _row("one_hot", "index", indexing.one_hot, {"depth": REQUIRED, "axis": -1}),
    _row("trilu", "index", indexing.trilu, {"upper": True, "k": 0}),
    _row("arg_max", "index", selecting.ArgReduction("arg_max", "max"), selecting.ARG_REDUCTION,
         doc="Index of the largest element along an axis, which stays with size 1 by default."),
    _row("arg_min", "index", selecting.ArgReduction("arg_min", "min"), selecting.ARG_REDUCTION,
         doc="Index of the smallest element along an axis, which stays with size 1 by default."),
    _row("reverse_sequence", "index", indexing.reverse_sequence, {"time": 0, "batch": 1}),
    _row("fold", "movement", blocks.fold,
         {"sizes": REQUIRED, "strides": None, "dilations": None, "pads": None}),
    _row("random_uniform", "source", random.random_uniform,
         {"shape": REQUIRED, "low": 0.0, "high": 1.0, "dtype": float32, "seed": 0}),
    _row("random_normal", "source", random.random_normal,
         {"shape": REQUIRED, "mean": 0.0, "scale": 1.0, "dtype": float32, "seed": 0}),
    _row("depth_to_space", "movement", blocks.depth_to_space,
         {"block": REQUIRED, "inner": False}),
    _row("space_to_depth", "movement", blocks.space_to_depth,
         {"block": REQUIRED, "inner": False}),
    _row("eye", "source", selecting.eye,
         {"rows": REQUIRED, "columns": REQUIRED, **selecting.EYE}),
    _row("range", "source", indexing.range_,
         {"start": 0, "step": 1, "count": REQUIRED, "dtype": int64}),
    _row("fill", "source", indexing.fill, {"shape": REQUIRED, "value": 0.0, "dtype": float32}),
    _row("size_tensor", "source", indexing.size_tensor,
         {"values": REQUIRED, "dtype": int64, "scalar": False}),
)  # fmt: skip
"""Every operator whose text a function generates."""
