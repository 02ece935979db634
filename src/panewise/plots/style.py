"""How pictures look."""

from __future__ import annotations

from typing import Any

__all__ = ["BLUE", "DOTS", "GREY", "ORANGE", "RED", "STYLE", "TEXT"]

BLUE, RED, ORANGE, GREY, TEXT = "#1f4e79", "#b23a48", "#f0a04b", "#d5dade", "#333333"
DOTS = 150
"""Dots per inch."""
STYLE: dict[Any, Any] = {
    "font.size": 8,
    "text.color": TEXT,
    "axes.labelcolor": TEXT,
    "axes.edgecolor": "#b5b5b5",
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": "#6f6f6f",
    "ytick.color": "#6f6f6f",
    "xtick.labelcolor": TEXT,
    "ytick.labelcolor": TEXT,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "hatch.linewidth": 0.6,
    "figure.dpi": DOTS,
    "savefig.dpi": DOTS,
}
