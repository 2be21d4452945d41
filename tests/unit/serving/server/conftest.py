"""A server with two models for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.serving.models import encoder, images


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with saved models."""
    path = tmp_path_factory.mktemp("models")
    encoder().save(path / "encoder.anydim")
    images().save(path / "images.anydim")
    return path


@pytest.fixture(scope="session")
def server(folder: Path) -> Iterator[Any]:
    """A running server of that folder."""
    for package in ("starlette", "uvicorn", "httptools", "grpc", "google.protobuf"):
        pytest.importorskip(package)
    from tests.unit.serving.server.running import running

    with running(str(folder), "--memory", "600MiB", "--batch", "images=batch") as made:
        yield made
