"""Reads model files: decodes, cuts and checks them. Nothing in a file is trusted.

Input: a path, bytes or a ModelProto; output: protobuf records, arrays and attributes.
"""
