"""Promise: searches run on the machines of a Ray cluster that are like this one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import anydim as ad
from anydim.base import settings
from anydim.compiler.targets.targets import target
from anydim.compiler.variants import ray_search
from anydim.compiler.variants.ledger import ledger, name_of
from anydim.compiler.variants.workers import Order
from tests.unit.compiler.variants.models import depthwise, image
from tests.unit.compiler.variants.test_general_search import dense

ray = pytest.importorskip("ray")
pytestmark = pytest.mark.slow  # a cluster takes 20 s to start


@pytest.fixture(scope="module")
def team() -> Iterator[Any]:
    """A cluster on this machine with two workers."""
    ray.init(num_cpus=2, log_to_driver=False, include_dashboard=False)
    yield ray_search.RayTeam()
    ray.shutdown()


def test_a_cluster_of_two_workers_tunes_a_model(team: Any, tmp_path: Path) -> None:
    assert (team.count, team.machines, team.others) == (2, 1, 0)
    with settings.override(cache_dir=tmp_path / "cache"):
        model, path = depthwise("generic"), tmp_path / "sizes.jsonl"
        with model.record(path):
            model(x=image(9))
        found = model.tune(path, 20.0, team=team)
        kept = ledger(name_of(target("llvm"))).tuned_schedules(model.executable.threads)
    assert found.tried >= 2 and len(found.whole) == len(kept)


def test_what_a_machine_cannot_answer_is_a_reply(team: Any) -> None:
    (recipe,) = dense(threads=1).program.recipes
    made = team.submit(Order(recipe, (4, 7), "llvm")).result(60)
    assert made.made is None
    broken = team.submit(Order(recipe, (1,), "no target")).result(60)
    assert broken.made is None and broken.problem


def test_other_machines_are_left_out(team: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ad.OptionError, match="is llvm"):
        ray_search.run_order(
            Order(dense(threads=1).program.recipes[0], (1,), "llvm"), "another machine"
        )
    monkeypatch.setattr(ray_search, "identity", lambda name: f"{name} elsewhere")
    monkeypatch.setattr(ray_search.RayTeam, "_on", lambda self, node, what: ray.remote(_far))
    with pytest.raises(ad.OptionError, match="none of 1 machines"):
        ray_search.RayTeam()


def _far(name: str) -> str:
    return f"{name} far away"
