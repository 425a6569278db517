"""How sure: standard errors, tests of presence, resampling, halves of the rows."""
