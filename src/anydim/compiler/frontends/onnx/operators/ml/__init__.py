"""The rows of ai.onnx.ml: learned models and their preprocessing.

Input: a node of that domain; output: nodes of the library. `trees.py` has the rows of tree
ensembles, whose tables `tree_tables.py` makes; `linear.py` also has the postprocessing of all
classifiers.
"""
