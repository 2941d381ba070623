"""The geometry of a rolling bearing, and the frequencies of its defects (Randall and Antoni, Rolling element bearing
diagnostics, Mechanical Systems and Signal Processing 2011)."""

from __future__ import annotations

import math

from pydantic import Field

from core.config.fields import Count, Positive, Section


class Bearing(Section):
    """A rolling bearing, whose defect frequencies the dashboard marks."""

    balls: Count = Field(description="Rolling elements.")
    ball_mm: Positive = Field(description="Diameter of a rolling element in mm.")
    pitch_mm: Positive = Field(description="Diameter of the circle through their centres in mm.")
    contact_deg: float = Field(0.0, ge=0.0, lt=90.0, description="Contact angle in degrees.")
    shaft_hz: Positive = Field(description="Turns of the shaft per second.")

    @property
    def _ratio(self) -> float:
        return self.ball_mm / self.pitch_mm * math.cos(math.radians(self.contact_deg))

    @property
    def bpfo(self) -> float:
        """Ball passes over a point of the outer race, per turn of the shaft."""
        return self.balls / 2 * (1 - self._ratio)

    @property
    def bpfi(self) -> float:
        """Ball passes over a point of the inner race, per turn."""
        return self.balls / 2 * (1 + self._ratio)

    @property
    def bsf(self) -> float:
        """Turns of a ball about itself, per turn of the shaft."""
        return self.pitch_mm / (2 * self.ball_mm) * (1 - self._ratio**2)

    @property
    def ftf(self) -> float:
        """Turns of the cage, per turn of the shaft."""
        return (1 - self._ratio) / 2

    def frequencies_hz(self) -> dict[str, float]:
        """Frequencies in Hz of the shaft, and of a defect of each part of the bearing."""
        per_turn = {"cage": self.ftf, "shaft": 1.0, "ball": self.bsf, "outer race": self.bpfo, "inner race": self.bpfi}
        return {name: self.shaft_hz * each for name, each in per_turn.items()}
