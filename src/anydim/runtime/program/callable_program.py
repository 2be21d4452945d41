"""What a user holds: a program that can be called, with what its records say of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar

from anydim.base.errors import DimError, OptionError
from anydim.base.keywords import public
from anydim.base.text import quote_list
from anydim.base.user_values import flag_of, path_of, short_repr, text_of
from anydim.runtime.arrays import by_name, by_position
from anydim.runtime.executable import UNLIMITED, AbsentProgram, Executable
from anydim.runtime.lists import Listed, Lists, RaggedPort, StructurePort
from anydim.runtime.output_arrays import called_into
from anydim.runtime.signature import Signature, TensorSpec
from anydim.runtime.stopping import known_timeout
from anydim.sizes import Box, given_sizes

if TYPE_CHECKING:  # a process that only calls needs none of it
    from anydim.runtime.conversion import Conversion
    from anydim.runtime.program.adapter import Adapter
    from anydim.runtime.program.inputs import Ranges
    from anydim.runtime.program.limits import MemoryLimit
    from anydim.runtime.program.memory import Memory
    from anydim.runtime.program.plan import Plan
    from anydim.runtime.program.profile.limits import Done, Limits
    from anydim.runtime.program.profile.profile import Profile
    from anydim.runtime.program.profile.trace import Trace
    from anydim.runtime.program.program import Program
    from anydim.runtime.program.program_reports import ProgramReports
    from anydim.runtime.program.recording import Recording


Serving = Callable[[Any, Mapping[str, Any]], "CallableProgram | None"]
Kind = TypeVar("Kind", bound="CallableProgram")


@public
class CallableProgram:
    """A model that runs, compiled here or loaded.

    Calls are thread-safe; results are new arrays owned by the caller. `story` is created when
    plans, memory or explanations are requested.
    """

    adapter: Adapter | None = None  # callers give and get other values than the program
    _inner: Any  # with an adapter: the model, of the same class, that takes what its program takes
    # which model serves a call with these inputs; None: this one
    _varied: Serving | None = None
    _named = ""  # of a model that its first call compiles
    _settings: Any = None  # unpickled, for the program of the first call

    def __init__(
        self,
        executable: Executable[Any],
        story: Callable[[], ProgramReports],
        lists: Lists,
    ) -> None:
        self.executable = executable
        self._tell = story
        self._lists = dict(lists)
        self._converted = bool(lists)  # whether calls convert values
        self._made: Callable[[], CallableProgram] | None = None  # makes it again, in any process

    @cached_property
    def story(self) -> ProgramReports:
        """The records of what runs, and how they came to be."""
        return self._tell()

    @property
    def program(self) -> Program:
        """The host program: its records of steps."""
        return self.story.program

    def __call__(self, /, *values: Any, **named: Any) -> dict[str, Any]:
        """Run the model.

        Args:
            *values: Inputs in order. Each is a numpy array, a DLPack array on the CPU, a number or
                a nested list, of the dtype and shape in `inputs`.
            **named: Inputs by name, and `out`: arrays for the results. `out` is one array, a
                sequence with one per result (None: a new one), or a mapping by name. These arrays
                are checked, filled and returned. They may be inputs or overlap them; reads see the
                values from before the call. For a ragged result: an `ad.Ragged`, or a list of
                arrays, one per row.

        Returns:
            The outputs by name, of the kind of the inputs.

        Raises:
            InputError: An input is invalid, or, during the call, an index in the data is out of
                bounds.
            DimError: A size is out of bounds, or two inputs disagree on a dim.
            BusyError: All arenas are in use for longer than `wait`.
            TimeLimitError: The call takes longer than the time limit.
            MemoryLimitError: The call needs more memory than the limit.
            OutOfMemoryError: The system refuses memory.
        """
        out = named.pop("out") if "out" in named and "out" not in self._given_names else None
        if values:
            named = by_name(self.name, self._given_names, values, named)
        if self._varied is not None:
            other = self.serving(named)
            if other is not self:
                return other(**named) if out is None else other(**named, out=out)
        if self._converted:
            return self._with_conversion(named, out)
        if out is None:
            return self.executable(named)
        results, given = called_into(self.executable, named, out)
        return {**results, **given}

    def serving(self, given: Mapping[str, Any]) -> CallableProgram:
        """The model that serves a call with these inputs: this one, or one compiled for them."""
        other = None if self._varied is None else self._varied(self, given)
        return self if other is None else other

    def _results(self, named: Mapping[str, Any]) -> dict[str, Any]:
        """The results of a call by name, also of a module that returns a structure."""
        served = self.serving(named)
        if served.adapter is None:
            return served(**named)
        return served.adapter.results(served._inner, named)

    def _limit_as(self, other: CallableProgram) -> None:
        """Take the limits and set sizes of another model of the same file."""
        run, known = self.executable, other.executable
        run.timeout = known.timeout
        if other.memory_limit not in (None, self.memory_limit):
            from anydim.runtime.program.limits import MemoryLimit

            self.limit_memory(MemoryLimit(other.memory_limit, True))
        if run.watched.sizes != known.watched.sizes:
            self.set_sizes(**known.watched.sizes)

    def input_names(self) -> list[str]:
        """The inputs as a caller sees them: a list is one."""
        return list(self._given_names)

    @cached_property
    def _given_names(self) -> tuple[str, ...]:
        of = {parts.elements: name for name, parts in self._lists.items()}
        hidden = {name for parts in self._lists.values() for name in parts.hidden}
        names = [spec.name for spec in self.inputs]
        return tuple(of.get(name, name) for name in names if name not in hidden)

    def _with_conversion(self, named: Mapping[str, Any], out: Any) -> Any:
        """Run with an adapter, or with lists of arrays, each as its two arrays."""
        if self.adapter is not None:
            if out is None and self.adapter.is_direct and self._inner._varied is None:
                return self.adapter.returned(self._inner.executable(named))
            return self.adapter.run(self._inner, named, out)
        if out is not None and self._conversion.packing is None:
            problem = f"{self.name} has {self._shown_lists()}, and `out` is for single arrays"
            raise OptionError(problem, "omit `out`: results are new arrays")
        return self._conversion.run(self.executable, named, out)

    @cached_property
    def _conversion(self) -> Conversion:
        """Converts lists to arrays, and back."""
        specs = {spec.name: spec for spec in self.executable.signature.inputs}
        from anydim.runtime.conversion import Conversion

        return Conversion(self.name, self._lists, specs, self.dims)

    def _adapted(self: Kind, adapter: Adapter) -> Kind:
        """The same program for callers that give and get what the adapter says."""
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__)
        made.__dict__.pop("_given_names", None)
        made.adapter, made._inner, made._converted = adapter, self, True
        made._varied = made._made = None
        return made

    @property
    def bare(self: Kind) -> Kind:
        """The model without its adapter: complex tensors are pairs of real numbers, and state is
        inputs and results.
        """
        found: Kind = self if self.adapter is None else self._inner
        return found

    @property
    def on_strings(self) -> bool:
        """Whether operators on strings run before and after the native part."""
        return self.adapter is not None and self.adapter.on_strings

    @property
    def state(self) -> dict[str, Any]:
        """The arrays that calls read and write back, as the buffers of a module, by name."""
        held: dict[str, Any] = getattr(self.adapter, "state", {})
        return held

    @property
    def lists(self) -> Lists:
        """The inputs and outputs that a user sees as lists, each as the two values it is."""
        return self._lists

    @property
    def name(self) -> str:
        """Its name in errors and reports."""
        return self._named or self.signature.name

    @property
    def signature(self) -> Signature:
        """What callers give and get: inputs, outputs, dims."""
        return self.executable.signature if self.adapter is None else self.adapter.signature

    @property
    def dims(self) -> Box:
        """The dims with their bounds, and the constraints between them."""
        return self.signature.box

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Names, dtypes and shapes of the inputs, in order."""
        return self.signature.inputs

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """Names, dtypes and shapes of the outputs, in order."""
        return self.signature.outputs

    @property
    def memory(self) -> Memory:
        """The bytes that a call allocates for itself, as a size expression, and their bound."""
        packing = self._conversion.packing
        known = self.story.memory
        return known if packing is None else replace(known, totals=tuple(packing.guards))

    @property
    def memory_limit(self) -> int | None:
        """Most bytes of memory of a call; None: no limit."""
        most = self.executable.most_bytes
        return None if most == UNLIMITED else most

    def limit_memory(self, given: MemoryLimit | int | str) -> None:
        """Refuse calls that need more memory, before they allocate.

        Args:
            given: Bytes, as a number, a text such as `"512 MiB"`, or a `MemoryLimit`.

        Raises:
            MemoryLimitError: The model is refused, as `MemoryLimit` describes.
        """
        limit = self.story.limit(given)
        self.executable.refusal = lambda sizes: self.story.refusal(limit, sizes)
        self.executable.most_bytes = limit.bytes

    def limit_time(self, seconds: float | None) -> None:
        """Set a timeout for calls, checked between two iterations or kernels.

        A longer call raises TimeLimitError.

        Args:
            seconds: The timeout. None, the default: no limit.

        Raises:
            OptionError: `seconds` is not a number of seconds.
        """
        self.executable.timeout = known_timeout(seconds)

    def keep_on_device(self, *results: str) -> None:
        """Return results of later calls as arrays on their devices, instead of copies.

        Such an array (`numpy()`, `torch.from_dlpack(array)`) is not copied as an argument either.

        Args:
            *results: Names of results that a 'cuda' device computes; none: copy all.

        Raises:
            OptionError: A result cannot stay on a device.
        """
        names = [text_of("results", name, "give names of results") for name in results]
        keep = getattr(self.executable, "keep_on_device", None)
        if keep is not None:
            keep(names)
        elif names:
            raise OptionError(
                f"{self.name}: result '{names[0]}' cannot stay on a device",
                "place the nodes that make it on a 'cuda' device",
            )

    def set_sizes(self, /, **sizes: int) -> None:
        """Set dims for all later calls: those that no input determines, or that inputs must
        match.

        `plan` and `largest` use these sizes as defaults. A call whose inputs disagree raises
        DimError.

        Args:
            **sizes: Sizes by dim. Without any, all settings are removed.

        Raises:
            DimError: A dim is unknown, out of bounds, or determined by data.
        """
        given = given_sizes(self.name, sizes)
        inputs = self.executable.signature.inputs
        told = {symbol for spec in inputs for size in spec.shape for symbol in size.symbols}
        told |= {name for name, _ in self.executable.interface.requested_dims}
        for name, value in given.items():
            dim = self.dims.dim(name)
            if value not in dim:
                raise DimError(f"{self.name}: dim '{name}' is set to {value}", f"declared {dim}")
            if name not in told and name in self.program.spoken_of:
                hint = "leave it out: plans count it with its upper bound"
                raise DimError(f"{self.name}: data decides the size of dim '{name}'", hint)
        box = self.dims.without({name for name in self.dims.names if name not in given})
        violations = box.violations(given)
        if violations:
            raise DimError(f"{self.name}: {violations[0]}", f"declared {self.dims}")
        self.executable.watched.fix(given)

    def largest(self, dim: str, memory: int | str | None = None, **sizes: int) -> int | None:
        """The largest size of a dim at which a call fits into `memory`.

        It is the largest of all sizes that fit, even if a smaller one does not.

            model.largest("batch", seq=512, memory="2 GiB")

        Args:
            dim: Name of the dim.
            memory: Bytes, as a number or a text. None: the model's limit.
            **sizes: Sizes of other dims. Omitted dims count with their upper bounds.

        Returns:
            The size; None if every size fits.

        Raises:
            DimError: A dim or size is invalid.
            MemoryLimitError: No size fits.
        """
        given = self.memory_limit if memory is None else memory
        self._check_names((text_of("the dim", dim), *sizes), "memory")
        if given is None:
            raise OptionError("largest: there is no limit", 'give one: memory="2 GiB"')
        known = {**self.executable.watched.sizes, **sizes}
        from anydim.base.amounts import bytes_of

        return self.memory.largest(dim, bytes_of(given), known)

    def record(self, path: str | os.PathLike[str]) -> Recording:
        """Record the sizes and times of calls in a file, until `stop` of the result.

        The result is also a context manager. Lines are appended every ten seconds and at the end;
        several processes may write to one file.

            with model.record("sizes.jsonl"):
                serve(model)

        Args:
            path: The file.

        Raises:
            OptionError: The file cannot be written.
        """
        from anydim.runtime.program.recording import Recording

        return Recording(path_of("path", path), self.executable).start()

    def plan(self, *, lengths: Any = None, **sizes: Any) -> Plan:
        """What a call at these sizes will do; runs nothing. Raises DimError for what is no size.

        `lengths` are the sizes of the rows of a ragged batch. A structure input is given by its
        name: `plan(t=forest)`.
        """
        forests = self._conversion.forests
        if forests is not None:
            given = {name: sizes.pop(name) for name in forests.schemas if name in sizes}
            sizes = {**forests.sizes(given), **sizes}
        if lengths is None:
            known = {**self.executable.watched.sizes, **given_sizes(self.name, sizes)}
            if self._conversion.packing is not None:
                self._conversion.packing.check_totals(known)
            return self.story.plan(known)
        packing = self._packing
        rows = packing.known_lengths(lengths)
        given, dims = packing.sizes(rows, sizes), self.dims.names
        found = self.plan(**{**sizes, **{dim: given[dim] for dim in dims if dim in given}})
        from anydim.runtime.program.padding import with_row_work

        return with_row_work(found, self.program, packing, rows, sizes)

    @property
    def _packing(self) -> Any:
        """The conversions of ragged batches; raises OptionError without any."""
        packing = self._conversion.packing
        if packing is None:
            raise OptionError(
                f"{self.name} has no ragged dims, and `lengths` are sizes of rows",
                "give the sizes of its dims, or compile it with ragged=",
            )
        return packing

    def map(
        self,
        inputs: Iterable[Any],
        memory: int | str = "1 GiB",
        *,
        batch: str | None = None,
        pad: Mapping[str, Any] | None = None,
        outputs: Sequence[str] | None = None,
        window: int = 4096,
        check: bool = True,
        progress: Any = None,
    ) -> list[dict[str, Any]] | Iterator[dict[str, Any]]:
        """Run many inputs of different sizes, in groups that fit `memory`.

        Args:
            inputs: A list or an iterator of items. An item is a mapping by name, a tuple, or the
                array of the only input, with or without the axis of `batch`.
            memory: Most bytes of a group's arena, inputs and outputs together.
            batch: Dim along which items are joined. None: the first dim that is axis 0 of all
                inputs and outputs; without such a dim, each item is a separate call. Inputs
                without that axis are equal within a group.
            pad: Fill values by input, `{"ids": 0, "mask": 0}`: inputs are padded to the longest of
                their group, and results are cropped. Other sizes of a group are equal.
            outputs: Names of the results to return. None: all.
            window: Number of items that are grouped at a time.
            check: Run the most padded item of the first group alone and compare.
            progress: True shows a bar; a function is called with `(done, total or None, detail)`.

        Returns:
            Outputs by name in the order of the items: a list for a list, an iterator for an
            iterator.

        Raises:
            MemoryLimitError: An item does not fit alone.
            InputError: An item does not fit the model.
            DimError: A size is out of bounds.
            OptionError: An argument is invalid.
        """
        if self.adapter is not None:
            call = partial(
                self._inner.map, memory=memory, batch=batch, outputs=outputs, window=window,
                check=check, progress=progress,
            )  # fmt: skip
            return self.adapter.mapped(call, inputs, pad)
        found: list[dict[str, Any]] | Iterator[dict[str, Any]] = self._mapper.map_items(
            inputs, memory, batch, pad, outputs, window, check, progress
        )
        return found

    @cached_property
    def _mapper(self) -> Any:
        """What it remembers of its times."""
        if not self._lists:
            from anydim.runtime.program.batches.mapping import Mapper

            return Mapper(self.executable, self.program, self.story.mixing)
        if not all(isinstance(each, RaggedPort) for each in self._lists.values()):
            advice = "call it for each item"
            if self._conversion.forests is not None:
                advice = "call it with a list of structures"
            raise OptionError(f"{self.name} has {self._shown_lists()}", advice)
        from anydim.runtime.program.batches.ragged_map import RaggedMapper

        return RaggedMapper(self.executable, self.program, self._lists, self._given_names)

    @property
    def devices(self) -> dict[str, Any]:
        """The open devices of its parts, by the names in the program."""
        return {name: each.device for name, each in self.executable.devices.items()}

    def profile(
        self, inputs: Any = None, *, repeat: int = 20, seed: int = 0,
        integers: Ranges | None = None, **sizes: int,
    ) -> Profile:  # fmt: skip
        """Measure the launches of a call. Other calls of the model are unaffected.

            print(model.profile(batch=8, seq=77))
            model.profile(inputs).save_trace("trace.json")      # for ui.perfetto.dev

        Args:
            inputs: Inputs of a call, by name or in order. None: random inputs at `sizes`.
            repeat: Number of calls; results are medians.
            seed: Seed of random inputs.
            integers: Range `(low, high)` to draw an integer input from. Otherwise indices are
                drawn from their valid range, other integers from 0 and 1.
            **sizes: Sizes of the dims for random inputs.

        Returns:
            The profile. Printed, it lists the costliest launches with their share of the machine's
            limits; `costliest()`, `json()` and `save_trace(path)` give the rest.

        Raises:
            UserError: As in `plan` and in calls.
        """
        inputs = self._arrays("profile", inputs)
        self._check_names(sizes, "inputs", "repeat", "seed", "integers")
        from anydim.runtime.program.profile.taking import profile_calls

        return profile_calls(self, inputs, sizes, repeat, seed, integers, self._limits)

    def trace(
        self, path: str | os.PathLike[str] | None = None, inputs: Any = None, *, calls: int = 1,
        seed: int = 0, integers: Ranges | None = None, waited: bool = False, **sizes: int,
    ) -> Trace:  # fmt: skip
        """Record launches, copies and waits of a call over time, on the host and on each
        device.

        Other calls of the model are unaffected. The file has Chrome's trace event format, which
        ui.perfetto.dev opens.

            print(model.trace("trace.json", batch=8, seq=77))

        Args:
            path: The file. None: none; `save(path)` of the result writes it.
            inputs: As in `profile`.
            calls: Number of traced calls, after one that is not traced.
            seed: Seed of random inputs.
            integers: As in `profile`.
            waited: Complete each device command before the next, so that nothing overlaps.
                Otherwise a device without its own clock ends a command when it has accepted it.
            **sizes: Sizes of the dims for random inputs.

        Returns:
            The trace. Printed, it is a summary.

        Raises:
            OptionError: The file cannot be written.
            UserError: As in `plan` and in calls.
        """
        inputs = self._arrays("trace", inputs)
        self._check_names(sizes, "path", "inputs", "calls", "seed", "integers", "waited")
        place = None if path is None else path_of("path", path)
        if not isinstance(waited, bool):
            raise OptionError(f"waited is {short_repr(waited)}", "give True or False")
        from anydim.runtime.program.profile.taking import trace_calls

        found = trace_calls(self, inputs, sizes, calls, seed, integers, waited)
        if place is not None:
            found.save(place)
        return found

    def _check_names(self, dims: Iterable[str], *keywords: str) -> None:
        """Raise DimError for what is no dim; it may be a misspelled keyword."""
        from anydim.runtime.program.binding import check_names

        check_names(self.name, self.dims, dims, keywords)

    def _arrays(self, what: str, inputs: Any) -> Any:
        """The inputs of a call as the program takes them; raises OptionError for lists."""
        if self.adapter is not None and inputs is not None:
            if not isinstance(inputs, Mapping):
                inputs = by_position(self.name, self._given_names, inputs)
            inputs = self.adapter.encode(inputs)[0]
        packing = self._conversion.packing
        if packing is not None:
            if not isinstance(inputs, Mapping):
                problem = f"{self.name} takes ragged batches, and `{what}` draws arrays"
                raise OptionError(problem, f"give it rows: {what}(inputs={{'x': [row, row]}})")
            return packing.pack(inputs)[0]
        forests = self._conversion.forests
        if forests is not None:
            if not isinstance(inputs, Mapping):
                problem = f"{self.name} takes structures, and `{what}` draws arrays"
                raise OptionError(problem, f"give it structures: {what}(inputs={{...}})")
            return forests.pack(inputs)[0]
        if not all(isinstance(each, Listed) and each.single for each in self._lists.values()):
            problem = f"{self.name} takes lists of arrays, and `{what}` single ones"
            raise OptionError(problem, f"{what} what makes and takes no sequences")
        return inputs

    def _shown_lists(self) -> str:
        """What is not one tensor among inputs and outputs, in words."""
        for kind, text in ((RaggedPort, "ragged batches"), (StructurePort, "structures")):
            if any(isinstance(parts, kind) for parts in self._lists.values()):
                return text
        ranked = [n for n, e in self._lists.items() if isinstance(e, Listed) and e.single]
        if len(ranked) < len(self._lists):
            return "lists of arrays"
        return f"results whose rank depends on the sizes of a call ({quote_list(ranked)})"

    def _limits(self, threads: int, done: Sequence[Done]) -> Limits | None:
        """What the machine can do at most; None where it is not known.

        `done` are operations, bytes and seconds of launches.
        """
        from anydim.runtime.program.profile.limits import read_limits

        return read_limits(threads)

    @property
    def index_ranges(self) -> Ranges:
        """(0, last) for the inputs that are indices; the last one may depend on the dims."""
        return {name: (0, last) for name, last in self.story.last_indices.items()}

    def explain(
        self, pattern: str = "", *, details: bool = False, lengths: Any = None, **sizes: int
    ) -> str:
        """How the model was compiled: a summary that fits one screen.

            print(model.explain())
            print(model.explain("*/attention/*"))
            print(model.explain(lengths=[5, 100, 17]))      # beside a padded call

        Args:
            pattern: Names of nodes or kernels, such as "layer.0/*" or "contraction": list only
                these kernels.
            details: List every kernel with its schedule, the reason for it and its nodes, and the
                notes of all passes.
            lengths: The sizes of the rows of a ragged batch, as in `plan`: its cost is shown
                beside that of a padded batch. None: natural lengths, as an example.
            **sizes: Sizes of the other dims for `lengths`.

        Raises:
            OptionError: No kernel matches the pattern, or the model has no ragged dims.
            DimError: A size is out of bounds.
        """
        wanted, every = text_of("pattern", pattern), flag_of("details", details)
        ragged: list[str] = []
        if lengths is not None or sizes or self._conversion.packing is not None:
            from anydim.runtime.program.padding import ragged_facts

            ragged = ragged_facts(self, self._packing, lengths, sizes)
        return self.story.explain(self._bodies_text(), wanted, every, ragged)

    def _bodies_text(self) -> list[str]:
        """Lines on the strategy and on variants."""
        return []

    def load_weights(self, source: Any) -> None:
        """Raises OptionError: a saved file has no record of how constants come from weights."""
        raise OptionError(
            f"{self.name} was loaded from a saved file, whose weights are packed for kernels",
            "load them into the compiled model, ad.compile(...).load_weights(...), and save that",
        )

    def trim(self) -> int:
        """Return idle memory to the system now, including freed memory of the C library
        (glibc).

        The next call allocates again. Without `trim`, memory follows use within 64 calls.

        Returns:
            Bytes of arenas that were returned.
        """
        return self.executable.trim()

    def __repr__(self) -> str:
        if self._named and isinstance(self.executable, AbsentProgram):
            takes = ", ".join(self._given_names)
            return f"<anydim model {self.name}({takes}), compiled by its first call>"
        return f"<anydim model {self.signature}{'' if self.adapter is None else self.adapter.note}>"

    def _repr_html_(self) -> str | None:
        """A table for notebooks; None, for the plain text, of a model without a program."""
        if isinstance(self.executable, AbsentProgram):
            return None
        from anydim.runtime.program.page import sheet

        return sheet(self).html()

    # ---- pickling ------------------------------------------------------------------------------

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle how it was made and its settings: unpickling creates it again."""
        if self._made is None and self.adapter is not None:
            return _with_adapter, (self._inner, self.adapter)
        if self._made is None:
            raise OptionError(f"{self.name} cannot be pickled: it was made by hand")
        run = self.executable
        if isinstance(run, AbsentProgram):
            return self._made, ()
        held = {name: array.copy() for name, array in self.state.items()}
        sizes = {} if self._named else dict(run.watched.sizes)  # of the ranks of one call
        return self._made, (), (sizes, run.timeout, self.memory_limit, held)

    def __setstate__(
        self, state: tuple[Mapping[str, int], float | None, int | None, dict[str, Any]]
    ) -> None:
        if isinstance(self.executable, AbsentProgram):
            self._settings = state
            return
        sizes, timeout, limit, held = state
        self.state.update(held)
        if sizes:
            self.set_sizes(**sizes)
        self.limit_time(timeout)
        if limit is not None and limit != self.memory_limit:
            from anydim.runtime.program.limits import MemoryLimit

            self.limit_memory(MemoryLimit(limit, True))


def _with_adapter(model: CallableProgram, adapter: Adapter) -> CallableProgram:
    return model._adapted(adapter)
