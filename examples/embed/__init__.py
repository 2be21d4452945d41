"""Sentences encoded by a C program, with MiniLM exported to C."""
