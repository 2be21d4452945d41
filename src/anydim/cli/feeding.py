"""What commands that watch calls take: MODEL, and the inputs of a call, from files or drawn."""

from __future__ import annotations

from collections.abc import Sequence
from functools import wraps
from typing import Any

import click
from click.core import ParameterSource

from anydim.base.errors import OptionError
from anydim.base.records import dataclass
from anydim.cli import arrays
from anydim.cli.opening import need_sizes, open_model
from anydim.cli.options import (
    Command,
    Named,
    Request,
    at_option,
    input_option,
    integers_option,
    level_option,
    model_command,
    seed_option,
)
from anydim.cli.report.console import Console
from anydim.runtime.program.callable_program import CallableProgram

OR_FILES = ", or --input FILE.npz"
_DRAWING = frozenset({"--integers", "--seed", "--random"})  # options of random inputs


@dataclass(frozen=True)
class CallInputs:
    """Inputs from files, or drawn at the sizes `at`."""

    inputs: Sequence[str]
    at: dict[str, int] | None
    seed: int
    integers: Named

    def model(self, console: Console, request: Request) -> tuple[CallableProgram, arrays.Arrays]:
        """The model and the inputs of a call; raises UserError kinds for what does not fit."""
        refuse_drawing(self.inputs, self.at)
        found = arrays.read(self.inputs)
        if not self.inputs and self.at is None:
            need_sizes(request, OR_FILES)
        made = open_model(console, request, found)
        if self.inputs:
            return made, arrays.inputs_by_name(made, found)
        at = arrays.no_sizes(made, OR_FILES) if self.at is None else self.at
        return made, arrays.draw_inputs(made, at, self.seed, dict(self.integers))


def refuse_drawing(inputs: Sequence[str], at: dict[str, int] | None) -> None:
    """Raise OptionError for inputs from files with options of drawn ones."""
    if inputs and at is not None:
        raise OptionError("--input and --at cannot be combined", "the files determine the sizes")
    context = click.get_current_context()
    for param in context.command.params if inputs else ():
        given = context.get_parameter_source(param.name or "") is ParameterSource.COMMANDLINE
        if given and not _DRAWING.isdisjoint(param.opts):
            raise OptionError(f"--input and {param.opts[0]} cannot be combined",
                              "nothing is drawn: the files hold the inputs")  # fmt: skip


def fed_command(command: Command) -> click.Command:
    """Makes a command that takes MODEL, and inputs of a call as its argument `fed`."""

    @wraps(command)
    def asking(
        *rest: Any, inputs: Sequence[str], at: dict[str, int] | None, seed: int, integers: Named,
        **options: Any,
    ) -> Any:  # fmt: skip
        return command(*rest, fed=CallInputs(inputs, at, seed, integers), **options)

    watching: Command = asking
    for decorate in (
        seed_option("Seed for random inputs."),
        integers_option,
        input_option("Inputs from files instead: an .npz file, or NAME=FILE.npy."),
        at_option(False, "The sizes; the inputs are random."),
        level_option,
    ):
        watching = decorate(watching)
    return model_command(watching)
