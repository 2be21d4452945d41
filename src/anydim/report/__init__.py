"""What people look at: measurements side by side, figures as text, progress.

In come times, sizes and names; out go lines and tables on a console.
"""
