"""Promise: files that the tools of onnxruntime optimised run right, as the plain ones do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import anydim as ad
from anydim.base.errors import ModelError
from bench.light import light_model
from examples.minilm.model import SMALL, build_model, random_weights

LEVELS = onnxruntime.GraphOptimizationLevel
DIMS = {"batch": ad.Dim(0, 8), "seq": ad.Dim(1, 20)}
SIZES = [(1, 1), (2, 7), (3, 17), (0, 4), (5, 20), (1, 16)]
WEIGHTS = random_weights(SMALL)


def session(source: bytes, level=LEVELS.ORT_DISABLE_ALL, path: Path | None = None):
    """onnxruntime, which saves what it made of the model where there is a path."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = level
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    if path is not None:
        options.optimized_model_filepath = str(path)
    return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def optimised(proto: onnx.ModelProto, level, folder: Path) -> str:
    path = folder / "optimised.onnx"
    session(proto.SerializeToString(), level, path)
    return str(path)


def operators(path: str) -> set[str]:
    return {node.op_type for node in onnx.load(path).graph.node}


def tokens(batch: int, seq: int) -> dict[str, np.ndarray]:
    """Words, and masks whose padding comes last."""
    random = np.random.default_rng((batch, seq))
    lengths = random.integers(1, seq + 1, batch)
    return {
        "input_ids": random.integers(0, SMALL.vocabulary, (batch, seq)),
        "attention_mask": (np.arange(seq) < lengths[:, None]).astype(np.int64),
    }


def same(model: ad.Model, theirs, feeds: dict[str, np.ndarray]) -> None:
    """1e-4: float32 sums of some 40 products and the approximations of exp and erf, two layers."""
    got = model(**feeds)
    for output, expected in zip(theirs.get_outputs(), theirs.run(None, feeds)):
        np.testing.assert_allclose(got[output.name], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("level", ["BASIC", "EXTENDED", "ALL"])
def test_an_encoder_saved_by_onnxruntime(level, tmp_path):
    proto = build_model(SMALL, WEIGHTS)
    path = optimised(proto, getattr(LEVELS, f"ORT_ENABLE_{level}"), tmp_path)
    assert level == "BASIC" or {"FusedMatMul", "BiasGelu"} <= operators(path)
    model, theirs = ad.compile(path, dims=DIMS), session(proto.SerializeToString())
    for batch, seq in SIZES:
        same(model, theirs, tokens(batch, seq))
    plain = ad.compile(proto, dims=DIMS).plan(batch=2, seq=9)
    assert len(model.plan(batch=2, seq=9).launches) == len(plain.launches)


def test_images_saved_by_onnxruntime(tmp_path):
    proto = light_model("squeezenet", ("batch", 3, 64, 64))
    path = optimised(proto, LEVELS.ORT_ENABLE_EXTENDED, tmp_path)
    assert "FusedConv" in operators(path)
    model, theirs = ad.compile(path, dims={"batch": ad.Dim(0, 4)}), session(path)
    (given,) = theirs.get_inputs()
    for batch in (1, 3, 0):
        x = np.random.default_rng(batch).standard_normal((batch, 3, 64, 64), np.float32)
        same(model, theirs, {given.name: x})
    plain = ad.compile(proto, dims={"batch": ad.Dim(0, 4)}).plan(batch=2)
    assert [a.kernel for a in model.plan(batch=2).launches] == [a.kernel for a in plain.launches]


def test_a_layout_of_one_machine_is_refused(tmp_path):
    path = optimised(light_model("squeezenet"), LEVELS.ORT_ENABLE_ALL, tmp_path)
    if "ReorderOutput" not in operators(path):
        pytest.skip("this machine has no layout of its own")
    with pytest.raises(ModelError, match=r"save it at .*ORT_ENABLE_EXTENDED"):
        ad.compile(path)


# ---- what the transformer tools write ----------------------------------------------------------


def fused(form: str) -> onnx.ModelProto:
    """The encoder as onnxruntime.transformers.optimizer writes it, with random weights.

    `form` says which attention: Attention with a mask, with counts of words, MultiHeadAttention.
    """
    held = {name.replace("weight", "w").replace("bias", "b"): a for name, a in WEIGHTS.items()}
    held = {name: a.T.copy() if a.ndim == 2 and "embed" not in name else a
            for name, a in held.items()}  # fmt: skip
    nodes: list[onnx.NodeProto] = []

    def add(operator: str, inputs: list[str], outputs: list[str], **attributes) -> None:
        ours = operator in ("MatMul", "Add", "Cast", "Mul", "Reshape")
        domain = "" if ours else "com.microsoft"
        nodes.append(helper.make_node(operator, inputs, outputs, domain=domain, **attributes))

    add("Cast", ["input_ids"], ["ids"], to=6)
    add("Cast", ["attention_mask"], ["mask"], to=6)
    add("Mul", ["ids", "none"], ["kinds"])
    tables = [f"embeddings.{part}_embeddings.w" for part in ("word", "position", "token_type")]
    norm = ["embeddings.LayerNorm.w", "embeddings.LayerNorm.b"]
    add(
        "EmbedLayerNormalization",
        ["ids", "kinds", *tables, *norm, "mask"],
        ["x0", "counts"],
        epsilon=1e-12,
    )
    mask = "counts" if form == "counts" else "mask"
    for layer in range(SMALL.layers):
        _layer(held, add, f"encoder.layer.{layer}", (f"x{layer}", f"x{layer + 1}"), mask, form)
    held["none"] = np.zeros((), np.int32)
    graph = helper.make_graph(
        nodes, "fused",
        [helper.make_tensor_value_info(name, 7, ["batch", "seq"])
         for name in ("input_ids", "attention_mask")],
        [onnx.ValueInfoProto(name=f"x{SMALL.layers}")],
        [numpy_helper.from_array(a, name) for name, a in held.items()],
    )  # fmt: skip
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9)


def _layer(held, add, prefix: str, names: tuple[str, str], mask: str, form: str) -> None:
    x, end = names
    own = f"{prefix}.attention"
    parts = [f"{own}.self.{part}" for part in ("query", "key", "value")]
    held[f"{own}.b"] = np.concatenate([held[f"{part}.b"] for part in parts])
    heads = {"num_heads": SMALL.heads, "mask_filter_value": float(np.finfo(np.float32).min)}
    if form == "apart":
        for part in parts:
            add("MatMul", [x, f"{part}.w"], [part])
        add("MultiHeadAttention", [*parts, f"{own}.b", mask], [own], **heads)
    else:
        held[f"{own}.w"] = np.concatenate([held[f"{part}.w"] for part in parts], axis=1)
        add("Attention", [x, f"{own}.w", f"{own}.b", mask], [own], **heads)
    add("MatMul", [own, f"{own}.output.dense.w"], [f"{own}.made"])
    norms = [[f"{p}.output.LayerNorm.w", f"{p}.output.LayerNorm.b", f"{p}.output.dense.b"]
             for p in (own, prefix)]  # fmt: skip
    add("SkipLayerNormalization", [f"{own}.made", x, *norms[0]], [f"{own}.end"], epsilon=1e-12)
    add("MatMul", [f"{own}.end", f"{prefix}.intermediate.dense.w"], [f"{prefix}.wide"])
    add("BiasGelu", [f"{prefix}.wide", f"{prefix}.intermediate.dense.b"], [f"{prefix}.active"])
    add("MatMul", [f"{prefix}.active", f"{prefix}.output.dense.w"], [f"{prefix}.made"])
    add("SkipLayerNormalization", [f"{prefix}.made", f"{own}.end", *norms[1]], [end], epsilon=1e-12)


@pytest.mark.parametrize("form", ["mask", "counts", "apart"])
def test_an_encoder_of_the_transformer_tools(form):
    proto = fused(form)
    model, theirs = ad.compile(proto, dims=DIMS), session(proto.SerializeToString())
    plain = session(build_model(SMALL, WEIGHTS).SerializeToString())
    for batch, seq in SIZES:
        feeds = tokens(batch, seq)
        if batch:  # onnxruntime's Attention refuses an empty batch
            same(model, theirs, feeds)
        got = model(**feeds)[f"x{SMALL.layers}"]
        expected = plain.run(["last_hidden_state"], feeds)[0]
        kept = feeds["attention_mask"] == 1
        np.testing.assert_allclose(got[kept], expected[kept], rtol=1e-4, atol=1e-4)
    launches = [launch.kernel for launch in model.plan(batch=2, seq=9).launches]
    assert sum(name.startswith("attention") for name in launches) == SMALL.layers
    assert len(launches) <= 4 + SMALL.layers * (7 if form != "apart" else 9), launches
