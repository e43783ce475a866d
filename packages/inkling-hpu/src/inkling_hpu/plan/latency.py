"""Time of a decode step of Inkling-Small on eight Gaudi 2, as a line through published figures.

    t(B) = t0 + c * B          B streams; two parameters, least squares over four measurements
    interval                   of one more measurement, 95 %, Student's t with n - 2 = 2 degrees of
                               freedom: s * t * sqrt(1 + 1/n + (B - mean)^2 / Sxx)

The measurements are those of another port of this model (vLLM 0.30.0, one run, lengths of the
contexts unknown); nothing of this repository has been timed on a Gaudi. Four points leave no room
for more parameters: neither bytes nor ops nor collectives can be told apart by them.

What fails is the constant c: the time per stream grows with the streams (`slopes`), so that the
line lies below the measurement at both ends. Something per stream grows: work of the host, padding
to buckets, the expert kernel, or unequal contexts; the figures do not say which.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import sqrt
from statistics import linear_regression, mean

RATES: Mapping[int, float] = {1: 43.9, 4: 38.8, 8: 31.2, 16: 21.7}
"""Streams -> tokens per second of each, as published."""

MEASURED: Mapping[int, float] = {streams: 1000 / rate for streams, rate in RATES.items()}
"""Streams -> milliseconds of a step."""

TAIL = 0.025  # of the interval, at either end
STUDENT = (1 - 2 * TAIL) / sqrt(2 * TAIL * (1 - TAIL))  # quantile for two degrees of freedom


@dataclass(frozen=True)
class StepModel:
    """t0, c: parameters in milliseconds. points: what they were fitted to."""

    t0: float
    c: float
    points: Mapping[int, float]

    @classmethod
    def fitted(cls, points: Mapping[int, float] = MEASURED) -> StepModel:
        """Least squares."""
        line = linear_regression(list(points), list(points.values()))
        return cls(line.intercept, line.slope, points)

    def ms(self, streams: int) -> float:
        """Expected time of a step."""
        return self.t0 + self.c * streams

    def residuals(self) -> dict[int, float]:
        """Streams -> model less measurement, ms."""
        return {streams: self.ms(streams) - ms for streams, ms in self.points.items()}

    def interval(self, streams: int) -> tuple[float, float]:
        """Ends of the interval. Two degrees of freedom: for four points only."""
        assert len(self.points) == 4
        centre = mean(self.points)
        spread = sum((point - centre) ** 2 for point in self.points)
        s = sqrt(sum(error**2 for error in self.residuals().values()) / (len(self.points) - 2))
        half = STUDENT * s * sqrt(1 + 1 / len(self.points) + (streams - centre) ** 2 / spread)
        return self.ms(streams) - half, self.ms(streams) + half

    def left_out(self) -> dict[int, float]:
        """Streams -> error in ms of the line through the other points."""
        others = {
            streams: {s: ms for s, ms in self.points.items() if s != streams}
            for streams in self.points
        }
        return {s: StepModel.fitted(others[s]).ms(s) - self.points[s] for s in self.points}

    def slopes(self) -> list[tuple[int, int, float]]:
        """(from, to, measured ms per stream between them): constant if c were."""
        return [
            (a, b, (self.points[b] - self.points[a]) / (b - a)) for a, b in pairwise(self.points)
        ]
