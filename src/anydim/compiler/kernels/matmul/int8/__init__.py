"""Products of integers of at most 8 bits: takes a group, returns a launch with int32 sums."""
