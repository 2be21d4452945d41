"""Draws functions: lines are drawn from templates, and kept where eager torch runs them."""

from __future__ import annotations

import random
import warnings
from dataclasses import replace
from typing import Any

import torch

from tests.torch.functions.function import NAMES, NUMBERS, Function, Input, Point, given
from tests.torch.functions.nets import Net
from tests.torch.functions.templates import (
    ATTENTION,
    CHANGES,
    COMPLEX,
    FUNCTIONS,
    IN_TORCH,
    MODULE_CHANGES,
    NUMBER_TEXTS,
    OF_MODULES,
    PLACES,
    RANDOM,
    RANDOM_CHANGES,
    SIZE_TEXTS,
    TIED,
    VALUES,
    VIEWS,
)

_TRIES, _MOST_ELEMENTS = 12, 3000
_FLOATS = (torch.float64, torch.float64, torch.float64, torch.float32, torch.bfloat16,
           torch.float16)  # fmt: skip
_INTEGERS = (torch.int64, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
_LAYOUTS = ("plain", "plain", "plain", "transposed", "cut", "strided", "gaps", "expanded")
_CONSTANTS = {
    "int": "torch.tensor([0, 1])", "bool": "torch.tensor([True, False, True])",
    "complex": "torch.tensor([1j, 2, -1])",
}  # fmt: skip
_HOLDERS = ("", "", "", "", "list", "dict", "pair")
_DIMS = (("n", "m"), ("n", "m"), ("m", "n"), ("n",), ("m",), ("n", "m", 3), (2, "n"), ("n", 1), ())


def random_function(seed: int) -> Function:
    """The function of a seed."""
    return _Writer(random.Random(seed)).function()


class _Writer:
    """Draws one function; `states` are its variables at the first points."""

    def __init__(self, source: random.Random) -> None:
        self.random = source
        self.count = 0

    def function(self) -> Function:
        is_recorded = self.random.random() < 0.35
        inputs, points = self.inputs(is_recorded), self.points()
        function = Function(inputs, (), (), points, is_recorded, self.random.random() < 0.7)
        self.values, self.changes = VALUES if is_recorded else VALUES + TIED, CHANGES
        self.names = {**NAMES, "net": Net(inputs[0].dtype)}
        if any(each.dtype.is_complex for each in inputs):
            self.values += 3 * COMPLEX
        for chance, own, changes in (
            (0.25, 8 * OF_MODULES, 4 * MODULE_CHANGES), (0.25, 4 * RANDOM, 4 * RANDOM_CHANGES),
            (0.3, 8 * PLACES, ()), (0.3, 8 * IN_TORCH, ()), (0.2, 8 * ATTENTION, ()),
            (0.5, 2 * FUNCTIONS, ()),
        ):  # fmt: skip
            if self.random.random() < chance:
                self.values, self.changes = self.values + own, self.changes + changes
        self.states = [_state(function, point) for point in points[:2]]
        lines: list[str] = []
        for _ in range(self.random.randint(2, 9)):
            lines += self.line()
        is_whole = self.random.random() < 0.3
        taken, returned = (self.random.choice(_HOLDERS) for _ in range(2))
        return replace(function, lines=tuple(lines), results=self.results(),
                       taken=taken, returned=returned, is_whole=is_whole)  # fmt: skip

    # ---- inputs ----------------------------------------------------------------------------------

    def inputs(self, is_recorded: bool) -> tuple[Input, ...]:
        dtype = torch.float64 if is_recorded else self.random.choice(_FLOATS)
        drawn = []
        for place, name in enumerate(("x", "y", "z")[: self.random.randint(1, 3)]):
            layout = self.random.choice(_LAYOUTS)
            dims = self.random.choice(_DIMS)
            if place and self.random.random() < 0.15:
                layout, dims = self.random.choice(("same", "view")), drawn[0].dims
            drawn.append(Input(name, dims, dtype, layout if dims else "plain"))
        weights = [Input("p", self.random.choice(((3,), (1,), (), (3, 3))), dtype, "weight")]
        if self.random.random() < 0.5:
            kind = self.random.choice(_INTEGERS)
            drawn.append(Input("k", self.random.choice(_DIMS[:5]), kind))
        if self.random.random() < 0.2:
            kind = torch.complex64 if dtype == torch.float32 else torch.complex128
            layout = self.random.choice(("plain", "plain", "transposed", "cut"))
            drawn.append(Input("c", self.random.choice(_DIMS[:5]), kind, layout))
        if self.random.random() < 0.3:
            drawn.append(Input("b", self.random.choice(_DIMS[:5]), torch.bool))
        return tuple(drawn + weights if self.random.random() < 0.3 else drawn)

    def points(self) -> tuple[Point, ...]:
        """Two common points, then others: equal sizes, 1, 0, signs and zeros of numbers."""
        first = {"n": 4, "m": 3, "i": 2, "j": 3, "s": 1.5, "flag": True}
        drawn: list[Point] = [first, {**first, "n": 5, "m": 6, "i": 3, "s": -0.25, "flag": False}]
        for _ in range(4):
            drawn.append({
                "n": self.random.choice((0, 1, 2, 3, 5, 7, 8, 9)),
                "m": self.random.choice((0, 1, 2, 3, 5, 6, 8, 16, 17)),
                "i": self.random.choice((-3, -2, -1, 0, 1, 2, 5, 9)),
                "j": self.random.choice((-4, -1, 0, 1, 2, 3, 100)),
                "s": self.random.choice((-1.5, -1.0, -0.0, 0.25, 2.0, 7.5)),
                "flag": self.random.random() < 0.5,
            })  # fmt: skip
        return tuple(drawn)

    # ---- lines -----------------------------------------------------------------------------------

    def line(self) -> list[str]:
        """A line that eager torch runs at the first points; none if no try is one."""
        for _ in range(_TRIES):
            text = self.drawn()
            if self.runs(text):
                return [text]
        return []

    def drawn(self) -> str:
        kind = self.random.choices(
            ("value", "view", "change", "number", "choice", "loop", "scope"), (8, 6, 5, 2, 1, 1, 1)
        )[0]
        self.count += 1
        if kind == "number":
            return f"q{self.count} = {self.filled(self.random.choice(NUMBER_TEXTS))}"
        if kind == "change":
            return self.filled(self.random.choice(self.changes))
        name = f"v{self.count}"
        if kind == "choice":
            test = self.filled(self.random.choice(("{n} > 2", "{s} > 0", "flag", "{n} % 2 == 0")))
            return f"{name} = {self.expression()} if {test} else {self.expression()}"
        if kind == "loop":
            step = self.filled("{t} * q + {t}").replace("{q}", "q")
            return f"{name} = {self.tensor()}\nfor q in range({{}}):\n    {name} = {step}".format(
                self.random.choice(("2", "3", self.filled("{n} % 3")))
            )
        if kind == "scope":
            scope = self.random.choice(("no_grad()", "autocast('cpu', torch.bfloat16)"))
            return f"with torch.{scope}:\n    {name} = {self.expression()}"
        return f"{name} = {self.expression(VIEWS if kind == 'view' else self.values)}"

    def expression(self, templates: tuple[str, ...] | None = None) -> str:
        if templates is None:
            templates = self.random.choice((self.values, VIEWS))
        return self.filled(self.random.choice(templates))

    def filled(self, template: str) -> str:
        """A template with its places filled: {t} {f} {k} {b} tensors, {n} {s} numbers, {d} axes."""
        fills = {"t": self.tensor, "f": lambda: self.tensor("float"), "n": self.integer,
                 "k": lambda: self.tensor("int"), "b": lambda: self.tensor("bool"),
                 "c": lambda: self.tensor("complex"), "s": self.scalar, "d": self.axis}  # fmt: skip
        for letter, fill in fills.items():
            while f"{{{letter}}}" in template:
                template = template.replace(f"{{{letter}}}", fill(), 1)
        return template

    def tensor(self, kind: str = "") -> str:
        names = [name for name, value in self.states[0].items()
                 if isinstance(value, torch.Tensor) and _is(value, kind)]  # fmt: skip
        if not names:
            return _CONSTANTS.get(kind, "torch.ones(3)")
        return self.random.choice(names if self.random.random() < 0.5 else names[-3:])

    def integer(self) -> str:
        names = [name for name, value in self.states[0].items() if type(value) is int]
        if self.random.random() < 0.3:
            return str(self.random.choice((-2, -1, 0, 1, 2, 3)))
        if self.random.random() < 0.4:
            return self.random.choice(SIZE_TEXTS).replace("{t}", self.tensor())
        form = self.random.choice(("{}", "{}", "-{}", "({} - 1)", "({} // 2)", "{} % 3"))
        return form.format(self.random.choice(names))

    def scalar(self) -> str:
        names = [name for name, value in self.states[0].items() if type(value) in (int, float)]
        constants = ("2", "0.5", "-1", "1e-3", "True")
        if self.random.random() < 0.4:
            return self.random.choice(constants)
        return self.random.choice(names)

    def axis(self) -> str:
        return str(self.random.choice((0, 0, -1, -1, 1, 2)))

    def results(self) -> tuple[str, ...]:
        """Some variables, the last one among them."""
        drawn = list(self.states[0])[len(NUMBERS) :]
        count = self.random.randint(1, 4)
        picked = {drawn[-1], *self.random.choices(drawn[-6:], k=count)}
        return tuple(name for name in drawn if name in picked)

    def runs(self, text: str) -> bool:
        """Whether eager torch runs the text at the first points; their variables then have it."""
        states = [dict(state) for state in self.states]
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for state in states:
                    exec(text, dict(self.names), state)
        except Exception:
            return False
        if not all(_is_kept(value) for state in states for value in state.values()):
            return False
        self.states = states
        return True


def _state(function: Function, point: Point) -> dict[str, Any]:
    numbers = {name: point[name] for name in NUMBERS}
    names = (each.name for each in function.inputs)
    return numbers | dict(zip(names, given(function, point).tensors))


def _is(value: torch.Tensor, kind: str) -> bool:
    if kind == "bool":
        return value.dtype == torch.bool
    if kind == "float":
        return value.is_floating_point()
    if kind == "complex":
        return value.is_complex()
    return not kind or value.dtype in _INTEGERS


def _is_kept(value: Any) -> bool:
    """Whether a value is small, and of a kind that is compared."""
    if isinstance(value, torch.Tensor):
        return value.numel() <= _MOST_ELEMENTS
    return isinstance(value, (int, float)) and abs(value) < 1 << 40
