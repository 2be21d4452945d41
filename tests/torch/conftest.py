"""Tests of the torch frontend: skipped without torch, which sets variables when it exports."""

import os
import tempfile

os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", tempfile.gettempdir())
