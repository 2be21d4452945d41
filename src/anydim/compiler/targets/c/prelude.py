"""Prelude of a C file: the types and helper functions that its kernels use, each once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import field
from typing import TypeAlias

from anydim.base.records import dataclass
from anydim.compiler.targets.c.dialect import Dialect
from anydim.compiler.targets.c.forms import FLAG, Form, steps
from anydim.compiler.targets.processor import Processor


@dataclass(frozen=True)
class Helper:
    """A helper function: its result, its parameters with types, the lines of its body."""

    result: str
    parameters: tuple[str, ...]
    lines: tuple[str, ...]


Write: TypeAlias = "Callable[[str, Form, Form | None, Prelude, str], Helper]"


@dataclass
class Prelude:
    """Collects definitions, callees first. `write` makes a helper function from its name."""

    dialect: Dialect
    processor: Processor
    write: Write
    types: dict[str, str] = field(default_factory=dict)
    functions: dict[str, str] = field(default_factory=dict)

    def type(self, form: Form) -> str:
        """Return the name of a type, and define it."""
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

    def unaligned_type(self, form: Form) -> str:
        """Return the name of a vector type for memory that is aligned to an element."""
        name = f"{self.type(form)}_at"
        if name not in self.types:
            self.types[name] = self.dialect.unaligned.format(
                type=self.dialect.scalars[form.element], name=form.name,
                bytes=form.all_bits // 8, align=form.bits // 8, lanes=form.lanes,
            )  # fmt: skip
        return name

    def call(self, operation: str, form: Form, *arguments: str, space: str = "") -> str:
        """Return a call of a form's helper function, and define it."""
        return f"{self.function(operation, form, space=space)}({', '.join(arguments)})"

    def function(
        self, operation: str, form: Form, other: Form | None = None, space: str = ""
    ) -> str:
        """Return the name of a helper function: add_i32x8, bits_u32_f32, load_f32x4_local ..."""
        name = f"{operation}_{form.name}" + (f"_{other.name}" if other else "")
        name += f"_{space}" if space else ""
        if name not in self.functions:
            self.functions[name] = ""  # marks it as in progress; no helper is recursive
            made = self.write(operation, form, other, self, space)
            del self.functions[name]
            self.define(name, made)
        return name

    def define(self, name: str, made: Helper) -> None:
        """Define a function by its name."""
        parameters = ", ".join(made.parameters)
        head = f"{self.dialect.inline}{made.result} {name}({parameters}) {{"
        self.functions[name] = "\n".join([head, *made.lines, "}"])

    def shuffle(self, left: str, right: str, lanes: tuple[int, ...], source: Form) -> str:
        """Return lanes of two vectors of the form `source`."""
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
        """Return a vector of its lanes."""
        return self.dialect.several.format(type=self.type(form), lanes=", ".join(lanes))

    def lane(self, value: str, lane: int) -> str:
        """Return one lane of a vector."""
        return self.dialect.lane.format(value=value, lane=lane)

    def cast(self, value: str, form: Form) -> str:
        """Bit cast; a value of lower precedence than a name is in parentheses."""
        return self.dialect.cast.format(value=value, type=self.type(form))

    def zero(self, form: Form) -> str:
        """Return a zero vector."""
        return self.several(form, "0")

    def is_wide(self, form: Form) -> bool:
        """Whether a vector takes several registers and is handled in halves."""
        is_wide = form.all_bits > 8 * self.processor.vector_bytes and form.lanes > 2
        return self.dialect.splits and is_wide

    def convert(self, value: str, have: Form, wanted: Form) -> str:
        """Convert lanes of a vector to another element type."""
        for form in (*(steps(have, wanted) if self.dialect.splits else ()), wanted):
            value = self.dialect.convert.format(value=value, type=self.type(form))
        return value

    def text(self) -> str:
        """Return all definitions."""
        return "\n".join([*self.types.values(), "", *self.functions.values()]).rstrip()
