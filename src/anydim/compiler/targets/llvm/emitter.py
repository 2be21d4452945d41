"""Writes the text of one function: values in SSA form, blocks, phis.

The text needs no clean-up passes. Equal pure instructions are emitted once while the first one
dominates; loop-invariant instructions are hoisted. Names: %a0, %a1, ... parameters, %t1, %t2, ...
values, b1, b2, ... blocks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field
from typing import TypeAlias

from anydim.base.records import dataclass
from anydim.compiler.targets.processor import Processor

Lines: TypeAlias = "list[str | Lines]"
_PER_ROW = 16  # numbers of a table in a line
_RARE, _PAST = "!0", "!1"

_ODD = re.compile(r"\W", re.ASCII)  # characters not allowed in labels


@dataclass
class Module:
    """State shared by the functions of a module: processor, declarations, branch weights.

    With `names`, labels of loops contain the names of their variables, for readable assembly.
    """

    processor: Processor
    declarations: dict[str, str] = field(default_factory=dict)
    names: bool = False

    def declare(self, result: str, name: str, arguments: Iterable[str]) -> None:
        """Declare a function of another module, once; `name` includes its @."""
        if name not in self.declarations:
            self.declarations[name] = f"declare {result} {name}({', '.join(arguments)})"

    def table(self, numbers: Sequence[int]) -> str:
        """Return the name of a new constant array of int32."""
        name = f"@table{len(self.declarations)}"
        rows = (numbers[at : at + _PER_ROW] for at in range(0, len(numbers), _PER_ROW))
        text = ",\n".join(", ".join(f"i32 {number}" for number in row) for row in rows)
        kind = f"private unnamed_addr constant [{len(numbers)} x i32]"
        self.declarations[name] = f"{name} = {kind} [\n{text}\n], align 64"
        return name

    def text(self) -> str:
        return "\n".join(self.declarations.values())


@dataclass
class Scope:
    """A piece of code and the values known inside it; `before`: where a loop hoists to."""

    before: Lines | None = None
    keys: list[str] = field(default_factory=list)


class Emitter:
    """The function in progress; see the module's docstring."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.entry: Lines = []
        self.block = "entry"
        self._lines: Lines = ["entry:", self.entry]
        self._scopes = [Scope()]
        self._known: dict[str, str] = {}
        self._depth: dict[str, int] = {}
        self._count = 0

    # ---- values --------------------------------------------------------------------------------

    def fresh(self, depth: int | None = None) -> str:
        """Return a name for a value of the present scope, or of one around it."""
        self._count += 1
        name = f"%t{self._count}"
        self._depth[name] = self.level if depth is None else depth
        return name

    @property
    def level(self) -> int:
        """The depth of values of the present scope."""
        return len(self._scopes) - 1

    def depth(self, name: str) -> int:
        """Return the number of scopes around a value; constants and parameters have depth 0."""
        return self._depth.get(name, 0)

    def pure(self, instruction: str, operands: Iterable[str]) -> str:
        """Return the result of an instruction that reads no memory and cannot fail."""
        known = self._known.get(instruction)
        if known is not None:
            return known
        depth, needed = self._depth, 0
        for operand in operands:
            within = depth.get(operand, 0)
            if within > needed:
                needed = within
        level = len(self._scopes) - 1
        target = self._lines
        while level > needed:
            before = self._scopes[level].before
            if before is None:
                break
            target = before
            level -= 1
        self._count += 1
        name = f"%t{self._count}"
        depth[name] = level
        target.append(f"  {name} = {instruction}")
        self._known[instruction] = name
        self._scopes[level].keys.append(instruction)
        return name

    def once(self, instruction: str) -> str:
        """Return the result of an instruction that must run here."""
        name = self.fresh()
        self._lines.append(f"  {name} = {instruction}")
        return name

    def write(self, line: str) -> None:
        """Emit an instruction without result."""
        self._lines.append(f"  {line}")

    def write_nontemporal(self, store: str, alignment: int) -> None:
        """Emit a nontemporal store."""
        self.module.declarations[_PAST] = f"{_PAST} = !{{i32 1}}"
        self.write(f"{store}, align {alignment}, !nontemporal {_PAST}")

    def alloca(self, type_: str, alignment: int) -> str:
        """Allocate memory in the stack frame of the function."""
        self._count += 1
        name = f"%t{self._count}"
        self.entry.append(f"  {name} = alloca {type_}, align {alignment}")
        return name

    def intrinsic(self, result: str, name: str, *arguments: tuple[str, str]) -> str:
        """Call a pure intrinsic on (type, operand) pairs."""
        call = self.call_text(result, name, arguments)
        return self.pure(call, [operand for _, operand in arguments])

    def call_text(self, result: str, name: str, arguments: Iterable[tuple[str, str]]) -> str:
        """Return the text of a call; the intrinsic is declared."""
        pairs = tuple(arguments)
        self.module.declare(result, f"@{name}", (kind.split(" align")[0] for kind, _ in pairs))
        return f"call {result} @{name}({', '.join(f'{kind} {text}' for kind, text in pairs)})"

    # ---- blocks --------------------------------------------------------------------------------

    def new_label(self, kind: str = "", variable: str = "") -> str:
        """Return a label; in a module with names it includes kind and variable: b7.while,
        b8.for.r0."""
        self._count += 1
        plain = f"b{self._count}"
        if not (kind and self.module.names):
            return plain
        return ".".join(filter(None, (plain, kind, _ODD.sub("_", variable))))

    def jump(self, label: str) -> None:
        self._lines.append(f"  br label %{label}")

    def branch(self, condition: str, then: str, otherwise: str, rare: bool = False) -> None:
        """Branch to one of two blocks; with `rare` the code of `then` is out of line."""
        weight = f", !prof {_RARE}" if rare else ""
        if rare:
            self.module.declarations[_RARE] = f'{_RARE} = !{{!"branch_weights", i32 1, i32 2000}}'
        self._lines.append(f"  br i1 {condition}, label %{then}, label %{otherwise}{weight}")

    def start(self, label: str) -> None:
        """Begin a block."""
        self._lines.append(f"{label}:")
        self.block = label

    def reserve(self) -> Lines:
        """Reserve a position here for later lines."""
        lines: Lines = []
        self.insert(lines)
        return lines

    def insert(self, lines: Lines) -> None:
        """Insert lines here that may still grow."""
        self._lines.append(lines)

    @contextmanager
    def scope(self, before: Lines | None = None) -> Iterator[None]:
        """Limit new values to this scope; a loop if `before` is given."""
        self._scopes.append(Scope(before))
        yield
        for key in self._scopes.pop().keys:
            del self._known[key]

    def text(self) -> str:
        """Return all lines of the body."""
        out: list[str] = []
        _flatten(self._lines, out)
        return "\n".join(out)


def _flatten(lines: Lines, out: list[str]) -> None:
    for line in lines:
        if isinstance(line, str):
            out.append(line)
        else:
            _flatten(line, out)
