"""The log of anydim, `logging.getLogger("anydim")`: quiet unless its user asks for it.

    logging.basicConfig(level=logging.INFO)

What was compiled is INFO; what of it is far from what the machine could do is WARNING.
"""

from __future__ import annotations

import sys


def info(text: str, *values: object) -> None:
    """Log at INFO."""
    _log("info", text, values)


def warning(text: str, *values: object) -> None:
    """Log at WARNING."""
    _log("warning", text, values)


def _log(level: str, text: str, values: tuple[object, ...]) -> None:
    """Log, if the process has imported `logging`: nobody reads the log of any other.

    The import takes 4 ms, a tenth of the time in which a program is found on disk and loaded.
    """
    logging = sys.modules.get("logging")
    if logging is not None:
        logger = logging.getLogger("anydim")
        if not logger.handlers:
            logger.addHandler(logging.NullHandler())
        getattr(logger, level)(text, *values)
