"""How many components? One module for each part of the answer, in the order in which they are called.

====================  =====================================================================================
``automatic``         What does ``n_components=None`` do? The entry for ``MCPCA.fit``.
``rank_data``         Which rows, features and contexts does the choice see?
``recommendation``    Which rank is recommended, and why? ``recommend`` runs the three modules below.
``noise_test``        After how many components is nothing left above noise? The upper bound of the rank.
``null_draws``        What would noise look like? Random signs, for ``noise_test``.
``rank_curves``       Which ranks are examined, and what does every criterion say there?
``criteria``          What do halves, seeds, held-out rows and the likelihood say about a rank?
``selection``         The public function ``select_rank``, and its result ``RankSelection``.
``paper_rule``        Apart from all these: the paper's rule, ``choose_rank`` and ``RankChoice``.
====================  =====================================================================================

``automatic_rank`` and ``select_rank`` differ only in their ends: both call ``rank_data`` and ``recommend``, so that the
same data and seed give the same rank, and both hand the ``Recommendation`` to ``selection_from``.

How to add a criterion, for example one named "jackknife" that is reported but does not decide:

1. In ``criteria``, write ``jackknife(whole, ranks, sweep) -> Array`` with one number per rank (m,), NaN where it is not
   known. ``whole.fits[r]`` has the fit of all rows, or None where the rows vary in fewer than r directions. Go through
   ranks by ``sweep.over`` with ``sweep.stage("jackknife", ranks)`` for progress, and take random numbers from
   ``sweep.generator(KEY, r)`` with a new ``KEY``, so that they depend neither on the other ranks nor on threads.
2. In ``selection``, append "jackknife" to ``CRITERIA``, and describe the column in the docstring of ``select_rank``.
3. In ``rank_curves``, let ``Curves.add`` set ``self.columns["jackknife"]`` if it is among ``criteria``.
4. In ``recommendation``, name the column in ``_LARGEST_PASSING``, ``_SMALLEST_VALUE`` or ``_HIGHEST_VALUE`` if the
   criterion alone would choose a rank; a column in none of them has no vote.
5. If its numbers change with the unit of the data, add it to ``RankSelection.times_power``.
6. Test it in ``tests/rank/test_selection.py`` against a slow version written from the definition; add it to the table
   in ``docs/rank.md``, and to a panel in ``plotting/_ranks.py``.
"""
