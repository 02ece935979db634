"""Pictures of series and their segments; matplotlib, no Spark."""

from panewise.plots import segments

__all__ = ["segments"]
