"""What a user writes: the grammar, the surface tree, the texts of errors and printed forms.

In comes the text of definitions or of a group; out go surface trees and groups, and texts of them.
"""
