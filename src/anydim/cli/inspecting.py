"""The command inspect: what a file holds. It imports little, for it answers at once."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import click

from anydim.base.errors import OptionError
from anydim.cli.report.console import Console
from anydim.deploy.container import is_saved
from anydim.deploy.inspect import inspect as inspected
from anydim.serving.language_models.paths import is_language_model

_DEFINITION = re.compile(r"\.tc(:|$)")  # of a text; its reader is slow to import


@click.command
@click.argument("model", metavar="FILE")
@click.option("--verify", is_flag=True, help="Verify the digests of everything in a saved model.")
def inspect(model: str, verify: bool) -> None:
    """Show what FILE holds: dims, inputs, outputs; for a saved model also memory and processors.

    FILE is a saved model, an ONNX file, an exported PyTorch program (.pt2), a definition, or a
    language model (GGUF, or a folder of Hugging Face). Nothing is compiled, and no code of a saved
    model is executed. The names of dims are the names for --dim and --at. Axes of outputs are shown
    as the ONNX file declares them; ? is an axis that it does not declare.

    \b
    Examples:
      anydim inspect encoder.anydim
      anydim inspect encoder.onnx
      anydim inspect encoder.pt2
      anydim inspect kernels.tc:norm
      anydim inspect SmolLM2-135M-Instruct.Q4_1.gguf
    """
    if verify and not is_saved(model):
        raise OptionError(f"--verify needs a saved model, and {Path(model).name} is not one")
    if is_language_model(model) and not (verify and is_saved(model)):
        text = import_module("anydim.cli.language").describe_language_model(model)
    elif _DEFINITION.search(model):
        text = import_module("anydim.cli.describing").describe_definition(model)
    else:
        text = str(inspected(model, verify=verify))
    Console().prose(text)
