"""What every room needs: errors, settings, element types, immutable values."""
