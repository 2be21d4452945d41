"""What a frontend provides: all that differs between kinds of sources.

A frontend is a subclass in a module that imports nothing large, and a row of `table.FRONTENDS`.
A process that finds its program in the program cache asks it for `snapshot` and `contents` only.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, ClassVar

from anydim.base.records import dataclass

if TYPE_CHECKING:
    import numpy

    from anydim.compiler.frontends.onnx.file.reading import Opened
    from anydim.compiler.frontends.origins import Origin
    from anydim.compiler.graph.derivations import Weight
    from anydim.compiler.graph.nodes import Graph
    from anydim.sizes import Dim


@dataclass(frozen=True)
class Schedules:
    """Schedule options in a source: their text, its definitions, and the compiled one."""

    text: str = ""
    definitions: tuple[str, ...] = ()
    name: str = ""


@dataclass(frozen=True)
class Prepared:
    """A graph that is compiled in place of a source, and its options, an `anydim.Options`.

    `around` makes the model that users get of the compiled one: it may keep state between calls, or
    take and return other values. `state` are tensors of the source by input, which calls do not
    give; `written` are the results that a call copies into an input, by input. `complex_names` are
    inputs and results that users have as complex arrays: real ones of the graph with a last axis
    of 2. `structure` are names of results and plain values, and the tree of torch's pytree in which
    a call returns them; without it, a call returns results by name.
    """

    graph: Graph
    options: Any
    around: Callable[[Any], Any] | None = None
    state: Mapping[str, Any] = field(default_factory=dict)
    written: Mapping[str, str] = field(default_factory=dict)
    complex_names: frozenset[str] = frozenset()
    structure: tuple[Sequence[Any], Any] | None = None


class Frontend:
    """A kind of source that `anydim.compile` accepts; subclasses override what differs."""

    title: ClassVar[str]  # in error messages: "a definition"
    accepts: ClassVar[tuple[str, ...]]  # what a user gives: "the path of an ONNX file"
    takes_operators: ClassVar[bool] = False  # definitions of operators, `operators=`
    takes_arguments: ClassVar[bool] = False  # `with_arguments`: attributes and types
    declares_dims: ClassVar[bool] = False  # has bounds of its own, no `dims=`
    is_picklable: ClassVar[bool] = False  # another process can compile the value itself
    runs_elsewhere: ClassVar[bool] = False  # other engines run the same file

    def recognises(self, source: Any) -> bool:
        """Whether a value is such a source; imports nothing."""
        raise NotImplementedError

    def read(
        self, source: Any, dims: Mapping[str, Dim], operators: Any, fallback: bool
    ) -> Graph:  # fmt: skip
        """The graph of a source.

        `dims` are bounds of its dims, `operators` definitions of its operators. With `fallback`,
        onnxruntime may run nodes that cannot be imported. Raises UserError kinds.
        """
        raise NotImplementedError

    def prepare(self, source: Any, options: Any) -> Prepared | None:
        """A graph to compile in place of the source, under these options; None: what `read` gives.

        The program cache then has the program of the graph, and none of the source.
        """
        return None

    def snapshot(self, source: Any) -> Any:
        """The source as it is now, if it can change after the call. Raises UserError kinds."""
        return source

    def contents(self, source: Any) -> bytes | memoryview | None:
        """The bytes of a source in memory that determine its program, for the program cache.

        None: it is compiled in every process.
        """
        return None

    def open_model(
        self, source: Any, operators: Any, external_data: str | None
    ) -> Opened | None:  # fmt: skip
        """The decoded ONNX model, whose ranks and strings calls may determine; else None.

        `external_data` is where its links may lead, as in the settings; None: as they say.
        Raises OptionError for invalid `operators` before it opens a file.
        """
        return None

    def weights(self, source: Any, graph: Graph) -> tuple[Sequence[Weight], str]:
        """The weights of a source that was read as this graph, and the digest of the source without
        them, '' if it has none; the program of others with its structure is made from its program.
        """
        return (), ""

    def with_weights(self, source: Any, arrays: Mapping[str, numpy.ndarray], options: Any) -> Any:
        """The source with other contents of weights by name; `options` are an `anydim.Options`."""
        raise NotImplementedError

    def delegate(self, source: Any, dims: Mapping[str, Dim], why: str) -> Graph | None:
        """A graph that runs the whole source in onnxruntime, for the reason `why`; None if not
        possible. Raises ModelError if onnxruntime cannot run it.
        """
        return None

    def soft_bounds(
        self, source: Any, dims: Mapping[str, Dim], highs: Mapping[str, int]
    ) -> Mapping[str, int]:
        """Upper bounds that calls may exceed (`on_overflow="grow"`), by names in the program.

        `dims` are given bounds, `highs` their upper bounds. Raises OptionError for bounds that the
        source does not admit.
        """
        return highs

    def schedules(self, source: Any) -> Schedules:
        """Schedule options that the source contains."""
        return Schedules()

    def ragged(self, source: Any) -> Mapping[str, str] | None:
        """Ragged dims that the source declares, with the dim of the rows; None if none."""
        return None

    def origin(self, source: Any) -> Origin:
        """The source for oracles of `Model.check`; None if none supports it."""
        return None

    def with_arguments(
        self, source: Any, attributes: Mapping[str, str], types: Mapping[str, str],
        arrays: Mapping[str, numpy.ndarray],
    ) -> Any:  # fmt: skip
        """The source with texts of attributes and types, and example arrays by input; a single
        array may have the name ''.
        """
        return source


def is_instance(value: Any, module: str, name: str) -> bool:
    """Whether a value is an instance of a class; does not import the module of the class."""
    loaded = sys.modules.get(module)
    return loaded is not None and isinstance(value, getattr(loaded, name))
