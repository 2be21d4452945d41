"""Compiled decoders that own their key/value caches, which grow in place.

step = ad.cached("decoder.onnx", dims={"past": (0, 4096)})
logits = step(ids=prompt)["logits"]
logits = step(ids=word)["logits"]       # reads the cache of earlier calls
step.forget()                           # start a new sequence
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, overload

import numpy

from anydim.api.cached_graph import over_rows
from anydim.api.cached_rows import CachedRows
from anydim.api.compile_options import Options
from anydim.api.entry import compile
from anydim.api.model import Model
from anydim.base.errors import DimError, InputError, OptionError
from anydim.base.fork_locks import fork_lock
from anydim.base.keywords import check_keywords, public, with_keywords_of
from anydim.base.text import quote_list
from anydim.base.user_values import by_names, whole_within
from anydim.compiler.frontends.growing_caches import SpareCaches, with_spare_capacity
from anydim.compiler.frontends.table import opened_source, read
from anydim.compiler.passes.full_caches import with_full_caches
from anydim.runtime.arrays import by_name
from anydim.runtime.program.binding import solve
from anydim.runtime.slabs import Cache
from anydim.sizes import LARGEST, as_size, given_dims

ROOM = 64  # minimum capacity of new caches, in elements


@public
class Cached:
    """A compiled model whose results of one call are inputs of the next, in memory that it owns.

    Calls are serialised: they change the caches. `length` is the number of cached elements; the
    capacity doubles when it is exhausted.
    """

    def __init__(
        self, model: Model, made: SpareCaches, room: int, ones: frozenset[str] = frozenset()
    ) -> None:
        self.model, self.caches = model, made.caches
        self._ones = ones  # inputs whose zeros would mean sequences of unlike lengths
        self.length = 0
        self._past, self._room = made.past, room
        self._max_length = model.dims.dim(made.past).hi
        self._held: dict[str, numpy.ndarray] = {}
        self._into: dict[str, numpy.ndarray] = {}  # the same arrays, by result
        self._alike: tuple[Any, int, int] = (None, 0, 0)  # shapes, elements they add, capacity
        self._lock = fork_lock(self, "_lock")
        own = {each.input for each in made.caches}
        self._specs = {spec.name: spec for spec in model.inputs if spec.name in own}
        signature = model.program.signature
        others = tuple(spec for spec in signature.inputs if spec.name not in own)
        signature = replace(signature, inputs=others)
        self._inputs = [spec.name for spec in others]
        taken = {each.result for each in made.caches}
        self._results = [spec.key for spec in model.outputs if spec.key not in taken]
        self._sources = solve(signature, frozenset(), frozenset((self._past,)))
        pairs = {(each.result, each.input) for each in made.caches}
        self.in_place = pairs <= model.executable.updates

    def __call__(self, /, *values: Any, **named: Any) -> dict[str, Any]:
        """Run with the inputs that are not caches; return the results that are not caches, by name.

        Raises the same as a model, and DimError for sizes that do not match the caches, which then
        keep their contents.
        """
        if values:
            named = by_name(self.model.name, self._inputs, values, named)
        for name in named:
            if name in self._specs:
                raise InputError(f"{self.model.name} owns the cache '{name}'", "pass it to `hold`")
        for name in self._ones & named.keys():
            if not numpy.equal(named[name], 1).all():
                raise InputError(
                    f"{self.model.name}: '{name}' has elements other than 1: 0 marks padding, and "
                    "all rows of a cache have one length",
                    'give ones; rows of unlike lengths: ad.cached(..., ragged={"seq": "batch"})',
                )
        with self._lock:
            count = self._ensure_capacity(named)
            executable = self.model.executable
            executable.watched.sizes = {**executable.watched.sizes, self._past: self.length}
            feeds = {**named, **self._held}
            if self.in_place:
                results = executable(feeds, self._into)
            else:
                results = self.model(**feeds, out=self._into)
            self.length += count
        return {name: results[name] for name in self._results}

    def forget(self, length: int = 0) -> None:
        """Truncate the caches to their first `length` elements; writes no memory."""
        whole_within("length", length, 0, LARGEST, "give how many elements to keep")
        with self._lock:
            if length > self.length:
                raise OptionError(f"the caches of {self.model.name} hold {self.length} elements")
            self.length = length
            self._alike = self._alike if length else (None, 0, 0)  # another batch may follow

    def held(self) -> dict[str, numpy.ndarray]:
        """Views of the cached elements, by input; the next call may write after them."""
        return {
            each.input: _part(self._held[each.input], each.axis, self.length)
            for each in self.caches
            if each.input in self._held
        }

    def hold(self, caches: Mapping[str, Any]) -> None:
        """Set the caches by input, as copies; raises InputError for arrays that do not fit."""
        given = {name: numpy.asarray(array) for name, array in by_names("caches", caches).items()}
        name = self.model.name
        if set(given) != set(self._specs):
            raise InputError(f"the caches of {name} are {quote_list(sorted(self._specs))}")
        for key, spec in self._specs.items():
            if given[key].ndim != spec.rank or given[key].dtype != spec.dtype.numpy:
                raise InputError(f"{name}: cache '{key}' is {spec.dtype} with {spec.rank} axes")
        lengths = {given[each.input].shape[each.axis] for each in self.caches}
        if len(lengths) != 1:
            raise InputError(f"{name}: caches of {quote_list(sorted(map(str, lengths)))} elements")
        with self._lock:
            self.length = lengths.pop()
            self._alike = (None, 0, 0)
            self._held = {
                each.input: _longer(given[each.input], each.axis, self.length, self.length)
                for each in self.caches
            }

    # ---- capacity ------------------------------------------------------------------------------

    def _ensure_capacity(self, named: Mapping[str, Any]) -> int:
        """Ensure capacity for a call; return the count of elements it adds."""
        if self._max_length is not None and self.length > self._max_length:
            raise DimError(
                f"{self.model.name}: its caches hold {self.length} elements, "
                f"dim '{self._past}' is at most {self._max_length}",
                "start again with forget(), or declare a higher bound",
            )
        shapes = [getattr(named.get(name), "shape", None) for name in self._inputs]
        known, count, room = self._alike
        if shapes == known and None not in shapes and self.length + count <= room:
            return count
        sizes = self._known_sizes(named)
        count = self.caches[0].count.evaluate(sizes)
        needed = self.length + count
        for each in self.caches:
            held = self._held.get(each.input)
            if held is None or self.length == 0:
                shape = self._shape(each, sizes, max(needed, self._room))
                if held is None or not _alike(shape, held.shape, each.axis):
                    held = numpy.empty(shape, self._specs[each.input].dtype.numpy)
            if held.shape[each.axis] < needed:
                room = 2 * held.shape[each.axis]
                room = room if self._max_length is None else min(room, self._max_length + count)
                held = _longer(held, each.axis, self.length, max(room, needed))
            self._held[each.input] = held
        self._into = {each.result: self._held[each.input] for each in self.caches}
        rooms = [self._held[each.input].shape[each.axis] for each in self.caches]
        self._alike = (shapes, count, min(rooms))
        return count

    def _known_sizes(self, named: Mapping[str, Any]) -> dict[str, int]:
        """The dims that inputs other than caches determine, and `past`."""
        sizes = {self._past: self.length}
        for source in self._sources:
            shape = numpy.shape(named.get(self._inputs[source.input], ()))
            if source.axis < len(shape):
                rest, factor = (part.evaluate(sizes) for part in (source.rest, source.factor))
                sizes[source.dim] = max(shape[source.axis] - rest, 0) // max(factor, 1)
        return sizes

    def _shape(self, cache: Cache, sizes: Mapping[str, int], room: int) -> tuple[int, ...]:
        """The shape of a cache with capacity `room`."""
        spec = self._specs[cache.input]
        shape = list(spec.shape)
        shape[cache.axis] = as_size(room)
        lost = {symbol for size in shape for symbol in size.symbols} - set(sizes)
        if lost and spec.name in self._held:
            held = self._held[spec.name].shape
            return (*held[: cache.axis], room, *held[cache.axis + 1 :])
        if lost:
            raise DimError(
                f"{self.model.name}: no input determines dim {quote_list(sorted(lost))}"
                f" of '{spec.name}'",
                "give empty caches to `hold`",
            )
        return tuple(size.evaluate(sizes) for size in shape)


def _alike(left: tuple[int, ...], right: tuple[int, ...], axis: int) -> bool:
    """Whether shapes are equal except along an axis."""
    return (*left[:axis], *left[axis + 1 :]) == (*right[:axis], *right[axis + 1 :])


def _part(array: numpy.ndarray, axis: int, count: int) -> numpy.ndarray:
    """The first elements along an axis."""
    return array[(slice(None),) * axis + (slice(count),)]


def _longer(array: numpy.ndarray, axis: int, count: int, room: int) -> numpy.ndarray:
    """Copy the first `count` elements along an axis into an array with capacity `room`."""
    shape = (*array.shape[:axis], room, *array.shape[axis + 1 :])
    made = numpy.empty(shape, array.dtype)
    _part(made, axis, count)[...] = _part(array, axis, count)
    return made


@overload
def cached(
    source: Any, caches: Mapping[str, str] | None = None, *, dims: Any = None,
    operators: Any = None, room: int = ROOM, ragged: None = None, **options: Any,
) -> Cached: ...  # fmt: skip
@overload
def cached(
    source: Any, caches: Mapping[str, str] | None = None, *, dims: Any = None,
    operators: Any = None, room: int = ROOM, ragged: Mapping[str, str] | str,
    cache_limit: int | str | None = None, **options: Any,
) -> CachedRows: ...  # fmt: skip
@public
@with_keywords_of(compile)
def cached(
    source: Any, caches: Mapping[str, str] | None = None, *, dims: Any = None,
    operators: Any = None, room: int = ROOM, ragged: Mapping[str, str] | str | None = None,
    cache_limit: int | str | None = None, **options: Any,
) -> Cached | CachedRows:  # fmt: skip
    """Compile a decoder that keeps its caches in the model and appends to them in place.

    A cache is an input that a result concatenates with new elements, as exporters write `past` and
    `present`.
    So are caches of GroupQueryAttention whose lengths a mask decides, which has ones alone.

    Args:
        source: As in `compile`.
        caches: The result of each cache input: `{"past": "present"}`. None: all that are found.
        dims: As in `compile`; the bound of a cache's length limits its growth.
        operators: As in `compile`.
        room: Initial capacity of the caches, in elements. A full cache doubles.
        ragged: Dims whose size differs from row to row of a batch, with the dim of the rows:
            `{"seq": "batch"}`, or `"auto"`. The rows then have caches of their own lengths: they
            join and leave between steps (docs/guides/ragged.md).
        cache_limit: Most bytes of the caches of all rows, with `ragged`: a number or a text such as
            `"2 GiB"`.
        **options: Other arguments of `compile`. Of `options=ad.Options(...)`, all fields apply that
            are no arguments here.

    Returns:
        The model, with `length`, `held`, `hold` and `forget` for its caches; with `ragged`, also
        `join`, `step` and `leave`.

    Raises:
        GraphError: The model has no cache.
        UserError: As in `compile`.
    """
    check_keywords(compile, options)
    whole_within("room", room, 1, LARGEST, "give the initial capacity in elements")
    pairs = None if caches is None else by_names("caches", caches)
    given = options.pop("options", None)
    if isinstance(given, Options):
        dims = given.dims if dims is None else dims
        operators = given.operators if operators is None else operators
        ragged = given.ragged if ragged is None else ragged
        given = given.changed(dims=None, operators=None, ragged=None)
    options["options"] = given
    links = options.get("external_data", getattr(given, "external_data", None))
    opened = opened_source(source, Options(operators=operators, external_data=links))
    graph = read(source if opened is None else opened, given_dims(dims), operators)
    graph, ones = with_full_caches(graph)
    made = with_spare_capacity(graph, pairs)
    found: Cached | CachedRows
    if ragged is None:
        if cache_limit is not None:
            raise OptionError("cache_limit without ragged", "it bounds the caches of ragged rows")
        found = Cached(compile(made.graph, **options), made, room, ones)
    else:
        graph, rows = over_rows(made, ragged)
        found = CachedRows(compile(graph, **options), made, rows, room, cache_limit)
    if not found.in_place:
        warnings.warn(
            f"{found.model.name}: its caches are copied in every call: "
            "other nodes read them, or it uses devices",
            stacklevel=2,
        )
    return found
