"""Piecewise elementwise work along an axis (concatenation, padding): group in, launch of copies
out."""
