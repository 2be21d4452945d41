"""Settings: defaults, environment, scoped overrides, and what happens to nonsense."""

import threading
from pathlib import Path

import pytest

from anydim.base import settings
from anydim.base.errors import OptionError
from anydim.base.text import caret, line_and_column, quote_list, suggestion


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for knob in settings.KNOBS:
        monkeypatch.delenv(f"ANYDIM_{knob.name.upper()}", raising=False)


def test_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    monkeypatch.setenv("LOCALAPPDATA", "/somewhere")
    assert settings.get("cache_dir") == "/somewhere/anydim"
    assert settings.cache_limit_mb == 512
    assert settings.use_cache is True
    assert settings.compile_threads == 0
    assert settings.vector_bits == 0


def test_environment_gives_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANYDIM_CACHE_DIR", "~/mine")
    monkeypatch.setenv("ANYDIM_USE_CACHE", "Off")
    monkeypatch.setenv("ANYDIM_VECTOR_BITS", "256")
    monkeypatch.setenv("ANYDIM_COMPILE_THREADS", "")
    assert settings.cache_dir == str(Path.home() / "mine")
    assert settings.use_cache is False
    assert settings.vector_bits == 256
    assert settings.compile_threads == 0


def test_overrides_nest_and_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANYDIM_VECTOR_BITS", "256")
    with settings.override(vector_bits=512, use_cache=False):
        with settings.override(vector_bits="128"):
            assert (settings.vector_bits, settings.use_cache) == (128, False)
        assert settings.vector_bits == 512
    assert (settings.vector_bits, settings.use_cache) == (256, True)
    with pytest.raises(RuntimeError), settings.override(vector_bits=1):
        raise RuntimeError
    assert settings.vector_bits == 256


def test_an_override_stays_in_its_thread() -> None:
    seen = []
    with settings.override(vector_bits=128):
        thread = threading.Thread(target=lambda: seen.append(settings.vector_bits))
        thread.start()
        thread.join()
    assert seen == [0]


@pytest.mark.parametrize(
    ("name", "value"),
    [("cache_limit_mb", "many"), ("cache_limit_mb", "-1"), ("use_cache", "perhaps")],
)
def test_nonsense_is_refused(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OptionError, match=f"setting '{name}' is '{value}', expected"):
        settings.override(**{name: value}).__enter__()
    monkeypatch.setenv(f"ANYDIM_{name.upper()}", value)
    with pytest.raises(OptionError, match=f"environment variable ANYDIM_{name.upper()} is"):
        settings.get(name)


def test_unknown_names() -> None:
    with pytest.raises(OptionError, match="did you mean 'cache_dir'"):
        settings.get("cache_dri")
    with pytest.raises(AttributeError):
        _ = settings.no_such_knob


def test_every_knob_says_what_it_does() -> None:
    assert all(knob.about.endswith(".") and knob.name.islower() for knob in settings.KNOBS)


def test_text_helpers() -> None:
    assert caret("ab\ncd", 4) == "    cd\n     ^"
    assert caret("", 9, margin="") == "\n^"
    assert line_and_column("ab\ncd", 4) == (2, 2)
    assert suggestion("sec", ("seq", "batch")) == "did you mean 'seq'?"
    assert suggestion("zzz", ("seq",)) == ""
    assert quote_list(("a", "b")) == "'a', 'b'"
    assert quote_list(()) == "none"
