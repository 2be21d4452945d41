"""Passes: graph -> graph, then graph -> program. `compiler.py` lists them in order."""
