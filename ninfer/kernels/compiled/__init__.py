"""Operations of one decode step, compiled by numba. Optional: everything here has a counterpart in plain torch."""
