"""Records of a program - steps, buffers, regions, sizes - and the reports derived from them.

Input: launches and formulas from the passes. Output: plans, memory formulas, input for host code
generation.

    batches/    batching of inputs with different sizes under a memory limit
    profile/    profiles and traces of calls
"""
