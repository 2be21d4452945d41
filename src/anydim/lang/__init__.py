"""The comprehension language: grammar, trees, range inference, numpy evaluator."""
