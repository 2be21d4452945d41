"""The public interface in Python: what `import anydim` offers, and what stands behind each name.

Input: sources (files, modules, graphs, definitions) and options. Output: models. It calls the
compiler, or loads a program that a process compiled before.
"""
