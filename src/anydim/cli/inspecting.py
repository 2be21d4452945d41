"""The command inspect: what a file holds. It imports little, for it answers at once."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import click

from anydim.base.errors import OptionError
from anydim.deploy.container import is_saved
from anydim.deploy.inspect import inspect as inspected
from anydim.report.console import Console

_DEFINITION = re.compile(r"\.tc(:|$)")  # of a text; its reader is slow to import


@click.command
@click.argument("model", metavar="FILE")
@click.option("--verify", is_flag=True, help="Compare the digests of all that a saved model holds.")
def inspect(model: str, verify: bool) -> None:
    """Show what FILE holds: dims, inputs, outputs; for a saved model memory and processors, too.

    FILE is a saved model, an ONNX file or a definition of a text. Nothing is compiled, and no code
    of a saved model is executed. The names of dims are those that --dim and --at take; axes of
    outputs are shown as an ONNX file has them, ? where it says nothing.

    \b
    Examples:
      anydim inspect encoder.anydim
      anydim inspect encoder.onnx
      anydim inspect kernels.tc:norm
    """
    if verify and not is_saved(model):
        raise OptionError(f"--verify is for saved models, and {Path(model).name} is none")
    if _DEFINITION.search(model):
        text = import_module("anydim.cli.describing").described(model)
    else:
        text = str(inspected(model, verify=verify))
    Console().prose(text)
