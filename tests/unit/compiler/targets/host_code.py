"""Functions of host code run twice, compiled and by the evaluator, on memory that has to agree."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence

import numpy

from anydim.compiler.kernels import ir
from anydim.compiler.targets.evaluated.evaluator import call
from anydim.compiler.targets.evaluated.space import Space
from anydim.compiler.targets.llvm.compiler import compile_modules
from anydim.compiler.targets.llvm.host import this_machine
from anydim.compiler.targets.llvm.loader import Loaded, load
from anydim.compiler.targets.llvm.render import sources


def compiled(*libraries: ir.Library) -> Loaded:
    """Modules of host code, linked; their public functions can be called."""
    processor = this_machine()
    modules = sources(libraries, processor)
    public = [f.name for library in libraries for f in library.functions if f.public]
    return load(compile_modules(modules, processor).code.values(), public)


def callable_at(address: int, arguments: int) -> Callable[..., int]:
    """A native function of int64s."""
    return ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * arguments)(address)


class Both:
    """The last of some functions, which takes the address of a block of words and int64s."""

    def __init__(self, *functions: ir.Function) -> None:
        self.functions = functions
        self._loaded = compiled(ir.Library("tested", functions))
        main = functions[-1]
        self._native = callable_at(self._loaded.address(main.name), len(main.parameters))

    def __call__(self, words: Sequence[int] = (), *arguments: int) -> tuple[int, list[int]]:
        """What it returns, and what the words are then."""
        block = numpy.array([*words, 0], numpy.int64)
        made = self._native(block.ctypes.data, *arguments)
        again, space = numpy.array([*words, 0], numpy.int64), Space()
        name = self.functions[-1].name
        meant = call(self.functions, name, [space.address_of(again), *arguments], space)
        assert (made, block.tolist()) == (meant, again.tolist())
        return made, block.tolist()[:-1]
