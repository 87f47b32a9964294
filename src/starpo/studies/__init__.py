"""Studies: grids of runs under DVC, what each cell came to, and the verdicts on claims written down beforehand."""
