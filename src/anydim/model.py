"""What a user holds: a compiled model that is called, planned, explained and checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from anydim.base.errors import OptionError
from anydim.base.text import listed, suggestion
from anydim.program.differential import CheckReport, Function, Progress, Ranges, check
from anydim.program.explain import explain
from anydim.program.plan import Memory, Plan, memory, plan
from anydim.program.steps import Program
from anydim.runtime.arrays import by_name
from anydim.runtime.executable import Executable
from anydim.runtime.signature import TensorSpec
from anydim.sizes import Box


@dataclass(frozen=True)
class CompileReport:
    """How a model was compiled.

    `seconds` is the time of each pass in order; `stages` prints each stage when asked; `notes`
    are lines on what was fused and which shape arithmetic disappeared; `compiled` and `cached`
    count the native modules made now and found on disk.
    """

    seconds: Mapping[str, float] = field(default_factory=dict)
    stages: Mapping[str, Callable[[], str]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    compiled: int = 0
    cached: int = 0


class Model:
    """A compiled model. Calls are thread-safe; results are new arrays owned by the caller."""

    def __init__(
        self,
        executable: Executable,
        program: Program,
        reference: Function,
        report: CompileReport | None = None,
    ) -> None:
        self.executable = executable
        self.program = program
        self.report = report or CompileReport()
        self._reference = reference

    def __call__(self, *values: Any, **named: Any) -> dict[str, Any]:
        """Run the model on inputs by position or by name; its outputs by name.

        numpy arrays, other DLPack arrays on the CPU, numbers or nested lists. Raises InputError
        or DimError, before anything runs, for inputs that do not fit.
        """
        if values:
            named = by_name(self.executable.signature, values, named)
        return self.executable(named)

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

        `integers` gives for an integer input the range (low, high) to draw from; else 0 and 1.
        """
        call, reference = self.executable, self._reference
        return check(self.program, call, reference, samples, seed, progress, integers)

    def release(self) -> None:
        """Give the memory of idle arenas back to the system; the next call takes it anew."""
        self.executable.release()

    def __repr__(self) -> str:
        return f"<anydim model {self.program.signature}>"
