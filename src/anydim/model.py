"""What a user holds: a compiled model that is called, planned, explained and checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from anydim.base.errors import InputError, OptionError
from anydim.base.text import listed, suggestion
from anydim.compiler import CompileReport, compile_source
from anydim.compiler import Progress as CompileProgress
from anydim.frontends.onnx.strings import (
    Cut,
    StringsInside,
    as_strings,
    cut,
    is_string,
    own_dims,
)
from anydim.graph.nodes import Listed
from anydim.passes.options import PLAIN, Options
from anydim.program.differential import CheckReport, Function, Progress, Ranges, check
from anydim.program.explain import explain
from anydim.program.plan import Memory, Plan, memory, plan
from anydim.program.program import Program
from anydim.runtime.arrays import by_name
from anydim.runtime.executable import Executable
from anydim.runtime.lists import pack, unpack
from anydim.runtime.region import RegionExecutable
from anydim.runtime.signature import TensorSpec
from anydim.sizes import Box, Dim


class Model:
    """A compiled model. Calls are thread-safe; results are new arrays owned by the caller."""

    def __init__(
        self,
        executable: Executable | RegionExecutable,
        program: Program,
        reference: Function,
        report: CompileReport | None = None,
        index_ranges: Callable[[], Ranges] = dict,
        lists: Mapping[str, Listed] | None = None,
    ) -> None:
        self.executable = executable
        self.program = program
        self._index_ranges = index_ranges
        self.report = report or CompileReport()
        self._reference = reference
        self._lists = dict(lists or {})

    def __call__(self, *values: Any, **named: Any) -> dict[str, Any]:
        """Run the model on inputs by position or by name; its outputs by name.

        numpy arrays, other DLPack arrays on the CPU, numbers or nested lists. Raises InputError
        or DimError, before anything runs, for inputs that do not fit; InputError for what data
        decides and does not fit: an index outside its axis, a size outside the bounds of its dim.
        """
        if values:
            named = by_name(self.name, self._names(), values, named)
        if self._lists:
            return self._with_lists(named)
        return self.executable(named)

    def _names(self) -> list[str]:
        """The inputs as a caller sees them: a list is one."""
        of = {parts.elements: name for name, parts in self._lists.items()}
        hidden = {parts.shapes for parts in self._lists.values()}
        names = [spec.name for spec in self.inputs]
        return [of.get(name, name) for name in names if name not in hidden]

    def _with_lists(self, named: Mapping[str, Any]) -> dict[str, Any]:
        """Run with lists of arrays, each as its two arrays."""
        specs = {spec.name: spec for spec in self.inputs}
        given = dict(named)
        for name, parts in self._lists.items():
            if name in given and parts.elements in specs:
                arrays = given.pop(name)
                if parts.optional:
                    arrays = [] if arrays is None else [arrays]
                rank = specs[parts.shapes].shape[1].constant
                both = pack(name, arrays, specs[parts.elements].dtype, rank)
                given[parts.elements], given[parts.shapes] = both
        results = self.executable(given)
        for name, parts in self._lists.items():
            if parts.elements in results:
                found = unpack(results.pop(parts.elements), results.pop(parts.shapes))
                results[name] = found if not parts.optional else found[0] if found else None
        return results

    @property
    def name(self) -> str:
        """What errors and reports call it."""
        return self.program.signature.name

    @property
    def dims(self) -> Box:
        """The dims with bounds, and the constraints between them."""
        return self.program.signature.box

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Names, dtypes and shapes of the inputs, in order."""
        return self.program.signature.inputs

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """Names, dtypes and shapes of the outputs, in order."""
        return self.program.signature.outputs

    @property
    def memory(self) -> Memory:
        """Peak bytes of intermediate values as a size expression, and its bound over the box."""
        return memory(self.program)

    def plan(self, **sizes: int) -> Plan:
        """What a call at these sizes will do; runs nothing."""
        return plan(self.program, sizes)

    def explain(self) -> str:
        """What was fused, which kernels and schedules serve it, and why."""
        return explain(self.program, self.report.notes)

    def show(self, stage: str) -> str:
        """The text of a compile stage; raises OptionError for an unknown one."""
        stages = {"program": self.program.text, **self.report.stages}
        if stage not in stages:
            hint = suggestion(stage, stages) or f"the stages are {listed(stages)}"
            raise OptionError(f"there is no stage '{stage}'", hint)
        return stages[stage]()

    def check(
        self,
        samples: int = 100,
        seed: int = 0,
        progress: Progress | None = None,
        integers: Ranges | None = None,
    ) -> CheckReport:
        """Compare with the reference at random sizes of the box; its ends, 0 and 1 always.

        `integers` gives for an integer input the range (low, high) to draw from; else indices are
        drawn from where they have to lie, and what is no index from 0 and 1.
        """
        ranges = {**self.index_ranges, **(integers or {})}
        call, reference = self.executable, self._reference
        return check(self.program, call, reference, samples, seed, progress, ranges)

    @property
    def index_ranges(self) -> Ranges:
        """(0, last) for the inputs that are indices; the last one may depend on the dims."""
        return self._index_ranges()

    def release(self) -> None:
        """Give the memory of idle arenas back to the system; the next call takes it anew."""
        self.executable.release()

    def __repr__(self) -> str:
        return f"<anydim model {self.program.signature}>"


def compile(
    source: Any,
    dims: Mapping[str, Dim] | None = None,
    *,
    threads: int = 1,
    progress: CompileProgress | None = None,
    options: Options = PLAIN,
    operators: Any = None,
) -> Model:
    """Compile a model once for every size inside the bounds of its dims.

    `source` is the path of an ONNX file, its bytes, an onnx.ModelProto, a Builder, a Graph, or the
    path of a text with the name of a definition in it: `kernels.tc:matmul`.
    `dims` gives bounds to the model's named dims; those left out run from 0 with no upper bound.
    `threads` cores serve a call. `progress(stage, done, total)` is told what is being done.
    `options` are schedules that kernels shall have, as `passes/options.py` says. `operators` says
    which definitions implement operators of an ONNX model: the path of a `.tc` file that names its
    domain (`# domain: my.ops`), a list of those, or a mapping such as `{"my.ops": "mine.tc"}`.
    Raises ModelError for a model that cannot be taken, OptionError for options that do not fit.
    """
    quiet: CompileProgress = lambda stage, done, total: None  # noqa: E731
    try:
        made = compile_source(source, dims, threads, progress or quiet, options, operators)
    except StringsInside as found:
        parts = cut(found.opened)
        given = dims if parts.core is None else own_dims(parts.core, dims)
        core = parts.core and compile(
            parts.core, given, threads=threads, progress=progress, options=options,
            operators=operators,
        )  # fmt: skip
        return StringModel(parts, core or None)
    return Model(
        made.executable, made.program, made.reference, made.report, made.index_ranges, made.lists
    )


class StringModel(Model):
    """A model with strings: `core` is its native part; None where all of it is on strings.

    What is asked of sizes, memory and kernels is answered for `core`.
    """

    def __init__(self, parts: Cut, core: Model | None) -> None:
        self.parts = parts
        self.core = core
        self._kinds = {value.name: is_string(value.type) for value in parts.inputs}

    def __getattr__(self, name: str) -> Any:
        if name in ("executable", "program", "report", "_reference", "_index_ranges"):
            if self.core is None:
                raise OptionError(f"{self.name} has no native part: all of it is on strings")
            return getattr(self.core, name)
        raise AttributeError(name)

    @property
    def name(self) -> str:
        return self.parts.name

    def __call__(self, *values: Any, **named: Any) -> dict[str, Any]:
        """Run the model: strings on the host, the rest in native code. Raises InputError."""
        names = list(self._kinds)
        if values:
            named = by_name(self.name, names, values, named)
        unknown = [name for name in named if name not in self._kinds]
        missing = [name for name in names if name not in named]
        if unknown or missing:
            problem = f"has no input '{unknown[0]}'" if unknown else f"needs input '{missing[0]}'"
            raise InputError(f"{self.name} {problem}", f"its inputs are {listed(names)}")
        known: dict[str, Any] = {
            name: as_strings(name, value) if self._kinds[name] else value
            for name, value in named.items()
        }
        known |= self.parts.early(known)
        if self.core is not None:
            known |= self.core(**{spec.name: known[spec.name] for spec in self.core.inputs})
        known |= self.parts.late(known)
        return {value.name: known[value.name] for value in self.parts.outputs}

    def release(self) -> None:
        if self.core is not None:
            self.core.release()

    def __repr__(self) -> str:
        return f"<anydim model {self.name} with strings>"
