"""Random recursion with a bound and `while`, for rows: `python -m tests.fuzz --deciding`

Decisions are made on integers, which are exact; data are vectors of random types. The law: results
are those of the interpreter (`lang/interpreter/`), a call alone gives what its row gives, and a row
has the same bits in any batch and with any number of threads.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy

import anydim as ad
from anydim.lang.surface.parser import parse
from tests.fuzz.judge import said
from tests.fuzz.runner import BEGIN, SECONDS, Outcome, run_each, stop_after
from tests.interpreter.run import run as interpreted

KINDS = {"float": numpy.float32, "double": numpy.float64, "int64": numpy.int64, "int": numpy.int32}
ROWS, SIZES = (1, 5, 0), (3, 1, 0)  # rows of a call; sizes of vectors
OFF = {"float": 2e-4, "double": 1e-10}
MOST_OPEN = 12


@dataclass
class Program:
    """A definition `one` of a row, and `all` that calls it for each row.

    `one` has numbers `n` and `m`, a vector `x` and a matrix `M` that all rows share; it gives a
    number and a vector.
    """

    random: Random
    kind: str
    lines: list[str] = field(default_factory=list)
    number: int = 0

    @property
    def exact(self) -> bool:
        return self.kind.startswith("int")

    def fresh(self, stem: str) -> str:
        self.number += 1
        return f"{stem}{self.number}"

    def text(self) -> str:
        item = self.kind
        body = "\n".join(f"  {line}" for line in self.lines)
        return (
            f"def one(int64 n, int64 m, {item}(D) x, {item}(D,D) M; size depth = {MOST_OPEN})"
            f" -> (r, y) {{\n{body}\n}}\n"
            f"def all(int64(B) n, int64(B) m, {item}(B,D) x, {item}(D,D) M) -> (r, y)"
            " { r(b), y(b) = one(n(b), m(b), x(b), M) }\n"
        )

    # ---- expressions ---------------------------------------------------------------------------

    def integer(self, known: list[str], depth: int = 2) -> str:
        """A number that is never far from 0."""
        if depth == 0 or self.random.random() < 0.3:
            return self.random.choice([*known, str(self.random.randrange(4))])
        left, right = (self.integer(known, depth - 1) for _ in "lr")
        return f"(({left} {self.random.choice('+-*')} {right}) % {self.random.choice([5, 7, 11])})"

    def condition(self, known: list[str]) -> str:
        return f"{self.integer(known)} {self.random.choice(['<', '==', '>'])} {self.integer(known)}"

    def vector(self, known: list[str], numbers: list[str], depth: int = 2) -> str:
        """A vector over `d`, as an expression."""
        if depth == 0 or self.random.random() < 0.2:
            if self.random.random() < 0.2:
                return f"{self.kind}({self.random.choice(numbers)})"
            return f"{self.random.choice(known)}(d)"
        if not self.exact and self.random.random() < 0.3:
            return f"tanh({self.vector(known, numbers, depth - 1)})"
        left, right = (self.vector(known, numbers, depth - 1) for _ in "lr")
        return f"({left} {self.random.choice('+-*')} {right})"

    def bounded(self, expr: str) -> str:
        """An expression whose values do not grow."""
        return f"({expr}) % 100" if self.exact else f"tanh({expr})"

    # ---- statements ----------------------------------------------------------------------------

    def assign(self, target: str, known: list[str], numbers: list[str], margin: str) -> None:
        """Assign a vector: elementwise, or a product with the matrix."""
        if self.random.random() < 0.35:
            made = self.fresh("s")
            self.lines.append(f"{margin}{made}(d) +=! M(d,e) * {self.random.choice(known)}(e)")
            expr = f"{made}(d) + {self.random.choice(known)}(d)"
        else:
            expr = f"{self.vector(known, numbers)} + {self.random.choice(known)}(d)"
        self.lines.append(f"{margin}{target}(d) = {self.bounded(expr)}")

    def recursion(self) -> None:
        """`n` gets smaller in each call; results of calls may be arguments of others."""
        vectors, numbers = ["x"], ["n", "m"]
        if self.random.random() < 0.6:
            self.assign("v", vectors, numbers, "")
            vectors.append("v")
        self.lines.append("if n <= 0 {")
        self.lines.append(f"  r = {self.integer(numbers)}")
        self.assign("y", vectors, numbers, "  ")
        self.lines.append("} else {")
        if self.random.random() < 0.5:
            self.lines.append(f"  if {self.condition(numbers)} {{")
            self.calls(list(vectors), list(numbers), "    ")
            self.lines.append("  } else {")
            self.calls(list(vectors), list(numbers), "    ")
            self.lines.append("  }")
        else:
            self.calls(vectors, numbers, "  ")
        self.lines.append("}")

    def calls(self, vectors: list[str], numbers: list[str], margin: str) -> None:
        count = self.random.choice([1, 1, 2])
        for _ in range(count):
            less = self.random.choice([1, 1, 2])
            number, vector, given = self.fresh("a"), self.fresh("w"), self.random.choice(vectors)
            if self.random.random() < 0.6:
                given = self.fresh("g")
                self.assign(given, vectors, numbers, margin)
            self.lines.append(
                f"{margin}{number}, {vector} = one(n - {less}, {self.integer(numbers)}, {given}, M)"
            )
            numbers.append(number)
            vectors.append(vector)
        if count == 1 and self.random.random() < 0.4:
            self.lines[-1] = self.lines[-1].replace(f"{number}, {vector} =", "r, y =")
            return
        self.lines.append(f"{margin}r = {self.integer(numbers)}")
        self.assign("y", vectors, numbers, margin)

    def loop(self) -> None:
        """`i` grows in each iteration; another condition may end the loop, too."""
        vectors, numbers = ["x", "y"], ["n", "m", "r", "i"]
        self.lines += ["i = 0", "r = m", f"y(d) = {self.random.choice(['x(d)', 'x(d) + x(d)'])}"]
        more = f" && {self.condition(['n', 'm', 'r', 'i'])}" if self.random.random() < 0.5 else ""
        self.lines.append(f"while i < n{more} {{")
        if self.random.random() < 0.4:
            inner = self.fresh("j")
            self.lines += [f"  {inner} = 0", f"  while {inner} < i {{"]
            self.lines += [f"    {inner} += 1", f"    r = {self.integer([*numbers, inner])}"]
            self.assign("y", vectors, [*numbers, inner], "    ")
            self.lines.append("  }")
        if self.random.random() < 0.6:
            self.lines.append(f"  if {self.condition(numbers)} {{")
            self.assign("y", vectors, numbers, "    ")
            self.lines += [f"    r = {self.integer(numbers)}", "  }"]
        if self.random.random() < 0.3:
            self.lines.append("  if i < x.0 { y(i) = 0 }")
        self.lines += [f"  r = {self.integer(numbers)}", "  i += 1", "}"]
        self.assign("y", vectors, numbers, "")


def program(seed: int) -> Program:
    """The program of a seed."""
    random = Random(f"deciding {seed}")
    made = Program(random, random.choice(list(KINDS)))
    if random.random() < 0.6:
        made.recursion()
    else:
        made.loop()
    return made


# ---- the law -------------------------------------------------------------------------------------


def judge(made: Program, seed: int) -> str:
    """What is wrong with a program; '' for nothing."""
    random = numpy.random.default_rng(seed)
    definitions = parse(made.text())
    try:
        libraries = [ad.define(made.text(), threads=count) for count in (1, 2)[: 1 + seed % 2]]
    except Exception as error:
        return f"compile: {said(error)}"
    for rows, size in zip(ROWS, SIZES):
        dtype = KINDS[made.kind]
        x = random.integers(-3, 4, (rows, size)).astype(dtype) / (1 if made.exact else 4)
        matrix = random.integers(-1, 2, (size, size)).astype(dtype)
        n, m = random.integers(0, 6, rows), random.integers(0, 5, rows)
        given = n, m, x.astype(dtype), matrix
        try:
            wrong = _compared(made, libraries, definitions, given)
        except Exception as error:
            wrong = f"call: {said(error)}"
        if wrong:
            return f"{wrong}\n# {given}"
    return ""


def _compared(made: Program, libraries: list[Any], definitions: Any, given: tuple[Any, ...]) -> str:
    found, *others = ([numpy.asarray(each) for each in lib.all(*given)] for lib in libraries)
    for other in others:
        if any(a.tobytes() != b.tobytes() for a, b in zip(found, other)):
            return "other bits with two threads"
    n, m, x, matrix = given
    for row in range(len(n)):
        single = n[row], m[row], x[row], matrix
        right = [each.values for each in interpreted(definitions["one"], single).values()]
        alone = [numpy.asarray(each) for each in libraries[0].one(*single)]
        part = libraries[0].all(n[row : row + 1], m[row : row + 1], x[row : row + 1], matrix)
        for name, whole, wanted, one, few in zip("ry", found, right, alone, part):
            off = OFF.get(made.kind, 0.0) * (name == "y")
            if whole[row].shape != wanted.shape or not _near(whole[row], wanted, off):
                return f"'{name}' of row {row} is {whole[row]}, not {wanted}"
            if not _near(one, wanted, off):
                return f"'{name}' of a call alone is {one}, not {wanted}"
            if few[0].tobytes() != whole[row].tobytes():
                return f"'{name}' of row {row} has other bits than in a batch of one row"
    return ""


def _near(found: Any, wanted: Any, off: float) -> bool:
    difference = numpy.abs(numpy.asarray(found).astype(wanted.dtype) - wanted)
    return bool((difference <= off * (1 + numpy.abs(wanted))).all())


def run(seeds: range, small: bool = True) -> Iterator[Outcome]:
    """The outcomes of the programs of these seeds, in order."""

    def one(seed: int, small: bool) -> Iterator[Outcome]:
        yield Outcome(seed, BEGIN)
        stop_after(SECONDS)
        made = program(seed)
        yield Outcome(seed, *((wrong, made.text()) if (wrong := judge(made, seed)) else ()))

    def crashed(seed: int, end: str, small: bool) -> Outcome:
        return Outcome(seed, f"crash: {end}", program(seed).text())

    yield from run_each(seeds, small, one, crashed)
