"""Promise: docs/operators.md says what the tables of operators say."""

from __future__ import annotations

import pathlib

import onnx

from anydim.compiler.frontends.onnx.operators.table import OPERATORS
from tests.house.operators_page import LIMITS, page

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "operators.md"


def test_the_page_is_up_to_date() -> None:
    hint = "run: python -m tests.house.operators_page docs/operators.md"
    assert PAGE.read_text("utf-8") == page(), hint


def test_every_limit_and_row_is_of_an_operator_of_the_standard() -> None:
    schemas = onnx.defs.get_all_schemas_with_history()
    names = {f"{s.domain}.{s.name}" if s.domain else s.name for s in schemas}
    assert names >= set(OPERATORS)
    assert {s.name for s in schemas} >= set(LIMITS)
