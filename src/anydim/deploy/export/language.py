"""What programs that generate text need of an exported decoder, beside its code and weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anydim.base.records import dataclass
from anydim.runtime.lists import RowTable
from anydim.runtime.slabs import Cache
from anydim.sizes import Size, as_size

CHUNK = 128  # tokens of a prompt that one step has


@dataclass(frozen=True)
class Language:
    """A decoder over ragged rows with caches, as one sequence runs it.

    Attributes:
        name: Name of the model.
        vocabulary: Tokens.
        context: Most tokens of a sequence.
        room: Elements of a new cache; a cache that is full doubles, up to `context`.
        strips: Parts of a cache with an element for each token: heads.
        depth: Numbers of such an element, of `width` bytes each.
        caches: Inputs that are caches, with their results.
        inputs: Those of new tokens, and of places whose logits and hidden states are wanted.
        logits: The output.
        dims: The dims of new tokens, of places whose logits and hidden states are wanted, of cached
            tokens, and of the capacity of caches.
        table: The inputs that describe rows.
        step: Bytes of a step beside the caches, over `dims`.
        stop: Tokens that end an answer.
        begin: Tokens that begin each text.
        tokenizer: The contents of tokenizer.json, None without one.
        chat: The texts between messages (`chat_form.py`), None without a form.
        chat_problem: Why there is no form.
    """

    name: str
    vocabulary: int
    context: int
    room: int
    strips: int
    depth: int
    width: int
    caches: tuple[Cache, ...]
    inputs: tuple[str, str, str]
    logits: str
    dims: tuple[str, str, str, str, str]
    table: RowTable
    step: Size
    stop: tuple[int, ...]
    begin: tuple[int, ...]
    tokenizer: bytes | None = None
    chat: Mapping[str, Any] | None = None
    chat_problem: str = ""

    @property
    def most(self) -> int:
        """The largest capacity of a cache."""
        return -(-max(self.context, self.room) // 32) * 32

    @property
    def row(self) -> tuple[Size, ...]:
        """The row of the table for one sequence, over `dims`."""
        return (*[as_size(0)] * len(self.table.units), *(dim.size for dim in self.table.dims))

    @property
    def sums(self) -> tuple[Size, ...]:
        """The totals and largest sizes of one sequence, over `dims`."""
        units = dict(zip(self.table.totals, self.table.units))
        return (*(units[total] for total in self.table.summed),
                *(dim.size for dim in self.table.dims))  # fmt: skip


def step_of_one(formula: Size, table: RowTable, rows: str) -> Size:
    """The bytes of a step of one sequence, from those of any rows."""
    own = dict(zip(table.totals, table.units))
    own |= {longest: dim.size for longest, dim in zip(table.longest, table.dims)}
    return formula.substitute({rows: as_size(1), **own})
