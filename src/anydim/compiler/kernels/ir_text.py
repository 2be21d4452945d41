"""Prints loop IR: one line per statement, expressions in infix form.

kernel softmax(x: float32, y: float32 out; rows, cols)
  for r in start:stop
    top := -inf.float32x8
    for c in 0:cols step 8
      top <- max(top, x[r*cols + c : 8])
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from anydim.base.text import fold_lines
from anydim.compiler.kernels import ir
from anydim.lang.functions import FUNCTIONS
from anydim.sizes import Size, SizeNames

_INDENT = "  "
_PER_ROW = 16  # numbers of a table in a line
_MOST_SHOWN = 6  # values of one parameter that are listed


def print_kernel(kernel: ir.Kernel, launches: Iterable[Sequence[Size]] = ()) -> str:
    """A kernel with its functions; functions of libraries are only named.

    `launches` holds the sizes of each launch of the kernel; they give the values of its parameters.
    """
    operands = ", ".join(
        f"{o.name}: {o.dtype}{' out' if o.written else ''}" for o in kernel.operands
    )
    head = f"kernel {kernel.name}({operands}; {', '.join(kernel.sizes)})"
    lines = fold_lines(head).split("\n")
    if kernel.group:
        lines.append(f"{_INDENT}in groups of {kernel.group}")
    lines += [f"{_INDENT}{a.name} = local {a.dtype}[{a.count}]" for a in kernel.locals]
    lines += fold_lines("\n".join(_INDENT + p for p in _parameters(kernel, launches))).splitlines()
    lines += [f"{_INDENT}uses library {library.name}" for library in kernel.libraries]
    for function in kernel.functions:
        lines += [_INDENT + line for line in print_function(function).splitlines()]
    return "\n".join(lines)


def print_library(library: ir.Library) -> str:
    """A module of functions; public functions are marked."""
    lines = [f"module {library.name}"]
    for function in library.functions:
        text = print_function(function)
        lines += [_INDENT + line for line in text.splitlines()]
        if function.public:
            lines[-len(text.splitlines())] += "  # public"
    return "\n".join(lines)


def _parameters(kernel: ir.Kernel, launches: Iterable[Sequence[Size]]) -> Iterator[str]:
    """`p0 = seq`, or `p0 = seq, 4*seq or 384` where launches differ, after names of sizes."""
    values = {name: list(dict.fromkeys(sizes)) for name, sizes in zip(kernel.sizes, zip(*launches))}
    few = {n: v[: _MOST_SHOWN - (len(v) > _MOST_SHOWN)] for n, v in values.items()}
    names = SizeNames(size for sizes in few.values() for size in sizes)
    yield from names.lines()
    for name, sizes in few.items():
        shown = list(map(names.text, sizes))
        if len(values[name]) > len(sizes):
            shown.append(f"{len(values[name]) - len(sizes)} others")
        either = " or ".join(filter(None, (", ".join(shown[:-1]), shown[-1])))
        yield f"{name} = {either}"


def print_function(function: ir.Function) -> str:
    """One function."""
    result = f" -> {function.result}" if function.result is not None else ""
    head = f"function {function.name}({', '.join(map(_parameter, function.parameters))}){result}"
    return "\n".join([fold_lines(head), *(_INDENT + line for line in _steps(function.body))])


def print_value(node: ir.Value) -> str:
    """An expression."""
    return _VALUES[type(node)](node)


def _parameter(parameter: ir.Pointer | ir.Scalar) -> str:
    if isinstance(parameter, ir.Pointer):
        return f"{parameter.name}: {'alias ' if parameter.alias else ''}*{parameter.dtype}"
    return parameter.name if parameter.type == ir.INDEX else f"{parameter.name}: {parameter.type}"


def _location(node: ir.Load | ir.Store, lanes: int) -> str:
    span = f" : {lanes}" if lanes > 1 else ""
    if isinstance(node, ir.Store) and node.nontemporal:
        span += " past"
    where = f" if {print_value(node.mask)}" if node.mask is not None else ""
    return f"{node.buffer}[{print_value(node.offset)}{span}{where}]"


def _at(node: ir.LoadAt | ir.StoreAt, kind: ir.Type) -> str:
    """An element at an address, `block.at[3]`; the type is printed unless it is int64."""
    where = "at" if kind == ir.INDEX else f"at.{kind}"
    return f"{_inner(node.address)}.{where}[{print_value(node.offset)}]"


def _const(node: ir.Const) -> str:
    return f"{node.value}" if node.type == ir.INDEX else f"{node.value}.{node.type}"


def _op(node: ir.Op) -> str:
    row = FUNCTIONS.get(node.function)
    parts = [_inner(a) for a in node.arguments]
    if row is not None and row.operator and len(parts) == 2:
        return f"{parts[0]} {row.operator} {parts[1]}"
    if row is not None and row.operator and len(parts) == 1:
        return f"{row.operator}{parts[0]}"
    return f"{node.function}({', '.join(map(print_value, node.arguments))})"


def _inner(node: ir.Value) -> str:
    row = FUNCTIONS.get(node.function) if isinstance(node, ir.Op) else None
    text = print_value(node)
    return f"({text})" if row is not None and row.operator and len(row.operator) < 3 else text


def _gather(node: ir.Gather) -> str:
    where = f" if {print_value(node.mask)}" if node.mask is not None else ""
    return f"{node.buffer}[[{print_value(node.offsets)}{where}]]"


def _shuffle(node: ir.Shuffle) -> str:
    lanes = " ".join(map(str, node.lanes))
    return f"shuffle({print_value(node.left)}, {print_value(node.right)}; {lanes})"


_VALUES: dict[type, Callable[[Any], str]] = {
    ir.Const: _const,
    ir.Var: lambda node: node.name,
    ir.Get: lambda node: node.name,
    ir.Op: _op,
    ir.Convert: lambda node: f"{node.type}({print_value(node.argument)})",
    ir.Bitcast: lambda node: f"bits {node.type}({print_value(node.argument)})",
    ir.Load: lambda node: _location(node, node.type.lanes),
    ir.Gather: _gather,
    ir.Splat: lambda node: f"splat({print_value(node.argument)})",
    ir.Iota: lambda node: f"iota.{node.type}",
    ir.Reduce: lambda node: f"reduce {node.function}({print_value(node.argument)})",
    ir.Shuffle: _shuffle,
    ir.Permute: lambda node: (
        f"permute({', '.join(map(print_value, (node.left, node.right, node.places)))})"
    ),
    ir.Extract: lambda node: f"lane {node.lane} of {_inner(node.argument)}",
    ir.Address: lambda node: f"&{node.buffer}[{print_value(node.offset)}]",
    ir.LoadAt: lambda node: _at(node, node.type),
    ir.Item: lambda node: "item",
}


def _rows(step: ir.Table) -> Iterator[str]:
    for start in range(0, len(step.numbers), _PER_ROW):
        yield _INDENT + " ".join(map(str, step.numbers[start : start + _PER_ROW]))


def _steps(steps: tuple[ir.Step, ...]) -> Iterator[str]:
    for step in steps:
        yield from _STEPS[type(step)](step)


def _block(steps: tuple[ir.Step, ...]) -> Iterator[str]:
    return (_INDENT + line for line in _steps(steps))


def _for(step: ir.For) -> Iterator[str]:
    span = f"{print_value(step.start)}:{print_value(step.stop)}"
    one = isinstance(step.step, ir.Const) and step.step.value == 1
    by = "" if one else f" step {print_value(step.step)}"
    yield f"for {step.variable} in {span}{by}" + (" unrolled" if step.unrolled else "")
    yield from _block(step.body)


def _while(step: ir.While) -> Iterator[str]:
    yield f"while {print_value(step.condition)}"
    yield from _block(step.body)


def _if(step: ir.If) -> Iterator[str]:
    yield f"if {'seldom ' if step.rare else ''}{print_value(step.condition)}"
    yield from _block(step.then)
    if step.otherwise:
        yield "else"
        yield from _block(step.otherwise)


def _switch(step: ir.Switch) -> Iterator[str]:
    yield f"switch {print_value(step.value)}"
    for number, body in step.cases:
        yield f"{_INDENT}case {number}"
        yield from (_INDENT + line for line in _block(body))


def _result_text(result: ir.Var | None) -> str:
    return f"{result.name} = " if result is not None else ""


def _call(step: ir.Call) -> Iterator[str]:
    called = step.function
    function = called if isinstance(called, str) else f"call {_inner(called)}"
    yield f"{_result_text(step.result)}{function}({', '.join(map(print_value, step.arguments))})"


def _return(step: ir.Return) -> Iterator[str]:
    yield "return" if step.value is None else f"return {print_value(step.value)}"


def _atomic(step: ir.Atomic) -> Iterator[str]:
    arguments = ", ".join(map(print_value, (step.address, *step.arguments)))
    yield f"{_result_text(step.result)}atomic {step.operation}({arguments})"


def _prefetch(step: ir.Prefetch) -> Iterator[str]:
    purpose = "write" if step.write else "read far" if step.far else "read"
    yield f"prefetch {purpose} {step.buffer}[{print_value(step.offset)}]"


def _fragments(step: ir.Fragments) -> Iterator[str]:
    left, right = (", ".join(map(print_value, values)) for values in (step.left, step.right))
    yield f"{', '.join(step.sums)} += {step.dtype} [{left}] @ [{right}]"


def _copy_aside(step: ir.CopyAside) -> Iterator[str]:
    to = f"{step.buffer}[{print_value(step.offset)} : {step.count}]"
    source = f"{step.source}[{print_value(step.source_offset)} : {print_value(step.valid)}]"
    yield f"{to} = aside {step.dtype} {source}"


def _copy_wide(step: ir.CopyWide) -> Iterator[str]:
    to = f"{step.buffer}[{print_value(step.offset)} : {step.count}]"
    yield f"{to} = wide {step.dtype} {step.source}[{print_value(step.source_offset)}]"


def _tile_memory(step: ir.TileMemory) -> Iterator[str]:
    location = f"{step.buffer}[{print_value(step.offset)} by {print_value(step.row)}]"
    yield f"{location} = tile {step.tile}" if step.store else f"tile {step.tile} = {location}"


_STEPS: dict[type, Callable[[Any], Iterator[str]]] = {
    ir.Let: lambda step: iter([f"{step.name} = {print_value(step.value)}"]),
    ir.Declare: lambda step: iter([f"{step.name} := {print_value(step.value)}"]),
    ir.Assign: lambda step: iter([f"{step.name} <- {print_value(step.value)}"]),
    ir.Store: lambda step: iter(
        [f"{_location(step, step.value.type.lanes)} = {print_value(step.value)}"]
    ),
    ir.Stack: lambda step: iter([f"{step.name} = stack {step.dtype}[{step.count}]"]),
    ir.Table: lambda step: iter([f"{step.name} = table int32[{len(step.numbers)}]", *_rows(step)]),
    ir.Prefetch: _prefetch,
    ir.For: _for,
    ir.While: _while,
    ir.If: _if,
    ir.Switch: _switch,
    ir.Call: _call,
    ir.Return: _return,
    ir.StoreAt: lambda step: iter([f"{_at(step, step.value.type)} = {print_value(step.value)}"]),
    ir.Atomic: _atomic,
    ir.Fence: lambda step: iter(["fence"]),
    ir.Pause: lambda step: iter(["pause"]),
    ir.Barrier: lambda step: iter(["barrier"]),
    ir.Fragments: _fragments,
    ir.WarpExchange: lambda step: iter(
        [f"{step.name} = {print_value(step.value)} of work-item ^ {step.distance}"]
    ),
    ir.CopyWide: _copy_wide,
    ir.CopyAside: _copy_aside,
    ir.CopiesEnd: lambda step: iter(["end of copies"]),
    ir.CopiesWait: lambda step: iter([f"wait for copies but {step.left}"]),
    ir.Tiles: lambda step: iter(["tiles" if step.wanted else "no tiles"]),
    ir.TileZero: lambda step: iter([f"tile {step.tile} = 0"]),
    ir.TileMemory: _tile_memory,
    ir.TileDots: lambda step: iter(
        [f"tile {step.sums} += {step.left} . {step.right} {'us' if step.unsigned else 'su'}"]
    ),
    ir.TilePairs: lambda step: iter([f"tile {step.sums} += {step.left} . {step.right} bfloat16"]),
}
