"""Constants of the control charts.

Unless a comment says otherwise, a value was chosen with the labels of the development sets. dev/LOG.md, "Constants
chosen on other data sets", contains the effect of each constant, and the loss without labels of the evaluated set.
"""

from __future__ import annotations

from pydantic import Field

from core.config.fields import Count, Fraction, Positive, Ratio, Section


class ProcessCharts(Section):
    """Control charts of process sensors (`inference.charts.control_charts`)."""

    lags: Count = Field(
        6, description="Process sensors: number of previous rows of all channels that predict the next row."
    )
    residual_floor: Positive = Field(
        0.1, description="Process sensors: minimum reference residual, in standard deviations of its channel."
    )
    cusum_spans: Positive = Field(1.5, description="Process sensors: memory of the CUSUM, in smoothing spans.")
    cusum_share: Fraction = Field(
        0.4,
        description="Process sensors: weight of the CUSUM, as a share of the weight that is left after that of the "
        "principal components.",
    )
    components_spans: Positive = Field(
        3.0, description="Process sensors: memory of the chart of principal components, in smoothing spans."
    )
    components_share: Fraction = Field(
        0.8, description="Process sensors: weight of the chart of principal components, if the process does not drift."
    )
    tolerated_drift: Positive = Field(
        1.5,
        description="Process sensors: above this drift of the reference rows, the weights of the principal components "
        "and of the range of a channel decrease with the fourth power of the drift.",
    )
    cross_channel_limit: Positive = Field(
        6.0,
        description="Process sensors: limit of a squared residual of the regression on other channels, in units of its "
        "mean in the reference data. The chart is a moving average of them.",
    )
    shared_weight: float = Field(
        3.0,
        ge=0.0,
        description="Process sensors: weight of the part of the residuals that channels share, relative to its 99 % "
        "quantile in reference data.",
    )
    recurrence: Ratio = Field(
        0.8,
        description="Process sensors: share of the change of a process that similar rows at other times must predict "
        "for `scoring.operating_context: auto` to use the context. Recipes have .9, other processes .2 to .7.",
    )


class VibrationCharts(Section):
    """Control charts of vibration (`inference.charts.vibration`)."""

    bands: Count = Field(64, description="Vibration: bands of the log spectrum.")
    carriers: Count = Field(8, description="Vibration: bands whose envelopes are analysed for modulation.")
    level_weight: float = Field(
        0.7, ge=0.0, description="Vibration: weight of the overall level; that of the spectrum is 1."
    )
    excess_weight: float = Field(
        1.0,
        ge=0.0,
        description="Vibration: weight of distances of spectrum, lines or modulation that exceed all reference "
        "distances.",
    )
    shrinkage: Positive = Field(
        0.05, description="Vibration: value added to the diagonal of the correlation matrix of the features."
    )
    deviation_floor: Positive = Field(
        0.02,
        description="Vibration: minimum standard deviation of a feature (log power); 0.02 is 1 % of the amplitude.",
    )


class Charts(Section):
    """Constants of the control charts of both streams."""

    process: ProcessCharts = Field(ProcessCharts(), description="Control charts of process sensors.")
    vibration: VibrationCharts = Field(VibrationCharts(), description="Control charts of vibration.")
