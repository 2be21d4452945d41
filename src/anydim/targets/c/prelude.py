"""What a C file begins with: the types and the small functions that its kernels use, each once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import field
from typing import TypeAlias

from anydim.base.records import dataclass
from anydim.targets.c.dialect import Dialect
from anydim.targets.c.forms import FLAG, Form
from anydim.targets.processor import Processor


@dataclass(frozen=True)
class Helper:
    """A small function: its result, its parameters with their types, the lines of its body."""

    result: str
    parameters: tuple[str, ...]
    lines: tuple[str, ...]


Write: TypeAlias = "Callable[[str, Form, Form | None, Prelude, str], Helper]"


@dataclass
class Prelude:
    """Collects them; what a function needs stands before it. `write` makes one of its name."""

    dialect: Dialect
    processor: Processor
    write: Write
    types: dict[str, str] = field(default_factory=dict)
    functions: dict[str, str] = field(default_factory=dict)

    def type(self, form: Form) -> str:
        """The name of a type, which is defined."""
        if form.element == FLAG:
            return self.dialect.flag
        if form.name not in self.types:
            element = self.dialect.scalars[form.element]
            text = self.dialect.scalar if form.lanes == 1 else self.dialect.vector
            size = form.all_bits // 8
            self.types[form.name] = text.format(
                type=element, name=form.name, bytes=size, lanes=form.lanes
            )
        return form.name

    def unaligned(self, form: Form) -> str:
        """The name of a vector type for memory that is aligned as one element is."""
        name = f"{self.type(form)}_at"
        if name not in self.types:
            self.types[name] = self.dialect.unaligned.format(
                type=self.dialect.scalars[form.element], name=form.name,
                bytes=form.all_bits // 8, align=form.bits // 8, lanes=form.lanes,
            )  # fmt: skip
        return name

    def call(self, operation: str, form: Form, *arguments: str, space: str = "") -> str:
        """A call of the function of that name for a form, which is defined."""
        return f"{self.function(operation, form, space=space)}({', '.join(arguments)})"

    def function(
        self, operation: str, form: Form, other: Form | None = None, space: str = ""
    ) -> str:
        """The name of a small function: add_i32x8, bits_u32_f32, load_f32x4_local ..."""
        name = f"{operation}_{form.name}" + (f"_{other.name}" if other else "")
        name += f"_{space}" if space else ""
        if name not in self.functions:
            self.functions[name] = ""  # none calls itself; asked for again while it is written
            made = self.write(operation, form, other, self, space)
            del self.functions[name]
            self.define(name, made)
        return name

    def define(self, name: str, made: Helper) -> None:
        """Define a function by the name it has."""
        parameters = ", ".join(made.parameters)
        head = f"{self.dialect.inline}{made.result} {name}({parameters}) {{"
        self.functions[name] = "\n".join([head, *made.lines, "}"])

    def shuffle(self, left: str, right: str, lanes: tuple[int, ...], source: Form) -> str:
        """Lanes of two vectors of the form `source`."""
        if source.lanes == 1 and len(lanes) == 1:
            return right if lanes[0] else left
        text = ", ".join(map(str, lanes))
        if self.dialect.shuffle:
            return self.dialect.shuffle.format(left=left, right=right, lanes=text)
        form, kind = Form(source.element, len(lanes)), self.type(source)
        name = "_".join(["pick", source.name, *map(str, lanes)])
        if name not in self.functions:
            count = source.lanes
            picks = (self.lane("ab"[lane >= count], lane % count) for lane in lanes)
            line = f"  return {self.several(form, picks)};"
            self.define(name, Helper(self.type(form), (f"{kind} a", f"{kind} b"), (line,)))
        return f"{name}({left}, {right})"

    def several(self, form: Form, lanes: Iterable[str]) -> str:
        """A vector of its lanes."""
        return self.dialect.several.format(type=self.type(form), lanes=", ".join(lanes))

    def lane(self, value: str, lane: int) -> str:
        """One lane of a vector."""
        return self.dialect.lane.format(value=value, lane=lane)

    def cast(self, value: str, form: Form) -> str:
        """The same bits; a value that holds together less than a name stands in parentheses."""
        return self.dialect.cast.format(value=value, type=self.type(form))

    def zero(self, form: Form) -> str:
        """A vector of zeros."""
        return self.several(form, "0")

    def convert(self, value: str, form: Form) -> str:
        """Lanes of a vector as another element type."""
        return self.dialect.convert.format(value=value, type=self.type(form))

    def text(self) -> str:
        """All of it."""
        return "\n".join([*self.types.values(), "", *self.functions.values()]).rstrip()
