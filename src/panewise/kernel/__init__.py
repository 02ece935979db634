"""HOW: pure operators on pages of columns, compiled with numba. No Spark."""
