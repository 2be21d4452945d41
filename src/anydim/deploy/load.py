"""Loads a file as a model that runs. Needs numpy and the standard library, no compiler.

Nothing is executed before the length of the file, the digests of code and records, and the match of
code and records are checked. Constants are mapped, and verified as `verifying.py` describes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy

from anydim.base.digest import sha256
from anydim.base.errors import ArtefactError, OptionError
from anydim.base.keywords import public
from anydim.base.text import quote_list, suggestion
from anydim.base.user_values import absolute, flag_of, is_auto, path_of, text_of
from anydim.deploy.container import ALIGNMENT, Container
from anydim.deploy.records import parse_record
from anydim.deploy.saved import (
    Saved,
    SavedArray,
    SavedDevice,
    constant_member,
    device_member,
    member,
    stamp,
)
from anydim.deploy.verifying import BackgroundVerifier, Check, deferred_digests, verify_of
from anydim.deploy.verifying import verify as verify_constants
from anydim.runtime.cores import usual_cores
from anydim.runtime.cpu import Level, this_level
from anydim.runtime.executable import Image
from anydim.runtime.frames import Callers
from anydim.runtime.image import MappedImage, map_bytes, map_file
from anydim.runtime.loading import executable
from anydim.runtime.program.callable_program import CallableProgram
from anydim.runtime.program.variants import StoredVariants, Variant
from anydim.runtime.systems import LINUX, platform_text, this_architecture, this_system
from anydim.runtime.threads import MOST, known_threads

if TYPE_CHECKING:
    from anydim.compiler.variants.strategies import Strategy
    from anydim.runtime.devices.device import Device
    from anydim.runtime.devices.engines.engine import Engine
    from anydim.runtime.program.limits import MemoryLimit
    from anydim.runtime.program.plan import Plan
    from anydim.runtime.program.program_reports import ProgramReports
    from anydim.runtime.program.segment import Site


def available_threads(saved: int) -> int:
    """The threads of a model whose code is for up to `saved`: one per core, at most."""
    return min(saved, usual_cores())


_ADAPTERS = ("strings.json", "tensors.json")  # members of models with an adapter


@public
class LoadedModel(CallableProgram):
    """A model from a file. Calls are thread-safe; results are new arrays owned by the caller.

    Attributes:
        level: Kind of processor of its code.
        levels: Kinds of processors in the file.
        about: Manifest of the file.
        container: The file.
    """

    level: Level
    levels: tuple[Level, ...]
    container: Container
    _strategy: Strategy | None = None

    def __init__(
        self, container: Container, level: Level, levels: Sequence[Level], verify: str,
        devices: Any = None, threads: Callable[[int], int] = available_threads,
    ) -> None:  # fmt: skip
        self.level, self.levels, self.about = level, tuple(levels), container.about
        self.container = container
        name = level.name
        saved_text = bytes(container.verify_member(member(name, "start.json")))
        story = member(name, "story.json")
        code = _code(container, name, saved_text)
        saved = parse_record(Saved, saved_text)  # only the record type that its code was made for
        saved.interface.verify(saved.signature)
        if saved.level != level:
            raise container.fail(f"its code for {name} is for another processor")
        if code.head.platform != level.architecture:
            raise container.fail(f"its code for {name} is for {code.head.platform}")
        if not 1 <= saved.threads <= MOST:
            raise container.fail(f"its records have {saved.threads} threads")
        symbols = {symbol: number for number, symbol in enumerate(saved.symbols)}
        if len(symbols) != len(code.head.entries):
            raise container.fail("its records refer to code that the file does not contain")
        arrays, pending = _constants(container, saved.arrays, verify)
        image = Image(lambda symbol: code.address(symbols[symbol]), (code, container))
        count = threads(saved.threads)
        hosted = delegated = None
        if saved.interface.handed:
            made = import_module("anydim.deploy.delegated")
            devices, delegated = made.load_delegated(saved, devices, arrays, count)
        if saved.interface.devices:
            made = import_module("anydim.deploy.device_binding")
            hosted = made.open_devices(
                saved, devices, image.address, partial(_objects, container, name)
            )
        run = executable(saved.signature, saved.interface, image, arrays, count, hosted, delegated)
        run.guard = BackgroundVerifier(pending, run) if pending else None
        super().__init__(run, lambda: _story(bytes(container.verify_member(story))), saved.lists)
        self._variants = StoredVariants(run, saved.places, image.address) if saved.places else None

    def variants(self) -> tuple[Variant, ...]:
        """The variants of the file besides the generic ones, with their hits."""
        return () if self._variants is None else self._variants.variants()

    @property
    def strategy(self) -> Strategy:
        """The strategy that it was loaded with."""
        known: Strategy = import_module("anydim.compiler.variants.strategies").GENERIC
        return self._strategy or known

    def _serve_by(self, given: Any) -> None:
        """Apply a strategy without a compiler, before the first call."""
        from anydim.deploy.strategy import strategy_of_loaded

        self._strategy, keep = strategy_of_loaded(self.name, given, self._variants is not None)
        if self._variants is not None and not keep:
            self._variants.close()
            self._variants = None

    def plan(self, **sizes: int) -> Plan:
        """Kernels, variants, work and bytes of a call at given sizes; runs nothing.

        Args:
            **sizes: Sizes of the dims.

        Returns:
            The plan; `bytes`, `json()` and `document()` have its parts.

        Raises:
            DimError: A dim or size is invalid.
        """
        found, variants = super().plan(**sizes), self._variants
        if variants is None:
            return found
        numbers = {id(site): number for number, site in enumerate(self.program.host_sites)}

        def variant(site: Site, slots: tuple[int, ...]) -> str:
            number = numbers.get(id(site))  # sites of devices have none
            return "generic" if number is None else variants.serving(number, slots)

        return found.with_bodies(variant)

    def _bodies_text(self) -> list[str]:
        return [f"    {each}" for each in self.variants()]

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]} for {self.level.name}>"


def _objects(
    container: Container, level: str, number: int, saved: SavedDevice
) -> Mapping[str, bytes]:
    """The verified code for a device."""
    names = (device_member(level, number, module) for module in range(len(saved.modules)))
    return {
        module: bytes(container.verify_member(name)) for module, name in zip(saved.modules, names)
    }


def _story(text: bytes) -> ProgramReports:
    """The records for plans and explanations; calls do not need this code."""
    return parse_record(
        import_module("anydim.runtime.program.program_reports").ProgramReports, text
    )


@public
def load(
    path: str | os.PathLike[str], *, level: str | None = None, verify: bool | str = "auto",
    copy: bool = False, arenas: int | None = None, wait: float | None = None,
    memory_limit: MemoryLimit | int | str | None = None,
    devices: Mapping[str, str | Device | Engine] | None = None,
    strategy: Strategy | str | None = None, threads: int | str = "auto",
) -> LoadedModel:  # fmt: skip
    """Load a model that `Model.save` wrote; no compiler is needed.

    The file is memory-mapped and shared between processes: do not write to or truncate it in
    place while it is in use.

    Args:
        path: The saved file.
        level: Kind of processor, such as `"x86-64-v3"`. None: the best that this machine supports.
        verify: `"auto"`: checksums of everything, with weights beyond 64 MiB compared in parallel
            with the first calls, whose next call raises the error; `"checksums"`: all before the
            return; True: SHA-256; `"headers"`: no weights.
        copy: Read the file into private memory instead of mapping it.
        arenas: Most concurrent calls, each with its own arena. None: no limit.
        wait: Seconds that a further call waits for an arena. None: no limit.
        memory_limit: As in `anydim.compile`.
        devices: Devices of the names in the file, as in `anydim.compile`. Engines need none.
        strategy: `"generic"`, or `"buckets(...)"` for the variants in the file, the default.
            `"adaptive"` is generic code, with one warning; `"exact"` is refused.
        threads: Threads of a call, up to those that the model was compiled for. `"auto"`: all of
            these, as far as there are cores (or OMP_NUM_THREADS).

    Returns:
        The loaded model.

    Raises:
        ArtefactError: The file is damaged, has another format, or no code for this machine.
        OptionError: The file lacks the level, or an argument is invalid.
        MemoryLimitError: The model needs more memory than the limit.
        DeviceError: A device is missing, unnamed, or of another kind than the code.
    """
    callers = Callers(arenas, wait)
    if level is not None:
        text_of("level", level)
    how = verify_of(verify)
    container = Container(path_of("path", path), flag_of("copy", copy))
    model = _model(container, level, how, devices, _thread_count(container.path, threads))
    model.executable.admit(callers)
    if memory_limit is not None:
        model.limit_memory(memory_limit)
    if strategy is not None:
        model._serve_by(strategy)
    found = _around(model)
    found._made = partial(
        load, absolute(path), level=level, verify=verify, copy=copy, arenas=arenas,
        wait=wait, memory_limit=memory_limit, devices=devices, strategy=strategy,
        threads=threads,
    )  # fmt: skip
    return found


def _thread_count(path: str, threads: int | str) -> Callable[[int], int]:
    """Checks the number of threads that a user gives. Raises OptionError, as its result does."""
    count = known_threads(threads)
    if is_auto(threads):
        return available_threads

    def checked(saved: int) -> int:
        if count > saved:
            raise OptionError(
                f"threads is {count}, and {path} was compiled for {saved}",
                f"compile with threads={count} before saving; a load may take fewer",
            )
        return count

    return checked


def _around(model: LoadedModel) -> LoadedModel:
    """The model with the adapter of its file, if it has one."""
    if not any(name in model.container.parts for name in _ADAPTERS):
        return model
    read: Any = import_module("anydim.deploy.saved_adapters").adapter_of
    return model._adapted(read(model.container, model.executable.signature, model.lists))


def load_at_most(path: str, threads: int) -> LoadedModel:
    """Load a file with this number of threads, or all that it has; raises as `load`."""
    return _around(_model(Container(path), None, "auto", None, partial(min, threads)))


def load_kept(path: str, known: bool) -> LoadedModel:
    """Load a file of the cache; `known`: its content was verified before.

    Raises ArtefactError for a damaged file.
    """
    return _model(Container(path, known=known), None, "headers" if known else "checksums")


def _model(
    container: Container, level: str | None, how: str, devices: Any = None,
    threads: Callable[[int], int] = available_threads,
) -> LoadedModel:  # fmt: skip
    levels = levels_of(container)
    taken = _choose(container, levels, level)
    try:
        return LoadedModel(container, taken, levels, how, devices, threads)
    except KeyError as error:
        raise container.fail(f"its records refer to {error}, which is missing") from None


def levels_of(container: Container) -> tuple[Level, ...]:
    """The kinds of processors that a file has code for, the best first."""
    rows = container.about.get("levels")
    if not isinstance(rows, list) or not all(map(_is_level, rows)):
        raise container.fail("its manifest does not list the processors it is for")
    return tuple(Level(row["name"], row["architecture"], frozenset(row["flags"])) for row in rows)


def _is_level(row: Any) -> bool:
    if not isinstance(row, dict) or set(row) != {"name", "architecture", "flags"}:
        return False
    flags = row["flags"]
    texts = [row["name"], row["architecture"], *flags] if isinstance(flags, list) else [None]
    return all(isinstance(text, str) for text in texts)


def _choose(container: Container, levels: Sequence[Level], requested: str | None) -> Level:
    """The first level that this machine can run, or the requested one."""
    here, names = this_level(), [level.name for level in levels]
    if requested is not None and requested not in names:
        hint = suggestion(requested, names) or f"it has {quote_list(names)}"
        raise OptionError(f"{container.path} has no code for '{requested}'", hint)
    possible = [level for level in levels if requested in (None, level.name)]
    for level in possible:
        if level.missing(here) == frozenset():
            return level
    if not here.flags and this_system() is LINUX:
        raise ArtefactError(
            f"{container.path}: the features of this processor are unknown, as /proc/cpuinfo "
            "cannot be read",
            "mount /proc, which containers have by default",
        )
    raise ArtefactError(
        f"{container.path} has no code that this machine can run: {_problem(possible, here)}",
        f"save the model for this machine too: {_names_here()} (see Model.save)",
    )


def _names_here() -> str:
    """The targets of this system and architecture, without features."""
    system = this_system() or LINUX
    if this_architecture() != "x86_64":
        return f"'{system.prefix}{this_architecture()}'"
    return f"'{system.prefix}x86-64-v2', or up to v4"


def _problem(levels: Sequence[Level], here: Level) -> str:
    """The requirements of the level that lacks the fewest features."""
    lacking = [(missing, level) for level in levels if (missing := level.missing(here)) is not None]
    if not lacking:
        names = sorted({platform_text(level.architecture) for level in levels})
        return f"it is for {', '.join(names)}, this is {platform_text(here.architecture)}"
    missing, level = min(lacking, key=lambda each: len(each[0]))
    return f"{level.name} needs {quote_list(sorted(missing))}"


def _code(container: Container, level: str, saved: bytes) -> MappedImage:
    """Map code, check its digest and that it matches the records."""
    name = member(level, "code")
    part = container.part(name)
    code = (
        map_bytes(bytes(container.view(name))) if container.copied
        else map_file(container.file, part.offset, part.length)
    )  # fmt: skip
    if container.known:
        return code
    if sha256(code.data).hexdigest() != part.digest:
        raise container.fail("its code does not match its digest")
    if code.head.stamp != stamp(saved, bytes(container.verify_member(member(level, "story.json")))):
        raise container.fail("its code was made for other records")
    return code


def _constants(
    container: Container, saved: Sequence[SavedArray], how: str
) -> tuple[dict[str, numpy.ndarray], list[Check]]:
    """The constants by name, and the checks that remain for the first calls."""
    late = deferred_digests(saved, how)
    arrays = {each.name: _array(container, each) for each in saved if each.repacking is None}
    pending = verify_constants(container, saved, how, late)
    if len(arrays) < len(saved):
        made = import_module("anydim.deploy.repacking").repacked_constants
        others, checks = made(container, saved, how, late)
        return arrays | others, pending + checks
    return arrays, pending


def _array(container: Container, saved: SavedArray) -> numpy.ndarray:
    """A read-only view of a constant in the file."""
    name = constant_member(saved.digest)
    part = container.part(name)
    if part.digest != saved.digest or part.length != saved.bytes or part.offset % ALIGNMENT:
        raise container.fail(f"constant '{saved.name}' does not match the records")
    view = container.view(name)
    return numpy.frombuffer(view, numpy.uint8).view(saved.dtype.numpy).reshape(saved.shape)
