"""The log of anydim, `logging.getLogger("anydim")`; silent unless the user configures logging.

    logging.basicConfig(level=logging.INFO)

Compilations are INFO; code far below the machine's speed is WARNING.
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
    """Log only if the process has imported `logging`: otherwise there is no reader.

    The import takes 4 ms, a tenth of the time to load a program from the cache.
    """
    logging = sys.modules.get("logging")
    if logging is not None:
        logger = logging.getLogger("anydim")
        if not logger.handlers:
            logger.addHandler(logging.NullHandler())
        getattr(logger, level)(text, *values)
