"""How dims, sizes and ranges are written on the command line, and the options commands share."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import wraps
from typing import Any

import click

from anydim.api.compile_options import Options
from anydim.base.errors import OptionError
from anydim.base.records import dataclass
from anydim.compiler.variants.strategies import GENERIC
from anydim.runtime.threads import AUTO
from anydim.sizes import Dim, given_dims

_DIM = re.compile(r"(?P<name>[^=]+)=(?P<low>\d+)(?P<dots>\.\.(?P<high>\d*))?")
_RANGE = re.compile(r"(?P<name>[^=]+)=(?P<low>-?\d+)\.\.(?P<high>-?\d+)")

Command = Callable[..., Any]
Named = Sequence[tuple[str, tuple[int, int]]]
NamedDim = tuple[str, Dim]


class DimType(click.ParamType):
    """seq=1..512, seq=1.. or seq=128"""

    name = "dim"

    def convert(self, value: Any, param: Any, context: Any) -> NamedDim:
        """The name as it is given, and the bounds; raises OptionError for another form."""
        found = _DIM.fullmatch(value)
        if found is None:
            raise OptionError(
                f"--dim {value}: expected NAME=LOW..HIGH",
                "for example seq=1..512, seq=1.. (no upper bound) or seq=128 (one size)",
            )
        name, low, high = found["name"].strip(), int(found["low"]), found["high"]
        top = low if not found["dots"] else int(high) if high else None
        try:
            return name, given_dims({name: (low, top)})[name]
        except OptionError as error:
            raise OptionError(f"--dim {value}: {error.problem}", "such as seq=1..512") from None


class SizesType(click.ParamType):
    """batch=8,seq=77"""

    name = "sizes"

    def convert(self, value: Any, param: Any, context: Any) -> dict[str, int]:
        """Raises OptionError for another form."""
        sizes: dict[str, int] = {}
        for part in filter(None, str(value).replace(" ", "").split(",")):
            name, equals, size = part.partition("=")
            if not (name and equals and size.isdecimal()) or name in sizes:
                said = "is given twice" if name in sizes else "is not NAME=SIZE, 0 or more"
                raise OptionError(f"--at {value}: '{part}' {said}", "such as --at batch=8,seq=77")
            sizes[name] = int(size)
        return sizes


class RangeType(click.ParamType):
    """input_ids=0..30521"""

    name = "range"

    def convert(self, value: Any, param: Any, context: Any) -> tuple[str, tuple[int, int]]:
        """Raises OptionError for another form."""
        found = _RANGE.fullmatch(value)
        if found is None or int(found["low"]) > int(found["high"]):
            raise OptionError(
                f"--integers {value}: expected INPUT=LOW..HIGH, both included",
                "such as --integers input_ids=0..30521",
            )
        return found["name"], (int(found["low"]), int(found["high"]))


DIM, SIZES, RANGE = DimType(), SizesType(), RangeType()


def dims_by_name(dims: Sequence[NamedDim]) -> dict[str, Dim]:
    """Raises OptionError for a dim that is given twice."""
    return once("--dim", dims, "give each dim one range")


def once(
    option: str, pairs: Sequence[tuple[str, Any]], hint: str = "give each name one value"
) -> dict[str, Any]:
    """Raises OptionError for a name that is given twice."""
    named = dict(pairs)
    if len(named) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise OptionError(f"{option} {twice} is given twice", hint)
    return named


@dataclass(frozen=True)
class Request:
    """The arguments of every command: the model, and how it is compiled.

    `cores` are those that serve a call, where they were given. `attributes` and `types` are those
    of a definition in a text, `level` is the code of a saved model that is to run.
    """

    model: str
    dims: Sequence[NamedDim]
    cores: int | None
    quiet: bool
    attributes: Mapping[str, str]
    types: Mapping[str, str]
    precision: str | None = None
    level: str | None = None
    code: str | None = None
    memory_limit: str | None = None
    strategy: str | None = None
    devices: Mapping[str, str] | None = None
    placement: str | None = None
    strategies: Mapping[str, str] = field(default_factory=dict)
    fallback: str | None = None
    ragged: Mapping[str, str] | str | None = None

    @property
    def threads(self) -> int | str:
        """Cores that serve a call."""
        return AUTO if self.cores is None else self.cores

    @property
    def choices(self) -> tuple[tuple[str, Any], ...]:
        """The options that decide what is compiled, with what was given for them."""
        return (
            ("--dim", self.dims), ("--type", self.types), ("--attribute", self.attributes),
            ("--precision", self.precision), ("--ragged", self.ragged), ("--code", self.code),
            ("--placement", self.placement), ("--fallback", self.fallback),
            ("--strategies", self.strategies),
        )  # fmt: skip

    @property
    def options(self) -> Options:
        """The options of `anydim.compile`; raises OptionError for a dim that is given twice."""
        return Options(
            dims_by_name(self.dims) or None,
            threads=self.threads,
            precision=self.precision,
            target=self.code,
            memory_limit=self.memory_limit,
            strategy=self.strategy or GENERIC,
            devices=self.devices or None,
            placement=self.placement,
            strategies=self.strategies,
            fallback=self.fallback,
            ragged=self.ragged,
        )


class NamedType(click.ParamType):
    """NAME=VALUE, for an option of which every name may be given once"""

    name = "named"

    def __init__(self, option: str, example: str) -> None:
        self.option, self.example = option, example

    def convert(self, value: Any, param: Any, context: Any) -> tuple[str, str]:
        """Raises OptionError for another form."""
        name, equals, given = str(value).partition("=")
        if not (name.strip() and equals and given.strip()):
            problem = f"{self.option} {value}: expected NAME=VALUE"
            raise OptionError(problem, f"such as {self.option} {self.example}")
        return name.strip(), given.strip()


_MODEL_OPTIONS: tuple[Callable[[Command], Command], ...] = (
    # the last one stands first in the help: what most people need
    click.option(
        "--type", "types", type=NamedType("--type", "T=float64"), multiple=True,
        metavar="T=TYPE", help="The type for a type variable of a definition: T=float64. "
        "Default: the type of the inputs, or float32.",
    ),
    click.option(
        "--attribute", "attributes", type=NamedType("--attribute", "eps=1e-5"), multiple=True,
        metavar="NAME=VALUE", help="An attribute of a definition: eps=1e-5. For an ellipsis "
        "...b, b=2 is its number of axes. Default: that of the inputs, or 1.",
    ),
    click.option(
        "--device", "devices", type=NamedType("--device", "accel=opencl:0"), multiple=True,
        metavar="NAME=DEVICE",
        help="Give a device a name: accel=opencl:0. Repeat it for each device; `anydim devices` "
        "lists them.",
    ),
    click.option(
        "--placement", metavar="PATTERN=NAME,...",
        help="Place nodes on devices: 'backbone/*=accel,NonMaxSuppression=cpu'. Other nodes, or "
        "with auto all nodes, go to the fastest device. 'Conv*=onnxruntime' (or openvino) "
        "delegates nodes to that engine.",
    ),
    click.option(
        "--fallback", metavar="ENGINE",
        help="onnxruntime: run nodes that anydim cannot import in the installed onnxruntime.",
    ),
    click.option(
        "--ragged", metavar="DIM=ROWS,...",
        help="Dims whose size differs from row to row: seq=batch. auto finds them. Rows run "
        "without padding, each as it runs alone.",
    ),
    click.option(
        "--code", metavar="TARGET",
        help="The code generator: llvm, or c for a C compiler. Default: the setting `target`.",
    ),
    click.option(
        "--precision", metavar="WORD",
        help="exact (the default): divisions are rounded correctly. fast: divisions by constants "
        "and by values that a row shares multiply by reciprocals. tf32: like fast, and devices "
        "may round the factors of float32 products to 11 bits. bfloat16: like fast, and "
        "processors with such instructions round the factors of products with constants to 8 "
        "bits; sums are float32. bfloat16x3, bfloat16x2: the factors are sums of three or two "
        "such numbers, on processors with tiles (AMX). int8: like fast, and factors of products "
        "with constants are integers of 8 bits. 'head/*=exact, Gemm=int8, bfloat16': by patterns "
        "of nodes.",
    ),
    click.option(
        "--strategies", type=NamedType("--strategies", "'layer*/attn=exact()'"), multiple=True,
        metavar="PATTERN=NAME", help="--strategy for the kernels whose names, or the names of "
        "whose nodes, match a pattern: 'layer*/attn=exact()'. Repeat it for each pattern.",
    ),
    click.option(
        "--strategy", metavar="NAME",
        help="Which sizes get specialised code, and when: generic, exact, adaptive, "
        "'buckets(seq=[16, 32])', \"where('m <= 4', exact())\".  [default: generic, whatever the "
        "setting]",
    ),
    click.option("-q", "--quiet", is_flag=True, help="Print results and errors only."),
    click.option(
        "--memory-limit", metavar="BYTES",
        help="Refuse the model if a call may allocate more memory: '512 MiB'. If dims have no "
        "bounds, refuse such calls.",
    ),
    click.option(
        "--threads", type=int, metavar="N",
        help="Number of cores for a call.  [default: all that the process may use; for export 1, "
        "with wasm32 4]",
    ),
    click.option(
        "--dim", "dims", type=DIM, multiple=True, metavar="NAME=LOW..HIGH",
        help="Bounds of a dim: seq=1..512, seq=1.. (no upper bound), seq=128 (one size). "
        "The default is 0.. for each dim. Repeat it for each dim. x=3 gives the number of axes "
        "of an input x whose shape the file does not declare.",
    ),
    click.argument("model", metavar="MODEL"),
)  # fmt: skip


_SHARED_TITLE = "Options of all commands that compile MODEL"


def ragged_dims(text: str | None) -> dict[str, str] | str | None:
    """The value of --ragged; raises OptionError for another form."""
    if text is None or text == "auto":
        return text
    pairs = [part.partition("=") for part in text.replace(" ", "").split(",")]
    if not all(name and rows for name, _, rows in pairs):
        raise OptionError(
            f"--ragged {text}: expected DIM=ROWS", "such as --ragged seq=batch, or auto"
        )
    return once("--ragged", [(name, rows) for name, _, rows in pairs])


def model_options(command: Command) -> Command:
    """The model and how it is compiled: what every command takes, as its argument `request`."""

    @wraps(command)
    def asking(
        *rest: Any, model: str, dims: Sequence[NamedDim], threads: int | None, quiet: bool,
        attributes: Sequence[tuple[str, str]], types: Sequence[tuple[str, str]],
        precision: str | None, code: str | None, memory_limit: str | None,
        strategy: str | None, strategies: Sequence[tuple[str, str]],
        devices: Sequence[tuple[str, str]], placement: str | None, level: str | None = None,
        fallback: str | None = None, ragged: str | None = None, **options: Any,
    ) -> Any:  # fmt: skip
        request = Request(
            model, dims, threads, quiet, once("--attribute", attributes), once("--type", types),
            precision, level, code, memory_limit, strategy, once("--device", devices), placement,
            once("--strategies", strategies), fallback, ragged_dims(ragged),
        )  # fmt: skip
        return command(*rest, request=request, **options)

    made: Command = asking
    for decorate in _MODEL_OPTIONS:
        made = decorate(made)
    return made


class ModelCommand(click.Command):
    """A command that takes MODEL: its help shows its own options, then those all of them have."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        params, count = self.get_params(ctx), len(_MODEL_OPTIONS)  # shared ones stand first
        for title, some in (("Options", params[count:]), (_SHARED_TITLE, params[:count])):
            with formatter.section(title):
                options = (each for each in some if isinstance(each, click.Option))
                records = (option.get_help_record(ctx) for option in options)
                formatter.write_dl([record for record in records if record])


def model_command(function: Command) -> click.Command:
    """Makes a command that takes MODEL, as its argument `request`."""
    return click.command(cls=ModelCommand)(model_options(function))


level_option = click.option(
    "--level", metavar="PROCESSOR",
    help="Use the code for this processor of a saved model.  [default: the best that runs here]",
)  # fmt: skip


def seed_option(help: str) -> Callable[[Command], Command]:
    """The seed of random numbers."""
    return click.option(
        "--seed", type=click.IntRange(0), default=0, show_default=True, metavar="N", help=help
    )


def input_option(help: str) -> Callable[[Command], Command]:
    """Files of inputs."""
    return click.option("--input", "inputs", multiple=True, metavar="FILE", help=help)


like_option = input_option("Inputs whose types and ranks a definition is compiled for.")


def language_options(command: Command) -> Command:
    """The options of language models for commands that write files."""
    quantize = click.option(
        "--quantize", type=click.Choice(["q8", "q4"]),
        help="Of a language model: float weights become codes of 8 or 4 bits.",
    )  # fmt: skip
    context = click.option(
        "--context", type=click.IntRange(1), metavar="TOKENS",
        help="Of a language model: most tokens.",
    )  # fmt: skip
    return context(quantize(command))


def integers_option(command: Command) -> Command:
    """The ranges from which integer inputs are drawn, one for each input."""

    def ranges(context: Any, param: Any, found: Named) -> Named:
        return tuple(once("--integers", found).items())

    return click.option(
        "--integers", type=RANGE, multiple=True, metavar="INPUT=LOW..HIGH", callback=ranges,
        help="Draw this integer input from LOW to HIGH, both included. Default: valid indices for "
        "indices, 0 and 1 for other integers.",
    )(command)  # fmt: skip


def at_option(multiple: bool, help: str) -> Callable[[Command], Command]:
    """The sizes of the dims at which something is done, or of several such.

    Sizes of one may be in several options; OptionError for a name that is given twice.
    """

    def sizes(context: Any, param: Any, found: Sequence[dict[str, int]]) -> Any:
        pairs = [pair for each in found for pair in each.items()]
        return found if multiple else once("--at", pairs) if found else None

    return click.option(
        "--at", type=SIZES, multiple=True, metavar="NAME=SIZE,...", callback=sizes,
        help=f"{help} A model without free dims needs none.",
    )  # fmt: skip
