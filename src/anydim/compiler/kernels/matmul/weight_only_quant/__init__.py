"""Matrix products with weights of 4 or 8 bits, read at that width."""
