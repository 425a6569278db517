"""How many components: the paper's rule, the test against noise, the criteria and the recommendation."""
