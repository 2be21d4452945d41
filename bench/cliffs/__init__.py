"""Where a size, a form or a type is far slower than its neighbours or than a peer."""
