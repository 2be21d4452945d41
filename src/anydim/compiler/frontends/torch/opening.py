"""Programs of torch: exported ones, files of them, and modules with example arguments."""

from __future__ import annotations

import os
import warnings
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind

from anydim.base.errors import ModelError, OptionError
from anydim.base.records import dataclass
from anydim.base.torch_sources import is_module
from anydim.base.user_values import short_repr
from anydim.compiler.frontends.torch.decompositions import decompositions
from anydim.compiler.frontends.torch.exporting import whole_layers
from anydim.compiler.frontends.torch.importer import Imported, Program, import_graph
from anydim.compiler.frontends.torch.recurrent_operators import register
from anydim.compiler.frontends.torch.refusal import UnsupportedNodes
from anydim.compiler.frontends.torch.transformers_caches import keeps_window, register_caches
from anydim.compiler.graph.nodes import Graph
from anydim.sizes import Dim, given_dims

_INITIALISED = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)
_STATE = ("BUFFER_MUTATION", "PARAMETER_MUTATION")  # names: earlier torch has not all kinds
_WRITTEN = (*_STATE, "USER_INPUT_MUTATION")


@dataclass(frozen=True)
class OpenedProgram:
    """An exported program as a graph, and what a call has to do around it.

    `state` are tensors of the program by input: buffers and parameters that it writes. `written`
    are the outputs to copy back, by input. `results` are the leaves that the module returns, a
    `NamedResult` or a plain value each, in the structure `spec` of torch's pytree.
    """

    imported: Imported
    state: Mapping[str, torch.Tensor]
    written: Mapping[str, str]
    results: Sequence[Any]
    spec: Any
    name: str = ""

    @property
    def graph(self) -> Graph:
        return self.imported.graph

    @property
    def is_structured(self) -> bool:
        """Whether the module returns more than a tensor, or tensors by the names of outputs."""
        if self.spec.is_leaf():
            return False
        names = [getattr(leaf, "name", None) for leaf in self.results]
        return self.spec.type not in (dict, OrderedDict) or names != list(self.spec.context)


def open_source(source: Any, dims: Any = None, dynamic_shapes: Any = None) -> OpenedProgram:
    """Imports a program of torch from a module, an exported program or a file.

    `dims` are bounds by name; for a module, its example arguments: a tuple, or a mapping by name.
    """
    name = _name_of(source)
    if not is_module(source):
        bounds = given_dims(dims)
        return open_program(export_source(source), name, bounds, dynamic_shapes)
    by_name = isinstance(dims, Mapping)
    program = export_source(
        source, () if by_name else dims, dynamic_shapes, dims if by_name else None
    )
    return open_program(program, name, None, dynamic_shapes)


def torch_precision() -> str | None:
    """The precision that torch is set to: with autocast to bfloat16, or products of "medium"."""
    cast = torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") == torch.bfloat16
    medium = torch.get_float32_matmul_precision() == "medium"
    return "bfloat16" if cast or medium else None


def _name_of(source: Any) -> str:
    if isinstance(source, (str, os.PathLike)):
        return os.path.basename(os.fspath(source))
    if is_module(source):
        return type(source).__name__
    stack: Mapping[str, Any] = next(
        (node.meta["nn_module_stack"] for node in source.graph.nodes
         if node.meta.get("nn_module_stack")), {},
    )  # fmt: skip
    kinds = [str(kind).rpartition(".")[2] for path, kind in stack.values() if not path]
    return kinds[0] if kinds else "program"


def export_source(
    source: Any, arguments: Any = None, dynamic_shapes: Any = None, keywords: Any = None
) -> ExportedProgram:
    """Exports a module with example arguments, or reads a file; exported programs pass.

    Raises OptionError for arguments that do not fit, ModelError if torch cannot read or export it.
    """
    if isinstance(source, ExportedProgram):
        return source
    if isinstance(source, (str, os.PathLike)):
        return read_file(source)
    if not isinstance(arguments, (tuple, list)):
        raise OptionError(
            f"the example arguments of a module are {short_repr(arguments)}",
            "give a tuple: ad.compile(module, (x,), dynamic_shapes=({0: Dim('batch')},))",
        )
    try:
        with warnings.catch_warnings(), torch.no_grad(), whole_layers():
            warnings.simplefilter("ignore")
            register_caches(source)
            return torch.export.export(
                source, tuple(arguments), keywords or {}, dynamic_shapes=dynamic_shapes
            )
    except Exception as error:  # torch raises any kind
        raise _not_exported(source, error) from error


def _not_exported(source: Any, error: Exception) -> ModelError:
    """Keeps the lines of torch's error that name axes and suggest fixes."""
    report = str(error).strip().partition("\n\nThe error above")[0].splitlines() or [""]
    told = [line for line in report[1:] if line.startswith(("  - ", "Suggested fixes", "  "))]
    hint = "call torch.export.export(module, args, dynamic_shapes=...) for torch's whole report"
    if keeps_window(source):
        hint = "set module.config.use_cache = False: a cache of a window fixes the length"
    problem = f"torch.export cannot export {type(source).__name__}: {type(error).__name__}: "
    return ModelError(problem + "\n".join([report[0], *told]), hint)


def read_file(path: str | os.PathLike[str]) -> ExportedProgram:
    """The program of a file of torch.export.save; raises ModelError."""
    register()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.export.load(os.fspath(path))
    except Exception as error:  # torch raises any kind
        first = (str(error).strip().splitlines() or [""])[0]
        raise ModelError(
            f"{os.fspath(path)} cannot be read: {type(error).__name__}: {first}",
            "give a file of torch.export.save of this or an earlier version of torch",
        ) from None


def open_program(
    program: ExportedProgram, name: str, dims: Mapping[str, Dim] | None = None,
    dynamic_shapes: Any = None,
) -> OpenedProgram:  # fmt: skip
    """Convert an exported program. Raises ModelError for overloads that are not supported."""
    whole = _decompose(program, name)
    signature = whole.graph_signature
    mutated = {spec.target for spec in signature.output_specs if spec.kind.name in _STATE}
    constants: dict[str, torch.Tensor] = {}
    state: dict[str, torch.Tensor] = {}
    names: dict[str, str] = {}
    for spec in signature.input_specs:
        if spec.kind in _INITIALISED:
            tensor = _tensor(program, spec.target)
            if spec.target in mutated:
                names[spec.arg.name] = spec.target
                state[spec.target] = tensor
            else:
                constants[spec.arg.name] = tensor
        elif spec.kind == InputKind.TOKEN:  # an order of effects; it holds nothing
            constants[spec.arg.name] = torch.zeros(0)
        else:
            names[spec.arg.name] = spec.arg.name
    results = list(_result_names(signature, whole.call_spec.out_spec))
    fixed = Program(
        name, whole.graph_module, constants, names, results, whole.range_constraints,
        _named_axes(program, dynamic_shapes), dims or {},
    )  # fmt: skip
    try:
        imported = import_graph(fixed)
    except UnsupportedNodes as error:
        raise ModelError(error.problem, error.hint) from None
    written = {
        spec.target: result.name
        for spec, result in zip(signature.output_specs, imported.results)
        if spec.kind.name in _WRITTEN
    }
    if imported.complex_names & {*written, *written.values()}:
        raise ModelError(
            f"{name}: the program writes to a complex tensor: {', '.join(written)}",
            "keep the parts as a real tensor: torch.view_as_real(x)",
        )
    own = [
        result for spec, result in zip(signature.output_specs, imported.results)
        if spec.kind == OutputKind.USER_OUTPUT
    ]  # fmt: skip
    return OpenedProgram(imported, state, written, own, whole.call_spec.out_spec, name)


def _decompose(program: ExportedProgram, name: str) -> ExportedProgram:
    """Removes mutation, and decomposes overloads without a row as far as torch can."""
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            return program.run_decompositions(decompositions(is_exported=True))
    except Exception as error:  # torch raises any kind
        first = (str(error).strip().splitlines() or [""])[0]
        raise ModelError(
            f"{name}: torch cannot decompose the program: {type(error).__name__}: {first[:200]}",
            "call program.run_decompositions() for torch's whole report",
        ) from error


def _tensor(program: ExportedProgram, target: str) -> torch.Tensor:
    found = program.state_dict.get(target)
    return program.constants[target] if found is None else found


def _result_names(signature: Any, spec: Any) -> Iterator[str | None]:
    """Names of results by their place in what the module returns: `output`, `logits`, `1.hidden`.

    Of what is written back: its target. None for tokens.
    """
    count = sum(each.kind == OutputKind.USER_OUTPUT for each in signature.output_specs)
    leaves = [torch.empty(0) for _ in range(count)]  # caches flatten to their tensors only
    tree = pytree.tree_unflatten(leaves, spec)
    paths = {id(leaf): path for path, leaf in pytree.tree_leaves_with_path(tree)}
    number = 0
    for each in signature.output_specs:
        if each.kind.name in _WRITTEN:
            yield f"{each.target}.new"
        elif each.kind == OutputKind.USER_OUTPUT:
            yield _path_name(paths.get(id(leaves[number]), ()))
            number += 1
        else:
            yield None


def _path_name(path: Sequence[Any]) -> str:
    """A name from the keys of a pytree; numbers get a word before them."""
    words = [str(getattr(key, "key", getattr(key, "idx", getattr(key, "name", key))))
             for key in path]  # fmt: skip
    name = ".".join(words)
    return name if name and not name[0].isdigit() else f"output_{name}" if name else "output"


def _named_axes(program: ExportedProgram, dynamic_shapes: Any) -> dict[tuple[str, int], str]:
    """The names of `torch.export.Dim` by placeholder and axis."""
    if not dynamic_shapes:
        return {}
    users = [spec.arg.name for spec in program.graph_signature.input_specs
             if spec.kind == InputKind.USER_INPUT]  # fmt: skip
    found: dict[tuple[str, int], str] = {}
    for placeholder, shape in zip(users, _shapes(dynamic_shapes)):
        axes = shape.items() if isinstance(shape, Mapping) else enumerate(shape or ())
        for axis, dim in axes:
            name = getattr(dim, "__name__", None)
            if name and name != "_DimHint" and not hasattr(dim, "root"):
                found[placeholder, axis] = name
    return found


def _shapes(given: Any) -> Iterator[Any]:
    """Flattens `dynamic_shapes` to one shape per input."""
    if given is None or _is_shape(given):
        yield given
        return
    for each in given.values() if isinstance(given, Mapping) else given:
        yield from _shapes(each)


def _is_shape(given: Any) -> bool:
    if isinstance(given, Mapping):
        return all(isinstance(key, int) for key in given)
    return all(not isinstance(each, (Mapping, tuple, list)) and each is not None for each in given)
