"""Surface language: the grammar, the surface tree, error texts and printed forms.

Input: the text of definitions or of a group. Output: surface trees and groups, and their texts.
"""
