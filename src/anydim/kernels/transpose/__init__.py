"""Copies that exchange axes, and functions of them: a group in, squares in registers out."""
