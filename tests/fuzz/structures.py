"""Random types, recursions over them, and structures: `python -m tests.fuzz --structures`

A definition is compiled and called with several structures together and alone. The law: results are
those of the same recursion in Python, in a wider type or in the same integers, with the element
type of the fields, and a structure alone has the same bits as in a batch. How far results may be
off comes from Python in the narrow type.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import numpy

import anydim as ad
from anydim.base.errors import LanguageError
from tests.fuzz.judge import said
from tests.fuzz.runner import BEGIN, SECONDS, Outcome, run_each, stop_after

ROWS, SIZES = 5, (3, 1, 0, 8)  # structures of a call; sizes of vectors
SCALAR, VECTOR, EACH, EACH_VECTOR = "", "d", "k", "kd"  # indices of a value
NO_FORM = "has no form over all calls"
TOO_OFTEN = "would visit them too often"
SLACK = 40.0
Expr = tuple[Any, ...]


@dataclass(frozen=True)
class Kind:
    """An element type: its name in the language, the wider one of references, a tolerance."""

    name: str
    dtype: Any
    wide: Any
    off: float = 0.0


EXACT = (Kind("int64", numpy.int64, numpy.int64), Kind("int", numpy.int32, numpy.int32))
FLOATS = (
    Kind("float", numpy.float32, numpy.float64, 2e-5),
    Kind("double", numpy.float64, numpy.longdouble, 1e-12),
    Kind("half", numpy.float16, numpy.float64, 2e-2),
)
Structure = tuple[Any, ...]


@dataclass(frozen=True)
class Field:
    name: str
    kind: str  # SCALAR, VECTOR, or the name of a type
    several: str = ""  # the size that counts the structures


@dataclass(frozen=True)
class Made:
    """A statement: `name(indices) combine expr`; `over` are the indices that it sums over."""

    name: str
    indices: str
    expr: Expr
    combine: str = ""
    over: str = ""


@dataclass(frozen=True)
class Call:
    """`targets = f_type(of, passed)`; `of` is a name of the pattern."""

    targets: tuple[str, str]
    type: str
    of: str
    passed: str
    several: str


@dataclass(frozen=True)
class Row:
    """A case: its pattern, what it computes before its calls, the calls, and the rest."""

    pattern: Any  # name, or (constructor, patterns...)
    before: tuple[Made, ...]
    calls: tuple[Call, ...]
    after: tuple[Made, ...]


@dataclass
class Program:
    """One definition for each type; each gives a scalar and a vector."""

    random: Random
    exact: bool = False
    passes: bool = False
    kind: Kind = FLOATS[0]
    types: dict[str, dict[str, list[Field]]] = field(default_factory=dict)
    rows: dict[str, list[Row]] = field(default_factory=dict)
    number: int = 0

    def fresh(self, stem: str) -> str:
        self.number += 1
        return f"{stem}{self.number}"

    # ---- text ----------------------------------------------------------------------------------

    def text(self) -> str:
        item = self.kind.name
        lines = []
        for name, constructors in self.types.items():
            parts = []
            for constructor, fields in constructors.items():
                shown = [
                    f"{item}{'(D)' * (f.kind == VECTOR)} {f.name}" if f.kind in (SCALAR, VECTOR)
                    else f"{f.kind}{f'({f.several})' * bool(f.several)} {f.name}"
                    for f in fields
                ]  # fmt: skip
                parts.append(f"{constructor}({', '.join(shown)})" if shown else constructor)
            lines.append(f"type {name} {{ {'; '.join(parts)} }}")
        for name, rows in self.rows.items():
            given = f"{name} t, {item}(D) P, {item}(D,D) M" + f", {item} w" * self.passes
            lines.append(f"def f_{name}({given}) -> (s, v) {{\n  match t {{")
            for row in rows:
                lines.append(f"    {_pattern(row.pattern)} {{")
                lines += [f"      {_statement(made, item)}" for made in row.before]
                for call in row.calls:
                    more = f", {call.passed}" if self.passes else ""
                    lines.append(
                        f"      {', '.join(call.targets)} = f_{call.type}({call.of}, P, M{more})"
                    )
                lines += [f"      {_statement(made, item)}" for made in row.after]
                lines.append("    }")
            lines.append("  }\n}")
        return "\n".join(lines) + "\n"


def _pattern(pattern: Any) -> str:
    if isinstance(pattern, str):
        return pattern
    name, *inner = pattern
    return f"{name}({', '.join(map(_pattern, inner))})" if inner else str(name)


def _statement(made: Made, kind: str) -> str:
    target = f"{made.name}({','.join(made.indices)})" if made.indices else made.name
    return f"{target} {made.combine or '='} {_shown(made.expr, kind)}"


def _shown(expr: Expr, kind: str) -> str:
    word, *parts = expr
    if word == "number":  # alone, a literal has a type of its own
        return str(parts[0]) if kind in ("float", "int64") else f"{kind}({parts[0]})"
    if word == "read":
        name, indices = parts
        return f"{name}({','.join(indices)})" if indices else str(name)
    if word in ("tanh", "softmax"):
        return f"{word}({_shown(parts[0], kind)})"
    return f"({_shown(parts[0], kind)} {word} {_shown(parts[1], kind)})"


# ---- random programs -----------------------------------------------------------------------------


def program(seed: int) -> Program:
    """The program of a seed."""
    random = Random(f"structures {seed}")
    made = Program(random, random.random() < 0.4, random.random() < 0.15)
    made.kind = Random(f"kind {seed}").choice(EXACT if made.exact else FLOATS)
    names = ["T", "S"][: 1 if made.passes else random.choice([1, 1, 2])]
    for name in names:
        made.types[name] = {}
        for number in range(random.randint(2, 4)):
            kinds = [random.choice([SCALAR, VECTOR]) for _ in range(random.randrange(3))]
            if number:
                kinds += [random.choice(names) for _ in range(random.choice([0, 1, 1, 2, 3]))]
            random.shuffle(kinds)
            fields = [
                Field(made.fresh("a"), k, made.fresh("K") * (k in names and random.random() < 0.3))
                for k in kinds
            ]  # fmt: skip
            made.types[name][f"{name.lower()}{number}"] = fields
    for name, constructors in made.types.items():
        made.rows[name] = []
        for constructor, fields in constructors.items():
            inner = [n for n, each in enumerate(fields) if each.kind in names and not each.several]
            if inner and random.random() < 0.35:
                made.rows[name].append(_row(made, constructor, fields, random.choice(inner)))
            made.rows[name].append(_row(made, constructor, fields, -1))
    return made


class _Scope:
    """The values of a case, by their indices."""

    def __init__(self, program: Program) -> None:
        self.program, self.random = program, program.random
        self.known: list[tuple[str, str, str]] = [("P", VECTOR, "")]  # name, indices, children
        if program.passes:
            self.known.append(("w", SCALAR, ""))

    def expr(self, indices: str, several: str, depth: int = 2) -> Expr:
        """A random expression over some indices."""
        random = self.random
        if depth == 0 or random.random() < 0.2:
            fitting = [
                (n, i) for n, i, k in self.known if set(i) <= set(indices) and k in ("", several)
            ]
            if not fitting or random.random() < 0.1:
                number = random.randrange(-2, 4)
                return ("number", number if self.program.exact else number / 2)
            name, own = random.choice(fitting)
            return ("read", name, own)
        if not self.program.exact and random.random() < 0.2:
            return ("tanh", self.expr(indices, several, depth - 1))
        left, right = (self.expr(indices, several, depth - 1) for _ in "lr")
        return (random.choice("+-*"), left, right)

    def statement(self) -> Made:
        random = self.random
        several = [k for _, i, k in self.known if "k" in i]
        children = random.choice(several) if several and random.random() < 0.7 else ""
        indices, over = random.choice(
            [(SCALAR, "k"), (VECTOR, "k"), (SCALAR, "kd"), (EACH, ""), (EACH_VECTOR, ""),
             (EACH, "d")]
            if children else [(SCALAR, ""), (VECTOR, ""), (SCALAR, "d"), (VECTOR, "e")]
        )  # fmt: skip
        name = self.program.fresh("x")
        expr = self.expr("".join(sorted({*indices, *over} - {"e"}, reverse=True)), children)
        combine = ""
        if over == "e":  # a product of a matrix and a vector
            vectors = [n for n, i, k in self.known if i == VECTOR]
            expr = ("*", ("read", "M", "ed"), ("read", random.choice(vectors), "e"))
        if over:
            combine = "max=!" if over == "k" and random.random() < 0.2 else "+=!"
            for index in over:  # the index occurs in a read, which gives it a range
                if not _has(expr, index):
                    own = [(n, i) for n, i, k in self.known if index in i and k in ("", children)]
                    own = [each for each in own if set(each[1]) <= {*indices, *over}]
                    if not own:
                        return Made(name, SCALAR, self.expr(SCALAR, "", 0))
                    expr = ("*", expr, ("read", *random.choice(own)))
        for index in indices:
            if not _has(expr, index):
                read = next(
                    ((n, i) for n, i, k in self.known
                     if index in i and k in ("", children) and set(i) <= {*indices, *over}), None,
                )  # fmt: skip
                if read is None:
                    return Made(name, SCALAR, self.expr(SCALAR, "", 0))
                expr = ("+", expr, ("read", *read))
        if combine == "max=!":
            self.known.append((name, indices, ""))
            return Made(name, indices, expr, combine, over)
        self.known.append((name, indices, children if "k" in indices else ""))
        return Made(name, indices, expr, combine, over)


def _has(expr: Expr, index: str) -> bool:
    if expr[0] == "read":
        return index in expr[2]
    return any(isinstance(part, tuple) and _has(part, index) for part in expr[1:])


def _row(made: Program, constructor: str, fields: Sequence[Field], nested: int) -> Row:
    """A case of a constructor; the field `nested` has a pattern of its own."""
    random, scope = made.random, _Scope(made)
    parts: list[tuple[str, Field]] = []

    def pattern(name: str, own: Sequence[Field], inner: int) -> Any:
        found: list[Any] = []
        for number, each in enumerate(own):
            if number == inner:
                known = made.types[each.kind].items()  # a size counts structures of one place
                name_below, inner_fields = random.choice(
                    [(n, f) for n, f in known if n != name or not any(one.several for one in f)]
                    or [("", [])]
                )
                if not name_below:
                    found.append("_")
                    continue
                found.append(pattern(name_below, inner_fields, -1))
            elif random.random() < 0.15:
                found.append("_")
            else:
                parts.append((made.fresh("p"), each))
                found.append(parts[-1][0])
        return (name, *found)

    shown = pattern(constructor, fields, nested)
    for name, each in parts:
        if each.kind in (SCALAR, VECTOR):
            scope.known.append((name, each.kind, ""))
    before = [scope.statement() for _ in range(random.randrange(2))]
    passed = made.fresh("x")
    if made.passes:
        before.append(Made(passed, SCALAR, scope.expr(SCALAR, "")))
        scope.known.append((passed, SCALAR, ""))
    calls = []
    for name, each in parts:
        if each.kind not in (SCALAR, VECTOR):
            targets = made.fresh("r"), made.fresh("r")
            calls.append(Call(targets, each.kind, name, passed, each.several))
            own = (EACH, EACH_VECTOR) if each.several else (SCALAR, VECTOR)
            scope.known += [(n, i, each.several) for n, i in zip(targets, own)]
    after = [scope.statement() for _ in range(random.randrange(1, 5))]
    for name, indices in (("s", SCALAR), ("v", VECTOR)):
        expr = scope.expr(indices, "", 3)
        if indices and not _has(expr, "d"):
            expr = ("+", expr, ("read", "P", "d"))
        after.append(Made(name, indices, expr if made.exact else ("tanh", expr)))
    return Row(shown, tuple(before), tuple(calls), tuple(after))


# ---- Python --------------------------------------------------------------------------------------


class Meaning:
    """The recursion of a program, in one type of numbers."""

    def __init__(self, program: Program, dtype: Any, tensors: Mapping[str, Any]) -> None:
        self.program, self.dtype = program, dtype
        self.tensors = {name: numpy.asarray(value, dtype) for name, value in tensors.items()}
        self.size = len(tensors["P"])
        self.done: dict[tuple[int, str], Any] = {}

    def run(self, type: str, t: Structure, w: Any) -> tuple[Any, Any]:
        key = id(t), type
        if self.program.passes or key not in self.done:
            self.done[key] = self._run(type, t, w)
        return self.done[key]  # type: ignore[no-any-return]

    def _run(self, type: str, t: Structure, w: Any) -> tuple[Any, Any]:
        for row in self.program.rows[type]:
            found: dict[str, Any] = {}
            if not fits(row.pattern, t, found):
                continue
            env = {**self.tensors, "w": w}
            for name, value in found.items():
                own = isinstance(value, (tuple, list))
                env[name] = value if own else numpy.asarray(value, self.dtype)
            for made in row.before:
                env[made.name] = self.statement(made, env)
            for call in row.calls:
                passed = env.get(call.passed)
                if not call.several:
                    results = [self.run(call.type, env[call.of], passed)]
                    env.update(zip(call.targets, results[0]))
                    continue
                results = [self.run(call.type, each, passed) for each in env[call.of]]
                shapes = (len(results),), (len(results), self.size)
                for name, values, shape in zip(
                    call.targets, zip(*results) if results else ((), ()), shapes
                ):
                    env[name] = numpy.array(values, self.dtype).reshape(shape)
            for made in row.after:
                env[made.name] = self.statement(made, env)
            return env["s"], env["v"]
        raise AssertionError("no case fits")

    def statement(self, made: Made, env: Mapping[str, Any]) -> Any:
        order = made.indices + made.over  # the axes of the expression
        if made.over == "e":
            _, _, (_, vector, _) = made.expr
            return (env["M"].T @ env[vector]).astype(self.dtype)
        value = self.value(made.expr, env, order)
        if not made.over:
            return numpy.asarray(value, self.dtype)
        shape = tuple(self.length(made.expr, env, index) for index in order)
        value = numpy.broadcast_to(value, shape)
        axes = tuple(range(len(made.indices), len(order)))
        if made.combine == "max=!":
            least = numpy.iinfo(self.dtype).min if self.program.exact else -numpy.inf
            return value.max(axes, initial=least)
        return value.sum(axes, dtype=self.dtype)

    def length(self, expr: Expr, env: Mapping[str, Any], index: str) -> int:
        """The extent of an index."""
        if index == "d":
            return self.size
        if expr[0] == "read" and index in expr[2]:
            return int(env[expr[1]].shape[expr[2].index(index)])
        for part in expr[1:]:
            if isinstance(part, tuple) and _has(part, index):
                return self.length(part, env, index)
        raise AssertionError(index)

    def value(self, expr: Expr, env: Mapping[str, Any], order: str) -> Any:
        word, *parts = expr
        if word == "number":
            return numpy.asarray(parts[0], self.dtype)
        if word == "read":
            name, indices = parts
            held = env[name]
            axes = sorted(range(len(indices)), key=lambda axis: order.index(indices[axis]))
            sizes = [held.shape[indices.index(i)] if i in indices else 1 for i in order]
            return held.transpose(axes).reshape(sizes)
        values = [self.value(part, env, order) for part in parts]
        if word == "tanh":
            return numpy.tanh(values[0])
        with numpy.errstate(over="ignore", invalid="ignore"):
            return {"+": numpy.add, "-": numpy.subtract, "*": numpy.multiply}[word](*values)


def fits(pattern: Any, t: Any, found: dict[str, Any]) -> bool:
    """Whether a structure fits a pattern; names are bound."""
    if isinstance(pattern, str):
        found[pattern] = t
        return True
    return t[0] == pattern[0] and all(
        fits(inner, part, found) for inner, part in zip(pattern[1:], t[1:])
    )


# ---- structures ----------------------------------------------------------------------------------


def structure(
    program: Program, random: Random, size: int, type: str, depth: int, pool: list[tuple[str, Any]]
) -> Structure:
    """A random structure; some nodes occur in several places."""
    known = [t for name, t in pool if name == type]
    if known and not program.passes and random.random() < 0.15:
        return random.choice(known)  # type: ignore[no-any-return]
    constructors = list(program.types[type].items())
    name, fields = constructors[0] if depth == 0 else random.choice(constructors)
    parts: list[Any] = []
    for each in fields:
        if each.kind == SCALAR:
            parts.append(random.randrange(-2, 3) if program.exact else random.uniform(-1, 1))
        elif each.kind == VECTOR:
            parts.append(_numbers(program, random, size))
        elif each.several:
            count = random.randrange(4)
            parts.append(
                [structure(program, random, size, each.kind, depth - 1, pool) for _ in range(count)]
            )
        else:
            parts.append(structure(program, random, size, each.kind, depth - 1, pool))
    pool.append((type, (name, *parts)))
    return (name, *parts)


def _numbers(program: Program, random: Random, *shape: int) -> numpy.ndarray:
    count = int(numpy.prod(shape))
    if program.exact:
        made = numpy.array([random.randrange(-2, 3) for _ in range(count)], program.kind.dtype)
    else:
        made = numpy.array([random.uniform(-1, 1) for _ in range(count)], program.kind.dtype)
    return made.reshape(shape)


# ---- the law -------------------------------------------------------------------------------------


def judge(program: Program, seed: int) -> str:
    """What is wrong with a program; '' for nothing."""
    random = Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "random.tc")
        file.write_text(program.text(), "utf-8")
        try:
            threads = (1, 2) if seed % 3 == 0 else (1,)
            models = [ad.compile(f"{file}:f_T", threads=count) for count in threads]
        except LanguageError as error:
            return "" if NO_FORM in str(error) else f"compile: {said(error)}"
        except Exception as error:
            return f"compile: {said(error)}"
    for size in SIZES:
        pool: list[tuple[str, Any]] = []
        batch = [structure(program, random, size, "T", 4, pool) for _ in range(ROWS)]
        given = {"P": _numbers(program, random, size), "M": _numbers(program, random, size, size)}
        if program.passes:
            given["w"] = _numbers(program, random)
        for wrong in _compared(program, models, batch, given):
            return f"{wrong}, D = {size}\n# {batch}\n# {given}"
    return ""


def _compared(
    program: Program, models: list[ad.Model], batch: list[Structure], given: dict[str, Any]
) -> Iterator[str]:
    try:
        whole, *others = (
            {n: numpy.asarray(v) for n, v in m(t=batch, **given).items()} for m in models
        )
        alone = [models[0](t=[t], **given) for t in batch]
    except Exception as error:
        if TOO_OFTEN not in str(error):
            yield f"call: {said(error)}"
        return
    kind = program.kind
    dtypes = (kind.dtype,) if program.exact else (kind.wide, kind.dtype)
    means = [Meaning(program, dtype, given) for dtype in dtypes]
    for row, t in enumerate(batch):
        right, *shaken = (
            mean.run("T", t, numpy.asarray(given.get("w", 0), mean.dtype)) for mean in means
        )
        for number, name in enumerate(("s", "v")):
            found, wanted = whole[name][row], right[number]
            if found.dtype != kind.dtype:
                yield f"'{name}' has elements of type {found.dtype}, not {kind.name}"
            if any(_bits(found) != _bits(other[name][row]) for other in others):
                yield f"'{name}' of structure {row} has other bits with two threads"
            if _bits(found) != _bits(alone[row][name][0]):
                yield f"'{name}' of structure {row} has other bits than alone"
            allowed: Any = 0
            for each in shaken:
                allowed = SLACK * _difference(each[number], wanted).max(initial=0) + kind.off
            if found.shape != wanted.shape or not (_difference(found, wanted) <= allowed).all():
                yield f"'{name}' of structure {row} is {found}, not {wanted}"


def _bits(found: Any) -> bytes:
    """The bits of numbers; the sign of a NaN depends on the order of operands."""
    return numpy.where(numpy.isnan(found), numpy.abs(found), found).tobytes()


def _difference(found: Any, wanted: Any) -> Any:
    """How far numbers are off, in the type of the wanted ones; infinite where only the found one is
    NaN.

    Any number is right where NaN is wanted: an infinite factor of a sum is taken out of it, so that
    no terms of both signs meet (docs/numerics.md).
    """
    narrow = numpy.asarray(found).astype(wanted.dtype)
    equal = (narrow == wanted) | numpy.isnan(wanted)
    with numpy.errstate(invalid="ignore"):
        off = numpy.where(equal, 0, numpy.abs(narrow - wanted))
    return numpy.where(numpy.isnan(off), numpy.inf, off)


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
