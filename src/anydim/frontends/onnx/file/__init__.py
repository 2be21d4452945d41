"""A model file as it lies: read, cut, decoded, checked. Nothing in it is trusted.

In come a path, bytes or a ModelProto; out go protobuf records, arrays and attributes.
"""
