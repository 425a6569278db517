"""How many components, and which? One module for each part of the answer, in the order in which they are called.

======================  ===================================================================================
``automatic``           What does ``n_components=None`` do? The entry for ``MCPCA.fit``.
``rank_data``           Which rows, features and contexts does the choice see?
``recommendation``      Which rank is recommended, and why? ``recommend`` runs the modules below.
``noise_test``          After how many components is nothing left above noise? The upper bound of the rank.
``noise_levels``        What is left after r directions, and how much of it would noise have?
``noise_scale``         In which units is noise alike in all features and contexts?
``noise_units``         And in which once directions are known?
``residual_sums``       What do all ranks share of what is left after r directions?
``noise_law``           What would noise look like? In closed form.
``null_draws``          And where that does not hold? Random signs, for ``noise_test``.
``shared_axes``         Which axes do all contexts share, though they are weak in each?
``single_contexts``     Which directions stand out in one context only?
``leading_directions``  How is noise told where covariances of all features would be too large?
``grouped_rows``        What is noise if rows are in groups?
``rank_curves``         Which ranks are examined, and what does every criterion say there?
``sample_fits``         What is fitted to a set of rows, at any rank, by the solver of the model?
``halves``              Do halves of the rows find the same components?
``criteria``            What do seeds, held-out rows and the likelihood say about a rank?
``evidence``            What is known of each component, and which are recommended?
``selection``           The public function ``select_rank``, and its result ``RankSelection``.
``paper_rule``          Apart from all these: the paper's rule, ``choose_rank`` and ``RankChoice``.
======================  ===================================================================================

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
