"""Copies that permute axes, and functions of them: a group in, in-register transposes out."""
