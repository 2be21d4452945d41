"""Workloads and peers side by side. What is measured is generic code where nothing else is said."""

import os

os.environ.setdefault("ANYDIM_STRATEGY", "generic")
