"""A smooth random function of time: a sum of sines, the same wherever a block begins."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["Waves"]


@dataclass(frozen=True, slots=True)
class Waves:
    """value(t) = sum of height * sin(2 pi t / period + phase).

    >>> float(Waves(np.array([2.0]), np.array([8.0]), np.array([0.0])).at(np.array([2.0]))[0])
    2.0
    """

    height: np.ndarray
    period: np.ndarray
    phase: np.ndarray

    @staticmethod
    def draw(rng: np.random.Generator, height: np.ndarray, period: np.ndarray) -> Waves:
        """Sines of about these heights and periods (in seconds)."""
        return Waves(height, period * rng.uniform(0.8, 1.25, len(period)), rng.uniform(0, 2 * np.pi, len(period)))

    def at(self, seconds: np.ndarray) -> np.ndarray:
        """Its values."""
        total = np.zeros_like(seconds)
        for height, period, phase in zip(self.height, self.period, self.phase, strict=True):
            total += height * np.sin(2 * np.pi / period * seconds + phase)
        return total

    def first(self, terms: int) -> Waves:
        """Its first terms alone."""
        return Waves(self.height[:terms], self.period[:terms], self.phase[:terms])

    def fastest(self) -> float:
        """A bound of its change per second."""
        return float((2 * np.pi * self.height / self.period).sum())
