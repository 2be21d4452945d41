"""Promise: in a browser, an exported model has the results that it has in node, to the bit, and
fused multiply-add without a flag."""

from __future__ import annotations

from pathlib import Path

import pytest

import anydim as ad
from tests.unit.deploy.kinds import KINDS
from tests.unit.deploy.web.node import answers, call_of, needs_node
from tests.unit.deploy.web.pages import answers_in_page, in_browsers

FUSED = """import("/model/model.js").then(({ load }) => load({ relaxed: true }))
  .then((other) => { other.close(); return ""; }, (error) => error.message)"""

pytestmark = [needs_node, in_browsers, pytest.mark.slow]


@pytest.mark.parametrize("relaxed", [False, None])
@pytest.mark.parametrize("name", ["encoder", "looped"])
def test_results_are_those_of_node(
    name: str, relaxed: bool | None, browser: str, tmp_path: Path
) -> None:
    ad.compile(KINDS[name].build()).export(tmp_path, target="wasm32")
    cases = [call_of(inputs) for inputs in KINDS[name].inputs()]
    invalid = {"code": "model.run({})"}
    fused = {"code": FUSED}
    *found, known = answers_in_page(tmp_path, [*cases, invalid, cases[0], fused], relaxed, browser)
    used = relaxed is None and known == {"value": ""}
    assert browser != "chromium" or used == (relaxed is None)
    assert found == answers(tmp_path, [*cases, invalid, cases[0]], used)
    assert "outputs" in found[0] and "is missing: expected" in found[-2]["error"]
    assert not known["value"] or "has no relaxed SIMD; load without" in known["value"]


def test_weights_come_from_an_address_and_damaged_ones_are_errors(
    browser: str, tmp_path: Path
) -> None:
    ad.compile(KINDS["wide"].build()).export(tmp_path, target="wasm32")
    data = bytearray((tmp_path / "model.weights").read_bytes())
    (tmp_path / "short").write_bytes(data[:-1])
    data[-1] ^= 1
    (tmp_path / "changed").write_bytes(data)
    call = {"code": "model.memory({n: 3}).weights"}
    (found,) = answers_in_page(tmp_path, [call], browser=browser, weights="model/model.weights")
    assert found["value"] == len(data)
    for name, text in (("short", "expected"), ("changed", "damaged"), ("none", "came 404")):
        (found,) = answers_in_page(tmp_path, [call], browser=browser, weights=f"model/{name}")
        assert found["ours"] and text in found["error"], found


def test_the_page_runs_the_model(browser: str, tmp_path: Path) -> None:
    ad.compile(KINDS["looped"].build()).export(tmp_path, target="wasm32")
    code = """(async () => {
      const frame = document.createElement("iframe");
      frame.src = "model/index.html";
      document.body.append(frame);
      for (;;) {
        await new Promise((later) => setTimeout(later, 50));
        const page = frame.contentDocument, state = page?.querySelector("#state");
        if (state && !/^loading/.test(state.textContent)) {
          return [state.className, state.textContent, page.querySelectorAll("tr").length];
        }
      }
    })()"""
    (found,) = answers_in_page(tmp_path, [{"code": code}], browser=browser)
    kind, text, rows = found["value"]
    assert kind == "" and " ms, " in text and rows == 3, text
