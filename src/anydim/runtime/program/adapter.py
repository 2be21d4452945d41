"""Adapters: models whose callers give and get other values than their program.

An adapter has the inputs and outputs that callers see. `encode` makes the inputs of the program of
what a caller gives, `decode` what the caller gets of the results. A model without an adapter pays
nothing for it.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import cached_property
from importlib import import_module
from operator import itemgetter
from typing import Any

import numpy

from anydim.base.dtypes import DType
from anydim.base.errors import InputError, OptionError, UserError
from anydim.base.fork_locks import fork_lock
from anydim.base.records import dataclass
from anydim.base.text import quote_list
from anydim.runtime.arrays import (
    as_array,
    by_name,
    check_names,
    detach,
    of_library,
    plain,
    rank_of,
    shared_array,
    wrong_rank,
)
from anydim.runtime.lists import Lists
from anydim.runtime.output_arrays import fill, given_by_name, output_array
from anydim.runtime.program.batches.layout import error_of_item
from anydim.runtime.signature import Signature, TensorSpec

Feeds = dict[str, Any]
Call = Callable[..., dict[str, Any]]
Build = Callable[[dict[str, Any]], Any]
_TARGET = "'{}' of {}, which a call writes to,"
_COMPLEX = {"float32": DType("complex64", "complex", 64),
            "float64": DType("complex128", "complex", 128)}  # fmt: skip


class Adapter(ABC):
    """Stands between callers and a program; `signature` is that of callers."""

    on_strings = False  # whether operators on strings run before and after the program
    is_direct = False  # whether only `returned` changes what callers give and get
    note = ""  # what the text of a model says behind its signature
    signature: Signature

    @abstractmethod
    def encode(self, given: Mapping[str, Any]) -> tuple[Feeds, Any]:
        """The inputs of the program, and what `decode` needs of this call. Raises InputError."""

    @abstractmethod
    def decode(self, results: Mapping[str, Any], known: Any) -> dict[str, Any]:
        """The results that the caller gets; `known` is what `encode` returned."""

    @abstractmethod
    def run(self, call: Call, given: Mapping[str, Any], out: Any = None) -> Any:
        """Call the program, with the arrays `out` for the results of the caller, if any."""

    def returned(self, found: dict[str, Any]) -> Any:
        """What a call returns of the results by name: the structure of a module, if it has one."""
        return found

    def results(self, call: Call, given: Mapping[str, Any]) -> dict[str, Any]:
        """The results of `run` by name, also where it returns the structure of a module."""
        found: dict[str, Any] = self.run(call, given)
        return found

    @abstractmethod
    def check_map(self) -> None:
        """Raise OptionError if calls for items cannot be joined and ordered otherwise."""

    @abstractmethod
    def check_batcher(self, batch: str | None) -> None:
        """Raise OptionError if a batcher cannot serve the model, with calls joined along a dim."""

    def named(self, name: str) -> Adapter:
        """The same adapter, whose errors call the model so."""
        made: Adapter = object.__new__(type(self))
        made.__dict__.update(self.__dict__)
        made.signature = replace(self.signature, name=name)
        return made

    def fills(self, pad: Any) -> Any:
        """The fill values of padding as the program takes them. Raises OptionError."""
        return pad

    @abstractmethod
    def encode_item(self, given: Any) -> tuple[Any, Any]:
        """As `encode`, of an item of `map` or a request: a mapping, a tuple, or the only input."""

    def bytes_of(self, known: Any) -> int:
        """Bytes that `known` holds besides the inputs of the program."""
        return 0

    def mapped(self, call: Callable[..., Any], inputs: Any, pad: Any) -> Any:
        """The results of a `map`, which is `call` of the program. Raises OptionError if calls
        cannot be joined.
        """
        self.check_map()
        if isinstance(inputs, Iterable) and not isinstance(inputs, (Mapping, str, bytes)):
            is_list = hasattr(inputs, "__len__") and hasattr(inputs, "__getitem__")
            inputs = list(self._items(inputs)) if is_list else self._items(inputs)
        found = call(inputs, pad=self.fills(pad))
        seen = (self.decode(results, None) for results in found)
        return list(seen) if isinstance(found, list) else seen

    def _items(self, inputs: Iterable[Any]) -> Iterator[Any]:
        """The items of a `map` as the program takes them; errors have their numbers."""
        for number, given in enumerate(inputs):
            try:
                yield self.encode_item(given)[0]
            except UserError as error:
                raise error_of_item(number, error) from None


class TensorAdapter(Adapter):
    """Complex tensors, which are pairs of real numbers in a program, and state.

    `complex_names` are inputs and results that callers have as complex arrays: the program has real
    ones with a last axis of 2. `state` are the arrays of inputs that callers do not give; their
    memory is the caller's. `written` are the results that a call copies into an input, by input:
    into its state, or into the array that the caller gave. Such calls are serialised. `lists` are
    those of the model. `structure` is what calls return: torch's pytree of what a module returns (a
    tuple, a dataclass, a class as `ModelOutput` of transformers) and its leaves, a `NamedResult` or
    a plain value each. Other methods give results by name.

    Raises OptionError for lists or ragged batches of complex tensors.
    """

    def __init__(
        self, program: Signature, complex_names: Iterable[str] = (),
        state: Mapping[str, Any] | None = None, written: Mapping[str, str] | None = None,
        lists: Lists | None = None, structure: tuple[Sequence[Any], Any] | None = None,
    ) -> None:  # fmt: skip
        self.state, self.written = dict(state or {}), dict(written or {})
        self.program, self._complex = program, frozenset(complex_names)
        self._lists, self._structure = dict(lists or {}), structure
        if self._lists and self._complex:
            problem = f"{program.name}: {quote_list(self.complex_names)} are complex, beside ragged"
            raise OptionError(problem, "take and return their parts: torch.view_as_real(x)")
        back = set(self.written.values())
        self.signature = replace(
            program,
            inputs=tuple(self._seen(s) for s in program.inputs if s.name not in self.state),
            outputs=tuple(self._seen(s) for s in program.outputs if s.key not in back),
        )
        self.note = f" with state {quote_list(self.state)}" if self.state else ""
        self._inputs = {spec.name: spec for spec in self.signature.inputs}
        self._outputs = {spec.key: spec for spec in self.signature.outputs}
        self.is_direct = not (self._complex or self.state or self.written or self._lists)
        self._lock = fork_lock(self, "_lock", threading.Lock)

    def __reduce__(self) -> tuple[Any, ...]:
        return TensorAdapter, (
            self.program, self._complex, self.state, self.written, self._lists, self._structure,
        )  # fmt: skip

    @property
    def complex_names(self) -> tuple[str, ...]:
        """The inputs and results that are complex, in order."""
        return tuple(sorted(self._complex))

    def _seen(self, spec: TensorSpec) -> TensorSpec:
        """A tensor as callers see it; numpy has no complex type of 16-bit parts."""
        dtype = _COMPLEX.get(spec.dtype.name)
        if spec.key not in self._complex or dtype is None:
            return spec
        return replace(spec, dtype=dtype, shape=spec.shape[:-1])

    # ---- calls -----------------------------------------------------------------------------------

    def run(self, call: Call, given: Mapping[str, Any], out: Any = None) -> Any:
        """As `Adapter.run`. Raises InputError before the call for what cannot be written back."""
        return self.returned(self.results(call, given, out))

    @cached_property
    def returned(self) -> Build:
        """As `Adapter.returned`."""
        if self._structure is None:
            return lambda found: found
        returned, spec = self._structure
        return _builder(spec, iter(returned))

    def results(self, call: Call, given: Mapping[str, Any], out: Any = None) -> dict[str, Any]:
        """As `Adapter.results`."""
        with self._alone():
            feeds, known = self.encode(given)
            targets = self._targets(feeds)
            if out is None:
                found = self._written_back(call(**feeds), targets)
                return self.decode(found, known) if self._complex else found
            wanted = given_by_name(out, list(self._outputs), self.signature.name)
            into = {name: self._real_memory(name, array) for name, array in wanted.items()}
            results = self._written_back(call(**feeds, out=into), targets)
            return {**self.decode(results, known), **wanted}

    def _alone(self) -> AbstractContextManager[Any]:
        return self._lock if self.written else nullcontext()

    def encode(self, given: Mapping[str, Any]) -> tuple[Feeds, Any]:
        """As `Adapter.encode`. Raises InputError for state and for real arrays."""
        if given.keys() != self._inputs.keys():
            self._check_names(given)
        if self._complex:
            given = {name: self._taken(name, value) for name, value in given.items()}
        return {**given, **self.state_arrays()}, None

    def _check_names(self, given: Mapping[str, Any]) -> None:
        for name in given:
            if name in self.state:
                problem = f"{self.signature.name} owns '{name}'"
                raise InputError(problem, f"change it in model.state['{name}']")
        if not self._lists:
            check_names(given, self.signature)

    def state_arrays(self) -> dict[str, numpy.ndarray]:
        """The arrays of the state, which share its memory."""
        name = self.signature.name
        return {
            key: _array(value, "state '{}' of {}", key, name) for key, value in self.state.items()
        }

    def encode_item(self, given: Any) -> tuple[Any, Any]:
        """As `Adapter.encode_item`; an item may lack the axis that items are joined along."""
        if isinstance(given, Mapping):
            return {name: self._taken(name, value, True) for name, value in given.items()}, None
        values = given if isinstance(given, tuple) else (given,)
        named = by_name(self.signature.name, list(self._inputs), values, {})
        made = tuple(self._taken(name, value, True) for name, value in named.items())
        return made if isinstance(given, tuple) else made[0], None

    def decode(self, results: Mapping[str, Any], known: Any = None) -> dict[str, Any]:
        """As `Adapter.decode`: pairs become complex numbers, whose memory they share."""
        return {name: complex_numbers(value) if name in self._complex else value
                for name, value in results.items()}  # fmt: skip

    def check_map(self) -> None:
        """As `Adapter.check_map`."""
        if self.written:
            raise OptionError(
                f"{self._writes}, and `map` may join calls or change their order",
                "call it for each item",
            )

    def check_batcher(self, batch: str | None) -> None:
        """As `Adapter.check_batcher`."""
        if self.written:
            raise OptionError(
                f"{self._writes}, and requests of a batcher have no order",
                f"give it model.bare, which takes {quote_list(self.written)} and returns "
                f"{quote_list(self.written.values())}",
            )

    @property
    def _writes(self) -> str:
        return f"{self.signature.name} writes to {quote_list(self.written)} in each call"

    def fills(self, pad: Any) -> Any:
        """As `Adapter.fills`."""
        for name, value in pad.items() if isinstance(pad, Mapping) else ():
            if name in self._complex and value != 0:
                problem = f"input '{name}' of {self.signature.name} is padded with {value!r}"
                raise OptionError(problem, "pad complex inputs with 0")
        return {**pad, **{name: 0 for name in pad if name in self._complex}} if pad else pad

    # ---- state -----------------------------------------------------------------------------------

    def _targets(self, feeds: Feeds) -> dict[str, numpy.ndarray]:
        """The arrays to write back into, by result; those of the state are in `feeds`."""
        return {result: self._target(name, feeds) for name, result in self.written.items()}

    def _target(self, name: str, feeds: Feeds) -> numpy.ndarray:
        value, model = feeds[name], self.signature.name
        array = _array(value, _TARGET, name, model)
        if isinstance(self.state.get(name, value), numpy.ndarray) and not array.flags.writeable:
            problem = f"{_TARGET.format(name, model)} is read-only"
            raise InputError(problem, "give a writable array")
        return array

    @staticmethod
    def _written_back(
        results: dict[str, Any], targets: Mapping[str, numpy.ndarray]
    ) -> dict[str, Any]:
        for result, array in targets.items():
            fill(array, _array(results.pop(result), "{}", result))
        return results

    # ---- complex tensors -------------------------------------------------------------------------

    def _taken(self, name: str, value: Any, is_item: bool = False) -> Any:
        """An input as the program takes it."""
        spec = self._inputs.get(name)
        if spec is None or name not in self._complex:
            return value
        return pairs_of(value, spec, self.signature, is_item)

    def _real_memory(self, name: str, array: Any) -> Any:
        """A caller's array for a result, as the pairs that a program writes."""
        spec = self._outputs[name]
        if spec.dtype.kind != "complex":
            return array
        if getattr(array, "is_conj", bool)():
            where = f"{self.signature.name}: the array for '{name}'"
            raise InputError(f"{where} has the conjugate bit set", "pass a separate array")
        held = output_array(array, spec, self.signature.name)
        return held.reshape(*held.shape, 1).view(held.real.dtype)


def _array(value: Any, where: str, *names: str) -> numpy.ndarray:
    """An array over the memory of a value; InputError for what has none, at `where` with `names`.

    Of tensors of torch, `numpy` costs a tenth of what DLPack does.
    """
    if isinstance(value, numpy.ndarray):
        return value
    if type(value).__module__ == "torch":
        try:
            shared: numpy.ndarray = value.numpy()
            return shared
        except (RuntimeError, TypeError):  # it requires gradients, numpy lacks its type, ...
            pass
    if hasattr(value, "__dlpack__"):
        return shared_array(value, where.format(*names))
    raise InputError(f"{where.format(*names)} is {type(value).__name__}", "give an array")


@dataclass(frozen=True)
class NamedResult:
    """The place of a tensor in what a module returns: the result `name` of the program.

    A type of its own, because a module may return any text as a plain value.
    """

    name: str

    def __call__(self, found: Mapping[str, Any]) -> Any:
        return found[self.name]


def _builder(spec: Any, returned: Iterator[Any]) -> Build:
    """Makes the structure of a pytree of torch, as `tree_unflatten`, of results by name.

    Its leaves are the next of `returned`: a `NamedResult` each, or a plain value.
    """
    if spec.is_leaf():
        leaf = next(returned)
        return leaf if isinstance(leaf, NamedResult) else lambda _: leaf
    parts = [_builder(part, returned) for part in spec.children()]
    if spec.type is tuple and len(parts) > 1:
        names = [part.name for part in parts if isinstance(part, NamedResult)]
        if len(names) == len(parts):
            return itemgetter(*names)
    node, context = import_module("torch.utils._pytree").SUPPORTED_NODES[spec.type], spec.context
    return lambda found: node.unflatten_fn([part(found) for part in parts], context)


def pairs_of(value: Any, spec: TensorSpec, signature: Signature, is_item: bool = False) -> Any:
    """A complex array as a real one with a last axis of 2, which shares its memory if it can.

    Raises InputError for one of another type or rank; an item may have an axis less.
    """
    if is_item and rank_of(value) == spec.rank - 1:
        spec = replace(spec, shape=spec.shape[1:])
    view = of_library(value, "view_as_real")
    if view is not None:
        return view(_complex_tensor_of(value, spec, signature.name))
    if spec.dtype.kind != "complex":
        return value
    if isinstance(value, (int, float, complex, list, tuple)):  # without a width
        value = as_array(value, f"input '{spec.name}' of {signature.name}")
        value = value.astype(spec.dtype.numpy) if value.dtype.kind in "biufc" else value
    array = plain(value, spec, spec.dtype.numpy, signature.name)
    return array.reshape(*array.shape, 1).view(array.real.dtype)


def _complex_tensor_of(value: Any, spec: TensorSpec, name: str) -> Any:
    """A tensor of torch that fits an input. Raises InputError."""
    where = f"input '{spec.name}' of {name}"
    half = spec.dtype.kind != "complex"  # its input is of pairs
    wanted = "complex32" if half else spec.dtype.name
    given = str(value.dtype).rpartition(".")[2]
    if given != wanted:
        raise InputError(
            f"{where}: expected dtype {wanted}, got {given}",
            f"convert it: x.to(torch.{wanted})",
        )
    if value.ndim != spec.rank - half:
        raise wrong_rank(spec, name, value.shape)
    return detach(value, where).resolve_conj().contiguous()


def complex_numbers(pairs: Any) -> Any:
    """The complex array of a real one with a last axis of 2. Its memory is shared.

    numpy has no complex type of 16-bit parts: such results stay real.
    """
    if not isinstance(pairs, numpy.ndarray):
        return complex_tensor(pairs)
    dtype = _COMPLEX.get(pairs.dtype.name)
    return pairs if dtype is None else pairs.view(dtype.numpy)[..., 0]


def complex_tensor(pairs: Any) -> Any:
    """The complex tensor of torch of a real one with a last axis of 2. Its memory is shared."""
    if not pairs.numel():  # torch demands strides, also without elements
        pairs = pairs.new_empty(pairs.shape)
    return of_library(pairs, "view_as_complex")(pairs)
