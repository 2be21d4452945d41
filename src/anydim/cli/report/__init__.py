"""What people look at: measurements side by side, figures as text, progress.

Input: times, sizes and names. Output: lines and tables on a console.
"""
