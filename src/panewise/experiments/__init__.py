"""Published experiments, run again: each part gives the rows of a table, and draws its picture."""
