"""Dependence analysis: which loops may be reordered or split over threads; ring buffer depths.

Input: ordered steps. Output: verdicts on loops and axes, ranges to split along, depths of rings.
"""
