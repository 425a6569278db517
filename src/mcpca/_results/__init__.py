"""What pictures, analyses and reports read from a fit, wherever it is kept."""
