"""`define`: functions on arrays of any size from definitions in the comprehension language.

    lib = ad.define('''
      def matmul(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }
    ''')
    c = lib.matmul(a, b)
    lib.matmul(a, b, out=c)                     # into an existing array
    lib.matmul.sizes(A=(3, 4), B=(4, 5))        # (3, 5), without running
    print(lib.matmul.options)                   # the schedule, and why

A function is compiled at its first call for the dtypes and ranks of the arguments, with all sizes
dynamic: another size never compiles again.
"""

from __future__ import annotations

import re
import sys
import threading
from collections import namedtuple
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache, partial
from typing import Any

import numpy

from anydim.api.compile_options import Options
from anydim.api.derivatives import Derivative
from anydim.api.entry import compile
from anydim.api.model import Model
from anydim.base.errors import InputError, LanguageError, OptionError
from anydim.base.frozen import FrozenMapping, freeze_value
from anydim.base.integrations import load_integration
from anydim.base.keywords import public
from anydim.base.records import dataclass
from anydim.base.reports import report_unexpected
from anydim.base.sheet import Sheet, Shown, Table
from anydim.base.text import count_of, quote_list, suggestion
from anydim.base.user_values import is_auto, text_of
from anydim.compiler.frontends.arguments import (
    any_shape,
    array_for,
    array_of,
    array_of_shape,
    constant,
    known_sizes,
    own_sizes,
    rows_of,
    sizes_of,
)
from anydim.compiler.frontends.custom import read_text
from anydim.compiler.frontends.definition import (
    ArgumentKinds,
    broadcasts,
    keywords,
    kinds_of,
)
from anydim.compiler.frontends.definition_graph import flattened_definition, graph_of
from anydim.compiler.frontends.graph_builder import GraphBuilder
from anydim.compiler.frontends.origins import DefinitionCall
from anydim.compiler.frontends.text_source import options_of
from anydim.compiler.graph.evaluate import bind, check_guards
from anydim.compiler.graph.nodes import Graph
from anydim.compiler.passes.options import PLAIN, given_options, known_precision
from anydim.compiler.progress import Schedules
from anydim.lang.resolve.ranks import ellipses_of
from anydim.lang.surface.parser import parse_users
from anydim.lang.surface.printer import print_definition, print_head
from anydim.lang.surface.syntax import TYPE_NAMES, Definition
from anydim.runtime.arrays import Wrap, shared_array, wrapper
from anydim.runtime.output_arrays import called_into
from anydim.runtime.threads import known_threads

UNNAMED = "<text>"
_PATH = re.compile(r"[^\s(){};#]+\.tc|[\w.~-]*[/\\][^\s(){};#]*")


@report_unexpected
@public
def define(
    text: str | None = None,
    *,
    file: str = UNNAMED,
    threads: int | str = "auto",
    fixed: Mapping[str, int] | None = None,
    options: Any = None,
    precision: str | None = None,
) -> Definitions:
    """Compile functions from a text in the comprehension language (docs/language.md).

    Args:
        text: One or more definitions; None reads them from `file`.
        file: Path of the text, or its name in errors.
        threads: Threads of a call, as in `anydim.compile`.
        fixed: Sizes that are constants in the code: `{"K": 64}`.
        options: Schedules of kernels, a text or a mapping (docs/definitions.md). They override
            lines `# option ...` of the text. Or an `ad.Options`, whose `schedules` are these;
            `dims`, `operators` and `ragged` do not apply.
        precision: As in `anydim.compile`, for all functions.

    Returns:
        A mapping from names to functions, which are attributes too: `lib.matmul(a, b)`.

    Raises:
        LanguageError: The text is invalid; the error gives line and column.
        OptionError: There is no text, or the file cannot be read.
    """
    file = text_of("file", file)
    if text is None and file == UNNAMED:
        raise OptionError("define takes a text", "give one, or a file: ad.define(file='k.tc')")
    if text is None:
        text, file = read_text(file)
    if not isinstance(text, str):
        raise OptionError(f"define takes a text, not {type(text).__name__}")
    text = str(text)  # also from subclasses of str without a hash
    if _PATH.fullmatch(text):
        problem = f"define takes a text, and '{text}' looks like a path"
        raise OptionError(problem, f"give the file: ad.define(file='{text}')")
    given = options if isinstance(options, Options) else Options(schedules=options)
    cores = known_threads(given.threads if is_auto(threads) else threads)
    numbers = known_sizes(fixed)
    found = parse_users(text, file)
    by_name = given_options(options_of(text), found) | given_options(given.schedules, found)
    asked = given.precision if precision is None else precision
    if asked is not None:
        wanted = known_precision(asked)
        by_name = {name: replace(by_name.get(name, PLAIN), precision=wanted) for name in found}
    whole = given.changed(threads=cores, dims=None, operators=None, precision=None, ragged=None)
    kept = {name: whole.changed(schedules=by_name.get(name, PLAIN)) for name in found}
    return Definitions(found, numbers, kept)


class Definitions(Shown, Mapping[str, "Function"]):
    """The functions of a text, as attributes and by name."""

    def __init__(
        self,
        definitions: Mapping[str, Definition],
        fixed: Mapping[str, int],
        options: Mapping[str, Options],
    ) -> None:
        self._functions = {
            name: Function(definition, own_sizes(definition, fixed), options[name])
            for name, definition in definitions.items()
        }  # fmt: skip
        known = {size for f in self._functions.values() for size in sizes_of(f.definition)}
        for name in fixed:
            if name not in known:
                hint = suggestion(name, known) or f"the sizes are {quote_list(sorted(known))}"
                raise OptionError(f"no definition has a size '{name}' to fix", hint)

    def __getitem__(self, name: str) -> Function:
        return self._functions[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._functions)

    def __len__(self) -> int:
        return len(self._functions)

    def __getattr__(self, name: str) -> Function:
        if name == "_functions":  # while the object is copied
            raise AttributeError(name)
        if name not in self._functions:
            hint = suggestion(name, self._functions)
            raise AttributeError(
                f"there is no definition '{name}'; " + (hint or f"there is {quote_list(self)}")
            )
        return self._functions[name]

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._functions]

    def _sheet(self) -> Sheet:
        """A row for each function; nothing is compiled."""
        rows = [each._row() for each in self._functions.values()]
        title = count_of(len(rows), "definition")
        return Sheet(title, (), (Table(_HEADERS, rows, len(_HEADERS)),) if rows else ())


@dataclass(frozen=True)
class _Case:
    """The model for arguments of certain types and ranks."""

    model: Model
    executable: Any
    names: tuple[str, ...]
    kinds: tuple[tuple[numpy.dtype, int], ...]  # types and ranks of the arguments
    ragged: bool = False  # whether arguments are rows of different sizes


_HEADERS = ("name", "inputs", "attributes", "results", "compiled for")


class Function(Shown):
    """One definition, callable on arrays; results are new arrays (several: a named tuple)."""

    def __init__(self, definition: Definition, fixed: Mapping[str, int], options: Options) -> None:
        self.definition = definition
        self._fixed = FrozenMapping(fixed)
        self._options = options
        self._models: dict[Any, _Case] = {}
        self._last: _Case | None = None
        self._usual: _Case | None = None  # the last call's, if types and ranks determine it
        self._lock = threading.Lock()
        self._names = tuple(parameter.name for parameter in definition.parameters)
        self._element_types = tuple(
            TYPE_NAMES.get(parameter.type, parameter.type) for parameter in definition.parameters
        )
        self._operator_name = _constant_of_traces(partial(_operator_name, self))
        self._attributes = keywords(definition)
        self._broadcasts = broadcasts(definition)

    def __call__(self, /, *values: Any, **named: Any) -> Any:
        """Call with arrays by position or name; attributes, and ranks of ellipses, by name.

        `out=` passes arrays for the results, `fixed=` sizes that become constants in the code.
        Values of a Builder add a node to its graph. An argument with ragged sizes, `float(B, T(b))
        x`, is an `ad.Ragged`, a list of arrays, or an array of rows of one size.
        """
        torch = sys.modules.get("torch")
        if torch is not None and self._is_operator(torch, values, named):
            return self._as_operator(torch, values, named)
        usual = self._usual
        if usual is not None and not named and _alike(values, usual.kinds):
            return self._result(usual.executable(dict(zip(usual.names, values))).values())
        out, fixed, attributes, given = self._split_arguments(values, named)
        for value in given:
            if isinstance(getattr(value, "builder", None), GraphBuilder):
                return value.builder.call(self, *given, **attributes)
        return self._on_arrays(given, attributes, fixed, out)

    def _on_arrays(
        self, given: Sequence[Any], attributes: dict[str, Any],
        fixed: Mapping[str, int] | None, out: Any,
    ) -> Any:  # fmt: skip
        """The results for arguments in order."""
        if self.definition.types:
            return self._over_structures(given, attributes, fixed, out)
        rows = self._rows(given)
        if rows:
            return self._called_with(rows, given, attributes, fixed, out)
        arrays = self._arrays(given)
        case = self._case(arrays, attributes, fixed)
        feeds = dict(zip(case.names, arrays))
        wrap = None
        for value, array in zip(given, arrays):
            if value is not array:
                wrap = wrapper(given)
                break
        if out is not None:
            return self._into(case, feeds, out, wrap)
        results = case.executable(feeds)
        made = results.values() if wrap is None else map(wrap, results.values())
        return self._result(made)

    def model(self, /, *values: Any, **named: Any) -> Model:
        """The compiled model for such arguments, to plan, explain and check."""
        _, fixed, attributes, given = self._split_arguments(values, named)
        if self.definition.types:
            return self._model_over_structures(given, attributes, fixed)[0]
        rows = self._rows(given)
        arrays = self._arrays(given, rows)
        return self._case(arrays, attributes, fixed, bool(rows)).model

    @report_unexpected
    def sizes(self, /, *values: Any, **named: Any) -> Any:
        """The shape of the result (several: a named tuple) for arguments of these shapes.

        Arguments are shapes, arrays or numbers. Neither compiles nor runs; raises the same errors
        as a call for shapes that do not fit.
        """
        _, fixed, attributes, given = self._split_arguments(values, named)
        arrays, graph = self._of_shapes(given, attributes, self._fixing(fixed))
        sizes = bind(graph, dict(zip(graph.inputs, arrays)))
        check_guards(graph, sizes)
        return self._result(
            tuple(size.evaluate(sizes) for size in graph.types[name].shape)
            for name in graph.outputs
        )

    def _of_shapes(
        self, given: Sequence[Any], attributes: dict[str, Any], fixed: Mapping[str, int] | None
    ) -> tuple[list[numpy.ndarray], Graph]:
        """Arrays of the given shapes, and the graph for them.

        A shape has no element type: a type variable takes the type of other arrays, or else the
        first of some types that the definition accepts.
        """
        pairs = list(zip(given, self.definition.parameters))
        held = {
            p.type: array_of_shape(v, p, {}).dtype.name
            for v, p in pairs
            if hasattr(v, "__dlpack__")
        }
        first: LanguageError | None = None
        frozen = freeze_value(attributes)
        for dtype in ("float32", "int64", "bool"):
            types = {p.type: held.get(p.type, dtype) for _, p in pairs}
            arrays = [array_of_shape(value, p, types) for value, p in pairs]
            try:
                pattern = kinds_of(self.definition, arrays, attributes)
                return arrays, graph_of(self.definition, pattern, frozen, fixed)
            except LanguageError as error:
                first = first or error
        assert first is not None
        raise first

    @cached_property
    def vjp(self) -> Derivative:
        """The derivative, itself a definition: `lib.f.vjp(x, dy)` is the cotangent of x.

        `print(lib.f.vjp.text)` prints it. Raises LanguageError, when it is first used, for a
        statement that has no derivative.
        """
        options = self._options.changed(schedules=PLAIN)
        return Derivative(self, lambda made: Function(made, {}, options))

    @property
    def options(self) -> Schedules:
        """The schedules of the kernels for the last new kind of arguments, with reasons."""
        if self._last is None:
            self._case(*self._usual_arguments(), None)
        assert self._last is not None
        return Schedules(self.definition.name, self._last.model.report.chosen)

    def _usual_arguments(self) -> tuple[list[numpy.ndarray], dict[str, Any]]:
        """Default arguments and attributes: one axis for each ellipsis."""
        needed = [a.name for a in self.definition.attributes if a.default is None]
        if needed:
            raise OptionError(
                f"the kernels of {self.definition.name} depend on attribute {quote_list(needed)}",
                "call it first, or its model(...): options refer to the last new kind of arguments",
            )
        arrays = [array_of_shape(any_shape(p), p, {}) for p in self.definition.parameters]
        return arrays, {f"...{name}": 1 for name in ellipses_of(self.definition)}

    # ---- torch ---------------------------------------------------------------------------------

    def _is_operator(self, torch: Any, values: Sequence[Any], named: Mapping[str, Any]) -> bool:
        """Whether a call is an operator of torch: recorded for gradients, traced or transformed.

        torch.compile traces this function and the next, up to `_operator_name`.
        """
        tensors = [v for v in (*values, *named.values()) if isinstance(v, torch.Tensor)]
        if not tensors or self.definition.types or self.definition.ragged or "out" in named:
            return False
        if torch.compiler.is_compiling():
            return True
        return not load_integration("torch operators").is_plain(tensors)

    def _as_operator(self, torch: Any, values: Sequence[Any], named: dict[str, Any]) -> Any:
        given = [*values, *[named.pop(name) for name in self._names if name in named]]
        name = self._operator_name(len(given), tuple(named), tuple(named.values()))
        tensors = _tensors(torch, given, self._element_types)
        operator = getattr(torch.ops.anydim, name)
        if not torch.compiler.is_compiling():
            operator = load_integration("torch operators").for_call(name, tensors)
        results = operator(*tensors)
        if len(self.definition.results) == 1:
            return results
        return self._tuple(*results)

    # ---- for people ----------------------------------------------------------------------------

    def _row(self) -> tuple[str, ...]:
        head = print_head(self.definition)
        taken = head[len(self.definition.name) + 1 : head.rindex(") -> (")]
        inputs, _, attributes = taken.partition("; ")
        results = ", ".join(self.definition.results)
        return self.definition.name, inputs, attributes or "none", results, self._kinds()

    def _kinds(self) -> str:
        """The types and ranks of arguments that there is code for."""
        return "; ".join(
            ("rows: " if case.ragged else "")
            + ", ".join(f"{dtype}[{', '.join('?' * rank)}]" for dtype, rank in case.kinds)
            for case in list(self._models.values())
        ) or "nothing yet"  # fmt: skip

    def _sheet(self) -> Sheet:
        """What it takes and gives, and its text; nothing is compiled."""
        _, inputs, attributes, results, kinds = self._row()
        given = (("inputs", inputs), ("attributes", attributes), ("results", results))
        title = f"{self.definition.name}, a definition"
        return Sheet(
            title, (*given, ("compiled for", kinds)), (), print_definition(self.definition)
        )

    # ---- arguments -----------------------------------------------------------------------------

    def _split_arguments(
        self, values: tuple[Any, ...], named: dict[str, Any]
    ) -> tuple[Any, Any, dict[str, Any], Sequence[Any]]:
        """Separate `out`, `fixed`, attributes, and the arguments in order."""
        if not named:
            if len(values) == len(self._names):
                return None, None, {}, values
            return None, None, {}, self._arguments(values, named)
        own = self._attributes.keys() | set(self._names)
        out = None if "out" in own else named.pop("out", None)
        fixed = None if "fixed" in own else named.pop("fixed", None)
        attributes = {
            key: constant(n, named.pop(n)) for n, key in self._attributes.items() if n in named
        }
        return out, fixed, attributes, self._arguments(values, named)

    def _arguments(self, values: tuple[Any, ...], named: Mapping[str, Any]) -> list[Any]:
        names = self._names
        takes = f"{self.definition.name} takes ({', '.join(names)})"
        if len(values) > len(names):
            raise InputError(f"{takes}; {len(values)} arguments came")
        found = dict(zip(names, values))
        for name, value in named.items():
            if name not in names:
                hint = suggestion(name, [*names, *sorted(self._attributes)])
                known = quote_list(self._attributes)
                attributes = f"its attributes are {known}, in addition to out= and fixed="
                raise InputError(f"{takes}, not '{name}'", hint or attributes)
            if name in found:
                raise InputError(f"{takes}; '{name}' came twice")
            found[name] = value
        missing = [name for name in names if name not in found]
        if missing:
            raise InputError(f"{takes}; {quote_list(missing)} is missing")
        return [found[name] for name in names]

    def _arrays(
        self, given: Sequence[Any], rows: Mapping[str, Any] | None = None
    ) -> list[numpy.ndarray]:
        """The arguments as arrays; those of `rows` as arrays of one element with their kind."""
        if not rows and all(type(value) is numpy.ndarray for value in given):
            return list(given)
        taken, shared = self._import_arguments(given, rows or {})
        return [
            array_for(rows[p.name], p, shared)
            if rows and p.name in rows
            else array_of(v, p, shared)
            for v, p in zip(taken, self.definition.parameters)
        ]

    def _rows(self, given: Sequence[Any]) -> dict[str, Any]:
        """The arguments that are rows, by name."""
        if not self.definition.ragged:
            return {}
        _, shared = self._import_arguments(given, {})
        pairs = zip(given, self.definition.parameters)
        found = {p.name: rows_of(value, p, shared) for value, p in pairs}
        return {name: rows for name, rows in found.items() if rows is not None}

    def _import_arguments(
        self, given: Sequence[Any], rows: Mapping[str, Any]
    ) -> tuple[list[Any], dict[str, numpy.dtype]]:
        """The arguments, tensors of other libraries as arrays, and the types of type variables."""
        shared: dict[str, numpy.dtype] = {}
        taken = []
        for value, parameter in zip(given, self.definition.parameters):
            if parameter.name in rows:
                value = array_for(rows[parameter.name], parameter, {})
            elif hasattr(value, "__dlpack__") and not isinstance(value, numpy.ndarray):
                value = shared_array(value, f"argument '{parameter.name}'")
            if isinstance(value, (numpy.ndarray, numpy.generic)):
                shared.setdefault(parameter.type, value.dtype)
            taken.append(value)
        return taken, shared

    def _called_with(
        self, rows: Mapping[str, Any], given: Sequence[Any], attributes: Mapping[str, Any],
        fixed: Mapping[str, int] | None, out: Any,
    ) -> Any:  # fmt: skip
        """Call with rows of different sizes: results with ragged sizes are `ad.Ragged`."""
        arrays = self._arrays(given, rows)
        model = self._case(arrays, attributes, fixed, ragged=True).model
        feeds = {**dict(zip(self._names, arrays)), **rows}
        return self._result(model(**feeds, **({} if out is None else {"out": out})).values())

    def _over_structures(
        self, given: Sequence[Any], attributes: Mapping[str, Any],
        fixed: Mapping[str, int] | None, out: Any,
    ) -> Any:  # fmt: skip
        """Call with structures: nested tuples, lists of them, or `ad.Structure`."""
        if out is not None:
            raise OptionError(f"{self.definition.name} takes structures, and no out=")
        model, feeds = self._model_over_structures(given, attributes, fixed)
        return self._result(model(**feeds).values())

    def _model_over_structures(
        self, given: Sequence[Any], attributes: Mapping[str, Any], fixed: Mapping[str, int] | None
    ) -> tuple[Model, dict[str, Any]]:
        """The model for tensors of these types, and the arguments by name."""
        kinds = {each.name for each in self.definition.types}
        pairs = list(zip(given, self.definition.parameters))
        feeds = {parameter.name: value for value, parameter in pairs}
        shared: dict[str, numpy.dtype] = {}
        feeds.update({
            p.name: array_of(v, p, shared) for v, p in pairs if p.type not in kinds
        })  # fmt: skip
        flat = flattened_definition(self.definition)
        arrays = [
            feeds[p.name] if p.name in feeds else array_of_shape(any_shape(p), p, {})
            for p in flat.parameters
        ]
        key = tuple([(array.dtype, array.ndim) for array in arrays])
        frozen = FrozenMapping({name: freeze_value(v) for name, v in attributes.items()})
        pattern = kinds_of(flat, arrays, attributes)
        origin = (self.definition.text, self.definition.file)
        model = _model(
            self.definition, origin, pattern, frozen, self._fixing(fixed), self._options,
        )  # fmt: skip
        if key not in self._models:
            self._models[key] = self._last = _Case(model, model.executable, (), key)
        return model, feeds

    # ---- compiled ------------------------------------------------------------------------------

    def _fixing(self, fixed: Mapping[str, int] | None) -> FrozenMapping[str, int]:
        numbers = known_sizes(fixed)
        return FrozenMapping({**self._fixed, **numbers}) if numbers else self._fixed

    def _case(
        self,
        arrays: list[numpy.ndarray],
        attributes: Mapping[str, Any],
        fixed: Mapping[str, int] | None,
        ragged: bool = False,
    ) -> _Case:
        key: Any
        if self._broadcasts or attributes or fixed is not None:
            frozen = FrozenMapping({name: freeze_value(v) for name, v in attributes.items()})
            pattern = kinds_of(self.definition, arrays, attributes)
            key = (pattern, frozen, self._fixing(fixed))
        else:
            key = tuple([(array.dtype, array.ndim) for array in arrays])
        if ragged:
            key = ("ragged", key)
        case = self._models.get(key)
        if case is None:
            with self._lock:
                if key not in self._models:
                    self._models[key] = self._last = self._compile(
                        arrays, attributes, fixed, ragged
                    )
                case = self._models[key]
        if key == case.kinds:
            self._usual = case
        return case

    @report_unexpected
    def _compile(
        self,
        arrays: list[numpy.ndarray],
        attributes: Mapping[str, Any],
        fixed: Mapping[str, int] | None,
        ragged: bool,
    ) -> _Case:
        frozen = FrozenMapping({name: freeze_value(v) for name, v in attributes.items()})
        pattern = kinds_of(self.definition, arrays, attributes)
        origin, known = (self.definition.text, self.definition.file), self._fixing(fixed)
        named = {name for both in self.definition.ragged.items() for name in both} & known.keys()
        if ragged and named:
            raise OptionError(
                f"{self.definition.name}: size '{min(named)}' is fixed, and rows decide it",
                "leave it out of fixed=, or give arrays with rows of one size",
            )
        model = _model(self.definition, origin, pattern, frozen, known, self._options, ragged)
        names = tuple(spec.name for spec in model.inputs)
        kinds = tuple((array.dtype, array.ndim) for array in arrays)
        return _Case(model, model.executable, names, kinds, ragged)

    # ---- results -------------------------------------------------------------------------------

    def _into(
        self, case: _Case, feeds: dict[str, numpy.ndarray], out: Any, wrap: Wrap | None
    ) -> Any:
        """Write results into the caller's arrays; by a copy if they share memory with an input."""
        results, given = called_into(case.executable, feeds, out)
        fresh = {key: result for key, result in results.items() if key not in given}
        if wrap is not None:
            fresh = {key: wrap(result) for key, result in fresh.items()}
        return self._result({**given, **fresh}[key] for key in results)

    @cached_property
    def _tuple(self) -> Callable[..., Any]:
        return namedtuple(self.definition.name, self.definition.results, rename=True)

    def _result(self, made: Any) -> Any:
        made = tuple(made)
        return made[0] if len(made) == 1 else self._tuple(*made)

    def __repr__(self) -> str:
        return f"<anydim definition {self.definition.name}>"


@lru_cache(maxsize=256)
def _model(
    definition: Definition,
    origin: tuple[str, str],
    pattern: ArgumentKinds,
    attributes: FrozenMapping[str, Any],
    fixed: FrozenMapping[str, int],
    options: Options,
    ragged: bool = False,
) -> Model:
    """The model of a definition, shared by equal definitions."""
    graph = graph_of(definition, pattern, attributes, fixed)
    rows = definition.ragged if ragged else None
    model = compile(graph, options=options, ragged=rows)
    model._origin = lambda: DefinitionCall(definition, attributes)
    return model


def _operator_name(
    function: Function, count: int, names: tuple[str, ...], values: tuple[Any, ...]
) -> str:
    """The name of the operator of torch for a call with `count` arguments and these attributes."""
    _, fixed, attributes, _ = function._split_arguments((None,) * count, dict(zip(names, values)))
    if fixed is not None:
        raise OptionError(
            f"{function.definition.name} takes no fixed= as an operator of torch",
            "give fixed sizes to define(...)",
        )
    operators = load_integration("torch operators")
    found: str = operators.operator_name(function, attributes)
    return found


def _tensors(torch: Any, given: Sequence[Any], types: Sequence[str]) -> list[Any]:
    """Arguments as tensors of torch; numbers have the declared type, or that of other arguments."""
    known = {kind: v.dtype for v, kind in zip(given, types) if isinstance(v, torch.Tensor)}
    made = []
    for value, kind in zip(given, types):
        if not isinstance(value, torch.Tensor):
            value = torch.as_tensor(value, dtype=known.get(kind, getattr(torch, kind, None)))
        made.append(value)
    return made


def _constant_of_traces(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that torch.compile calls, instead of tracing it.

    The mark is that of torch.compiler.assume_constant_result, which needs torch.
    """

    def called(*values: Any) -> Any:
        return function(*values)

    called._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return called


def _alike(values: tuple[Any, ...], kinds: tuple[tuple[numpy.dtype, int], ...]) -> bool:
    """Whether arguments are numpy arrays of these types and ranks."""
    if len(values) != len(kinds):
        return False
    for value, (dtype, rank) in zip(values, kinds):
        if type(value) is not numpy.ndarray or value.dtype is not dtype or value.ndim != rank:
            return False
    return True
