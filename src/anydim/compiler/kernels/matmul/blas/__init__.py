"""Matrix products by functions of an external library, called through their addresses."""
