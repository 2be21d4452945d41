"""A Ray cluster of two workers on this machine; without Ray these tests are skipped."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.unit.serving.models import encoder, images

collect_ignore_glob = [] if find_spec("ray") else ["test_*.py"]


@pytest.fixture(scope="session")
def cluster() -> Iterator[Any]:
    """Ray, running."""
    ray = pytest.importorskip("ray")
    pytest.importorskip("ray.serve")
    pytest.importorskip("ray.data").DataContext.get_current().enable_progress_bars = False
    ray.init(
        num_cpus=4, include_dashboard=False, log_to_driver=False, object_store_memory=100 << 20
    )
    yield ray
    ray.shutdown()


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with saved models."""
    path = tmp_path_factory.mktemp("models")
    encoder().save(path / "encoder.anydim")
    images().save(path / "images.anydim")
    return path
