"""Ways to write a recurrence, each with the types of its tensors declared as well.

In a text `T` is the type of x, `S` that of z, `M` that of a parameter that is written: a tensor of
`declared` becomes one, so nothing is inferred of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from anydim.lang.surface.parser import parse
from anydim.lang.surface.syntax import Definition, Name, Parameter

FLOATS = ("float64", "float32", "float16", "bfloat16")
INTEGERS = ("int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8")
TYPES = (*FLOATS, *INTEGERS)


@dataclass(frozen=True)
class Form:
    """A definition of x and perhaps z; `dims` are those of what it writes, results first.

    `logic`: it is one of bool.
    """

    name: str
    body: str
    dims: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: {"y": ("N",)})
    results: tuple[str, ...] = ("y",)
    second: bool = False
    logic: bool = False
    more: str = ""  # definitions that it calls

    @property
    def definition(self) -> Definition:
        second = ", S(N) z" if self.second else ""
        text = f"def {self.name}(T(N) x{second}) -> ({', '.join(self.results)}) {{ {self.body} }}"
        return parse(f"{self.more}\n{text}")[self.name]

    @property
    def declared(self) -> Definition:
        """The same, its tensors parameters of type `M`."""
        written = tuple(
            Parameter(name, "M", tuple(map(Name, dims))) for name, dims in self.dims.items()
        )
        definition = self.definition
        return replace(definition, parameters=(*definition.parameters, *written))


def loop(body: str) -> str:
    return f"for t in 0:N {{ {body} }}"


def back(body: str) -> str:
    return f"for t in N-1:-1:-1 {{ {body} }}"


PAIR = {"y": ("N",), "w": ("N",)}
BOTH = ("y", "w")
TABLE = {"y": ("N", "N")}
FIRST, NEXT = "y(t) = x(t)", "y(t) = y(t - 1) + x(t)"
SELF = "y(t) = (y(t - 1) else 0) + x(t)"
FORMS = (
    Form("itself", loop(SELF)),
    Form("backwards", back("y(t) = (y(t + 1) else 0) + x(t)")),
    Form("far", loop("y(t) = x(t) - (y(t - 3) else 1)")),
    Form("in_a_function", loop("y(t) = max(y(t - 1) else 0, x(t))")),
    Form("chosen", loop("y(t) = x(t) > 3 ? x(t) : (y(t - 1) else 1)")),
    Form("else_alone", loop("y(t) = y(t - 1) else x(t)")),
    Form("branch_first", loop(f"if t == 0 {{ {FIRST} }} else {{ {NEXT} }}")),
    Form("branch_last", loop(f"if t > 0 {{ {NEXT} }} else {{ {FIRST} }}")),
    Form("literal_first", loop(f"if t == 0 {{ y(t) = 1 }} else {{ {NEXT} }}")),
    Form("literal_last", loop(f"if t > 0 {{ {NEXT} }} else {{ y(t) = 1 }}")),
    Form("three_ways", loop(
        f"if t == 0 {{ y(t) = 2 }} else if t % 2 == 0 {{ {NEXT} }} else {{ y(t) = y(t - 1) * 3 }}"
    )),
    Form("filled", f"y(i) = 1 where i in 0:N {loop('y(t) = y(t) + x(t)')}"),
    Form("added", loop("y(t) = x(t) if t > 0 { y(t) += y(t - 1) }")),
    Form("reduced", loop("y(t) +=! x(t) * (y(k) else 1) where k in 0:t")),
    Form("mutual", loop("y(t) = (w(t - 1) else 0) + x(t) w(t) = (y(t) else 0) * 2"), PAIR, BOTH),
    Form("mutual_late", loop("w(t) = (y(t - 1) else 1) y(t) = w(t) + x(t)"), PAIR, BOTH),
    Form("temporary", loop("w(t) = (y(t - 1) else 0) * 3 y(t) = w(t) - x(t)"), PAIR),
    Form("two_directions", loop("w(t) = (w(t - 1) else 0) + x(t)")
         + back("y(t) = (y(t + 1) else 0) - w(t)"), PAIR),
    Form("outer", "for i in 0:N { for t in 0:N { y(i,t) = (y(i,t - 1) else 0) + x(t) } }", TABLE),
    Form("neighbours", "for i in 0:N { for t in 0:N { "
         "y(i,t) = min(y(i - 1,t) else 1, y(i,t - 1) else 1) + (x(i) == x(t) ? 0 : x(t)) } }",
         TABLE),
    Form("rows", "for t in 0:N { y(t,i) = (y(t - 1,i) else 0) + x(i) }", TABLE),
    Form("carried", loop("if t == 0 { w = x(t) } w = w * 2 + x(t) y(t) = w"),
         {"y": ("N",), "w": ()}),
    Form("converted", loop("y(t) = T((y(t - 1) else 0) + x(t))")),
    Form("called", "y(i) = x(i) for t in 0:3 { y = step(y, x) }",
         more="def step(T(N) a, T(N) b) -> (c) { c(i) = a(i) + b(i) }"),
    Form("calls_one", f"w = walk(x) {loop('y(t) = (y(t - 1) else 0) + w(t)')}", PAIR,
         more=f"def walk(T(N) x) -> (y) {{ {loop(SELF)} }}"),
    Form("of_another_type", loop("y(t) = (y(t - 1) else z(t)) + x(t)"), second=True),
    Form("meeting", loop("y(t) = (y(t - 1) else 0) + x(t) * z(t)"), second=True),
    Form("meeting_mutually", loop("y(t) = (w(t - 1) else 0) + x(t) w(t) = (y(t) else 0) * z(t)"),
         PAIR, BOTH, second=True),
    Form("any_so_far", loop("y(t) = (y(t - 1) else false) || x(t)"), logic=True),
    Form("odd_so_far", loop("if t == 0 { y(t) = x(t) } else { y(t) = y(t - 1) != x(t) }"),
         logic=True),
    Form("all_so_far", back("y(t) = (y(t + 1) else true) & x(t)"), logic=True),
)  # fmt: skip
