"""One kernel at a time against the same operator of peers."""
