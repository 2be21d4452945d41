"""Kernels for NVIDIA's devices, as cubins: CUDA C++ by NVRTC, which needs no device and no toolkit.

In come kernels in loop IR; out go texts, and cubins for an architecture (sm_80, sm_90, sm_100).
"""
