"""Devices that run kernels besides the host: a driver per kind of device.

Input: calls of entry points (allocate, copy, launch, wait) from host code through a table of slots,
and objects of a target. Output: addresses, work in order, counters, or errors.

    opencl/     devices with an OpenCL driver
    engines/    other inference engines, which run whole subgraphs
"""
