"""Attentions written in the language, with their inputs and their meaning in float64."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from anydim.base.dtypes import DType, boolean, float32, float64, int64
from anydim.lang.meaning.evaluate import evaluate
from anydim.lang.resolve.instantiate import instantiate
from anydim.lang.surface.parser import parse_definition
from anydim.lang.tree import Group, TensorType
from anydim.sizes import Box, Dim, as_size

BOX = Box.of(*(Dim(name, 0, 512) for name in ("B", "H", "Q", "K")))
LONG = Box.of(*(Dim(name, 0, 5000) for name in ("B", "H", "Q", "K")))

SOFTMAX = """
  top({r}) max=! x({r},k)
  e({r},k) = exp(x({r},k) - top({r}))
  total({r}) +=! e({r},k)
  p({r},k) = e({r},k) / total({r})
"""
MERGED = """
  top({r}) max=! {score}
  total({r}) +=! exp({score} - top({r}))
  share({r}) = 1.0 / total({r})
  p({r},k) = share({r}) * exp({score} - top({r}))
"""
SAFE = """
  top({r}) max=! x({r},k)
  e({r},k) = exp(x({r},k) - top({r}))
  total({r}) +=! e({r},k)
  share({r},k) = e({r},k) / total({r})
  p({r},k) = isnan(share({r},k)) ? 0.0 : share({r},k)
"""
SPLIT = """
  top({r}) max=! x({r},k)
  less({r},k) = x({r},k) - top({r})
  e({r},k) = exp(less({r},k))
  total({r}) +=! e({r},k)
  p({r},k) = e({r},k) * (1 / total({r}))
"""


@dataclass(frozen=True, eq=False)
class Case:
    """`inputs` maps 'name type' to a shape in the dims B, H, Q, K of the box."""

    name: str
    inputs: Mapping[str, str]
    body: str
    kinds: Mapping[str, DType] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.inputs)

    def kind(self, name: str) -> DType:
        return self.kinds.get(name, float32)

    def group(self, box: Box = BOX) -> Group:
        """The statements."""
        return _group(self, box)

    def arrays(self, env: Mapping[str, int], spread: float = 1.0) -> list[np.ndarray]:
        """Random inputs; a scalar is 2.5, so that scores stay of an order float32 resolves."""
        random = np.random.default_rng(sum(env.values()))
        made = []
        for name, shape in self.inputs.items():
            values = random.standard_normal([as_size(s).evaluate(env) for s in shape.split()])
            kind = self.kind(name)
            if not shape:
                values = np.array(2.5)
            chosen = values * spread if kind == float32 else values > 0
            made.append(np.asarray(chosen, kind.numpy))
        return made

    def expected(self, arrays: list[np.ndarray], env: Mapping[str, int]) -> np.ndarray:
        """The result in float64."""
        tensors = dict(zip(self.names, arrays))
        with np.errstate(all="ignore"):
            return evaluate(self.group(), tensors, env, precision=float64)["o"]


@cache
def _group(case: Case, box: Box) -> Group:
    words = {float32: "float", boolean: "bool", int64: "int64"}
    letters = iter("abcdefghijklmnopqrstuvwxyz")
    parameters = []
    for tensor, shape in case.inputs.items():
        sizes = ",".join(f"n_{next(letters)}" for _ in shape.split())
        parameters.append(f"{words[case.kind(tensor)]}({sizes}) {tensor}")
    text = f"def attention({', '.join(parameters)}) -> (o) {{ {case.body} }}"
    types = [
        TensorType(case.kind(tensor), tuple(as_size(s) for s in shape.split()))
        for tensor, shape in case.inputs.items()
    ]
    return instantiate(parse_definition(text), types, box=box)


def simple(
    name: str, score: str = "", extra: Mapping[str, str] | None = None, softmax: str = SOFTMAX,
    rows: str = "b,h,i", depth: int = 32, width: int = 32,
    kinds: Mapping[str, DType] | None = None, result: str = "",
) -> Case:  # fmt: skip
    """queries [.., Q, depth], keys [.., K, depth], values [.., K, width] with equal batch axes."""
    batch = rows.split(",")[:-1]
    dims = " ".join({"b": "B", "h": "H"}[axis] for axis in batch)
    lead = "".join(f"{axis}," for axis in batch)
    score = score or f"s({rows},k)"
    body = f"s({rows},k) +=! q({rows},d) * keys({lead}k,d)\n"
    if "{score}" not in softmax:
        body += f"x({rows},k) = {score}\n"
    body += softmax.format(r=rows, score=score)
    body += f"o({result or rows},v) +=! p({rows},k) * values({lead}k,v)"
    inputs = {
        "q": f"{dims} Q {depth}", "keys": f"{dims} K {depth}", "values": f"{dims} K {width}",
    }  # fmt: skip
    return Case(name, {**inputs, **(extra or {})}, body, kinds or {})


def sliced(name: str, depth: int, heads: int) -> Case:
    """BERT's: queries, keys and values of all heads side by side in the rows of one tensor."""
    wide = depth * heads
    body = f"""
  s(b,h,i,k) +=! qkv(b, i, h*{depth} + d) * qkv(b, k, {wide} + h*{depth} + d)
      where h in 0:{heads}, d in 0:{depth}, i in 0:n_b, k in 0:n_b
  scaled(b,h,i,k) = s(b,h,i,k) / divisor
  x(b,h,i,k) = scaled(b,h,i,k) + bias(b,k)
  {SOFTMAX.format(r="b,h,i")}
  o(b,i,h,v) +=! p(b,h,i,k) * qkv(b, k, {2 * wide} + h*{depth} + v) where v in 0:{depth}
    """
    inputs = {"qkv": f"B K {3 * wide}", "divisor": "", "bias": "B K"}
    return Case(name, inputs, body)


def grouped(name: str, heads: int, mask: str) -> Case:
    """`heads` heads share keys and values; `mask` has the axes of theirs."""
    shapes = {"i,k": "Q K", "g,i,k": f"{heads} Q K", "k": "K"}
    body = (
        f"s(b,g,i,k) +=! q(b,g,i,d) * keys(b,k,d)\n  x(b,g,i,k) = s(b,g,i,k) * 0.2 + m({mask})"
        + SOFTMAX.format(r="b,g,i")
        + "o(b,g,i,v) +=! p(b,g,i,k) * values(b,k,v)"
    )
    inputs = {"q": f"B {heads} Q 32", "keys": "B K 32", "values": "B K 32", "m": shapes[mask]}
    return Case(name, inputs, body)


CASES = (
    simple("plain"),
    simple("transposed result", result="b,i,h"),
    simple("no batch", rows="i"),
    simple("one batch axis", "s(b,i,k) * 0.125 + bias(b,i,k)", {"bias": "B Q K"}, rows="b,i"),
    simple("merged", "s(b,h,i,k) * 0.2", softmax=MERGED),
    simple("split", "s(b,h,i,k) / 5.0", softmax=SPLIT),
    simple("safe", "s(b,i,k) + bias(b,i,k)", {"bias": "B Q K"}, SAFE, rows="b,i"),
    simple("bias of each head", "s(b,h,i,k) + bias(h,i,k)", {"bias": "H Q K"}),
    simple("causal", "k <= i ? s(b,h,i,k) : -3.4e38", width=20),
    simple(
        "chosen", "on(b,k) ? s(b,h,i,k) : -10000.0", {"on": "B K"}, kinds={"on": boolean},
        depth=20,
    ),
    simple(
        "counted", "s(b,h,i,k) + (1.0 - float(on(b,k))) * -30.0", {"on": "B K"},
        kinds={"on": int64}, depth=64, width=64,
    ),
    simple(
        "looked up", "s(b,h,i,k) + table(bucket(i,k), h)", {"table": "2 H", "bucket": "Q K"},
        kinds={"bucket": int64},
    ),
    simple("narrow", depth=1, width=1),
    simple("unlike", "s(b,h,i,k) * 0.1", depth=80, width=128),
    simple("odd", depth=7, width=33),
    sliced("sliced 32", 32, 3),
    sliced("sliced 20", 20, 2),
    Case(
        "keys as columns",
        {"q": "B Q 24", "keys": "B 24 K", "values": "B K 16"},
        "s(b,i,k) +=! keys(b,d,k) * q(b,i,d)\n  x(b,i,k) = s(b,i,k) * 0.2"
        + SOFTMAX.format(r="b,i")
        + "o(b,i,v) +=! values(b,k,v) * p(b,i,k)",
    ),
    Case(
        "keys of all heads",
        {"q": "B H Q 32", "keys": "B K 32", "values": "B K 32"},
        "s(b,h,i,k) +=! q(b,h,i,d) * keys(b,k,d)\n  x(b,h,i,k) = s(b,h,i,k) * 0.2"
        + SOFTMAX.format(r="b,h,i")
        + "o(b,h,i,v) +=! p(b,h,i,k) * values(b,k,v)",
    ),
    grouped("grouped heads", 3, "i,k"),
    grouped("grouped heads, masks of their own", 2, "g,i,k"),
    grouped("more grouped heads than rows of a tile", 14, "k"),
    Case(
        "one query",
        {"q": "B H 32", "keys": "B H K 32", "values": "B H K 32"},
        "s(b,h,k) +=! q(b,h,d) * keys(b,h,k,d)\n  x(b,h,k) = s(b,h,k) * 0.2"
        + SOFTMAX.format(r="b,h")
        + "o(b,h,v) +=! p(b,h,k) * values(b,h,k,v)",
    ),
)  # fmt: skip
BY_NAME = {case.name: case for case in CASES}
