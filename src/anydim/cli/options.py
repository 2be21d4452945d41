"""How dims, sizes and ranges are written on the command line, and the options commands share."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import click

from anydim.base.errors import OptionError
from anydim.sizes import Dim

_DIM = re.compile(r"(?P<name>[^=]+)=(?P<low>\d+)(?P<dots>\.\.(?P<high>\d*))?")
_RANGE = re.compile(r"(?P<name>[^=]+)=(?P<low>-?\d+)\.\.(?P<high>-?\d+)")

Command = Callable[..., Any]


class DimType(click.ParamType):
    """seq=1..512, seq=1.. or seq=128"""

    name = "dim"

    def convert(self, value: Any, param: Any, context: Any) -> Dim:
        """Raises OptionError for another form."""
        found = _DIM.fullmatch(value)
        if found is None:
            raise OptionError(
                f"--dim {value}: expected NAME=LOW..HIGH",
                "such as seq=1..512, seq=1.. (no upper bound) or seq=128 (one size)",
            )
        low, high = int(found["low"]), found["high"]
        if not found["dots"]:
            return Dim(found["name"], low, low)
        return Dim(found["name"], low, int(high) if high else None)


class SizesType(click.ParamType):
    """batch=8,seq=77"""

    name = "sizes"

    def convert(self, value: Any, param: Any, context: Any) -> dict[str, int]:
        """Raises OptionError for another form."""
        sizes: dict[str, int] = {}
        for part in filter(None, str(value).replace(" ", "").split(",")):
            name, equals, size = part.partition("=")
            if not (name and equals and size.isdecimal()) or name in sizes:
                raise OptionError(
                    f"--at {value}: expected a size for each dim, once",
                    "such as --at batch=8,seq=77",
                )
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


def dims_by_name(dims: Sequence[Dim]) -> dict[str, Dim]:
    """Raises OptionError for a dim that is given twice."""
    named = {dim.name: dim for dim in dims}
    if len(named) < len(dims):
        twice = next(d.name for d in dims if sum(d.name == other.name for other in dims) > 1)
        raise OptionError(f"--dim {twice} is given twice", "give each dim one range")
    return named


def model_options(command: Command) -> Command:
    """The model and how it is compiled: what every command takes."""
    for decorate in (
        click.option("-q", "--quiet", is_flag=True, help="No progress and no notes."),
        click.option(
            "--threads", default=1, show_default=True, metavar="N", help="Cores that serve a call."
        ),
        click.option(
            "--dim", "dims", type=DIM, multiple=True, metavar="NAME=LOW..HIGH",
            help="Bounds of a dim: seq=1..512, seq=1.. (no upper bound), seq=128 (one size). "
            "A dim left out runs from 0 with no upper bound. Repeat it for each dim.",
        ),
        click.argument("model", metavar="MODEL"),
    ):  # fmt: skip
        command = decorate(command)
    return command


def integers_option(command: Command) -> Command:
    """The ranges from which integer inputs are drawn."""
    return click.option(
        "--integers", type=RANGE, multiple=True, metavar="INPUT=LOW..HIGH",
        help="Draw this integer input from LOW to HIGH, both included; else an index from all that "
        "are valid, another integer from 0 and 1.",
    )(command)  # fmt: skip


def at_option(multiple: bool, required: bool, help: str) -> Callable[[Command], Command]:
    """The sizes of the dims at which something is done."""
    return click.option(
        "--at", type=SIZES, multiple=multiple, required=required,
        metavar="NAME=SIZE,...", help=help,
    )  # fmt: skip
