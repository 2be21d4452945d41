"""A model as reports on it use it: its records, its executable and its plans."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from anydim.runtime.executable import Executable
    from anydim.runtime.lists import Lists
    from anydim.runtime.program.inputs import Ranges
    from anydim.runtime.program.memory import Memory
    from anydim.runtime.program.plan import Plan
    from anydim.runtime.program.program import Program
    from anydim.runtime.signature import TensorSpec
    from anydim.sizes import Box


class DescribedModel(Protocol):
    """What reports (`page.py`, `profile/taking.py`) use of a `CallableProgram`."""

    executable: Executable[Any]

    @property
    def name(self) -> str: ...

    @property
    def program(self) -> Program: ...

    @property
    def dims(self) -> Box: ...

    @property
    def inputs(self) -> tuple[TensorSpec, ...]: ...

    @property
    def outputs(self) -> tuple[TensorSpec, ...]: ...

    @property
    def lists(self) -> Lists: ...

    @property
    def memory(self) -> Memory: ...

    @property
    def devices(self) -> Mapping[str, Any]: ...

    @property
    def index_ranges(self) -> Ranges: ...

    def plan(self, *, lengths: Any = None, **sizes: Any) -> Plan: ...
