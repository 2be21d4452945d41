"""Sums of products of bytes: a group over integers in, a launch that adds up in int32 out."""
