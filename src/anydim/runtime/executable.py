"""A compiled program that can be called with arrays, independent of the form of its native code."""

from __future__ import annotations

import os
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NoReturn, TypeVar

import numpy

from anydim.base.errors import InputError, OptionError, OutOfMemoryError, UserError
from anydim.base.fork_locks import fork_lock
from anydim.base.records import dataclass
from anydim.runtime.arrays import AtAddress, Wrap, check_names, is_elsewhere, plain, wrapper
from anydim.runtime.call_sizes import CallSizes
from anydim.runtime.delegated import DelegatedParts, NoDelegates
from anydim.runtime.failures import Failure, Words, call_error
from anydim.runtime.frames import IDLE, Callers, Frame, shelf_of, trim_system
from anydim.runtime.interface import Interface
from anydim.runtime.pages import ALIGNMENT
from anydim.runtime.signature import Signature, TensorSpec
from anydim.runtime.threads import Pool, PoolCode
from anydim.runtime.variant_tables import TAG

if TYPE_CHECKING:
    from anydim.runtime.device_calls import Hosted

WORD = 8  # bytes
NEVER = 1 << 60  # calls
UNLIMITED = (1 << 63) - 1
_READY = 0x0101  # numpy's flags C_CONTIGUOUS and ALIGNED


@dataclass(frozen=True)
class Image:
    """Code in memory: resolves symbols; `keep` keeps the memory alive."""

    address: Callable[[str], int]
    keep: object


class Constants:
    """Constants by name, and the tables of their addresses; a frame has those that it reads."""

    def __init__(self, interface: Interface, arrays: Mapping[str, numpy.ndarray]) -> None:
        self.arrays = {name: arrays[name] for name in interface.held}
        self.of_devices = {
            name: arrays[name] for each in interface.devices for name in each.held
        }  # fmt: skip
        self.tables = {
            word: numpy.array([pointer(arrays[name]) for name in names], numpy.uint64)
            for word, names in interface.tables
        }

    @property
    def every(self) -> dict[str, numpy.ndarray]:
        """All arrays by name."""
        return {**self.arrays, **self.of_devices}


Own = TypeVar("Own", bound=Frame)


class Executable(ABC, Generic[Own]):
    """A program with a signature that can be called with arrays; thread-safe.

    `arrays` are the constants by name, aligned as their kernels require; they and the code live as
    long as the executable. `entries` are the tables of code. `devices` are the program's devices by
    name, with its code on them; `handed` are the parts that engines run.
    """

    direct: ClassVar[bool]  # whether results are written to the caller's arrays directly
    held: Constants

    def __init__(
        self,
        signature: Signature,
        interface: Interface,
        image: Image,
        arrays: Mapping[str, numpy.ndarray],
        threads: int = 1,
        devices: Mapping[str, Hosted] | None = None,
        handed: DelegatedParts | None = None,
    ) -> None:
        self.devices = devices or {}
        self.handed: DelegatedParts = handed or NoDelegates()
        self.signature = signature
        self.interface = interface
        self.threads = threads
        self._image = image
        worker, stop = (self._function(role) for role in ("worker", "stop"))
        self._pool_code = PoolCode(worker, stop, image.keep)
        self._pool: Pool | None = None
        self._pool_lock = fork_lock(self, "_pool_lock")
        self._serial = threads < 2
        self._inputs = [(s.name, s, s.dtype.numpy, len(s.shape)) for s in signature.inputs]
        self._outputs = [(s.key, s.dtype.numpy, len(s.shape)) for s in signature.outputs]
        keys = {spec.name: spec.key for spec in signature.outputs}
        self.updates = {(keys[made], read) for made, read in interface.updates}
        self.entries = {
            word: numpy.array([image.address(name) for name in names], numpy.uint64)
            for word, names in interface.entries
        }
        self.resident = {
            name: (device, word) for name, device, word in interface.resident
            if self.devices[device].device.dlpack is not None
        }  # fmt: skip
        self.kept: Mapping[str, str] = {}  # names, by keys, of results that stay on their devices
        self.held = self._hold(arrays)
        self.most_bytes = UNLIMITED  # limit of memory per call
        self.refusal: Callable[[Mapping[str, int]], Exception] | None = None
        self.timeout: float | None = None  # time limit of a call
        self.guard: Callable[[], None] | None = None  # before each call; may raise
        self.watched = CallSizes(signature)
        self.served: Callable[[], None] | None = None  # called after every `until_served` calls
        self.until_served = NEVER
        self.steady = False  # whether calls may repeat earlier sizes
        self.tensors: type | None = None  # class of the last or expected arguments besides arrays
        self.noted: Callable[[list[int], float], None] | None = None  # receives sizes and seconds
        self._epoch = 0
        self._retired: list[tuple[int, object]] = []
        self._pruning = fork_lock(self, "_pruning")
        self._every: list[weakref.ref[Frame]] = []
        self.admit(Callers())

    def admit(self, callers: Callers) -> None:
        """Set the limit of concurrent calls; before the first call."""
        self._frames = shelf_of(self._known_frame, callers, self.signature.name)

    def dismiss(self) -> None:
        """Drop back references after the last call, so that memory is freed at once."""
        self.served = None
        del self._frames

    def __call__(
        self, given: Mapping[str, Any], into: Mapping[str, numpy.ndarray] | None = None
    ) -> dict[str, Any]:
        """Run the program and return its outputs by name, as new arrays.

        Arrays in `into` are filled instead: contiguous, of the output's dtype, and without overlap
        with the inputs. Raises InputError or DimError, before anything runs, for unsuitable inputs;
        InputError for an invalid index or size that data determines; OutOfMemoryError if an
        allocation fails; BusyError if no arena is free.
        """
        outputs = self._serve_call(given, into, False)
        assert outputs is not None
        return outputs

    def repeat(
        self, given: Mapping[str, Any], into: Mapping[str, numpy.ndarray] | None = None
    ) -> dict[str, Any] | None:
        """Run a call with the dtypes and sizes of an earlier one; return None, without any effect,
        otherwise.

        For callers that can then skip their own checks.
        """
        return self._serve_call(given, into, True) if self.steady else None

    def _serve_call(
        self, given: Mapping[str, Any], into: Mapping[str, numpy.ndarray] | None, repeated: bool
    ) -> dict[str, Any] | None:
        guard = self.guard
        if guard is not None:
            guard()
        noted = self.noted
        start = perf_counter() if noted is not None else 0.0
        frames = self._frames  # other constants have other frames
        frame = frames.take()
        frame.since = self._epoch
        wrap: Wrap | None = None
        try:
            outputs = self._repeat(frame, given, into)
            shapes = frame.shapes
            if outputs is None:
                if repeated:
                    return None
                arrays, shapes, wrap = self._arrays(given)
                if self.watched.has_checks:
                    self.watched.check_shapes(shapes)
                outputs = self._execute_retrying(frame, arrays, shapes, into or {})
        finally:
            frame.since = IDLE
            frames.give(frame)
        if noted is not None:
            noted(shapes, perf_counter() - start)
        self.until_served -= 1
        if self.until_served < 0 and self.served is not None:
            self.served()
        return outputs if wrap is None else {name: wrap(each) for name, each in outputs.items()}

    def _execute_retrying(
        self, frame: Own, arrays: list[numpy.ndarray], shapes: list[int],
        into: Mapping[str, numpy.ndarray],
    ) -> dict[str, Any]:  # fmt: skip
        """Run a call; run it once more, with idle memory freed, after a failed allocation."""
        try:
            return self._execute(frame, arrays, shapes, into)
        except OutOfMemoryError:
            if self.updates and into and not self.direct:
                raise  # arrays of the caller may be partly updated
        frame.keep(0)  # frees this frame's memory, then that of idle frames
        self.trim()
        return self._execute(frame, arrays, shapes, into)

    def _hold(self, arrays: Mapping[str, numpy.ndarray]) -> Constants:
        return Constants(self.interface, arrays)

    def exchange_constants(self, arrays: Mapping[str, numpy.ndarray]) -> None:
        """Let later calls read other constants, of these names, and the same dtypes and shapes.

        Calls in progress end with the constants that they began with. Raises ValueError, without
        any effect, if a constant does not fit.
        """
        known = self.held.every
        for name, array in arrays.items():
            old = known[name]
            if (array.dtype, array.shape) != (old.dtype, old.shape) or pointer(array) % ALIGNMENT:
                raise ValueError(f"constant '{name}' is {array.dtype} {list(array.shape)}")
        self.held = self._hold({**known, **arrays})
        self._frames = self._frames.renew()

    def twin(self, devices: Mapping[str, Hosted] | None = None) -> Executable[Own]:
        """Return an executable with the same code and constants and its own table of code and
        memory.

        Limits and set sizes are copied; all launches use the generic kernels. `devices` replaces
        the access to the same devices.
        """
        made = type(self)(
            self.signature, self.interface, self._image, self.held.every, self.threads,
            devices or self.devices, self.handed,
        )  # fmt: skip
        made.most_bytes, made.refusal, made.timeout = self.most_bytes, self.refusal, self.timeout
        made.watched, made.guard = self.watched, self.guard
        made.kept = self.kept
        return made

    @property
    def chosen(self) -> bool:
        """Whether launches select variants by size."""
        return any(bool((table & TAG).any()) for table in self.entries.values())

    def retire(self, what: object) -> None:
        """Free code and tables that new calls cannot reach, once no call in progress can use
        them."""
        self._epoch += 1
        self._retired.append((self._epoch, what))
        pruning = self._pruning
        if not pruning.acquire(blocking=False):  # another thread is pruning
            return
        try:
            frames = [frame for frame in (known() for known in self._every) if frame is not None]
            oldest = min((frame.since for frame in frames), default=IDLE)
            rows = self._retired[:]
            gone = next((n for n, (epoch, _) in enumerate(rows) if epoch > oldest), len(rows))
            del self._retired[:gone]  # in place: another thread may append meanwhile
        finally:
            pruning.release()

    def _known_frame(self) -> Own:
        frame = self._frame()
        self._every = [known for known in self._every if known() is not None]
        self._every.append(weakref.ref(frame))
        return frame

    @abstractmethod
    def _frame(self) -> Own:
        """Create the memory of a call."""

    @abstractmethod
    def _execute(
        self, frame: Own, arrays: list[numpy.ndarray], shapes: list[int],
        into: Mapping[str, numpy.ndarray],
    ) -> dict[str, numpy.ndarray]:  # fmt: skip
        """Run a call with arrays that are valid except for their sizes, `shapes`."""

    @property
    @abstractmethod
    def arena_bytes(self) -> int:
        """Bytes that all idle calls keep cached."""

    @property
    @abstractmethod
    def result_bytes(self) -> int:
        """Bytes of dead results that are cached for later results."""

    @property
    @abstractmethod
    def highest_arena_bytes(self) -> int:
        """The maximum number of bytes that an idle call ever held."""

    @property
    def constant_bytes(self) -> int:
        """Bytes of the host weights, as kernels read them."""
        return sum(array.nbytes for array in self.held.arrays.values())

    def trim(self) -> int:
        """Free the memory cached for calls; return the number of bytes."""
        given = self._frames.trim()
        for each in self.devices.values():
            each.device.trim()
        trim_system()
        return given

    def _words_of_arrays(self) -> list[tuple[int, int]]:
        """The slots of address and first size of each input, then of each output."""
        found, size = [], self.interface.shapes
        for number, spec in enumerate(self.signature.inputs):
            found.append((self.interface.inputs + number, size))
            size += spec.rank
        return found + [(data, first) for data, _, first in self.interface.results]

    def _function(self, role: str) -> int:
        return self._image.address(self.interface.functions[role])

    def _failure_error(self, number: int, block: Words) -> UserError:
        """Return the error for a failure number of native code, from 1 on."""
        return call_error(self.interface.failures[number - 1], block, self.signature.name)

    def _memory_error(self, failed: Failure, block: Words) -> Exception:
        """Return the error for a call that needs more than `most_bytes`; `failed` has the dims."""
        assert self.refusal is not None
        return self.refusal({dim: block[word] for dim, word in failed.dims.items()})

    def _repeat(
        self, frame: Own, given: Mapping[str, Any], into: Mapping[str, numpy.ndarray] | None
    ) -> dict[str, Any] | None:
        """Run a call like the last one of this frame; None if it is not."""
        return None

    def _arrays(
        self, given: Mapping[str, Any]
    ) -> tuple[list[numpy.ndarray], list[int], Wrap | None]:
        """Return the inputs in order, all their sizes, and the converter of results."""
        if len(given) != len(self._inputs):
            check_names(given, self.signature)
        arrays: list[numpy.ndarray] = []
        shapes: list[int] = []
        foreign: list[Any] = []
        for name, spec, dtype, rank in self._inputs:
            try:
                array = given[name]
            except KeyError:
                check_names(given, self.signature)
                raise
            if (
                type(array) is not numpy.ndarray
                or array.dtype is not dtype
                or array.ndim != rank
                or array.flags.num & _READY != _READY
            ):
                if not isinstance(array, numpy.ndarray):
                    if self.devices and is_elsewhere(array):
                        there = self.on_device(array, spec)
                        if there.kept is not array:  # of another library
                            foreign.append(array)
                        arrays.append(there)
                        shapes.extend(there.shape)
                        continue
                    foreign.append(array)
                array = plain(array, spec, dtype, self.signature.name, self.signature.box)
            arrays.append(array)
            shapes.extend(array.shape)
        if not foreign:
            return arrays, shapes, None
        self.tensors = type(foreign[0])
        return arrays, shapes, wrapper(foreign)

    def on_device(self, array: Any, spec: TensorSpec) -> AtAddress:
        """Return address and shape of an argument on a device; raises InputError unless only that
        device reads the input."""
        where = f"input '{spec.name}' of {self.signature.name}"
        if spec.name not in self.resident:
            raise InputError(
                f"{where}: the array is on a device, but not only one device reads the input",
                "move it to the CPU first",
            )
        return self.devices[self.resident[spec.name][0]].address_of(array, spec, where)

    def _take_pool(self, call: Own) -> Pool | None:
        """Acquire the thread pool for a call; None if it is in use or there are no threads."""
        pool = self._pool
        if pool is None or pool.process != os.getpid():
            pool = self._make_pool()
        return pool if pool is not None and pool.take(call) else None

    def _leave_pool(self, call: Own) -> None:
        """Release the pool if a signal interrupted the call that had just acquired it."""
        pool = self._pool
        if pool is not None and pool.taken.get(0) is call:
            pool.taken.clear()

    def _make_pool(self) -> Pool | None:
        if self._serial or self._pool_lock.locked():
            return None
        with self._pool_lock:  # a signal may arrive between `acquire` and a following `try`
            try:
                pool = self._pool
                if pool is None or pool.process != os.getpid():
                    self._pool = Pool(self._pool_code, self.threads)
            except (OSError, RuntimeError):
                self._serial = True
        return self._pool


def pointer(array: numpy.ndarray) -> int:
    """Return the data address of an array."""
    return int(array.ctypes.data)


def wrong_shape(model: str, name: str, given: tuple[int, ...], made: tuple[int, ...]) -> InputError:
    """Return the error for an `out` array of the wrong shape."""
    return InputError(
        f"{model}: the array for '{name}' has shape {given}, the result has {made}",
        "give an array of that shape",
    )


class AbsentProgram:
    """In place of the executable of a model without a program.

    Each use raises an OptionError of these texts.
    """

    def __init__(self, *texts: str) -> None:
        self.__dict__["_texts"] = texts

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):  # of pickling and copying
            raise AttributeError(name)
        self.refuse()

    def __setattr__(self, name: str, value: Any) -> None:
        self.refuse()

    def trim(self) -> int:
        """There is no memory to free."""
        return 0

    def refuse(self) -> NoReturn:
        """Raise the OptionError."""
        raise OptionError(*self._texts)
