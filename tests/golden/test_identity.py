"""Promise: the text that a kernel's identity hashes contains every field of its loop IR."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from anydim.base.dtypes import float32, int64
from anydim.base.records import fields_of, is_record
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.ir import kernel, steps, values
from anydim.compiler.kernels.naming import named_kernel

INDEX, FLOAT = ir.Type(int64), ir.Type(float32)
RECORDS = [
    each
    for module in (steps, values, kernel)
    for each in vars(module).values()
    if isinstance(each, type) and is_record(each) and each.__module__ == module.__name__
]
# A class that is renamed gets other names for all kernels that contain it: change this list then.
NAMES = """
Let Declare Assign Store Prefetch For While If Switch Call Return StoreAt Atomic Fence Pause
Barrier Fragments CopyAside CopiesEnd CopiesWait Tiles TileZero TileMemory TileDots TilePairs Stack
Table CopyWide
Type Const Var Get Op Permute Item Gather Iota Convert Load Splat Shuffle Extract Reduce
Address Bitcast LoadAt Pointer Scalar Function Library Operand Local Kernel WarpExchange
""".split()  # noqa: SIM905


def made(cls: Any) -> Any:
    """A record whose fields hold texts of their own names."""
    found = object.__new__(cls)
    for field in fields_of(cls):
        object.__setattr__(found, field.name, f"value of {field.name}")
    return found


def test_names_in_identities_are_fixed() -> None:
    assert {each.__name__ for each in RECORDS} == set(NAMES)


@pytest.mark.parametrize(
    "cls, name",
    [
        (each, field.name)
        for each in RECORDS
        if each not in (ir.Library, ir.Kernel)  # their identity is a field
        for field in fields_of(each)
    ],
)
def test_a_changed_field_changes_the_identity(cls: Any, name: str) -> None:
    if "__repr__" in cls.__dict__ and cls is ir.Type:
        assert repr(ir.Type(int64, 4)) != repr(ir.Type(int64, 8)) != repr(ir.Type(float32, 8))
        return
    before = made(cls)
    after = made(cls)
    object.__setattr__(after, name, "another value")
    assert repr(before) != repr(after)


def kernel_of(store: ir.Store, **options: Any) -> ir.Kernel:
    function = ir.Function("main", (ir.Pointer("y", float32),), (store,), **options)
    return named_kernel("k", (), (), (function,))


def test_fields_with_defaults_count_where_they_are_set() -> None:
    store = ir.Store("y", ir.Const(INDEX, 0), ir.Const(FLOAT, 1.0))
    plain = kernel_of(store)
    assert "nontemporal" not in repr(store)
    assert kernel_of(dataclasses.replace(store, nontemporal=True)).identity != plain.identity
    assert kernel_of(store, quick=True).identity != plain.identity
    assert kernel_of(store, result=FLOAT).identity != plain.identity
    assert kernel_of(store).identity == plain.identity
