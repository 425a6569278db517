"""How certain a fitted model is, by theory and by its rows.

- ``precision``: standard errors of a fit, and the Cramer-Rao bound for planned studies; ``fisher`` has the information
  matrix behind both.
- ``presence``: likelihood-ratio tests of each loading against zero.
- ``bootstrap``: the model fitted again to rows drawn with replacement.
- ``replication``: the model fitted to both halves of the rows, and which MCPCs both find; also the splitting and
  refitting that ``bootstrap`` and the choice of the rank (``_rank``) share.
- ``context_dependence``: whether axes differ between contexts or are in all alike, by ``label_permutation`` of rows in
  one half on axes of the other; ``dependence_result`` is the answer.
- ``held_out``: what a model of one half of the rows says of the other half; ``solver_comparison``: which solver does
  best there.

The first two need a Gaussian model with noise (``solver="ml"``); the others need the rows and work with any solver.
"""
