"""Convolutions: takes a group, returns a launch whose panels of B are windows of x."""
