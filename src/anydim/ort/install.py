"""Makes `import onnxruntime` in an unchanged program return this package.

Substitute modules take the names of onnxruntime's modules in `sys.modules`. Its pure Python
packages (quantization, tools, transformers) still come from the installed onnxruntime, if there is
one, and import the substitutes.
"""

from __future__ import annotations

import importlib.metadata
import os
import sys
from collections.abc import Callable, Iterable
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

from anydim.base.errors import OptionError
from anydim.base.pages import IN_PLACE
from anydim.base.peer import DISPLACED, NAME, modules_of, peer_module
from anydim.base.settings import KNOBS
from anydim.ort import binding, engines, environment, errors, options, session, values
from anydim.ort.metadata import ModelMetadata, NodeArg
from anydim.ort.notices import LOG

_STATE = f"{NAME}.capi.onnxruntime_pybind11_state"
_MODULES = (
    _STATE, f"{NAME}.capi._pybind_state", f"{NAME}.capi.onnxruntime_inference_collection",
    f"{NAME}.capi.onnxruntime_validation", f"{NAME}.capi",
)  # fmt: skip
_FROM_PEER = ("quantize_", "pack_fp4_", "get_all_op", "schemadef", "opkernel")
_VARIABLE = next(knob.variable for knob in KNOBS if knob.name == "ort_fallback")


def install(fallback: str | None = None) -> None:
    """Make `import onnxruntime` return `anydim.ort` from now on, in this process.

    `fallback="onnxruntime"` lets the installed onnxruntime run what anydim rejects, in this process
    and its child processes. Modules that already imported names of onnxruntime keep them. Raises
    OptionError for another fallback.
    """
    if fallback is not None:
        if fallback not in ("", options.PEER):
            raise OptionError(f"fallback is '{fallback}'", f"give '{options.PEER}', or nothing")
        os.environ[_VARIABLE] = fallback
    if _is_installed():
        return
    displaced = modules_of(NAME)
    if displaced:
        LOG.warning(
            "onnxruntime was imported before anydim.ort.install(): modules that hold names of it"
            " keep them"
        )
    found = PathFinder.find_spec(NAME)
    for name in displaced:
        del sys.modules[name]
    package = _stand_in(NAME, vars(sys.modules[__package__]), _paths(found))
    setattr(package, DISPLACED, displaced)
    capi = _state_names()
    for name in _MODULES:
        module = _stand_in(name, capi, [] if name == f"{NAME}.capi" else None)
        vars(module)["__getattr__"] = _from_peer(name)
        parent, _, own = name.rpartition(".")
        if parent in sys.modules:
            setattr(sys.modules[parent], own, module)
    inner = sys.modules[f"{NAME}.capi"]
    for name in _MODULES[:-1]:
        setattr(inner, name.rpartition(".")[2], sys.modules[name])
    if found is None:
        sys.meta_path.append(_Distributions())


def uninstall() -> None:
    """Restore the `import onnxruntime` from before `install`."""
    if not _is_installed():
        return
    displaced = getattr(sys.modules[NAME], DISPLACED)
    for name in modules_of(NAME):
        del sys.modules[name]
    sys.modules.update(displaced)
    sys.meta_path[:] = [one for one in sys.meta_path if not isinstance(one, _Distributions)]


def _is_installed() -> bool:
    return hasattr(sys.modules.get(NAME), DISPLACED)


def _paths(found: ModuleSpec | None) -> list[str]:
    """The paths of the pure Python packages that are not substituted."""
    return list(found.submodule_search_locations or ()) if found is not None else []


def _stand_in(name: str, names: dict[str, Any], path: list[str] | None) -> ModuleType:
    """Create and register a module with these names; a package if it has a path."""
    module = ModuleType(name, str(IN_PLACE))
    vars(module).update({key: value for key, value in names.items() if key[:2] != "__"})
    spec = ModuleSpec(name, None, is_package=path is not None)
    module.__spec__ = spec
    vars(module).update(__version__=environment.VERSION, __file__=environment.__file__)
    if path is not None:
        vars(module)["__path__"] = spec.submodule_search_locations = path
    sys.modules[name] = module
    return module


def _state_names() -> dict[str, Any]:
    """The names in all modules below `onnxruntime.capi` together."""
    names = {
        name: value for module in (environment, options, values, binding, session, engines)
        for name, value in vars(module).items()
        if name[0] != "_" and not isinstance(value, ModuleType)
    }  # fmt: skip
    own = vars(sys.modules[__package__])
    names.update({name: value for name, value in own.items() if isinstance(value, type)})
    names.update({kind.__name__: kind for kind in errors.EXCEPTIONS})
    names.update(
        NodeArg=NodeArg, ModelMetadata=ModelMetadata, OrtValueVector=list,
        SessionIOBinding=binding.IOBinding, Session=session.InferenceSession,
        get_default_session_options=options.SessionOptions,
    )  # fmt: skip
    return names


def _from_peer(module: str) -> Callable[[str], Any]:
    """Look up functions that need no session in the installed onnxruntime."""

    def find(name: str) -> Any:
        if not name.startswith(_FROM_PEER):
            raise AttributeError(f"module {module!r} of anydim.ort has no attribute {name!r}")
        return getattr(peer_module().capi._pybind_state, name)

    return find


class _Distribution(importlib.metadata.Distribution):
    """Metadata of an onnxruntime that is not installed, for `importlib.metadata`."""

    def read_text(self, filename: str) -> str | None:
        if filename != "METADATA":
            return None
        return f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {environment.VERSION}\n"

    def locate_file(self, path: Any) -> Any:
        return path


class _Distributions(importlib.metadata.DistributionFinder):
    """Reports the interface's version to programs that query the version of onnxruntime."""

    def find_distributions(self, context: Any = None) -> Iterable[importlib.metadata.Distribution]:
        if context is not None and context.name == NAME:
            yield _Distribution()

    def find_spec(self, *_: Any) -> None:
        """Finds no modules."""
