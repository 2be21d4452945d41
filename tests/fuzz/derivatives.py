"""Random definitions, and their derivatives beside differences of their values, in float64.

Statements are drawn over vectors of one size and a matrix: shifts, strides, gathers, scatters,
reductions, conditions, tensors written several times, and loops with recurrences, carried scalars,
branches and inner loops. numpy evaluates both definitions.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from anydim.base.errors import UserError
from anydim.lang.surface.parser import parse_definition
from tests.fuzz.runner import Outcome, run_texts
from tests.gradients import TOLERANCE, check, values

SIZES = (0, 1, 2, 5, 7)
HEAD = "def f(double(N) a, double(N) b, double(N,N) w, double c, int64(N) at) -> ({results})"
FUNCTIONS = ("tanh({})", "sin({})", "sigmoid({})", "exp(0.3 * {})", "0.5 * {}", "{} * {}",
             "{} + {}", "{} - {}", "{} / (1.5 + {} * {})", "max({}, {})", "{} > 0.1 ? {} : {}",
             "sqrt(1 + {} * {})", "min({}, 0.4)", "pow(1 + abs({}), 1.5)")  # fmt: skip
MANY_TRIES = 3  # directions and inputs before a difference is a failure: one may cross a kink


@dataclass
class Writer:
    """Draws a definition: `vectors` and `scalars` may be read."""

    random: random.Random
    vectors: list[str] = field(default_factory=lambda: ["a", "b"])
    scalars: list[str] = field(default_factory=lambda: ["c"])
    owned: list[str] = field(default_factory=list)  # vectors that statements may change
    count: int = 0

    def name(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def pick(self, names: list[str]) -> str:
        return self.random.choice(names[-4:])

    def read(self, index: str) -> str:
        """A read at an index, or around it."""
        x = self.pick(self.vectors)
        shift = self.random.choice((1, 1, 2))
        return self.random.choice((
            f"{x}({index})", f"{x}({index})", f"({x}({index} - {shift}) else 0)",
            f"({x}({index} + {shift}) else 0.5)", f"{x}(N - 1 - {index})", f"{x}(at({index}))",
            f"({x}(2 * {index} - 1) else 0)", f"{x}({index} // 2)", self.pick(self.scalars),
        ))  # fmt: skip

    def value(self, reads: list[str], depth: int = 0) -> str:
        """An expression of some reads."""
        form = self.random.choice(FUNCTIONS)
        while "{}" in form:
            deep = depth < 2 and self.random.random() < 0.3
            inner = f"({self.value(reads, depth + 1)})" if deep else self.random.choice(reads)
            form = form.replace("{}", inner, 1)
        return form

    def reads(self, index: str) -> list[str]:
        return [self.read(index) for _ in range(3)]

    # ---- statements ------------------------------------------------------------------------------

    def statement(self) -> str:
        """One statement, or a loop."""
        kinds = [self.whole, self.whole, self.reduction, self.matrix, self.extreme, self.scatter,
                 self.change, self.fixed, self.sweeps, self.filled, self.loop,
                 self.loop]  # fmt: skip
        return self.random.choice(kinds)()

    def whole(self) -> str:
        value = self.value(self.reads("i"))
        return f"{self.vector()}(i) = {value} where i in 0:N"

    def vector(self) -> str:
        name = self.name("v")
        self.vectors.append(name)
        self.owned.append(name)
        return name

    def reduction(self) -> str:
        value, name = self.value(self.reads("i")), self.name("s")
        self.scalars.append(name)
        return f"{name} +=! {value} where i in 0:N"

    def matrix(self) -> str:
        value = self.value(self.reads("k"))
        index = self.random.choice(("w(i,k)", "w(k,i)", "w(i,N - 1 - k)"))
        return f"{self.vector()}(i) +=! {index} * ({value}) where i in 0:N, k in 0:N"

    def extreme(self) -> str:
        value = self.value(self.reads("k"))
        kind = self.random.choice(("max", "min"))
        return f"{self.vector()}(i) {kind}=! w(i,k) + ({value}) where i in 0:N, k in 0:N"

    def fixed(self) -> str:
        """Elements at positions that do not depend on the index: none is read if N is 0."""
        reads = [
            *self.reads("i"),
            f"{self.pick(self.vectors)}({self.random.choice(('0', 'N - 1'))})",
        ]
        return f"{self.vector()}(i) = {self.value(reads[::-1])} where i in 0:N"

    def sweeps(self) -> str:
        """A vector that inner iterations of a loop write, each time from the sweep before."""
        x = self.pick(self.vectors)
        y = self.vector()
        value = self.value([f"{y}(s)", f"{x}(s)", f"({y}(s - 1) else 0.5)"])
        sweep = f"if t == 0 {{ {y}(s) = {x}(s) }} else {{ {y}(s) = sin({value}) }}"
        return f"for t in 0:3 {{ for s in 0:N {{ {sweep} }} }}"

    def filled(self) -> str:
        """A vector that the iterations of a loop in a branch fill, and change."""
        d, z = self.name("d"), self.name("s")
        self.scalars.append(z)
        value = self.value([f"{self.pick(self.vectors)}(k)", f"({d}(k - 1) else 0.5)", "c"])
        body = f"{d}(k) = tanh({value})  {z} = sin({z} * {d}(k))  {d}(k) = {d}(k) * {z}"
        return f"{z} = c * 1.0\n  if N > 2 {{ for k in 0:N {{ {body} }} }}"

    def scatter(self) -> str:
        value = self.value(self.reads("j"))
        name = self.vector()
        return f"{name}(i) = 0.0 where i in 0:N\n  {name}(at(j)) += {value} where j in 0:N"

    def change(self) -> str:
        """A further write to a vector."""
        if not self.owned:
            return self.whole()
        name = self.pick(self.owned)
        value = self.value([f"{name}(i)", *self.reads("i")])
        return self.random.choice((
            f"{name}(i) = {value} where i in 0:N",
            f"{name}(i) += {value} where i in 0:N",
            f"{name}(i) *= {value} where i in 0:N",
            f"{name}(i + 1) = {value} where i in 0:max(N - 1, 0)",
            f"if N > 0 {{ {name}(0) *= {self.pick(self.scalars)} }}",
            f"{name}(i) = {name}(N - 1 - i) * {name}(i) where i in 0:N",
        ))  # fmt: skip

    def loop(self) -> str:
        """A loop over the positions, with a recurrence, a carried scalar or both."""
        kind = self.random.choice(("recurrence", "carried", "branch", "local", "inner"))
        span, back = self.random.choice((("0:N", "t - 1"), ("N - 1:-1:-1", "t + 1")))
        y, s = self.name("v"), self.name("s")
        known = [f"{x}(t)" for x in self.vectors[-3:]]
        value = self.value([*known, f"({y}({back}) else 0.3)", "c"])
        carried = self.value([*known, s, s])
        other = self.pick(self.vectors)
        body = {
            "recurrence": f"{y}(t) = tanh({value})",
            "carried": f"{s} = tanh({carried})\n    {y}(t) = {s} * ({value})",
            "branch": f"if t % 2 == 0 {{ {s} = tanh({carried}) }} else {{ {s} *= 0.9 }}\n"
                      f"    {y}(t) = sin({value}) + {s}",
            "local": f"l{y}(i) = {s} * {other}(i)\n"
                     f"    d{y} +=! l{y}(i) * w(t,i)\n    {s} = tanh(d{y})\n"
                     f"    {y}(t) = tanh({value}) + d{y}",
            "inner": f"for u in 0:t + 1 {{ {s} = tanh({s} + 0.5 * {other}(u)) }}\n"
                     f"    {y}(t) = {s} + tanh({value})",
        }[kind]  # fmt: skip
        before = "" if kind == "recurrence" else f"{s} = c * 1.0\n  "
        self.vectors.append(y)
        self.owned.append(y)
        if before:
            self.scalars.append(s)
        return f"{before}for t in {span} {{\n    {body}\n  }}"

    def text(self) -> str:
        """The definition."""
        body = [self.statement() for _ in range(self.random.randint(1, 5))]
        made = [v for v in self.vectors[2:] if v in self.owned][-2:] + self.scalars[1:][-1:]
        head = HEAD.format(results=", ".join(made))
        return f"{head} {{\n  " + "\n  ".join(body) + "\n}"


def random_text(seed: int) -> str:
    """The definition of a seed."""
    return Writer(random.Random(seed)).text()


def arguments(seed: int, n: int) -> list[np.ndarray]:
    """Arguments of size n."""
    rng = np.random.default_rng(seed)
    at = rng.integers(0, n, n) if n else np.zeros(0, np.int64)
    return [rng.standard_normal(n), rng.standard_normal(n), rng.standard_normal((n, n)),
            rng.standard_normal(()), at]  # fmt: skip


def failure(seed: int) -> str:
    """What is wrong with the derivative of a seed; '' if nothing is, or the text has no meaning."""
    text = random_text(seed)
    try:
        definition = parse_definition(text, "fuzz")
        values(definition, arguments(0, 3), {})
    except UserError:
        return ""
    for n in SIZES:
        errors = []
        for trial in range(MANY_TRIES):
            given = arguments(seed + trial, n)
            try:
                values(definition, given, {})
            except UserError:
                break  # no call of this size
            errors.append(check(definition, given, seed=trial))
            if errors[-1] < 10 * TOLERANCE:
                break
        else:
            return f"N = {n}: errors {errors}"
    return ""


def run(seeds: range, small: bool = True) -> Iterator[Outcome]:
    """The outcomes of these seeds."""
    return run_texts(seeds, small, failure, random_text)
