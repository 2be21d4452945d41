"""Records of a program: steps, buffers, regions, sizes, and what can be told without running it.

In come launches and formulas from the passes; out go plans, memory formulas and host code's input.

    batches/    many inputs of unlike sizes run in groups that fit a memory limit
    profile/    where the time of calls goes
"""
