"""Advantages, losses, filters and divergences as pure functions.

Arrays in, arrays out: nothing here reads a file, a parameter tree, a logger or an engine. One concept per
file.

Shared conventions, not repeated in every docstring:

* ``B`` rows (trajectories, or chains of one), ``T`` token columns, ``K`` turns, ``N`` trajectories.
* ``mask``: bool [B, T], True on tokens the policy sampled (the loss mask). Whatever lies outside it, NaN
  included, changes neither a value nor a gradient.
* ``logp``, ``old_logp``, ``ref_logp``: float [B, T], natural-log probability of the token in its own column.
* ``turn_index``: int64 [B, T], the 0-based turn of each sampled token; any value where ``mask`` is False.
* ``turn_rewards``: float [B, K] and ``turn_mask``: bool [B, K], True where the row has that turn.
* Advantages and returns are 0 where ``mask`` is False.
"""
