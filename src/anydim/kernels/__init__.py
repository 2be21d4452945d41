"""Loop IR and the templates that turn groups of comprehensions into it."""
