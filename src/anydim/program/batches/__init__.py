"""Calls put together: many inputs of unlike sizes run in groups that fit a memory limit.

In come a model, its records and a list or an iterator of inputs; out go results in the same order.
"""
