"""All frontends, and the conversion of any source to a graph."""

from __future__ import annotations

import os
from collections.abc import Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any

from anydim.base.errors import OptionError
from anydim.base.pages import FROM_SCIKIT_LEARN, FROM_TORCH
from anydim.base.user_values import path_of, short_repr
from anydim.compiler.frontends.frontend import Frontend
from anydim.compiler.frontends.graph_frontend import GraphFrontend
from anydim.compiler.frontends.onnx.onnx_frontend import OnnxFrontend
from anydim.compiler.frontends.text_frontend import TextFrontend
from anydim.compiler.frontends.torch_frontend import TorchFrontend
from anydim.sizes import Dim

if TYPE_CHECKING:
    from anydim.compiler.frontends.onnx.file.reading import Opened
    from anydim.compiler.graph.nodes import Graph

ERROR, GROW = "error", "grow"  # values of `on_overflow`
ONNX = OnnxFrontend()
FRONTENDS: tuple[Frontend, ...] = (
    TextFrontend(),
    GraphFrontend(),
    TorchFrontend(),
    ONNX,  # last: it takes any path
)
_EXPORTERS = {
    "torch": str(FROM_TORCH),
    "sklearn": str(FROM_SCIKIT_LEARN),
    "lightgbm": "onnxmltools.convert_lightgbm makes an ONNX model of it",
    "xgboost": "onnxmltools.convert_xgboost makes an ONNX model of it",
    "tensorflow": "tf2onnx.convert makes an ONNX model of it",
    "keras": "tf2onnx.convert makes an ONNX model of it",
}  # by the package of a value's type or of one of its base classes


def find_frontend(source: Any) -> Frontend | None:
    """The first frontend that recognises a source, if any; OptionError for a path that is none."""
    if isinstance(source, os.PathLike):
        path_of("source", source)
    return next((each for each in FRONTENDS if each.recognises(source)), None)


def frontend_of(source: Any) -> Frontend:
    """The frontend of a source; OptionError for a value of another kind."""
    found = find_frontend(source)
    if found is not None:
        return found
    kind = type(source)
    *names, last = chain.from_iterable(each.accepts for each in reversed(FRONTENDS))
    hint = f"give {', '.join(names)}, or {last}"
    libraries = (each.__module__.partition(".")[0] for each in kind.__mro__)
    exporter = next((_EXPORTERS[name] for name in libraries if name in _EXPORTERS), hint)
    raise OptionError(f"cannot compile a value of type {kind.__name__}", exporter)


def opened_source(source: Any, options: Any) -> Opened | None:
    """The decoded ONNX model of a source, by its options, an `anydim.Options`; None for others."""
    return frontend_of(source).open_model(source, options.operators, options.external_data)


def own_kind(source: Any) -> str:
    """What a source is, if other engines cannot run it: "a definition"; '' otherwise."""
    frontend = frontend_of(source)
    return "" if frontend.runs_elsewhere else frontend.title


def read(
    source: Any, dims: Mapping[str, Dim] | None = None, operators: Any = None,
    fallback: bool = False,
) -> Graph:  # fmt: skip
    """The graph of a source of any frontend; see `Frontend.read` for the arguments.

    Raises OptionError for a value that no frontend recognises, and for arguments that its frontend
    does not take.
    """
    found = frontend_of(source)
    empty = isinstance(operators, (list, tuple, Mapping)) and not operators
    if operators is not None and not empty and not found.takes_operators:
        raise OptionError(
            "operators were given, and the source is no ONNX model",
            "they define operators of an ONNX file; a builder takes g.call(definition, ...)",
        )
    return found.read(source, dims or {}, operators, fallback)


def expected_bounds(
    source: Any, dims: Mapping[str, Dim], on_overflow: str
) -> tuple[Mapping[str, Dim], Mapping[str, int]]:
    """The dims to compile a source for, and the upper bounds that sizes may exceed.

    Proofs rest on bounds: code for a dim up to 128 may be wrong at 129. With "grow", dims are
    therefore compiled without upper bounds, and the given ones are kept as expected sizes.
    Raises OptionError for an unknown mode, and for bounds that the source does not admit.
    """
    if not isinstance(on_overflow, str) or on_overflow not in (ERROR, GROW):
        raise OptionError(f"on_overflow is {short_repr(on_overflow)}, expected 'error' or 'grow'")
    if on_overflow == ERROR:
        return dims, {}
    expected = {name: dim.hi for name, dim in dims.items() if dim.hi not in (None, dim.lo)}
    bounds = {name: Dim(dim.lo) if name in expected else dim for name, dim in dims.items()}
    highs = {name: high for name, high in expected.items() if high is not None}
    frontend = frontend_of(source)
    found = frontend.soft_bounds(source, dims, highs)
    return {} if frontend.declares_dims else bounds, found
