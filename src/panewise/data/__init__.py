"""Made-up streams of any size, the same rows for the same seed; no Spark."""

from panewise.data import dye, router, soccer, traffic

__all__ = ["dye", "router", "soccer", "traffic"]
