"""Random recurrences in the language; each tensor's type is known, for it was drawn first.

The law: a program with declared types equals the program with inferred ones, bit for bit, and the
inferred types are those that were drawn. Some are compiled as well.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes  # noqa: F401  numpy knows bfloat16
import numpy as np

import anydim as ad
from anydim.base.dtypes import DTYPES
from anydim.lang.meaning.evaluate import evaluate
from anydim.lang.resolve.instantiate import instantiate
from anydim.lang.surface.parser import parse_definition
from anydim.lang.surface.syntax import Definition
from anydim.lang.tree import Group, TensorType
from anydim.lang.tree.typing import promote
from anydim.sizes import Box, Dim, as_size
from tests.fuzz.runner import Outcome, run_texts

FLOATS = ("float64", "float32", "float16", "bfloat16")
SIGNED, UNSIGNED = ("int64", "int32", "int16", "int8"), ("uint64", "uint32", "uint16", "uint8")
TYPES = (*FLOATS, *SIGNED, *UNSIGNED)
NARROW = ("float16", "bfloat16")
# of results: the order of sums may differ, and the narrowest tensor on the way rounds
SHARES = {"float64": 1e-9, "float32": 1e-4, "float16": 3e-2, "bfloat16": 2e-1}
COMPILED = 0.1  # of the programs
SIZES = (0, 1, 2, 5)
WIDTH = 3


def meets(left: str, right: str) -> str:
    """The common type of two."""
    return promote([DTYPES[left], DTYPES[right]]).name


@dataclass
class Drawn:
    """A program; `inputs` are the types of its parameters, `tensors` those of what it writes."""

    inputs: dict[str, str] = field(default_factory=dict)
    tensors: dict[str, str] = field(default_factory=dict)
    results: list[str] = field(default_factory=list)
    dims: str = "N"
    body: str = ""

    def text(self, declared: bool = False) -> str:
        """The definition; with `declared` its tensors are parameters that are written."""
        given = {**self.inputs, **(self.tensors if declared else {})}
        head = ", ".join(f"{dtype}({self.dims}) {name}" for name, dtype in given.items())
        return f"def f({head}) -> ({', '.join(self.results)}) {{\n{self.body}\n}}"


class Writer:
    """Draws one program: tensors that read each other in a loop, all of one type."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.dtype = self.random.choice(TYPES)
        self.drawn = Drawn({name: self.random.choice(TYPES) for name in "ab"})
        self.drawn.inputs |= {"x": self.dtype, "m": "bool"}
        self.wide = self.random.random() < 0.35  # every iteration writes a row
        self.drawn.dims = "N, C" if self.wide else "N"
        self.back = self.random.random() < 0.35
        self.names = list("ywv"[: self.random.choice((1, 1, 2, 2, 3))])
        self.before: list[str] = []

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def at(self, tensor: str, place: str = "t") -> str:
        return f"{tensor}({place}, c)" if self.wide else f"{tensor}({place})"

    # ---- values ----------------------------------------------------------------------------------

    def number(self) -> str:
        return str(self.random.randint(0, 9))

    def below(self) -> str:
        """A value whose type gives way to the program's."""
        inputs = self.drawn.inputs
        fitting = [n for n in "abx" if meets(inputs[n], self.dtype) == self.dtype]
        choices = [self.number(), *(self.at(name) for name in fitting)]
        if self.dtype in (*FLOATS, "int64"):
            choices.append(self.random.choice(("t", "N")))
        return self.random.choice(choices)

    def start(self) -> str:
        """What an iteration has in place of one before it."""
        return self.number() if self.chance(0.5) else self.below()

    def read(self, tensor: str, guarded: bool = True) -> str:
        """An element that an earlier iteration wrote."""
        far = self.random.choice((1, 1, 1, 2)) if guarded else 1
        place = f"t {'+' if self.back else '-'} {far}"
        found = self.at(tensor, place)
        return f"({found} else {self.start()})" if guarded else found

    def exact(self) -> str:
        """A value of the program's type."""
        choices = [self.at("x"), f"{self.dtype}({self.at('m')})"]
        if self.dtype in FLOATS:
            choices += [f"{self.at('x')} * 0.5", f"{self.dtype}({self.at('a')})"]
        elif self.drawn.inputs["b"] not in FLOATS:
            choices.append(f"{self.dtype}({self.at('b')})")
        return self.random.choice(choices)

    def condition(self) -> str:
        a, b, tensor = self.at("a"), self.at("b"), self.read(self.random.choice(self.names))
        return self.random.choice((
            f"{a} > {b}", "t % 2 == 0", self.at("m"), f"{tensor} < {b}", f"{a} == {tensor}",
            f"{self.at('m')} && {a} != 3", f"!({b} >= 2)",
        ))  # fmt: skip

    def joined(self, left: str, right: str) -> str:
        """A value of two; both count for its type."""
        if self.chance(0.25):
            return f"({self.condition()} ? {left} : {right})"
        if self.chance(0.3):
            return f"{self.random.choice(('min', 'max'))}({left}, {right})"
        if self.dtype not in FLOATS and self.chance(0.3):
            return f"({left} {self.random.choice('^|&')} {right})"
        return f"({left} {self.random.choice('+-*')} {right})"

    def value(self, carries: bool, needed: str) -> str:
        """What is assigned to a tensor; `needed` is a part of it."""
        found = needed
        if carries:
            found = self.joined(*self.random.sample((found, self.exact()), 2))
        while self.chance(0.4):
            found = self.joined(*self.random.sample((found, self.below()), 2))
        return f"{self.dtype}({found})" if self.chance(0.1) else found

    # ---- statements ------------------------------------------------------------------------------

    def written(self, number: int, carries: bool) -> str:
        """The statements that write a tensor in an iteration."""
        name, other = self.names[number], self.names[number - 1]
        here, where = self.at(name), " where c in 0:C" if self.wide else ""
        earlier = number > 0 and self.chance(0.5)
        value = self.value(carries, self.at(other) if earlier else self.read(other)) + where
        start = self.start() + where
        edge = "t == N - 1" if self.back else "t == 0"
        form = self.random.random()
        if form < 0.45:
            return f"{here} = {value}"
        if form < 0.6:
            return f"if {edge} {{ {here} = {start} }} else {{ {here} = {value} }}"
        if form < 0.7:
            inner = self.joined(self.read(name, guarded=False), value.removesuffix(where)) + where
            inside = edge.replace("==", "<" if self.back else ">")
            return f"if {inside} {{ {here} = {inner} }} else {{ {here} = {start} }}"
        if form < 0.8:
            return f"{here} = {start}\n  {here} += {value}"
        if form < 0.9:
            place = "i, c" if self.wide else "i"
            self.before.append(f"{name}({place}) = {self.number()} where exists x({place})")
            return f"{here} = {value}"
        also = ", c in 0:C" if self.wide else ""
        value = value.removesuffix(where)
        if self.back:
            return f"{here} min=! {value} where k in 0:2{also}"
        return f"{here} +=! {value} * ({self.at(name, 'k')} else 1) where k in 0:t{also}"

    def program(self) -> Drawn:
        drawn, carrier = self.drawn, self.random.randrange(len(self.names))
        lines = [self.written(n, n == carrier) for n in range(len(self.names))]
        drawn.tensors = dict.fromkeys(self.names, self.dtype)
        span = "N-1:-1:-1" if self.back else "0:N"
        body = [*self.before, f"for t in {span} {{", *(f"  {line}" for line in lines), "}"]
        if self.chance(0.3):
            place = "i, c" if self.wide else "i"
            last = self.names[-1]
            body.append(f"z({place}) = {last}({place}) * b({place})")
            drawn.tensors["z"] = meets(self.dtype, drawn.inputs["b"])
        drawn.results = [n for n in drawn.tensors if self.chance(0.6)] or [self.names[0]]
        if set(NARROW) & {*drawn.tensors.values(), *drawn.inputs.values()}:
            drawn.results = list(drawn.tensors)  # what is hidden would hold float32
        drawn.body = "\n".join(body)
        return drawn


def program(seed: int) -> Drawn:
    """The program of a seed."""
    return Writer(seed).program()


# ---- the law -------------------------------------------------------------------------------------


def fault(seed: int) -> str:
    """What is wrong with the program of a seed; empty where the law holds."""
    drawn = program(seed)
    definition, declared = (parse_definition(drawn.text(each)) for each in (False, True))
    inferred, other = (group(each) for each in (definition, declared))
    for tensor in (*inferred.outputs, *inferred.temporaries):
        wanted = drawn.tensors.get(tensor.name)
        if wanted not in (None, tensor.type.dtype.name):
            return f"'{tensor.name}' is {tensor.type.dtype}, not {wanted}"
    compiled = random.Random(-seed).random() < COMPILED
    function = ad.define(drawn.text(), threads=1).f if compiled else None
    share = max(SHARES.get(dtype, 0.0) for dtype in drawn.tensors.values())
    for n in SIZES:
        arrays = values(drawn.inputs, n, seed, drawn.dims)
        ones = [np.ones(arrays[0].shape, dtype) for dtype in drawn.tensors.values()]
        found = means(definition, inferred, arrays, n)
        wanted = means(declared, other, [*arrays, *ones], n)
        for name, one, two in zip(drawn.results, found, wanted):
            if one.dtype != two.dtype or one.tobytes() != two.tobytes():
                return f"'{name}' at N = {n} is\n{one}\nand with declared types\n{two}"
        if function is not None:
            ran = function(*arrays)
            for name, one, two in zip(drawn.results, ran if len(found) > 1 else [ran], found):
                if not same(one, two, share):
                    return f"'{name}' at N = {n} is compiled\n{one}\nand means\n{two}"
    return ""


def group(definition: Definition) -> Group:
    types = [
        TensorType(DTYPES[p.type], (as_size("n"), as_size(WIDTH))[: len(p.shape)])
        for p in definition.parameters
    ]
    return instantiate(definition, types, {}, Box.of(Dim("n")))


def values(inputs: dict[str, str], n: int, seed: int, dims: str) -> list[Any]:
    """Arguments; integers have all their bits, floats are moderate."""
    rng = np.random.default_rng([n, seed])
    shape = (n, WIDTH) if "C" in dims else (n,)
    made = []
    for dtype in inputs.values():
        if dtype == "bool":
            made.append(rng.integers(0, 2, shape).astype(bool))
        elif dtype in FLOATS:
            made.append(rng.standard_normal(shape).astype(dtype))
        else:
            ends = np.iinfo(dtype)
            low, high = (ends.min, ends.max) if rng.random() < 0.5 else (0, 9)
            made.append(rng.integers(low, high, shape, dtype, endpoint=True))
    return made


def means(definition: Definition, group: Group, arrays: list[Any], n: int) -> list[Any]:
    """The results by the evaluator."""
    names = (parameter.name for parameter in definition.parameters)
    with np.errstate(all="ignore"):
        return list(evaluate(group, dict(zip(names, arrays)), {"n": n}).values())


def same(one: Any, two: Any, share: float) -> bool:
    """Whether results agree: integers to the bit, floats up to this share of the largest."""
    if one.dtype != two.dtype or one.shape != two.shape:
        return False
    if one.dtype.name not in FLOATS:
        return bool((one == two).all())
    wide, other = one.astype("float64"), two.astype("float64")
    with np.errstate(all="ignore"):
        size = np.nanmax(np.abs(other[np.isfinite(other)]), initial=1.0)
        return bool(np.allclose(wide, other, share, share * size, equal_nan=True))


# ---- runs ----------------------------------------------------------------------------------------


def run(seeds: range, small: bool = True) -> Iterator[Outcome]:
    """The outcomes of the programs of these seeds, in order; they are small as they are."""
    return run_texts(seeds, small, fault, lambda seed: program(seed).text())
