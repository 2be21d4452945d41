"""CUDA kernels as cubins: CUDA C++ compiled by NVRTC, which needs neither device nor toolkit.

Input: kernels in loop IR. Output: texts, and cubins for an architecture (sm_80, sm_90, sm_100).
"""
