"""A function of tensors and Python numbers, with the inputs of a call."""

from __future__ import annotations

import linecache
from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch

from tests.torch.functions.nets import Net

Point = Mapping[str, Any]  # the sizes and numbers of a call
NUMBERS = ("i", "j", "s", "flag")
Pair = namedtuple("Pair", ("first", "rest"))
NAMES = MappingProxyType({
    "torch": torch, "F": torch.nn.functional, "math": __import__("math"), "Pair": Pair,
})  # fmt: skip
_RANDOM = ("rand", "drop", "bernoulli", "normal(", "normal_", "multinomial", "uniform", "gumbel",
           "rrelu", "exponential")  # fmt: skip
_files = 0


@dataclass(frozen=True)
class Input:
    """A tensor: its dims (names of sizes, or sizes), its element type and how it lies in memory."""

    name: str
    dims: tuple[str | int, ...]
    dtype: torch.dtype
    layout: str = "plain"


@dataclass(frozen=True)
class Function:
    """A function's text and how it is called."""

    inputs: tuple[Input, ...]
    lines: tuple[str, ...]
    results: tuple[str, ...]
    points: tuple[Point, ...]
    is_recorded: bool = False  # whether gradients are compared
    is_dynamic: bool = True  # dynamic=True, or torch's default
    taken: str = ""  # what holds the inputs: nothing, a list, dict, or pair
    returned: str = ""  # what holds the results, beside None
    is_whole: bool = False  # whether graphs contain sizes and numbers that data decide

    @property
    def numbers(self) -> tuple[str, ...]:
        """The numbers that the function reads."""
        body = "\n".join((*self.lines, *self.results))
        return tuple(name for name in NUMBERS if _reads(body, name))

    def text(self) -> str:
        """The function in Python."""
        names = [each.name for each in self.inputs]
        held = ", ".join(names)
        unpack = {
            "": "", "list": f"{held}, = given",
            "dict": f"{held}, = (given[each] for each in {names})",
            "pair": f"{held}, = given.first, *given.rest[0]",
        }[self.taken]  # fmt: skip
        lines = [line for text in (unpack, *self.lines) for line in text.splitlines()]
        taken = ["given"] if unpack else names
        taken += ["net"] if self.has_net else []
        results = "".join(f"{name}, " for name in self.results)
        first, rest = self.results[0], ", ".join(self.results[1:])
        result = {
            "": f"({results})", "list": f"[{results}None]",
            "dict": f"{{{''.join(f'{name!r}: {name}, ' for name in self.results)}}}",
            "pair": f"Pair({first}, ([{rest}], None))",
        }[self.returned]  # fmt: skip
        head = f"def f({', '.join((*taken, *self.numbers))}):"
        return "\n".join((head, *(f"    {line}" for line in lines), f"    return {result}\n"))

    @property
    def has_net(self) -> bool:
        """Whether the function calls parts of `net`."""
        return _reads("\n".join(self.lines), "net")

    @property
    def is_random(self) -> bool:
        """Whether the function may draw random numbers."""
        return any(word in line for line in self.lines for word in _RANDOM)

    def held(self, tensors: Sequence[torch.Tensor]) -> tuple[Any, ...]:
        """The inputs as the function takes them."""
        if self.taken == "list":
            return (list(tensors),)
        if self.taken == "dict":
            return (dict(zip((each.name for each in self.inputs), tensors)),)
        if self.taken == "pair":
            return (Pair(tensors[0], (list(tensors[1:]), None)),)
        return tuple(tensors)

    def shown(self) -> str:
        """The text, the inputs and the points, for a report."""
        inputs = "\n".join(f"# {each}" for each in self.inputs)
        points = "\n".join(f"# {dict(point)}" for point in self.points)
        how = f"# gradients: {self.is_recorded}, dynamic: {self.is_dynamic}, whole: {self.is_whole}"
        return "\n".join((inputs, points, how, self.text()))

    def made(self) -> Callable[..., Any]:
        """The function, with a source that torch's tracing can read."""
        global _files
        _files += 1
        name, text, names = f"<function {_files}>", self.text(), dict(NAMES)
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
        exec(compile(text, name, "exec"), names)
        made: Callable[..., Any] = names["f"]
        return made


def _reads(body: str, name: str) -> bool:
    return any(name == word for word in _words(body))


def _words(body: str) -> set[str]:
    kept = "".join(char if char.isalnum() or char == "_" else " " for char in body)
    return set(kept.split())


class Applied(torch.nn.Module):
    """A function whose last inputs are parameters of a module."""

    def __init__(self, function: Function) -> None:
        super().__init__()
        self.call, self.function = function.made(), function
        if function.has_net:
            self.net = Net(function.inputs[0].dtype)
        self.names = [each.name for each in function.inputs if each.layout == "weight"]
        self.count = len(function.inputs) - len(self.names)
        for each in function.inputs[self.count :]:
            is_recorded = function.is_recorded and each.dtype.is_floating_point
            made = _values(each.dims, each.dtype, 0)  # type: ignore[arg-type]
            setattr(self, each.name, torch.nn.Parameter(made, requires_grad=is_recorded))

    def forward(self, *arguments: Any) -> Any:
        tensors = [*arguments[: self.count], *(getattr(self, name) for name in self.names)]
        nets = [self.net] if self.function.has_net else []
        return self.call(*self.function.held(tensors), *nets, *arguments[self.count :])

    def net_parameters(self) -> list[torch.nn.Parameter]:
        return list(self.net.parameters()) if self.function.has_net else []

    def net_state(self) -> list[torch.Tensor]:
        return list(self.net.tensors()) if self.function.has_net else []

    def given(self, inputs: Given) -> Given:
        """The inputs of a call, with the parameters, which take their values in place."""
        weights = [getattr(self, name) for name in self.names]
        with torch.no_grad():
            for own, value in zip(weights, inputs.leaves[self.count :]):
                own.as_strided_(value.shape, value.stride())  # a call may have changed its axes
                own.copy_(value)
                own.grad = None
        if self.function.has_net:
            self.net.begin(self.function.is_recorded)
        return Given(
            (*inputs.leaves[: self.count], *weights), (*inputs.tensors[: self.count], *weights)
        )


@dataclass(frozen=True)
class Given:
    """The inputs of one call: leaves that hold the memory, and the tensors that lie there."""

    leaves: tuple[torch.Tensor, ...]
    tensors: tuple[torch.Tensor, ...]


def given(function: Function, point: Point) -> Given:
    """The inputs at a point, the same values at each call."""
    made = [_tensor(each, point, function.is_recorded, place)
            for place, each in enumerate(function.inputs)]  # fmt: skip
    leaves, tensors = [leaf for leaf, _ in made], [tensor for _, tensor in made]
    for place, each in enumerate(function.inputs):
        if each.layout == "same":  # as the first input
            tensors[place] = tensors[0]
        elif each.layout == "view":  # of the first input
            tensors[place] = tensors[0].flip(0) if tensors[0].dim() < 1 else tensors[0][1:]
    return Given(tuple(leaves), tuple(tensors))


def _tensor(
    each: Input, point: Point, is_recorded: bool, place: int
) -> tuple[torch.Tensor, torch.Tensor]:
    shape = tuple(dim if isinstance(dim, int) else int(point[dim]) for dim in each.dims)
    laid, take = _LAYOUTS[each.layout](shape)
    leaf = _values(laid, each.dtype, 17 * place + sum(shape) + point["n"])
    if is_recorded and (each.dtype.is_floating_point or each.dtype.is_complex):
        leaf.requires_grad_()
        return leaf, take(leaf * 1)  # in-place operators refuse leaves
    return leaf, take(leaf)


@torch.library.custom_op("anydim_functions::tripled", mutates_args=())
def tripled(x: torch.Tensor) -> torch.Tensor:
    """An operator without a row."""
    return x * 3


@tripled.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return x * 3


tripled.register_autograd(lambda _, gradient: gradient * 3)


def _values(shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> torch.Tensor:
    """Multiples of 1/4 from -2 to 2, whole numbers from -4 to 4, or booleans."""
    made = torch.randint(-8, 9, shape, generator=torch.Generator().manual_seed(seed))
    if dtype.is_complex:
        return torch.complex(made / 4, made.roll(1) / 4).to(dtype)
    if dtype.is_floating_point:
        return made.to(dtype) / 4
    return made > 0 if dtype == torch.bool else (made // 2).to(dtype)


Taking = Callable[[torch.Tensor], torch.Tensor]


def _transposed(shape: tuple[int, ...]) -> tuple[tuple[int, ...], Taking]:
    return shape[::-1], lambda leaf: leaf.permute(*range(leaf.dim())[::-1])


def _cut(shape: tuple[int, ...]) -> tuple[tuple[int, ...], Taking]:
    def take(leaf: torch.Tensor) -> torch.Tensor:
        for axis, size in enumerate(shape):
            leaf = leaf.narrow(axis, 1, size)
        return leaf

    return tuple(size + 2 for size in shape), take


def _strided(shape: tuple[int, ...]) -> tuple[tuple[int, ...], Taking]:
    return (*shape[:-1], 2 * shape[-1]), lambda leaf: leaf[..., ::2]


def _gaps(shape: tuple[int, ...]) -> tuple[tuple[int, ...], Taking]:
    return (3 * shape[0], *shape[1:]), lambda leaf: leaf[::3]


def _expanded(shape: tuple[int, ...]) -> tuple[tuple[int, ...], Taking]:
    return (1, *shape[1:]), lambda leaf: leaf.expand(shape)


def _plain(shape: tuple[int, ...]) -> tuple[tuple[int, ...], Taking]:
    return shape, lambda leaf: leaf


_LAYOUTS: Mapping[str, Callable[[tuple[int, ...]], tuple[tuple[int, ...], Taking]]] = {
    "plain": _plain, "transposed": _transposed, "cut": _cut, "strided": _strided, "gaps": _gaps,
    "expanded": _expanded, "same": _plain, "view": _plain, "weight": _plain,
}  # fmt: skip
