"""What all tests share: calls run on one core where a test says nothing else, on every machine.

What somebody tuned here is not taken: tests see the schedules that templates choose. No bodies are
made but where a test asks for a strategy. PoCL shows two devices, for programs on several.
"""

import os

os.environ["OMP_NUM_THREADS"] = "1"
os.environ.setdefault("ANYDIM_TUNED", "0")
os.environ.setdefault("ANYDIM_STRATEGY", "generic")
os.environ.setdefault("ANYDIM_KEEP_PROGRAMS", "0")  # what a test compiles is compiled
os.environ.setdefault("POCL_DEVICES", "pthread pthread")
