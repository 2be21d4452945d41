"""The assembly of a program's kernels: of one kernel, or a list to choose from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property, partial

from anydim.base.errors import OptionError
from anydim.base.records import dataclass
from anydim.base.sheet import Sheet, Table
from anydim.base.text import count_of, nodes_text
from anydim.compiler.kernels.ir import Kernel, Library
from anydim.compiler.native.build import Assembled
from anydim.compiler.targets.target import Target
from anydim.runtime.program.compile_report import KernelTexts

_HEADERS = ("", "name", "launches", "nodes")


def assembly_texts(made: Assembled, target: Target) -> KernelTexts:
    """The stage `assembly`: kernels launched by the host, and libraries that they call."""
    listing = _Listing(made, target)
    return KernelTexts(listing.texts, listing.choice)


@dataclass(frozen=True)
class _Listing:
    made: Assembled
    target: Target

    @cached_property
    def kernels(self) -> dict[str, Kernel]:
        return {
            site.kernel: self.made.kernels[site.kernel] for site in self.made.program.host_sites
        }

    @cached_property
    def code(self) -> dict[str, Kernel | Library]:
        """Kernels, then libraries, by name."""
        libraries = (library for each in self.kernels.values() for library in each.libraries)
        return {**self.kernels, **{library.name: library for library in libraries}}

    def texts(self) -> Mapping[str, Callable[[], str]]:
        return {name: partial(self._text, name) for name in self.code}

    def choice(self) -> str:
        """Return the assembly of a single kernel, otherwise a list of kernels."""
        if len(self.kernels) < 2:
            return "\n".join(text() for text in self.texts().values())
        title = "choose a kernel: show('assembly', kernel='PATTERN') or --kernel PATTERN"
        return Sheet(title, (), (Table(_HEADERS, list(map(self._row, self.code)), 4),)).text()

    def _row(self, name: str) -> tuple[str, ...]:
        if name not in self.kernels:
            return "library", name, "", f"of {count_of(len(self._users(name)), 'kernel')}"
        sources = self._sources(name)
        return "kernel", name, str(len(sources)), nodes_text(sources[0])

    def _sources(self, name: str) -> list[str]:
        return [site.source for site in self.made.program.host_sites if site.kernel == name]

    def _users(self, library: str) -> list[str]:
        """Return the kernels that call a library."""
        found = self.kernels.items()
        return [name for name, each in found if any(library == one.name for one in each.libraries)]

    def _text(self, name: str) -> str:
        if self.target.assembly is None:
            problem = (
                f"stage 'assembly' is machine code, and target '{self.target.name}' makes none"
            )
            raise OptionError(problem, "compile with the target llvm")
        processor = self.target.processor
        mark = "//" if processor.architecture == "aarch64" else "#"
        head = "".join(f"{mark} {line}\n" for line in self._head(name))
        return head + self.target.assembly(self.code[name], processor)

    def _head(self, name: str) -> list[str]:
        """Return the header: the source nodes of the code, and the libraries it calls."""
        if name not in self.kernels:
            return [f"library {name} of {', '.join(self._users(name))}"]
        sources = self._sources(name)
        launches = count_of(len(sources), "launch", "es")
        calls = (f"calls library {each.name}" for each in self.kernels[name].libraries)
        return [f"kernel {name}, {launches}: {nodes_text(sources[0])}", *calls]
