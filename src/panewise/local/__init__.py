"""A plan in one process: on Arrow, pandas and polars tables. No Spark."""
