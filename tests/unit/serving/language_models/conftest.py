"""A tiny model of Llama, as a folder and opened; a file of tests may have another folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import anydim as ad
from anydim.serving.language_models.language_model import LanguageModel
from tests.unit.serving.language_models.tiny_models import write_folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("lm") / "tiny")


@pytest.fixture(scope="module")
def lm(folder: Path) -> Iterator[LanguageModel]:
    with ad.language_model(folder, threads=1) as model:
        yield model
