"""Code in executable memory, as loaders return it."""

from __future__ import annotations

import ctypes

from anydim.base.errors import ArtefactError
from anydim.base.records import dataclass


@dataclass(frozen=True)
class CodeMemory:
    """The bytes of code and their address, valid while `owner` lives."""

    data: memoryview
    address: int
    owner: object


def system_error(problem: str) -> ArtefactError:
    """Return the error of a system that does not execute saved code."""
    return ArtefactError(problem, "compile the model on this machine")


def view_of(address: int, length: int) -> memoryview:
    """Return bytes at an address."""
    return memoryview((ctypes.c_char * length).from_address(address)).cast("B")
