"""What a solution is and says: components and loadings, facets, scores, new contexts, the Gaussian model."""
