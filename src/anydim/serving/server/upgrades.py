"""Requests that offer to change the protocol, as HTTP/1.1 requests without the offer.

A server may ignore the header Upgrade (RFC 9110, 7.8). Java's HttpClient sends `Upgrade: h2c` with
the first request of a connection, bodies included; llhttp takes no body behind such a head.
"""

from __future__ import annotations

from typing import Any

from httptools import HttpParserUpgrade, HttpRequestParser

_OFFERS = {b"upgrade", b"http2-settings"}


class PlainParser:
    """httptools' parser, which reads the head of an offer once more, without the offer.

    `protocol` receives the calls of the parser. Its `is_offer` says whether it ignored a head.
    """

    def __init__(self, protocol: Any) -> None:
        self._protocol = protocol
        self._parser = HttpRequestParser(protocol)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._parser, name)

    def feed_data(self, data: bytes) -> None:
        """Parse bytes. Raises HttpParserError, and HttpParserUpgrade for CONNECT."""
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade as upgrade:
            if not self._protocol.is_offer:
                raise
            head = self._head()
            self._parser = HttpRequestParser(self._protocol)
            self._parser.feed_data(head)
            self.feed_data(data[upgrade.args[0] :])

    def _head(self) -> bytes:
        """The head that was read last, without the offer."""
        version = self._parser.get_http_version().encode()
        lines = [b"%s %s HTTP/%s" % (self._parser.get_method(), self._protocol.url, version)]
        for name, value in self._protocol.headers:
            if name == b"connection":
                words = [word.strip() for word in value.split(b",")]
                value = b", ".join(word for word in words if word.lower() not in _OFFERS)
            if name not in _OFFERS and (value or name != b"connection"):
                lines.append(b"%s: %s" % (name, value))
        return b"\r\n".join([*lines, b"", b""])
