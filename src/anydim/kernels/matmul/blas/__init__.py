"""Matrix products by functions of a library that is not ours, through their addresses."""
