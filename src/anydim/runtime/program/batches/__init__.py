"""Batching: inputs of different sizes run in groups under a memory limit.

Input: a model, its records, and a list or iterator of inputs. Output: results in the same order.
"""
