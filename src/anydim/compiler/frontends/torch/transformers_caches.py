"""Caches of keys and values of transformers, which its models return, as results of exports."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

_EXPORTERS = (  # from 5.0, and before
    ("transformers.exporters.exporter_dynamo", "register_cache_pytrees_for_model"),
    ("transformers.integrations.executorch", "register_dynamic_cache_export_support"),
)


def register_caches(module: Any) -> None:
    """Tell torch the caches that models of transformers in a module return.

    The functions are those of transformers. What they register stays known to the process.
    """
    for model in _pretrained_models(module):
        for path, name in _EXPORTERS:
            try:
                function = getattr(import_module(path), name)
            except (ImportError, AttributeError):
                continue
            function(*[model] * function.__code__.co_argcount)
            break


def keeps_window(module: Any) -> bool:
    """Whether a model of transformers in a module returns a cache of the last keys only.

    Its code counts keys in Python, which fixes the length in an export.
    """
    return any(
        getattr(model.config, "use_cache", False) and getattr(model.config, "sliding_window", None)
        for model in _pretrained_models(module)
    )


def _pretrained_models(module: Any) -> Iterator[Any]:
    """The models of transformers in a module, itself included; imports nothing."""
    modules = getattr(module, "modules", None)
    for each in () if modules is None else modules():
        names = [(kind.__module__.partition(".")[0], kind.__name__) for kind in type(each).__mro__]
        if ("transformers", "PreTrainedModel") in names:
            yield each
