"""Workloads and peers side by side."""
