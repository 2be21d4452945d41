"""3 x 3 convolutions with a quarter of the products: takes a group, returns a launch."""
