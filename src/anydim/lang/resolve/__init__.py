"""From surface trees to groups: names, ranks, sizes, ranges, types and order.

In come a definition and the types of its arguments; out goes a group in which every read lies
inside its tensor, by proof, by a guard or by a check, and no element is read before it is written.
"""
