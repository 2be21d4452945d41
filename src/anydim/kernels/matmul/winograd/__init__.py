"""3 x 3 convolutions in a quarter of the products: a group in, a launch with transforms out."""
