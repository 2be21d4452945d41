"""Small kernels for the tests of targets, and running them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy

from anydim.base.dtypes import DType, boolean, uint8
from anydim.compiler.kernels import ir
from anydim.compiler.targets.run import launch
from anydim.lang.functions import FUNCTIONS

START, STOP = ir.Var(ir.INDEX, "start"), ir.Var(ir.INDEX, "stop")


def number(value: int) -> ir.Const:
    """An index constant."""
    return ir.Const(ir.INDEX, value)


def index(name: str) -> ir.Var:
    return ir.Var(ir.INDEX, name)


def op(function: str, *arguments: ir.Value) -> ir.Op:
    """An Op of the type its function gives."""
    kind = arguments[-1].type
    row = FUNCTIONS.get(function)
    if row is not None and row.result == "bool":
        kind = ir.Type(boolean, kind.lanes)
    return ir.Op(kind, function, arguments)


def loop(name: str, start: ir.Value, stop: ir.Value, *body: ir.Step, step: int = 1) -> ir.For:
    return ir.For(name, start, stop, number(step), body)


def kernel(
    operands: Sequence[ir.Operand],
    body: Sequence[ir.Step],
    sizes: Sequence[str] = (),
    others: Sequence[ir.Function] = (),
    libraries: Sequence[ir.Library] = (),
    name: str = "test_kernel",
) -> ir.Kernel:
    """A kernel whose main has this body."""
    parameters = (
        *(ir.Pointer(o.name, o.dtype) for o in operands),
        *(ir.Scalar(s) for s in sizes),
        ir.Scalar("start"),
        ir.Scalar("stop"),
        ir.Pointer("scratch", uint8),
    )
    main = ir.Function("main", parameters, tuple(body))
    return ir.Kernel(name, tuple(operands), tuple(sizes), (*others, main), tuple(libraries))


def elementwise(
    functions: Sequence[str], dtype: DType, lanes: int, arity: int, condition: bool = False
) -> ir.Kernel:
    """y0 = f0(x0, x1, ...), y1 = f1(x0, ...) and so on, over start:stop, whole vectors only."""
    kinds = [dtype] * arity
    if condition:
        kinds[0] = boolean
    inputs = [ir.Operand(f"x{n}", kind) for n, kind in enumerate(kinds)]
    loads = tuple(ir.Load(ir.Type(o.dtype, lanes), o.name, index("i")) for o in inputs)
    values = [op(f, *loads) for f in functions]
    outputs = [ir.Operand(f"y{n}", v.type.dtype, True) for n, v in enumerate(values)]
    stores = [ir.Store(o.name, index("i"), v) for o, v in zip(outputs, values)]
    return kernel([*inputs, *outputs], [loop("i", START, STOP, *stores, step=lanes)])


def apply(
    functions: Sequence[str], dtype: DType, *inputs: numpy.ndarray, lanes: int = 4
) -> list[numpy.ndarray]:
    """Each function on whole arrays, through compiled code."""
    count = len(inputs[0])
    padded = -(-count // lanes) * lanes
    arrays = [numpy.concatenate([x, x[:1].repeat(padded - count)]) for x in inputs]
    condition = arrays[0].dtype == numpy.bool_ and dtype != boolean
    built = elementwise(functions, dtype, lanes, len(inputs), condition)
    outputs = [numpy.empty(padded, o.dtype.numpy) for o in built.operands if o.written]
    launch(built, [*arrays, *outputs], [], 0, padded)
    return [out[:count] for out in outputs]
