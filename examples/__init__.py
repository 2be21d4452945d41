"""Programs that show anydim at work; run them from the project's root folder."""
