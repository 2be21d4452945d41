"""What a C file begins with: the types and the small functions that its kernels use, each once."""

from __future__ import annotations

from collections.abc import Callable
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


Write: TypeAlias = "Callable[[str, Form, Form | None, Prelude], Helper]"


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
        if form.element != FLAG and form.name not in self.types:
            element = self.dialect.scalars[form.element]
            text = self.dialect.scalar if form.lanes == 1 else self.dialect.vector
            size = form.all_bits // 8
            self.types[form.name] = text.format(type=element, name=form.name, bytes=size)
        return form.name

    def unaligned(self, form: Form) -> str:
        """The name of a vector type for memory that is aligned as one element is."""
        name = f"{self.type(form)}_at"
        if name not in self.types:
            self.types[name] = self.dialect.unaligned.format(
                type=self.dialect.scalars[form.element], name=form.name,
                bytes=form.all_bits // 8, align=form.bits // 8,
            )  # fmt: skip
        return name

    def call(self, operation: str, form: Form, *arguments: str) -> str:
        """A call of the function of that name for a form, which is defined."""
        return f"{self.function(operation, form)}({', '.join(arguments)})"

    def function(self, operation: str, form: Form, other: Form | None = None) -> str:
        """The name of a small function: add_i32x8, bits_u32_f32, ..."""
        name = f"{operation}_{form.name}" + (f"_{other.name}" if other else "")
        if name not in self.functions:
            self.functions[name] = ""  # none calls itself; asked for again while it is written
            made = self.write(operation, form, other, self)
            del self.functions[name]
            self.define(name, made)
        return name

    def define(self, name: str, made: Helper) -> None:
        """Define a function by the name it has."""
        parameters = ", ".join(made.parameters)
        head = f"{self.dialect.inline}{made.result} {name}({parameters}) {{"
        self.functions[name] = "\n".join([head, *made.lines, "}"])

    def shuffle(self, left: str, right: str, lanes: tuple[int, ...]) -> str:
        """Lanes of two vectors."""
        text = ", ".join(map(str, lanes))
        return self.dialect.shuffle.format(left=left, right=right, lanes=text)

    def convert(self, value: str, form: Form) -> str:
        """Lanes of a vector as another element type."""
        return self.dialect.convert.format(value=value, type=self.type(form))

    def text(self) -> str:
        """All of it."""
        return "\n".join([*self.types.values(), "", *self.functions.values()]).rstrip()
