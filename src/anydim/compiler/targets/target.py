"""The record of a target: code generation for a kind of machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from anydim.base.cache import code_version
from anydim.base.errors import InternalError
from anydim.base.records import dataclass
from anydim.compiler.kernels.ir import Kernel, Library
from anydim.compiler.kernels.launch import Machine
from anydim.compiler.kernels.template import Template
from anydim.compiler.targets.processor import Processor


class Code:
    """Loaded code with the addresses of its exported functions, until it is closed."""

    def __init__(self, addresses: Mapping[str, int]) -> None:
        self._addresses = dict(addresses)

    def address(self, symbol: str) -> int:
        """Return the address of an exported function; raises KeyError if it was not requested."""
        return self._addresses[symbol]

    def close(self) -> None:
        """Free the code. Calling it afterwards is undefined."""
        self._addresses = {}

    def __enter__(self) -> Code:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class Load(Protocol):
    """Links objects and resolves `symbols`; `imports` are addresses that no object defines."""

    def __call__(
        self,
        objects: Iterable[bytes],
        symbols: Iterable[str],
        imports: Mapping[str, int] | None = None,
    ) -> Code: ...


@dataclass(frozen=True)
class Source:
    """The text of a module, generated only if no compiled object of its identity is cached.

    Sources of one `identity` have equal texts; a text may be its own identity. `processor` is the
    one that it is compiled for, None: the target's.
    """

    identity: str
    text: Callable[[], str]
    processor: Processor | None = None

    @staticmethod
    def of(text: str) -> Source:
        return Source(text, lambda: text)

    @staticmethod
    def of_code(
        code: Kernel | Library, text: Callable[[], str], *about: object,
        processor: Processor | None = None,
    ) -> Source:  # fmt: skip
        """Return the source of a kernel or library, known by the identity of its code.

        `about` is what its text depends on besides that.
        """
        if not code.identity:
            return Source.of(text())
        words = (code.name, code.identity, *about, code_version())
        return Source(" ".join(map(str, words)), text, processor)


def sources_with_libraries(
    code: Iterable[Kernel | Library], source: Callable[[Kernel | Library], Source]
) -> dict[str, Source]:
    """Return the sources of kernels, of the libraries they use and of others, by name, each once.

    Libraries of kernels come first: they take longest to compile.
    """
    wanted = tuple(code)
    used: dict[str, Library] = {}
    for kernel in wanted:
        for library in kernel.libraries if isinstance(kernel, Kernel) else ():
            if used.setdefault(library.name, library) != library:
                raise InternalError(f"two libraries are named '{library.name}'")
    return {each.name: source(each) for each in (*used.values(), *wanted)}


@dataclass(frozen=True)
class Objects:
    """Object code by module name, and the names of newly compiled modules."""

    code: Mapping[str, bytes]
    compiled: tuple[str, ...]


class Compiling(Protocol):
    """A compilation in progress; begun modules are compiled concurrently with other work.

    Work passed to `beside` also runs concurrently; `finish` waits for it.
    """

    def begin(self, modules: Mapping[str, Source]) -> None: ...

    def beside(self, work: Callable[[], None]) -> None: ...

    def finish(self, modules: Mapping[str, Source]) -> Objects: ...

    def __enter__(self) -> Compiling: ...

    def __exit__(self, *error: object) -> None: ...


@dataclass(frozen=True)
class Target:
    """A code generator, and its processor.

    `templates` are the kernel templates, most special first. `launch` is the kind of its kernels:
    'range' kernels are functions on a part of 0:parallel, shared by threads; 'device' kernels are
    launched by a driver (`devices/`), and their hosts use another target. `sources` returns the
    modules of kernels, of the libraries they use and of others (host code), by name, each once.
    `compiling` compiles modules on a number of threads (0: by the settings). `load` makes objects
    callable; None if this machine cannot run them. `ordered`: its workers run sequential code well,
    such as ordered loops and routines. `assembly` returns the machine code of a kernel or library
    as text; None if the target has none. `export_suffix` is that of its texts in an export; '': an
    export has objects. `allows_tf32`: a processor's name with `+tf32` lets kernels round
    float32 factors of products.
    """

    name: str
    processor: Processor
    templates: tuple[Template, ...]
    launch: str
    sources: Callable[[Iterable[Kernel | Library], Processor], dict[str, Source]]
    compiling: Callable[[Processor, int], Compiling]
    load: Load | None
    ordered: bool = True
    assembly: Callable[[Kernel | Library, Processor], str] | None = None
    export_suffix: str = ""
    allows_tf32: bool = False

    def compile(self, modules: Mapping[str, Source], threads: int = 0) -> Objects:
        """Return the objects of modules, cached or compiled now."""
        with self.compiling(self.processor, threads) as work:
            return work.finish(modules)

    @property
    def machine(self) -> Machine:
        """The description of the processor for templates."""
        return self.processor.machine


@dataclass(frozen=True)
class TargetKind:
    """A row of `targets.TARGETS`: a target of any processor, made on demand.

    `make` imports the code generator. `is_host`: it compiles whole programs for processors, else
    kernels for devices. `processor` describes the processor of a name; None: this machine's, or a
    described one (`processor.py`).
    """

    name: str
    make: Callable[[Processor], Target]
    is_host: bool
    processor: Callable[[str], Processor] | None = None
