"""Loop IR to the text of C files.

A kernel's file defines `void NAME(const slot *arguments, i64 start, i64 stop, void *scratch)`,
where a slot is eight bytes: the operands' pointers in order, then the int64 sizes. The file of a
library, or of host code, defines its public functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from anydim.compiler.kernels import ir
from anydim.compiler.kernels.ir.steps import every_step
from anydim.compiler.targets.c.dialect import C11, Dialect, storage_name
from anydim.compiler.targets.c.forms import Form, form_of
from anydim.compiler.targets.c.names import identifier, is_identifier
from anydim.compiler.targets.c.operations import helper
from anydim.compiler.targets.c.prelude import Prelude, Write
from anydim.compiler.targets.c.steps import LOCAL, Steps
from anydim.compiler.targets.functions.legalise import legalise
from anydim.compiler.targets.processor import Processor
from anydim.compiler.targets.target import Source, sources_with_libraries

_SLOT = "typedef union { void *pointer; i64 number; } slot;"


def sources(code: Iterable[ir.Kernel | ir.Library], processor: Processor) -> dict[str, Source]:
    """Return the files of kernels, of the libraries they use and of other ones, by name."""
    about = (processor.vector_bytes, processor.architecture, ",".join(sorted(processor.has)))
    return sources_with_libraries(
        code, lambda each: Source.of_code(each, partial(render, each, processor), *about)
    )


def render(code: ir.Kernel | ir.Library, processor: Processor, dialect: Dialect = C11) -> str:
    """Return the file of a kernel or a library."""
    file = File(dialect, processor)
    functions = legalise(code.functions, dialect.primitives)
    if isinstance(code, ir.Library):
        file.add(functions)
        return file.text(f"library {code.name}")
    file.know(function for library in code.libraries for function in library.functions)
    file.add(functions)
    file.entry(code)
    return file.text(f"kernel {code.name}")


class File:
    """A file in progress; `write` makes its helper functions."""

    def __init__(self, dialect: Dialect, processor: Processor, write: Write = helper) -> None:
        self.dialect = dialect
        self.prelude = Prelude(dialect, processor, write)
        self.known: dict[str, ir.Function] = {}
        self.named: set[str] = set()  # functions defined or called here
        self.parts: list[str] = []

    def know(self, functions: Iterable[ir.Function]) -> None:
        """Add functions that may be called, here or in another file."""
        self.known |= {function.name: function for function in functions}

    def add(self, functions: Sequence[ir.Function]) -> None:
        """Define functions; functions of other files that they call are declared first."""
        self.know(functions)
        own = {function.name for function in functions}
        calls = _calls_by_name(functions)
        self.named = {*own, *calls}
        self.parts += [self._declare(call) for name, call in calls.items() if name not in own]
        odd = (f for f in functions if f.public and not is_identifier(f.name))
        self.parts += [f"{self._head(f)}{self._symbol(f.name)};" for f in odd]
        self.parts += [f"{self._linkage(f)}{self._head(f)};" for f in _ahead(functions)]
        self.parts += [self._define(function) for function in functions]

    def callee(self, name: str, spaces: Sequence[str]) -> str:
        """Return the name of a function for arguments in given address spaces."""
        return identifier(name)

    def _define(self, function: ir.Function, called: str = "", spaces: Sequence[str] = ()) -> str:
        steps = Steps(function, self.prelude, self.known, self.named, self.callee)
        names = []
        for parameter in function.parameters:
            names.append(steps.values.scope.declare(parameter.name))
            if isinstance(parameter, ir.Pointer):
                steps.values.buffers[parameter.name] = parameter.dtype
        pointers = (p.name for p in function.parameters if isinstance(p, ir.Pointer))
        steps.values.spaces |= dict(zip(pointers, spaces))
        steps.run(function.body)
        quick = self.dialect.quick if function.quick else ""
        head = self._head(function, names, called, spaces)
        return "\n".join([f"{quick}{self._linkage(function)}{head} {{", *steps.lines, "}"])

    def _linkage(self, function: ir.Function) -> str:
        return self.dialect.public if function.public else self.dialect.internal

    def _head(
        self, function: ir.Function, names: Sequence[str] = (), called: str = "",
        spaces: Sequence[str] = (),
    ) -> str:  # fmt: skip
        """Return result, name and parameters."""
        result = "void" if function.result is None else self._type(function.result)
        names = names or [identifier(parameter.name) for parameter in function.parameters]
        kinds = iter(spaces)
        parameters = ", ".join(
            self._parameter(p, name, next(kinds, "") if isinstance(p, ir.Pointer) else "")
            for p, name in zip(function.parameters, names)
        )
        return f"{result} {called or identifier(function.name)}({parameters or 'void'})"

    def _declare(self, call: ir.Call) -> str:
        """Declare the function of another file that a step calls."""
        name = str(call.function)
        if name in self.known:
            return f"{self._head(self.known[name])}{self._symbol(name)};"
        result = "void" if call.result is None else self._type(call.result.type)
        kinds = ", ".join(
            "void *" if isinstance(argument, ir.Address) else self._type(argument.type)
            for argument in call.arguments
        )
        symbol = self.dialect.symbol.format(name=name)
        return f"{result} {identifier(name)}({kinds or 'void'}){symbol};"

    def _symbol(self, name: str) -> str:
        if is_identifier(name):
            return ""
        return self.dialect.symbol.format(name=name.replace("\\", "\\\\").replace('"', '\\"'))

    def _type(self, kind: ir.Type) -> str:
        return self.prelude.type(form_of(kind))

    def _parameter(self, parameter: ir.Pointer | ir.Scalar, name: str, space: str) -> str:
        if isinstance(parameter, ir.Scalar):
            return f"{self._type(parameter.type)} {name}"
        # Other work-items write local memory: a restrict pointer to it would allow the
        # compiler to keep a value across a barrier.
        alias = parameter.alias or space == LOCAL
        text = self.dialect.alias if alias else self.dialect.pointer
        kind = self.prelude.type(Form(storage_name(parameter.dtype)))
        return self.dialect.spaces.get(space, "") + text.format(type=kind, name=name)

    def entry(self, kernel: ir.Kernel) -> None:
        """Emit the function that unpacks the argument block and calls `main`."""
        index = self.prelude.type(Form("i64"))
        count = len(kernel.operands)
        parts = [f"arguments[{slot}].pointer" for slot in range(count)]
        parts += [f"arguments[{count + slot}].number" for slot in range(len(kernel.sizes))]
        parts += ["start", "stop", "scratch"]
        name = identifier(kernel.name)
        head = f"void {name}(const slot *arguments, {index} start, {index} stop, void *scratch)"
        symbol = "" if is_identifier(kernel.name) else self._symbol(kernel.name)
        declared = f"{self.dialect.entry}{head}{symbol};\n"
        call = f"  {identifier(kernel.main.name)}({', '.join(parts)});"
        self.parts.append(f"{_SLOT}\n\n{declared}{head} {{\n{call}\n}}")

    def text(self, title: str) -> str:
        head = self.dialect.head.format(title=title.replace("*/", "* /"))
        return "\n\n".join([head.rstrip(), self.prelude.text(), *self.parts]) + "\n"


def _ahead(functions: Sequence[ir.Function]) -> Iterator[ir.Function]:
    """Yield the functions that are called before they are defined."""
    own = {function.name: function for function in functions}
    wanted: dict[str, None] = {}
    defined: set[str] = set()
    for function in functions:
        defined.add(function.name)
        called = (name for name, _ in _calls(function.body))
        wanted.update((name, None) for name in called if name in own and name not in defined)
    return (own[name] for name in wanted if is_identifier(name))


def _calls_by_name(functions: Iterable[ir.Function]) -> dict[str, ir.Call]:
    """Return a call of each function that is called by name: one that uses its result, if any."""
    found: dict[str, ir.Call] = {}
    for name, call in (pair for function in functions for pair in _calls(function.body)):
        known = found.setdefault(name, call)
        if call.result is not None or known.result is None:
            found[name] = call
    return found


def _calls(steps: Iterable[ir.Step]) -> Iterator[tuple[str, ir.Call]]:
    """Yield the steps that call a function by name."""
    calls = (step for step in every_step(steps) if isinstance(step, ir.Call))
    return ((call.function, call) for call in calls if isinstance(call.function, str))
