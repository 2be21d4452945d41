"""What all tests share: calls run on one core where a test says nothing else, on every machine."""

import os

os.environ["OMP_NUM_THREADS"] = "1"
