"""What people look at: measurements side by side, figures as text, progress."""
