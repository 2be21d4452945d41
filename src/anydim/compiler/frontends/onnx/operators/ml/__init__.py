"""The rows of ai.onnx.ml: learned models and their preprocessing.

Input: a node of that domain; output: nodes of the library. `comparisons.py` rewrites tree nodes to
one form, `slots.py` stores them in tables, `trees.py` has the rows; `scores.py` is the common
postprocessing of classifiers.
"""
