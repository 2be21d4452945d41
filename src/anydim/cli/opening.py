"""MODEL of a command: a saved model is loaded, anything else is compiled."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from anydim.base.errors import OptionError, UserError
from anydim.base.missing_package import missing_module
from anydim.cli.arrays import Read, refuse_free
from anydim.cli.language import refuse_language_model
from anydim.cli.options import Request
from anydim.cli.report.console import Console
from anydim.cli.report.text import duration
from anydim.deploy.container import is_saved
from anydim.deploy.inspect import inspect
from anydim.deploy.load import LoadedModel, load
from anydim.runtime.program.callable_program import CallableProgram

if TYPE_CHECKING:
    from anydim.api.model import Model


def open_model(console: Console, request: Request, inputs: Sequence[Read] = ()) -> CallableProgram:
    """What a command is about, ready to be called; raises UserError kinds where it cannot be.

    `inputs` are those of a call, where they are known: they decide types and ranks of a definition.
    """
    refuse_language_model(request)
    return (
        load_saved(console, request)
        if is_saved(request.model)
        else compile_model(console, request, inputs)
    )


def load_saved(console: Console, request: Request) -> LoadedModel:
    """A saved model; raises OptionError for what was decided when it was saved."""
    name = Path(request.model).name
    for option, given in request.choices:
        if given:
            raise OptionError(
                f"{option} works when a model is compiled, and {name} is a saved model",
                "give it to `anydim compile`, and save again",
            )
    start = perf_counter()
    model = load(
        request.model, level=request.level, memory_limit=request.memory_limit,
        devices=request.devices or None, strategy=request.strategy,
        threads=request.cores if request.cores is not None else "auto",
        verify="checksums",  # there may be no second call
    )  # fmt: skip
    seconds = duration(perf_counter() - start)
    console.note(f"loaded {name} for {model.level.name} in {seconds}")
    return model


def compile_model(
    console: Console, request: Request, inputs: Sequence[Read] = (), what: str = "", **rest: Any
) -> Model:
    """A model that is compiled now; `what` is done with it that a saved one cannot serve.

    `rest` is for `anydim.compile`.
    """
    name = Path(request.model).name
    refuse_language_model(request)
    refuse_saved(request, what)
    if request.level is not None:
        raise OptionError(
            f"--level works with saved models only, and {name} is compiled for this machine",
            "`anydim compile` saves a model with code for several kinds of processors",
        )
    try:
        compiling = import_module("anydim.cli.compiling")
    except ModuleNotFoundError as error:
        raise missing_module(f"{name}, which is no saved model,", error) from error
    model: Model = compiling.compile_request(console, request, inputs, **rest)
    return model


def refuse_saved(request: Request, what: str = "") -> None:
    """Raises OptionError for a saved model: `what` needs its source."""
    if is_saved(request.model):
        raise OptionError(
            f"{Path(request.model).name} is a saved model: {what or 'this'} needs what it was "
            "compiled from",
            "name the ONNX file or the definition",
        )


def need_sizes(request: Request, otherwise: str = "") -> None:
    """Refuse a call without sizes of a file with free dims, before it is compiled.

    Definitions and saved models, which open at once, are checked when they are open.
    """
    refuse_language_model(request)
    if is_saved(request.model):
        return
    try:
        known = inspect(request.model).dims.dims
    except UserError:
        return
    given = {name for name, _ in request.dims}
    refuse_free([dim for dim in known if dim.name not in given], otherwise)


def own_kind(model: str) -> str:
    """What MODEL is, if other engines cannot run it; '' otherwise."""
    found: str = import_module("anydim.compiler.frontends.table").own_kind(model)
    return found
