"""What `anydim.compile` accepts besides the source, as one record."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, field
from inspect import Parameter, Signature, get_annotations
from typing import TYPE_CHECKING, Any, ClassVar, ParamSpec, Protocol, overload

from anydim.base.records import dataclass, fields_of

if TYPE_CHECKING:
    from anydim.devices.device import Device
    from anydim.devices.engines.engine import Engine
    from anydim.model import CompileProgress, Model
    from anydim.passes.options import KernelOptions
    from anydim.program.limits import MemoryLimit
    from anydim.sizes import Dim
    from anydim.variants.strategies import Strategy

    Dims = Mapping[str, Dim | int | tuple[int, int | None] | Mapping[int, Any]]


@dataclass(frozen=True)
class Options:
    """How a model is compiled and run: the arguments of `ad.compile` besides the source.

    A record serves many models, `ad.compile(source, options=fast)`; `dataclasses.replace(fast,
    threads=1)` changes a field. It is checked where it is used.

    Attributes:
        dims: Bounds of dims: a `Dim`, a pair `(1, 512)`, or one size. Other dims run from 0
            without upper bound. Names are those of the file (`ad.inspect` lists them); a dim
            without a name is given by input and axis, `{"x": {2: (32, 736)}}` or `{"x.2": (32,
            736)}`. `{"x": 3}` gives the rank of an input without a declared shape; otherwise each
            rank is compiled at its first call, as is a call with a value for an initializer among
            the inputs. For a torch module: the example arguments of the export, a tuple, or a
            mapping by name.
        dynamic_shapes: The free axes of a torch module, as of `torch.export.export`; for an
            exported program: those that it was exported with, which name its dims.
        threads: Threads of a call. `"auto"`: the cores of the process's affinity within its
            container quota, or OMP_NUM_THREADS.
        progress: Called with `(stage, done, total)`.
        schedules: Schedules of kernels, as `define` makes of its options (docs/definitions.md).
        operators: Definitions of operators of an ONNX model: the path of a `.tc` file with a line
            `# domain: my.ops`, a list of paths, or a mapping, `{"my.ops": "mine.tc"}`.
        precision: `"exact"`: correctly rounded division; `"fast"`: division by multiplication with
            reciprocals; `"tf32"`: fast, and devices may round factors of float32 products
            (docs/numerics.md). None: as in `schedules`, else exact.
        target: `"llvm"`, or `"c"` through a C compiler. None: the setting `target`.
        arenas: Most concurrent calls, each with its own arena. None: no limit.
        wait: Seconds that a further call waits for an arena. None: no limit.
        memory_limit: Most bytes of memory of a call, a number or a text such as `"512 MiB"`. A
            model that may need more within its bounds is refused; without bounds, or with
            `ad.MemoryLimit("512 MiB", per_call=True)`, single calls are refused (docs/memory.md).
        on_overflow: `"error"`: a size above its bound raises DimError. `"grow"`: it runs, with one
            warning; the code is compiled without upper bounds, and a Builder's dims must have
            none.
        strategy: Which variants exist, and when they are compiled: `"generic"`,
            `"exact(limit=64)"`, `"adaptive"`, `"buckets(seq=[16, 32])"`, `"where('m <= 4',
            exact())"`, `'library("openblas")'`, `"pad(seq=16)"` (docs/strategies.md). None: the
            setting `strategy`.
        devices: Devices of the names that nodes are placed on, `{"accel": "opencl:0"}`: names of
            devices, or open devices (docs/devices.md). Two names may refer to one device.
        placement: Devices by patterns of node names or operators, `{"backbone/*": "accel",
            "NonMaxSuppression": "cpu"}`, or `"auto"`. Other nodes go to the fastest device, copies
            included. `{"Conv*": "onnxruntime"}` delegates nodes to an engine. None: as in the
            graph, else auto.
        strategies: Strategies by patterns of node or kernel names.
        profile: File of `Model.record`: variants that pay for its sizes are compiled first, as by
            `Model.prepare_recorded`.
        profile_seconds: Time limit of `profile`, in seconds.
        profile_mebibytes: Code size limit of `profile`, in MiB.
        fallback: `"onnxruntime"`: the installed onnxruntime runs nodes that cannot be imported,
            and models that raise an InternalError, with a warning.
        ragged: Dims whose size differs from row to row of a batch, with the dim of the rows:
            `{"seq": "batch"}`, or `"auto"`. Inputs and results with such dims are lists of rows or
            `ad.Ragged`; the result of a row is that of the model for this row alone, without
            padding. Inputs that mark padding may be omitted (docs/guides/ragged.md).
    """

    # fields of a program after its compilation: programs on disk do not depend on them
    AFTERWARDS: ClassVar[frozenset[str]] = frozenset((
        "progress", "arenas", "wait", "memory_limit", "strategy", "strategies", "profile",
        "profile_seconds", "profile_mebibytes",
    ))  # fmt: skip
    # a program with such options is compiled in every process
    UNKEPT: ClassVar[tuple[str, ...]] = ("devices", "placement", "fallback", "dynamic_shapes")

    dims: Dims | Any = None
    _: KW_ONLY
    dynamic_shapes: Any = None
    threads: int | str = "auto"
    progress: CompileProgress | None = field(default=None, compare=False, repr=False)
    schedules: KernelOptions | None = None
    operators: Any = None
    precision: str | None = None
    target: str | None = None
    arenas: int | None = None
    wait: float | None = None
    memory_limit: MemoryLimit | int | str | None = None
    on_overflow: str = "error"
    strategy: Strategy | str | None = None
    devices: Mapping[str, str | Device | Engine] | None = None
    placement: Mapping[str, str] | str | None = None
    strategies: Mapping[str, Strategy | str] | None = None
    profile: str | os.PathLike[str] | None = None
    profile_seconds: float = 60.0
    profile_mebibytes: float = 64.0
    fallback: str | None = None
    ragged: Mapping[str, str] | str | None = None

    def __hash__(self) -> int:
        return hash((self.threads, self.precision, self.target, self.on_overflow))

    def changed(self, **fields: Any) -> Options:
        """The same with other values of some fields."""
        return Options(**{**vars(self), **fields})

    def as_picklable(self) -> Options:
        """The same for another process: absolute paths of operators, no progress."""
        ragged = dict(self.ragged) if isinstance(self.ragged, Mapping) else self.ragged
        operators = _absolute(self.operators)
        return self.changed(progress=None, operators=operators, ragged=ragged)

    @property
    def program_fields(self) -> dict[str, Any]:
        """The fields that a compiled program depends on, by name."""
        left_out = (*self.AFTERWARDS, *self.UNKEPT)
        return {name: value for name, value in vars(self).items() if name not in left_out}

    @property
    def may_be_kept(self) -> bool:
        """Whether a program with these options can be stored on disk."""
        return not any(getattr(self, name) for name in self.UNKEPT)


def _absolute(operators: Any) -> Any:
    """Make paths of definitions absolute."""
    if isinstance(operators, (str, os.PathLike)):
        return os.path.abspath(os.fspath(operators))
    if isinstance(operators, Mapping):
        return {domain: _absolute(path) for domain, path in operators.items()}
    return [_absolute(path) for path in operators] if isinstance(operators, list) else operators


# ---- functions that take the fields -------------------------------------------------------------

Fields = ParamSpec("Fields")


class Compile(Protocol[Fields]):
    """`anydim.compile` for type checkers: with the fields of `Options`, or with a record."""

    @overload
    def __call__(self, source: Any, *args: Fields.args, **kwargs: Fields.kwargs) -> Model: ...

    @overload
    def __call__(
        self, source: Any, dims: Dims | None = None, *, options: Options | KernelOptions | None,
        **more: Any,
    ) -> Model: ...  # fmt: skip


def takes(record: Callable[Fields, Options]) -> Callable[[Callable[..., Model]], Compile[Fields]]:
    """A decorator: the function takes the fields of `record`, which documents them.

    The function has parameters `source`, `dims`, `options` and keywords. `help` and `inspect` show
    the fields, with the section "Attributes" of the record in the section "Args".
    """

    def decorate(function: Any) -> Any:
        own = record.__doc__ or ""
        fields = own.partition("    Attributes:\n")[2].rstrip()
        head, args, rest = (function.__doc__ or "").partition("        options: ")
        function.__doc__ = f"{head}{fields}\n{args}{rest}"
        function.__signature__ = _signature(record)
        return function

    return decorate


def _signature(record: Any) -> Signature:
    kinds = get_annotations(record)
    first, *others = (
        Parameter(
            field.name,
            Parameter.KEYWORD_ONLY if field.kw_only else Parameter.POSITIONAL_OR_KEYWORD,
            default=field.default, annotation=kinds[field.name],
        )
        for field in fields_of(record)
    )  # fmt: skip
    source = Parameter("source", Parameter.POSITIONAL_OR_KEYWORD, annotation="Any")
    options = Parameter(
        "options", Parameter.KEYWORD_ONLY, default=None, annotation="Options | None"
    )
    return Signature([source, first, options, *others], return_annotation="Model")
