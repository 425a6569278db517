"""Linear algebra that knows nothing of contexts: eigenvectors, joint diagonalisation, matching of two solutions."""
