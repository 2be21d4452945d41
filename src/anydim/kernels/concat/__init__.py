"""Element work that differs from range to range of an axis: a group in, a launch of copies out."""
