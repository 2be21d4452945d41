"""Attentions as definitions of the language, and how to run one at some sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from anydim.base.dtypes import DType, float32, float64
from anydim.kernels.attention import TEMPLATE
from anydim.kernels.launch import Launch, Machine
from anydim.lang.evaluate import evaluate
from anydim.lang.instantiate import instantiate
from anydim.lang.parser import parse_definition
from anydim.lang.tree import Group, TensorType
from anydim.sizes import Box, Dim, as_size
from anydim.targets.llvm.run import call

SOFTMAX = """
  top({rows}) max=! x({rows}, k)
  e({rows}, k) = exp(x({rows}, k) - top({rows}))
  total({rows}) +=! e({rows}, k)
  p({rows}, k) = e({rows}, k) / total({rows})
"""


@dataclass(frozen=True)
class Case:
    """`inputs` are parameters as written in the text, `shapes` their shapes in the dims."""

    inputs: str
    shapes: tuple[str, ...]
    body: str
    kinds: Mapping[int, DType] = field(default_factory=dict)
    most_keys: int = 512

    def box(self) -> Box:
        """Dims B, H, Q and K; key blocks are needed when K may be above 512."""
        dims = [Dim(name, 0, 2000) for name in ("B", "H", "Q")]
        return Box.of(*dims, Dim("K", 0, self.most_keys))

    def group(self) -> Group:
        """The statements as a group."""
        text = f"def attention({self.inputs}) -> (o) {{ {self.body} }}"
        types = [
            TensorType(self.kinds.get(n, float32), tuple(as_size(s) for s in shape.split()))
            for n, shape in enumerate(self.shapes)
        ]
        return instantiate(parse_definition(text), types, box=self.box())

    def arrays(self, sizes: Mapping[str, int], scale: float = 1.0) -> list[np.ndarray]:
        """Random inputs."""
        random = np.random.default_rng(sum(sizes.values()))
        made = []
        for n, shape in enumerate(self.shapes):
            extents = [as_size(s).evaluate(sizes) for s in shape.split()]
            kind = self.kinds.get(n, float32)
            values = random.standard_normal(extents) * scale
            made.append((values > 0).astype(kind.numpy) if kind != float32 else values)
        return [a.astype(np.float32) if a.dtype == np.float64 else a for a in made]


def launch_of(case: Case, machine: Machine, **options: int) -> Launch:
    """The launch of a case, with a schedule changed by `options`."""
    from dataclasses import replace

    group, box = case.group(), case.box()
    schedule = TEMPLATE.match(group, box, machine, frozenset())
    assert schedule is not None
    return TEMPLATE.lower(group, replace(schedule, **options), box, machine, frozenset())


def expected(case: Case, arrays: list[np.ndarray], sizes: Mapping[str, int]) -> np.ndarray:
    """The result in float64."""
    group = case.group()
    tensors = {t.name: a for t, a in zip(group.inputs, arrays)}
    with np.errstate(all="ignore"):
        return evaluate(group, tensors, sizes, precision=float64)["o"]


def run(
    launch: Launch, address: int, case: Case, arrays: list[np.ndarray], sizes: Mapping[str, int]
) -> np.ndarray:
    """The result of the compiled kernel; every element is NaN before."""
    group = case.group()
    tensors = {t.name: a for t, a in zip(group.inputs, arrays)}
    shape = tuple(s.evaluate(sizes) for s in group.outputs[0].type.shape)
    result = np.full(shape, np.nan, np.float32)
    tensors[group.outputs[0].name] = result
    call(
        address,
        [tensors[a.tensor] for a in launch.arguments],
        [s.evaluate(sizes) for s in launch.sizes],
        0,
        launch.parallel.evaluate(sizes),
        launch.scratch.evaluate(sizes),
    )
    return result


def _batched(rows: str, score: str, inputs: str, shapes: tuple[str, ...], **options) -> Case:  # type: ignore[no-untyped-def]
    body = f"s({rows}, k) +=! q({rows}, d) * key({rows.replace('i', 'k')}, d)\n  {score}"
    body += SOFTMAX.format(rows=rows)
    body += f"o({rows}, v) +=! p({rows}, k) * value({rows.replace('i', 'k')}, v)"
    return Case(inputs, shapes, body, **options)


PLAIN = _batched(
    "b,h,i",
    "x(b,h,i,k) = s(b,h,i,k)",
    "float(B,H,Q,D) q, float(B,H,K,D) key, float(B,H,K,V) value",
    ("B H Q 32", "B H K 32", "B H K 32"),
)


def heads(depth: int, number: int = 12, **options) -> Case:  # type: ignore[no-untyped-def]
    """BERT's: heads side by side in the rows of one tensor of queries, keys and values."""
    wide = depth * number
    body = f"""
  s(b,h,i,k) +=! qkv(b, i, h*{depth} + d) * qkv(b, k, {wide} + h*{depth} + d)
      where h in 0:{number}, d in 0:{depth}, i in 0:K, k in 0:K
  scaled(b,h,i,k) = s(b,h,i,k) / divisor
  x(b,h,i,k) = scaled(b,h,i,k) + bias(b,k)
  """
    body += SOFTMAX.format(rows="b,h,i")
    body += f"""
  o(b,i,h,v) +=! p(b,h,i,k) * qkv(b, k, {2 * wide} + h*{depth} + v)
      where v in 0:{depth}
    """
    return Case(
        "float(B,K,W) qkv, float divisor, float(B,K) bias",
        (f"B K {3 * wide}", "", "B K"),
        body,
        **options,
    )
