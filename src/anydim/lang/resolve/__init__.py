"""From surface trees to groups: names, ranks, sizes, ranges, types and order.

Input: a definition and the types of its arguments. Output: a group in which every read is proved,
guarded or checked to be in bounds, and no element is read before it is written.
"""
