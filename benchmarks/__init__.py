"""Scripts that print the figures that the pages claim."""
