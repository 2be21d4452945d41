"""Cache of parsed JSON heads: requests with binary tensors of the same sizes repeat their head."""

from __future__ import annotations

from collections.abc import Sequence

from anydim.serving.server.json_bodies import parse_object
from anydim.serving.server.tensors import InferRequest, Row, arrays_of, request_of, rows_of

_LONGEST = 1 << 10  # bytes of a head that is kept
_MOST = 1 << 10  # heads


class Heads:
    """Parses requests; caches heads whose tensors are all binary."""

    def __init__(self) -> None:
        self._known: dict[bytes, tuple[Sequence[Row], InferRequest]] = {}

    def parse_request(self, text: memoryview, rest: memoryview) -> InferRequest:
        """Parse a request: its JSON head and the binary tensors behind it. Raises InputError."""
        key = bytes(text) if len(text) <= _LONGEST else b""
        known = self._known.get(key)
        if known is not None:
            rows, like = known
            return InferRequest(arrays_of(rows, rest), like.id, like.outputs, like.binary,
                         like.binary_default, like.parameters)  # fmt: skip
        head = parse_object(text)
        rows = rows_of(head)
        found = request_of(head, arrays_of(rows, rest))
        if key and all(row.size is not None for row in rows):
            if len(self._known) >= _MOST:
                self._known = {}
            self._known[key] = rows, request_of(head, {})
        return found
