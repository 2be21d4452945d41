"""How what is in `src` becomes distributions."""
