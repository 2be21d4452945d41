"""The comprehension language: text, surface tree, instantiation, printing, evaluation."""
