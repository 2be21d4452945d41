"""The rows of ai.onnx.ml: models that were learned, and what makes columns ready for them.

In comes a node of that domain; out go nodes of the library. `comparisons.py` writes the nodes of
trees in one form, `slots.py` puts them into tables, `trees.py` has the rows; `scores.py` is what
all classifiers do with their sums.
"""
