"""What a user holds: a compiled model that is called, planned, explained and checked."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from anydim.base import settings
from anydim.base.errors import InputError, OptionError
from anydim.base.given import (
    by_names,
    function_of,
    path_of,
    shown,
    text_of,
    whole_within,
)
from anydim.base.keywords import public
from anydim.base.text import listed, suggestion
from anydim.checking.choice import Origin, oracles_for, origin_of
from anydim.checking.oracle import Function
from anydim.checking.report import CheckReport
from anydim.checking.run import Progress, Subject, check
from anydim.checking.texts import DefinitionCall
from anydim.compiler import compile_source
from anydim.compiling import CompileReport, Lowered
from anydim.compiling import Progress as CompileProgress
from anydim.deploy.export.export import export
from anydim.deploy.save import Version, save
from anydim.devices.device import Device
from anydim.devices.engines.engine import Engine
from anydim.devices.engines.table import ENGINES, named_engines, open_engine
from anydim.frontends.onnx.file.strings import (
    StringParts,
    StringsInside,
    cut,
    own_dims,
    reader_of,
)
from anydim.frontends.onnx.graphs.foreign import FALLBACK
from anydim.frontends.overflow import GROW, expected_bounds
from anydim.frontends.text import TextSource, text_call, text_source
from anydim.graph.nodes import Graph
from anydim.passes.options import PLAIN, Options
from anydim.passes.placing.rules import mentions
from anydim.program.held import Held
from anydim.program.inputs import Ranges, known_ranges
from anydim.program.limits import MemoryLimit
from anydim.program.profile.limits import Done, Limits, keep, kept
from anydim.program.program import Program
from anydim.program.story import Story
from anydim.runtime.arrays import by_name
from anydim.runtime.cores import available_cores
from anydim.runtime.executable import Executable
from anydim.runtime.frames import Callers
from anydim.runtime.lists import Listed
from anydim.sizes import LARGEST, Dim, Size, as_size, given_dims
from anydim.targets.fastest import fastest
from anydim.targets.placed import asked, placed_devices
from anydim.targets.targets import target as made_by
from anydim.variants.fitted import Fitted
from anydim.variants.forms import form_of
from anydim.variants.strategies import GENERIC, Adaptive, Strategy, strategy_of


@public
class Model(Fitted, Held):
    """A compiled model. Calls are thread-safe; results are new arrays owned by the caller."""

    def __init__(
        self,
        executable: Executable[Any],
        program: Program,
        reference: Function,
        report: CompileReport | None = None,
        index_ranges: Callable[[], Ranges] = dict,
        lists: Mapping[str, Listed] | None = None,
        again: Callable[..., Lowered] | None = None,
        target: str = "llvm",
        plain: Function | None = None,
        origin: Origin = None,
    ) -> None:
        self.report = report or CompileReport()
        story = Story(program, self.report.notes)
        super().__init__(executable, lambda: story, lists or {})
        self._index_ranges = index_ranges
        self._reference, self._plain = reference, plain
        self._origin = origin
        self._again = again
        self._made_by = target

    def save(
        self,
        path: str | os.PathLike[str],
        targets: str | Sequence[str] = "native",
        progress: CompileProgress | None = None,
    ) -> None:
        """Write a file that `anydim.load` makes this model of again, without a compiler.

        `targets` are the processors that it has code for: 'native' is this one, others are
        described, such as 'x86-64-v3', 'x86-64-v4+vnni', 'aarch64'. A machine that loads the file
        takes the best that it can run. Bodies for certain sizes that were made go with the code for
        this processor. `progress(stage, done, total)` is told what is being done.
        Parts on devices are saved as the code of the devices that they were compiled for.
        Raises OptionError for a processor that there is not or a path that cannot be written.
        """
        if self._again is None:
            raise OptionError(f"{self.name} cannot be saved: it was made by hand")
        place = path_of("path", path)
        function_of("progress", progress)
        several = isinstance(targets, (list, tuple, set, frozenset))
        names = [text_of("target", name) for name in (targets if several else (targets,))]
        wanted = [made_by("llvm", name) for name in dict.fromkeys(names)]
        if not wanted:
            raise OptionError("no target was given", "name one, such as 'native' or 'x86-64-v3'")
        tell, last = progress or _quiet, self._last_indices()
        versions = []
        for number, code in enumerate(wanted):
            tell(code.processor.name, number, 2 * len(wanted))
            each = self._again(code)
            mine = code.processor == made_by(self._made_by).processor
            kept = self.kept_bodies() if mine and each.made.program == self.program else ()
            versions.append(Version(code, each.made, each.notes, last, each.devices, kept))
        save(place, versions, self._lists, tell)

    def _last_indices(self) -> dict[str, Size]:
        return {name: as_size(last) for name, (_, last) in self.index_ranges.items()}

    def export(
        self, folder: str | os.PathLike[str], name: str = "", target: str = "native",
        code: str = "c",
    ) -> None:  # fmt: skip
        """Write a folder of C for programs without Python: header, code, weights, an example.

        `name` begins all symbols; without one it is made of the model's. `target` is the processor
        that the code is for, as `save` says; `code` is "c" for C text, which any compiler takes, or
        "llvm" for objects. The program runs on one thread. Raises OptionError for a model that has
        branches, loops or sizes that data decides, a name that C does not take, and what `save`
        raises it for.
        """
        if self._again is None:
            raise OptionError(f"{self.name} cannot be exported: it was made by hand")
        elsewhere = (*self.program.devices, *self.program.engines)
        if elsewhere:
            raise OptionError(
                f"{self.name} cannot be exported: it has parts on {listed(elsewhere)}",
                "compile it for the host alone, without devices= or engines, and export that",
            )
        place = path_of("folder", folder)
        wanted = made_by(text_of("code", code), text_of("target", target))
        export(place, text_of("name", name), self._again(wanted, cores=1).made, wanted)

    def show(self, stage: str) -> str:
        """The text of a compile stage; raises OptionError for an unknown one."""
        stages = {"program": self.program.text, **self.report.stages}
        if text_of("stage", stage) not in stages:
            hint = suggestion(stage, stages) or f"the stages are {listed(stages)}"
            raise OptionError(f"there is no stage '{stage}'", hint)
        return stages[stage]()

    def check(
        self,
        samples: int = 100,
        seed: int = 0,
        progress: Progress | None = None,
        integers: Ranges | None = None,
        against: str | os.PathLike[str] | None = None,
        seconds: float | None = None,
    ) -> CheckReport:
        """Compare with an oracle: element types, shapes and values, in `samples` calls.

        The oracle is onnx's reference evaluator on the ONNX file, onnxruntime where that does not
        take the file and it is installed, or the interpreter of the language on a definition; for
        other models the evaluator of their graph, which the report says. `against` names one:
        "reference", "onnxruntime", "interpreter", "evaluator"; or it is another ONNX file.
        Sizes are corners of the box (ends of bounds, 0 and 1), at most half of them, and random
        ones inside. An error of more than a few units of the last place is compared with that of
        numpy in the model's own types: what nobody can compute well is no difference.

        `integers` gives for an integer input the range (low, high) to draw from; else indices are
        drawn from where they have to lie, and others from bits to the whole range of their type.
        The check ends after so many `seconds`, early if it must.
        """
        asked = self.executable.interface.asked
        if asked:
            raise OptionError(f"check cannot set dim '{asked[0][0]}', which no input tells")
        whole_within("samples", samples, 1, LARGEST, "give how many calls to make")
        whole_within("seed", seed, 0, LARGEST, "give a number, 0 or more")
        function_of("progress", progress)
        ranges = {**self.index_ranges, **known_ranges(by_names("integers", integers))}
        origin, exact = self._origin, self._reference
        tame = self.program.straight is None or (
            isinstance(origin, DefinitionCall) and origin.counted
        )
        dtypes = {spec.name: spec.dtype.name for spec in self.outputs}
        oracles = oracles_for(origin, exact, dtypes, against)
        subject = Subject(self.program, self.executable, exact, self._plain, ranges, tame)
        return check(subject, oracles, samples, seed, progress, seconds)

    def _limits(self, threads: int, done: Sequence[Done]) -> Limits:
        """Measured once, and again where a launch was faster: the machine was busy then."""
        known = kept(threads)
        if known is None or known.passed(done):
            found = fastest(threads)
            known = found if known is None else known.most(found)
            keep(known)
        return known

    @property
    def index_ranges(self) -> Ranges:
        """(0, last) for the inputs that are indices; the last one may depend on the dims."""
        return self._index_ranges()


@public
def compile(
    source: Any,
    dims: Mapping[str, Dim | int | tuple[int, int | None] | Mapping[int, Any]] | None = None,
    *,
    threads: int | str = "auto",
    progress: CompileProgress | None = None,
    options: Options = PLAIN,
    operators: Any = None,
    precision: str | None = None,
    target: str | None = None,
    arenas: int | None = None,
    wait: float | None = None,
    memory_limit: MemoryLimit | int | str | None = None,
    on_overflow: str = "error",
    strategy: Strategy | str | None = None,
    devices: Mapping[str, str | Device | Engine] | None = None,
    placement: Mapping[str, str] | str | None = None,
    strategies: Mapping[str, Strategy | str] | None = None,
    profile: str | os.PathLike[str] | None = None,
    profile_seconds: float = 60.0,
    profile_mebibytes: float = 64.0,
    fallback: str | None = None,
) -> Model:
    """Compile a model once for every size inside the bounds of its dims.

    `source` is the path of an ONNX file, its bytes, an onnx.ModelProto, a Builder, a Graph, or the
    path of a text with the name of a definition in it: `kernels.tc:matmul`.
    `dims` gives bounds to the model's dims: a Dim, a pair (1, 512), or one size, 128; those left
    out run from 0 with no upper bound. Names are those of the file; a dim without one is given by
    its input and axis, `{"x": {2: (32, 736)}}` or `{"x.2": (32, 736)}`. `ad.inspect` lists them.
    `threads` cores serve a call; "auto" is as many as this process may use: those that it is pinned
    to, within the quota of its container, or what OMP_NUM_THREADS says.
    `progress(stage, done, total)` is told what is being done.
    `options` are schedules that kernels shall have, as `passes/options.py` says. `operators` says
    which definitions implement operators of an ONNX model: the path of a `.tc` file that names its
    domain (`# domain: my.ops`), a list of those, or a mapping such as `{"my.ops": "mine.tc"}`.
    `precision` is "exact", every division rounded correctly, "fast", or "tf32", with which devices
    may round factors of float32 products too (docs/numerics.md); None is what the options say,
    which is "exact" where they say nothing. `target` makes the code: "llvm", or "c" by way of
    a C compiler (docs/new-target.md); None is what `settings.target` says.
    `arenas` calls run at once, each with an arena of its own; others wait for one to end, `wait`
    seconds at most, then raise BusyError. None: any number of calls; without end.
    `memory_limit`, such as "512 MiB", is the most bytes that a call may take of its own
    (docs/memory.md): a model that may need more inside the bounds of its dims is refused; where
    dims have no bounds, or with `ad.MemoryLimit("512 MiB", per_call=True)`, the calls that would.
    A size above its bound is a DimError; with `on_overflow="grow"` it runs, arenas grow, and a
    warning says so once: the code is made without upper bounds then, and bounds of dims are what
    is expected. A Builder's dims have none of their own then; `dims` gives what is expected.
    `strategy` says which code serves which size, and when it is made (docs/strategies.md):
    "generic", "exact(limit=64)", "adaptive", "buckets(seq=[16, 32])", "where('m <= 4', exact())",
    'library("openblas")', "pad(seq=16)".
    None is what `settings.strategy` says: better code for sizes that come often, once a model has
    served for seconds.
    `strategies` says it for parts, by patterns of the names of nodes or kernels.
    `profile` is a file that `record` wrote: bodies that pay for the sizes there are made now, the
    costliest first, as `prepare_recorded` says, within so many seconds and mebibytes of code.
    `devices` says what the names stand for that nodes are on (docs/devices.md), such as
    `{"accel": "opencl:0"}`: names of devices, or open ones; two names may be of one.
    `placement` says which nodes are on which, by patterns of their names and operators, such as
    `{"backbone/*": "accel", "NonMaxSuppression": "cpu"}`; the rest, with "auto" everything, goes
    where the estimated time is least. Without it the graph says, or where it does not, "auto" does.
    A node may go to another engine whole, by name: `{"Conv*": "onnxruntime"}`, or "openvino".
    `fallback="onnxruntime"` lets the installed onnxruntime run nodes of an ONNX model that cannot
    be imported; `explain` names them.
    Raises ModelError for a model that cannot be taken, OptionError for options that do not fit,
    MemoryLimitError for a model that needs more memory than it may, DeviceError for a device that
    there is not or that does not take its part.
    """
    callers, known = Callers(arenas, wait), _strategy(strategy)
    wanted = {
        "threads": threads, "options": options, "precision": precision, "target": target,
        "arenas": arenas, "wait": wait, "memory_limit": memory_limit, "on_overflow": on_overflow,
        "strategy": strategy, "strategies": strategies, "devices": devices,
        "placement": placement,
        "profile": None if profile is None else os.path.abspath(path_of("profile", profile)),
        "profile_seconds": profile_seconds,
        "profile_mebibytes": profile_mebibytes,
        "fallback": fallback,
    }  # fmt: skip
    elsewhere = _fallback(fallback)
    real, engines = named_engines(devices)
    placed, form = placed_devices(real), form_of(known)
    if not (placement is None or placed or engines or mentions(placement, ENGINES)):
        raise OptionError("placement without devices", "name them: devices={'accel': 'opencl:0'}")
    placed = asked(placed, form.on_devices)
    bounds, expected = expected_bounds(source, given_dims(dims), on_overflow)
    function_of("progress", progress)
    if not isinstance(options, Options):
        raise OptionError(f"options is {shown(options)}, expected anydim's Options")
    limit = None if memory_limit is None else MemoryLimit.of(memory_limit)
    try:
        made = compile_source(
            source, bounds, threads, progress or _quiet, options, operators, precision, target,
            limit, form, placed, placement, engines, elsewhere,
        )  # fmt: skip
    except StringsInside as found:
        own: dict[str, Any] = {name: wanted[name] for name in _OF_CODE}
        own |= {"memory_limit": limit, "operators": operators, "progress": progress}
        strings = _around_strings(cut(found.opened), bounds, expected, own)
        if strings.core:
            strings.serve_by(known, strategies)
            _prepare(strings, profile, profile_seconds, profile_mebibytes, progress)
        strings._made = _again(source, None, dims, operators, wanted)
        return strings
    made.tell()
    made.executable.admit(callers)
    model = Model(
        made.executable, made.program, made.reference, made.report, made.index_ranges, made.lists,
        made.again, target or settings.target, made.plain, _origin(source),
    )  # fmt: skip
    model.executable.watched.expect(expected)
    if limit is not None:
        model.limit_memory(limit)
    model._formed = known if known.formed else GENERIC
    if strategy is None and not (known.formed or made.program.host_sites):
        known = GENERIC  # there is one body for each launch of a device
    model.serve_by(known, strategies)
    _prepare(model, profile, profile_seconds, profile_mebibytes, progress)
    model._made = _again(source, made.graph, dims, operators, wanted)
    return model


def _origin(source: Any) -> Origin:
    """What oracles take of a source: an ONNX model, or a definition with its attributes."""
    text = text_source(source)
    return origin_of(source) if text is None else DefinitionCall(*text_call(text))


_OF_CODE = ("threads", "options", "precision", "target", "arenas", "wait", "devices", "placement",
            "fallback")  # fmt: skip


def _around_strings(
    parts: StringParts, bounds: Mapping[str, Dim] | None, expected: Mapping[str, int],
    own: Mapping[str, Any],
) -> StringModel:  # fmt: skip
    """A model whose native part, if it has one, is compiled with `own` arguments."""
    if parts.core is None:
        return StringModel(parts, None)
    core = compile(parts.core, own_dims(parts.core, bounds), **own)
    core.executable.watched.expect(expected)
    return StringModel(parts, core)


def _prepare(
    model: Model, profile: str | os.PathLike[str] | None, seconds: float, mebibytes: float,
    progress: CompileProgress | None,
) -> None:  # fmt: skip
    """Bodies for recorded sizes, where there are any."""
    tell = progress or _quiet
    if profile is not None:
        model.prepare_recorded(
            profile, seconds, mebibytes,
            lambda done, launches, share: tell("bodies for recorded sizes", done, launches),
        )  # fmt: skip


def _fallback(given: str | None) -> bool:
    """Whether onnxruntime may run what cannot be imported; it must be installed then."""
    if given is None:
        return False
    if text_of("fallback", given) != FALLBACK:
        raise OptionError(f"fallback is '{given}'", f"give '{FALLBACK}', or nothing")
    open_engine(FALLBACK)
    return True


def _strategy(given: Strategy | str | None) -> Strategy:
    """The one asked for, or that of the settings where it may be.

    Not on one core, which calls would share with whoever makes bodies.
    """
    if given is not None:
        return strategy_of(given)
    known = strategy_of(settings.strategy)
    alone = settings.forbid_compile or available_cores() < 2
    return GENERIC if alone and isinstance(known, Adaptive) else known


def _again(
    source: Any, graph: Graph | None, dims: Any, operators: Any, wanted: Mapping[str, Any]
) -> Callable[[], Model]:
    """What compiles the same in another process: by its path, else of the graph that was read."""
    if isinstance(source, (str, os.PathLike)):
        place = os.path.abspath(os.fspath(source))
        return partial(compile, place, dims, operators=_absolute(operators), **wanted)
    if isinstance(source, TextSource) or graph is None:
        return partial(compile, source, dims, operators=operators, **wanted)
    dims = dims if wanted["on_overflow"] == GROW else None  # the graph has them
    return partial(compile, graph, dims, **wanted)


def _absolute(operators: Any) -> Any:
    """Paths of definitions, wherever a process stands."""
    if isinstance(operators, (str, os.PathLike)):
        return os.path.abspath(os.fspath(operators))
    if isinstance(operators, Mapping):
        return {domain: _absolute(path) for domain, path in operators.items()}
    return [_absolute(path) for path in operators] if isinstance(operators, list) else operators


def _quiet(stage: str, done: int, total: int) -> None:
    """For those who want no progress."""


class StringModel(Model):
    """A model with strings: `core` is its native part; None where all of it is on strings.

    What is asked of sizes, memory and kernels is answered for `core`.
    """

    def __init__(self, parts: StringParts, core: Model | None) -> None:
        self.parts = parts
        self._made = None
        self.core = core
        self._readers = {value.name: reader_of(value.type) for value in parts.inputs}

    def __getattr__(self, name: str) -> Any:
        if name in ("executable", "report", "_reference", "_plain", "_index_ranges"):
            return getattr(self._native, name)
        raise AttributeError(name)

    @property
    def _native(self) -> Model:
        if self.core is None:
            raise OptionError(f"{self.name} has no native part: all of it is on strings")
        return self.core

    @property
    def story(self) -> Story:
        return self._native.story

    def save(
        self,
        path: str | os.PathLike[str],
        targets: str | Sequence[str] = "native",
        progress: CompileProgress | None = None,
    ) -> None:
        """Not yet: what is done on strings has no records."""
        raise OptionError(f"{self.name} works on strings, and such models cannot be saved")

    def export(
        self, folder: str | os.PathLike[str], name: str = "", target: str = "native",
        code: str = "c",
    ) -> None:  # fmt: skip
        """Never: C has no operators on strings."""
        raise OptionError(f"{self.name} works on strings, and such models cannot be exported")

    @property
    def name(self) -> str:
        return self.parts.name

    def __call__(self, *values: Any, **named: Any) -> dict[str, Any]:
        """Run the model: strings on the host, the rest in native code. Raises InputError."""
        names = list(self._readers)
        if values:
            named = by_name(self.name, names, values, named)
        unknown = [name for name in named if name not in self._readers]
        missing = [name for name in names if name not in named]
        if unknown or missing:
            problem = f"has no input '{unknown[0]}'" if unknown else f"needs input '{missing[0]}'"
            raise InputError(f"{self.name} {problem}", f"its inputs are {listed(names)}")
        known = {name: self._readers[name](name, value) for name, value in named.items()}
        known |= self.parts.early(known)
        if self.core is not None:
            known |= self.core(**{spec.name: known[spec.name] for spec in self.core.inputs})
        known |= self.parts.late(known)
        return {value.name: known[value.name] for value in self.parts.outputs}

    def map(self, *_: Any, **__: Any) -> Any:
        """Never: memory is not known for strings."""
        raise OptionError(f"{self.name} works on strings", "call it for each item")

    def trim(self) -> int:
        return self.core.trim() if self.core is not None else 0

    def __repr__(self) -> str:
        return f"<anydim model {self.name} with strings>"

    def _repr_html_(self) -> None:
        """The text will do."""

    def __reduce__(self) -> tuple[Any, ...]:
        assert self._made is not None
        return self._made, ()
