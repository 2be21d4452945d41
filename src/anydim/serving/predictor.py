"""Predicted time of requests, where their model is not loaded."""

from __future__ import annotations

import base64
import pickle
from copy import copy
from typing import Any

from anydim.runtime.program.callable_program import CallableProgram
from anydim.serving.batcher import form_of


class Predictor:
    """Predicts the seconds of requests of a model, at the rates of a reference machine.

    It has the formulas of the model without its code and weights.
    """

    def __init__(self, model: CallableProgram, batch: str | None = None) -> None:
        self._form = form = copy(form_of(model, batch))
        form.executable = None  # type: ignore[attr-defined]

    def text(self) -> str:
        """It as a text, for `of_text`."""
        return base64.b64encode(pickle.dumps(self)).decode()

    @staticmethod
    def of_text(text: str) -> Predictor:
        """The predictor of a text. The text is trusted: reading it can run code."""
        found: Predictor = pickle.loads(base64.b64decode(text))
        return found

    def seconds(self, inputs: Any) -> float:
        """Predicted seconds that a request adds to a call; raises InputError for wrong inputs."""
        item = self._form.read(inputs, None)
        return float(item.own) or float(self._form.overhead(item))
