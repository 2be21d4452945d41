"""The compiled model of a user: called, planned, explained and checked.

A model loaded from the program cache is compiled again for queries that saved programs cannot
answer: stages, code for other targets, the reference of `check`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from anydim.base import settings
from anydim.base.collector import collector_paused
from anydim.base.errors import ArtefactError, OptionError
from anydim.base.keywords import public
from anydim.base.text import matches, quote_list, suggestion
from anydim.base.user_values import (
    by_names,
    function_of,
    path_of,
    seconds_of,
    text_of,
    texts_of,
    whole_within,
)
from anydim.compiler.variants.compiled_variants import Fitted
from anydim.runtime.executable import AbsentProgram, Executable
from anydim.runtime.lists import Lists
from anydim.runtime.program.callable_program import CallableProgram, Serving
from anydim.runtime.program.compile_report import CompileReport, KernelTexts
from anydim.sizes import LARGEST, Size, as_size

if TYPE_CHECKING:  # not needed to load a program
    import numpy

    from anydim.compiler.checking.oracle import Oracle
    from anydim.compiler.checking.report import CheckReport
    from anydim.compiler.checking.run import Progress
    from anydim.compiler.frontends.origins import Origin
    from anydim.compiler.graph.nodes import Graph
    from anydim.compiler.native.build import Assembled
    from anydim.compiler.pipeline import Compiled
    from anydim.compiler.targets.target import Target
    from anydim.deploy.archive import Member
    from anydim.deploy.container import Container
    from anydim.deploy.save import Version
    from anydim.runtime.program.inputs import Ranges
    from anydim.runtime.program.profile.limits import Done, Limits
    from anydim.runtime.program.program_reports import ProgramReports

_HERE = "native"  # the target of cached files
_OF_CACHE = ("facts", "key", "source", "derivations.json")  # what they alone have
CompileProgress = Callable[[str, int, int], None]


@public
class Model(Fitted, CallableProgram):
    """A compiled model. Calls are thread-safe; results are new arrays owned by the caller."""

    def __init__(
        self,
        executable: Executable[Any],
        story: Callable[[], ProgramReports],
        compiled: Callable[[], Compiled],
        report: CompileReport | None = None,
        lists: Lists | None = None,
        target: str = "llvm",
        indices: Callable[[], Ranges] | None = None,
        origin: Callable[[], Origin] = lambda: None,
        kept: Container | None = None,
    ) -> None:
        """`compiled` returns the result of the compilation, `indices` the ranges of index inputs;
        without it they come from the program's records. Oracles of `check` use `origin`. `kept` is
        the file that it was loaded from."""
        super().__init__(executable, story, lists or {})
        self._compile, self._indices, self._origin = compiled, indices, origin
        self._report = report
        self._made_by = target
        self._kept = kept
        self._exchanged: Mapping[str, numpy.ndarray] = {}  # constants that are not those of `kept`
        # what compiles its request with another source, and the origin of that
        self._other: Callable[[Callable[[Any], Any]], tuple[Callable[[], Any], ...]]
        self._record: Callable[[], bytes] = lambda: b""

    @cached_property
    def _compiled(self) -> Compiled:
        return self._compile()

    def load_weights(self, source: Any) -> None:
        """Replace the weights by those of another source of the same structure, without compiling.

        Results have the bits of a compilation of that source. Calls in progress end with the old
        weights, later ones use the new ones; an error leaves the model as it was.

            model.load_weights("finetuned.onnx")
            model.load_weights({"fc.weight": w, "fc.bias": b})

        Args:
            source: The path of an ONNX file that differs from the compiled one in the contents of
                weights alone, its bytes, or an `onnx.ModelProto`. Or arrays by the names of all
                initializers, or of named constants of a Builder, with their dtypes and shapes.
                Those whose contents the compiler decided by may be left out, and are kept.

        Raises:
            ModelError: The file is invalid, or has another structure.
            OptionError: A name, dtype or shape is wrong; or the model has no such weights, or parts
                on devices.
        """
        import_module("anydim.api.loaded_weights").load_weights(self, source)

    def _derivations(self) -> dict[str, Any] | None:
        """The parsed record of its constants, if it has one (`deploy/exchange.py`)."""
        record = self._record()
        return json.loads(record) if record else None

    def _take_weights(self, arrays: Mapping[str, numpy.ndarray], given: Any) -> None:
        """Take over other constants; `given` are the weights that they come from."""
        changes = {
            "_compile": lambda: self._other(given.request)[0](),
            "_origin": lambda: self._other(given.request)[1](),
            "_exchanged": arrays,
        }
        for each in (self, *((self._inner,) if self.adapter is not None else ())):
            each.__dict__.pop("_compiled", None)
            each.__dict__.update(changes)
            if each._made is not None:
                each._made = partial(_again, each._made, given.source)

    def _compiled_by_call(self, name: str, inputs: tuple[str, ...], serving: Serving) -> None:
        """Let `serving` make the program of each call; queries refer to that of the first."""
        self._named, self._given_names = name, inputs

        def served(_: Any, given: Mapping[str, Any]) -> CallableProgram | None:
            is_first = isinstance(self.executable, AbsentProgram)
            found = serving(None if is_first else self, given)
            if is_first and found is not None:
                kept = {"_varied": served, "_made": self._made, "_given_names": inputs}
                self.__dict__.update({**vars(found), **kept})
                if self._settings is not None:
                    self.__setstate__(self._settings)
            return found

        self._varied = served

    @property
    def graph(self) -> Graph:
        """The graph that its source was imported as."""
        return self._compiled.graph

    @property
    def report(self) -> CompileReport:
        """How it was compiled, or found on disk."""
        return self._report or self._compiled.report

    def save(
        self,
        path: str | os.PathLike[str],
        targets: str | Sequence[str] = "native",
        progress: CompileProgress | None = None,
    ) -> None:
        """Write a file that `anydim.load` runs without a compiler.

        Variants for certain sizes are stored with the code for this processor. Parts on devices
        are stored as the code of their devices.

        Args:
            path: The file.
            targets: Processors: `"native"`, or kinds such as `"x86-64-v3"`, `"x86-64-v4+vnni"`,
                `"aarch64"`; for other systems `"windows-x86-64-v3"`, `"macos-aarch64"`. `load`
                selects the best that the machine supports. Weights are stored once, as the first
                one reads them; others move them at their first load.
            progress: Called with `(stage, done, total)`.

        Raises:
            OptionError: A processor is unknown, or the path cannot be written.
        """
        from anydim.deploy.saved_adapters import members_of

        file = path_of("path", path)
        function_of("progress", progress)
        names = texts_of("target", targets)
        self._write(file, names, progress, members=members_of(self.adapter))

    def _write(
        self, path: str, names: Sequence[str] = (_HERE,), tell: CompileProgress | None = None,
        facts: Mapping[str, Any] | None = None, members: Sequence[Member] = (),
    ) -> None:  # fmt: skip
        """Save for these targets; `facts` go into the manifest. Raises the same as `save`."""
        from anydim.deploy.archive import copy
        from anydim.deploy.exchange import write_exchanged

        tell = tell or _quiet
        if self._kept is not None and set(names) == {_HERE} and not self.kept_bodies():
            with suppress(ArtefactError):  # damaged meanwhile: write it anew
                if self._exchanged:
                    write_exchanged(
                        self._kept, path, self._exchanged, ("", ""), facts or {}, members
                    )
                else:
                    copy(self._kept, path, _OF_CACHE, facts, members)
                tell(_HERE, 1, 1)
                return
        with collector_paused():
            self._write_versions(path, names, tell, facts or {}, members)

    def _write_versions(
        self, path: str, names: Sequence[str], tell: CompileProgress, facts: Mapping[str, Any],
        members: Sequence[Member],
    ) -> None:  # fmt: skip
        from anydim.compiler.targets.targets import target
        from anydim.deploy.save import Version, save

        wanted = [target(settings.USUAL_TARGET, name) for name in dict.fromkeys(names)]
        if not wanted:
            raise OptionError("no target was given", "name one, such as 'native' or 'x86-64-v3'")
        if any(code.processor.is_wasm for code in wanted):
            raise OptionError(
                "saved models run in Python, WebAssembly in browsers and node",
                "export it: model.export(folder, target='wasm32')",
            )
        last = self._last_indices()
        versions: list[Version] = []
        for number, code in enumerate(wanted):
            tell(code.processor.name, number, 2 * len(wanted))
            each = self._compiled.again(code)
            mine = code.processor == target(self._made_by).processor
            kept = self.kept_bodies() if mine and each.made.program == self.program else ()
            rest = (each.notes, last, each.devices, kept, self.story.mixing)
            versions.append(Version(code, each.made, *rest))
        save(path, versions, self._lists, tell, facts, members)

    def _last_indices(self) -> dict[str, Size]:
        return {name: as_size(last) for name, (_, last) in self.index_ranges.items()}

    def export(
        self, folder: str | os.PathLike[str], name: str = "", target: str = "native",
        code: str = "c", *, threads: int | str | None = None,
    ) -> None:  # fmt: skip
        """Write a folder of C for programs without Python: header, code, weights, example.

        For the target `"wasm32"`: WebAssembly, weights, and a module of JavaScript for browsers
        and node.

        Args:
            folder: The folder.
            name: Prefix of all symbols, or of errors in JavaScript. Empty: derived from the
                model's name.
            target: Processor of the code, as in `save`, or `"wasm32"`.
            code: `"c"`: C text for any compiler; `"llvm"`: objects. Not used for `"wasm32"`.
            threads: Most threads of a run, as in `compile`. Default: 1, and 4 for `"wasm32"`.
                Above 1, a C program needs POSIX threads; its caller sets the number, which is 1
                at first. In JavaScript, `load` chooses the number.

        Raises:
            OptionError: The model works on strings, has parts on devices, or a dim that no input
                determines; the name is no C identifier; or as in `save`.
            MissingError: There is no linker for WebAssembly.
        """
        from anydim.deploy.exporting import export_program

        path, called = path_of("folder", folder), text_of("name", name)
        export_program(path, called, *self._for_export(target, code, threads))

    def _for_export(
        self, target: str, code: str, threads: int | str | None
    ) -> tuple[Assembled, Target]:
        """The program for a target, and its code generator."""
        from anydim.compiler.targets.targets import target as target_of
        from anydim.deploy.exporting import most_threads

        if self.on_strings:
            raise OptionError(
                f"{self.name} works on strings, and such models cannot be exported",
                "save it: anydim.load needs no compiler",
            )
        elsewhere = (*self.program.devices, *self.program.engines)
        if elsewhere:
            raise OptionError(
                f"{self.name} cannot be exported: it has parts on {quote_list(elsewhere)}",
                "compile it for the host only, without devices= or engines, and export that",
            )
        wanted = target_of(text_of("code", code), text_of("target", target))
        if wanted.processor.is_wasm:
            wanted = target_of(settings.USUAL_TARGET, "wasm32")
        return self._compiled.again(wanted, cores=most_threads(threads, wanted)).made, wanted

    def show(self, stage: str, kernel: str = "") -> str:
        """The text of a compilation stage.

        Args:
            stage: Name of the stage.
            kernel: For "kernels", "llvm" and "assembly", a pattern or prefix for names of kernels,
                libraries or their nodes.

        Raises:
            OptionError: The stage is unknown, or no kernel matches.
        """
        stages = {"program": self.program.text, **self.report.stages}
        if text_of("stage", stage) not in stages:
            hint = suggestion(stage, stages) or f"the stages are {quote_list(stages)}"
            raise OptionError(f"there is no stage '{stage}'", hint)
        text = stages[stage]
        if not text_of("kernel", kernel):
            return text()
        if not isinstance(text, KernelTexts):
            parts = [name for name, each in stages.items() if isinstance(each, KernelTexts)]
            problem = f"stage '{stage}' has no text for each kernel"
            raise OptionError(problem, f"omit the pattern; {quote_list(parts)} have one")
        sites = {site.kernel: site.names for site in self.program.sites}
        names = [name for name in text.texts() if matches(kernel, (name, *sites.get(name, ())))]
        if not names:
            raise OptionError(f"no kernel matches '{kernel}'", f"{quote_list(text.texts())}")
        return text.only(names)

    def check(
        self,
        samples: int = 100,
        seed: int = 0,
        progress: Progress | None = None,
        integers: Ranges | None = None,
        against: str | os.PathLike[str] | Oracle | None = None,
        seconds: float | None = None,
    ) -> CheckReport:
        """Compare element types, shapes and values with an oracle.

        The oracle of an ONNX file is onnx's reference evaluator, or onnxruntime if that does not
        support the file; of other models, the evaluator of the graph, in float64. An error above a
        few units in the last place is compared with that of numpy in the model's types
        (docs/numerics.md).

        Args:
            samples: Number of calls. At most half are corners of the box (bounds, 0, 1), the
                others random sizes.
            seed: Seed of sizes and inputs.
            progress: Called with `(done, total)`.
            integers: Range `(low, high)` to draw an integer input from. Otherwise indices are
                drawn from their valid range, other integers from 0 and 1 up to the range of their
                type.
            against: `"reference"`, `"onnxruntime"`, `"evaluator"`, the path of an ONNX file, or an
                `Oracle` (`anydim.compiler.checking.oracle`).
            seconds: Time limit of the check.

        Returns:
            The verdict, the oracle, the number of sizes, and the differences.
        """
        from anydim.compiler.checking.choice import oracles_for
        from anydim.compiler.checking.compare import FACTOR, ROUNDED_FACTOR
        from anydim.compiler.checking.run import Subject, check
        from anydim.runtime.program.inputs import known_ranges

        if self._conversion.packing is not None or self._conversion.forests is not None:
            advice = "check the model compiled without ragged: it says what a row alone gives"
            if self._conversion.forests is not None:
                advice = "compare calls with a function of your own"
            raise OptionError(
                f"{self.name} takes {self._shown_lists()}, and `check` draws arrays", advice
            )
        if set(self.input_names()) & self._lists.keys() and self.adapter is None:
            raise OptionError(
                f"{self.name} takes {self._shown_lists()}, and `check` draws arrays",
                "compare calls with those of another engine",
            )
        unset = self.executable.interface.requested_dims
        if unset:
            raise OptionError(f"check cannot set dim '{unset[0][0]}', which no input determines")
        whole_within("samples", samples, 1, LARGEST, "give how many calls to make")
        whole_within("seed", seed, 0, LARGEST, "give a number, 0 or more")
        function_of("progress", progress)
        seconds = seconds_of("seconds", seconds)
        ranges = {**self.index_ranges, **known_ranges(by_names("integers", integers))}
        origin = None if self._lists else self._origin()  # oracles represent lists as sequences
        exact = self._compiled.reference
        tame = self.program.straight is None or (origin is not None and origin.counted)
        dtypes = {spec.name: spec.dtype.name for spec in self.program.signature.outputs}
        oracles = oracles_for(origin, exact, dtypes, against)
        plain = self._compiled.plain
        factor = ROUNDED_FACTOR if self._compiled.rounded else FACTOR
        subject = Subject(self.program, self.executable, exact, plain, ranges, tame, factor)
        return check(subject, oracles, samples, seed, progress, seconds)

    def _limits(self, threads: int, done: Sequence[Done]) -> Limits:
        """Machine limits, measured once; again if a launch was faster (the machine was busy)."""
        from anydim.compiler.targets.machine_peak import fastest
        from anydim.runtime.program.profile import limits

        known = limits.read_limits(threads)
        if known is None or known.is_exceeded(done):
            found = fastest(threads)
            known = found if known is None else known.most(found)
            limits.keep(known)
        return known

    @property
    def index_ranges(self) -> Ranges:
        """Valid range `(0, last)` of each index input; `last` may depend on the dims."""
        return super().index_ranges if self._indices is None else self._indices()


def _again(make: Callable[[], Model], source: Any) -> Model:
    """A model made again, with the weights that were loaded into it."""
    model = make()
    model.load_weights(source)
    return model


def _quiet(stage: str, done: int, total: int) -> None:
    """Ignore progress."""
