"""Random definitions with calls inside expressions: `python -m tests.fuzz --nested-calls`

The law: a definition gives what the same definition with assigned results of its calls gives, what
the interpreter gives, and what Python gives, which evaluates behind `?:`, `&&` and `||` only what
it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy

import anydim as ad
from anydim.lang.surface.parser import parse
from tests.fuzz.judge import said
from tests.fuzz.runner import BEGIN, SECONDS, Outcome, run_each, stop_after
from tests.interpreter.kinds import NotCovered
from tests.interpreter.run import run as interpreted

KINDS = ("plain", "loop", "while", "recursion", "rows", "structures")
HELPERS = """
def plus(int64 a, int64 b) -> (c) { c = (3 * a + b) % 11 }
def fewer(int64 a) -> (c) { c = a < 2 ? a + 1 : a - 2 }
"""
TREE = "type Tree { leaf(int64 x); node(int64 k, Tree left, Tree right) }\n"
Expr = tuple[
    Any, ...
]  # ("name", n), ("read", default), ("call", f, args...), ("choice", c, a, b), (operator, a, b)
BOTH = ("&&", "||")


@dataclass
class Program:
    """One definition `f`; `value` and `condition` are random parts of its statements."""

    kind: str
    random: Random
    calls: dict[str, int]  # the arguments of each definition
    names: list[str]
    value: Expr = ()
    condition: Expr = ()
    temporaries: int = 0
    lines: list[str] = field(default_factory=list)

    # ---- random expressions --------------------------------------------------------------------

    def number(self, depth: int) -> Expr:
        chance = self.random.random()
        if self.kind == "loop" and chance < 0.1:
            return ("read", self.random.choice("012"))
        if depth == 0 or chance < 0.15:
            return ("name", self.random.choice([*self.names, "1", "2"]))
        if chance < 0.5:
            name = self.random.choice(list(self.calls))
            return self.call(name, depth)
        if chance < 0.65:
            parts = self.number(depth - 1), self.number(depth - 1)
            return ("choice", self.truth(depth - 1), *parts)
        return (self.random.choice("+-*"), self.number(depth - 1), self.number(depth - 1))

    def call(self, name: str, depth: int) -> Expr:
        if self.kind == "structures" and name == "f":
            return ("call", "f", ("name", self.random.choice(["left", "right"])))
        given = [self.number(depth - 1) for _ in range(self.calls[name])]
        if name == "f":  # the first argument gets smaller
            given[0] = ("-", ("name", "n"), ("name", self.random.choice("12")))
        return ("call", name, *given)

    def truth(self, depth: int) -> Expr:
        if depth > 0 and self.random.random() < 0.4:
            return (self.random.choice(BOTH), self.truth(depth - 1), self.truth(depth - 1))
        return (self.random.choice(["<", "==", ">"]), self.number(depth), self.number(depth))

    # ---- texts ---------------------------------------------------------------------------------

    def text(self, assigned: bool) -> str:
        """The definition, with calls inside expressions, or with their results assigned."""
        self.lines, self.temporaries = [], 0
        show = self.assigned if assigned else shown
        if self.kind == "structures":
            value = f"({show(self.value)}) % 13"
            body = f"node(k, left, right) {{ {' '.join(self.lines)} r = {value} }}"
            cases = f"leaf(x) {{ r = x }} {body}"
            return f"{TREE}{HELPERS}def f(Tree t) -> (r) {{ match t {{ {cases} }} }}"
        head = "int64 n, int64 m" + "; size depth = 20" * (self.kind == "recursion")
        if self.kind == "recursion":
            self.lines.append("if n < 1 { r = m } else {")
        if self.kind == "while":
            self.lines += ["r = m", "k = 0"]
            condition = show(self.condition)
            again = self.lines[2:]
            self.lines.append(f"while k < n && {condition} {{ k += 1")
            self.lines += [f"r = ({show(self.value)} + r) % 13", *again, "}"]
        elif self.kind == "loop":
            self.lines.append("for k in 0:3 {")
            self.lines += [f"y(k) = ({show(self.value)}) % 13", "}", "r +=! y(i)"]
        else:
            self.lines.append(f"r = ({show(self.value)}) % 13")
        self.lines += ["}"] if self.kind == "recursion" else []
        body = "\n".join(self.lines)
        text = f"{HELPERS}def f({head}) -> (r) {{\n{body}\n}}\n"
        return text + self.rows(assigned) if self.kind == "rows" else text

    def rows(self, assigned: bool) -> str:
        rows = "f(n(b), m(b)) * plus(n(b), fewer(m(b))) - f(m(b), n(b))"
        if assigned:
            rows = "p(b) * q(b) - s(b)"
        before = (
            "p(b) = f(n(b), m(b)) t(b) = fewer(m(b)) q(b) = plus(n(b), t(b)) s(b) = f(m(b), n(b))"
        )
        return f"def g(int64(B) n, int64(B) m) -> (r) {{ {before * assigned} r(b) = {rows} }}\n"

    def assigned(self, expr: Expr) -> str:
        """The text of an expression whose calls are statements before it."""
        word, *parts = expr
        if word in ("name", "read"):
            return shown(expr)
        if word == "call":
            name, *given = parts
            arguments = ", ".join(self.assigned(each) for each in given)
            return self.made(f"{name}({arguments})")
        late = any(map(has_calls, parts[1:])) and self.kind != "structures"
        if word == "choice" and late:
            return self.branch(self.assigned(parts[0]), *parts[1:])
        if word in BOTH and late:
            rest = [parts[1], ("name", "false")] if word == "&&" else [("name", "true"), parts[1]]
            return self.branch(self.assigned(parts[0]), *rest)
        texts = [self.assigned(each) for each in parts]
        return printed(word, texts)

    def made(self, text: str, name: str = "") -> str:
        if not name:
            self.temporaries += 1
            name = f"v{self.temporaries}"
        self.lines.append(f"{name} = {text}")
        return name

    def branch(self, condition: str, then: Expr, otherwise: Expr) -> str:
        self.temporaries += 1
        name = f"v{self.temporaries}"
        self.lines.append(f"if {condition} {{")
        self.made(self.assigned(then), name)
        self.lines.append("} else {")
        self.made(self.assigned(otherwise), name)
        self.lines.append("}")
        return name

    # ---- Python --------------------------------------------------------------------------------

    def run(self, *given: Any) -> int:
        """What `f` gives for one row, or one structure."""
        if self.kind == "structures":
            (tree,) = given
            if tree[0] == "leaf":
                return int(tree[1])
            env = {"k": tree[1], "left": tree[2], "right": tree[3]}
            return int(self.eval(self.value, env)) % 13
        n, m = given
        env = {"n": n, "m": m}
        if self.kind == "recursion" and n < 1:
            return int(m)
        if self.kind == "loop":
            made: list[int] = []
            for k in range(3):
                last = {"y": made[-1]} if made else {}
                made.append(self.eval(self.value, {**env, **last, "k": k}) % 13)
            return sum(made)
        if self.kind == "while":
            env.update(r=m, k=0)
            while env["k"] < n and self.eval(self.condition, env):
                env["k"] += 1
                env["r"] = (self.eval(self.value, env) + env["r"]) % 13
            return int(env["r"])
        return int(self.eval(self.value, env)) % 13

    def eval(self, expr: Expr, env: dict[str, Any]) -> Any:
        word, *parts = expr
        if word == "name":
            return env[parts[0]] if parts[0] in env else int(parts[0])
        if word == "read":
            return env.get("y", int(parts[0]))
        if word == "call":
            name, *given = parts
            return self.function(name)(*(self.eval(each, env) for each in given))
        if word == "choice":
            return self.eval(parts[1 if self.eval(parts[0], env) else 2], env)
        if word == "&&":
            return self.eval(parts[0], env) and self.eval(parts[1], env)
        if word == "||":
            return self.eval(parts[0], env) or self.eval(parts[1], env)
        left, right = (self.eval(each, env) for each in parts)
        return {"+": left + right, "-": left - right, "*": left * right, "<": left < right,
                "==": left == right, ">": left > right}[word]  # fmt: skip

    def function(self, name: str) -> Callable[..., int]:
        known: dict[str, Callable[..., int]]
        known = {"plus": plus, "fewer": fewer, "f": self.run}
        return known[name]


def plus(a: int, b: int) -> int:
    return (3 * a + b) % 11


def fewer(a: int) -> int:
    return a + 1 if a < 2 else a - 2


def shown(expr: Expr) -> str:
    """The text of an expression, with its calls."""
    word, *parts = expr
    if word == "name":
        return str(parts[0])
    if word == "read":
        return f"(y(k - 1) else {parts[0]})"
    if word == "call":
        return f"{parts[0]}({', '.join(map(shown, parts[1:]))})"
    return printed(word, [shown(each) for each in parts])


def printed(word: str, texts: list[str]) -> str:
    if word == "choice":
        return f"({texts[0]} ? {texts[1]} : {texts[2]})"
    return f"({f' {word} '.join(texts)})"


def has_calls(expr: Expr) -> bool:
    return expr[0] == "call" or any(has_calls(e) for e in expr[1:] if isinstance(e, tuple))


def program(seed: int) -> Program:
    """The program of a seed."""
    random, kind = Random(f"nested calls {seed}"), KINDS[seed % len(KINDS)]
    calls = {"plus": 2, "fewer": 1}
    names = {"structures": ["k"], "loop": ["n", "m", "k"], "while": ["n", "m", "r", "k"]}
    if kind in ("recursion", "structures"):
        calls["f"] = 2
    made = Program(kind, random, calls, names.get(kind, ["n", "m"]))
    made.value = made.number(3)
    while not has_calls(made.value):
        made.value = made.number(3)
    made.condition = ("<", made.call("plus", 2), ("name", "9"))
    return made


# ---- the law -------------------------------------------------------------------------------------


def trees(random: Random, depth: int) -> Any:
    if depth == 0 or random.random() < 0.3:
        return ("leaf", numpy.int64(random.randrange(5)))
    return ("node", numpy.int64(random.randrange(5)), *(trees(random, depth - 1) for _ in "lr"))


def judge(made: Program, seed: int) -> str:
    """What is wrong with a program; '' for nothing."""
    random = Random(seed)
    nested, assigned = made.text(False), made.text(True)
    try:
        libraries = ad.define(nested), ad.define(assigned)
    except Exception as error:
        return f"compile: {said(error)}"
    for _ in range(3):
        try:
            wrong = _compared(made, libraries, nested, random)
        except Exception as error:
            wrong = f"call: {said(error)}"
        if wrong:
            return wrong
    return ""


def _compared(made: Program, libraries: tuple[Any, Any], nested: str, random: Random) -> str:
    if made.kind == "structures":
        given: tuple[Any, ...] = (trees(random, 3),)
    else:
        given = numpy.int64(random.randrange(4)), numpy.int64(random.randrange(5))
    wanted = made.run(*(g if isinstance(g, tuple) else int(g) for g in given))
    name = "f"
    if made.kind == "rows":
        n, m = (int(each) for each in given)
        wanted = wanted * plus(n, fewer(m)) - made.run(m, n)
        given, name = tuple(numpy.array([each]) for each in given), "g"
    found, other = (int(numpy.squeeze(lib[name](*given))) for lib in libraries)
    values = {"assigned": other, "found": found}
    with suppress(NotCovered):  # of a branch that constants leave out, it infers no type
        (read,) = interpreted(parse(nested)[name], given).values()
        values["interpreted"] = int(numpy.squeeze(read.values))
    wrong = {key: value for key, value in values.items() if value != wanted}
    return f"{wrong}, not {wanted}, for {given}" if wrong else ""


def run(seeds: range, small: bool = True) -> Iterator[Outcome]:
    """The outcomes of the programs of these seeds, in order."""

    def one(seed: int, small: bool) -> Iterator[Outcome]:
        yield Outcome(seed, BEGIN)
        stop_after(SECONDS)
        made = program(seed)
        wrong = judge(made, seed)
        yield Outcome(seed, *((wrong, made.text(False)) if wrong else ()))

    def crashed(seed: int, end: str, small: bool) -> Outcome:
        return Outcome(seed, f"crash: {end}", program(seed).text(False))

    yield from run_each(seeds, small, one, crashed)
