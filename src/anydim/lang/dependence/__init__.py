"""Which loops of a nest may run in any order, be cut for threads, or keep a few slices only.

In come ordered steps; out go verdicts on loops and axes, ranges to cut along, depths of rings.
"""
