"""An immutable dictionary, for the fields of frozen records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class FrozenMapping(dict[Key, Value]):
    """A dict without mutators; hashable if its values are."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError("this mapping is frozen; build a new one")

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return FrozenMapping, (dict(self),)


def freeze(mapping: Mapping[Key, Value]) -> FrozenMapping[Key, Value]:
    """The mapping itself if it is frozen already, else a frozen copy."""
    return mapping if isinstance(mapping, FrozenMapping) else FrozenMapping(mapping)


def freeze_value(value: Any) -> Any:
    """Convert lists to tuples and dicts to frozen mappings, recursively."""
    if isinstance(value, (list, tuple)):
        return tuple(freeze_value(item) for item in value)
    if isinstance(value, dict) and not isinstance(value, FrozenMapping):
        return FrozenMapping({key: freeze_value(item) for key, item in value.items()})
    return value
