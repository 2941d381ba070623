"""The file of a detector: one `.npz` without pickles, with arrays, a JSON header, and the sha256 of both."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tokenize import TokenError
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import TypeAdapter

from core.config.schema import Scoring, Stream
from core.config.scoring import ALARM_SETTINGS
from core.errors import OutputError, first_line
from core.reading import parse_json, refuse_packed
from core.workspace import atomic_file, json_text
from inference.calibrated_threshold import CalibratedThreshold
from inference.detector.detector import Detector
from inference.detector.group_scales import GroupScales
from inference.false_alarms import CalibrationSample

if TYPE_CHECKING:
    from inference.charts.streams import ChartSet

FORMAT_VERSION = 22
_FIT_AGAIN = "`landfall calibrate --from-config` fits a new one to reference data"
# Names in the file.
_OF_CHARTS, _OF_CHARTS_ALONE, _DIGEST, _HEADER = "statistics.", "charts_alone", "sha256", "header"
_THRESHOLD = TypeAdapter(CalibratedThreshold)
# What reading a damaged archive raises; TokenError comes from the parser of the header of an array.
_UNREADABLE = (OSError, ValueError, EOFError, LookupError, TypeError, zipfile.BadZipFile, RuntimeError, TokenError)
# What arrays that do not fit together raise; SystemError comes from NumPy, for text that is not Unicode.
_MISFITS = (LookupError, ValueError, TypeError, AttributeError, ArithmeticError, RuntimeError, SystemError)


def save_detector(detector: Detector, path: Path) -> None:
    arrays = {
        **({} if detector.baseline_c is None else {"baseline_c": detector.baseline_c}),
        **_calibration_arrays("", detector),
        **{_OF_CHARTS + name: array for name, array in detector.charts.to_arrays().items()},
    }
    header = {
        "format_version": FORMAT_VERSION,
        "stream": detector.stream,
        "checkpoint_sha256": detector.checkpoint_sha256,
        "settings": dict(detector.settings),
        "alarm_settings": detector.alarm_settings.model_dump(mode="json", include=ALARM_SETTINGS),
        **_calibration_header(detector),
        "alone": list(detector.own_past),
        "data": dict(detector.data),
        "recordings": list(detector.recordings),
        "made_at": detector.made_at,
        "change": detector.change,
        "model_weight": detector.model_weight,
        "weight_choice": detector.weight_choice,
    }
    if (alone := detector.charts_alone) is not None:
        arrays |= _calibration_arrays(f"{_OF_CHARTS_ALONE}.", alone)
        header[_OF_CHARTS_ALONE] = {"settings": dict(alone.settings), **_calibration_header(alone)}
    arrays[_HEADER] = np.frombuffer(json_text(header).encode("utf-8"), dtype=np.uint8)
    arrays[_DIGEST] = np.array(_digest(arrays))
    with atomic_file(path) as part, part.open("wb") as file:
        np.savez(file, **arrays)


def load_detector(path: Path) -> Detector:
    """Raises OutputError for a file that is missing, damaged, or of a version that cannot be read."""
    try:
        with path.open("rb") as file:
            refuse_packed(file)
            with np.load(file, allow_pickle=False) as held:
                arrays = dict(held)
        digest = str(arrays.pop(_DIGEST))
        header = parse_json(arrays[_HEADER].tobytes())
        version = header["format_version"]
    except _UNREADABLE as error:
        raise _Unusable(path, f"cannot be read: {first_line(error)}") from error
    if version != FORMAT_VERSION:
        raise _Unusable(path, f"has format version {version}, this Landfall reads {FORMAT_VERSION}", hint=_FIT_AGAIN)
    if digest != _digest(arrays):
        raise _Unusable(path, "is damaged or was changed: its sha256 differs from the stored one")
    try:
        detector = _detector(header, arrays)
        _try_out(detector)
        return detector
    except _MISFITS as error:
        raise _Unusable(path, f"is not a detector: {first_line(error)}") from error


def load_stored(path: Path) -> tuple[Detector | None, str]:
    """The detector of a file, or None and the reason."""
    if not path.is_file():
        return None, f"there is no {path.name} yet"
    try:
        return load_detector(path), ""
    except OutputError as error:
        return None, error.message


class _Unusable(OutputError):
    def __init__(self, path: Path, problem: str, *, hint: str = "remove it; scoring fits a new one to reference data"):
        super().__init__(f"detector {path}: {problem}", hint=hint)


def _detector(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Detector:
    charts = {name.removeprefix(_OF_CHARTS): array for name, array in arrays.items() if name.startswith(_OF_CHARTS)}
    detector = Detector(
        stream=header["stream"],
        checkpoint_sha256=header["checkpoint_sha256"],
        settings=header["settings"],
        alarm_settings=Scoring(**header["alarm_settings"]),
        baseline_c=arrays.get("baseline_c"),
        charts=_chart_set(header["stream"]).from_arrays(charts),
        own_past=tuple(header["alone"]),
        data=header["data"],
        recordings=tuple(header["recordings"]),
        made_at=header["made_at"],
        change=header["change"],
        model_weight=header["model_weight"],
        weight_choice=header["weight_choice"],
        **_calibration("", header, arrays),
    )
    if (alone := header.get(_OF_CHARTS_ALONE)) is None:
        return detector
    calibration = _calibration(f"{_OF_CHARTS_ALONE}.", alone, arrays)
    return replace(detector, charts_alone=charts_alone(detector, settings=alone["settings"], **calibration))


def _try_out(detector: Detector) -> None:
    """Raises an error for arrays and settings that do not fit together, before scoring fails with it."""
    for each in (detector, *([detector.charts_alone] if detector.charts_alone else [])):
        span = each.settings["scoring.smoothing_span"]
        if type(span) is not int or span < 1:
            raise ValueError(f"scoring.smoothing_span is {span!r}")
        for sample in (each.sample, *(each.halves or ())):
            if sample.score_n.dtype.kind != "f" or sample.segment_n.dtype.kind != "i" or sample.score_n.ndim != 1:
                raise ValueError("its calibration scores are not a list of numbers")
            if sample.score_n.shape != sample.segment_n.shape:
                raise ValueError("its calibration scores and their segments differ in number")
    if detector.baseline_c is not None and (detector.baseline_c.ndim != 1 or detector.baseline_c.dtype.kind != "f"):
        raise ValueError("its baseline is not a list of numbers")
    with np.errstate(all="ignore"):
        detector.charts.try_out()


def _chart_set(stream: Stream) -> type[ChartSet]:
    """Imported by stream: the charts of process sensors need no torch."""
    if stream == "patchtst":
        from inference.charts.process import ProcessChartSet

        return ProcessChartSet
    from inference.charts.vibration import VibrationChartSet

    return VibrationChartSet


def charts_alone(detector: Detector, **own: Any) -> Detector:
    """The detector of the same charts without the model. own: its `settings`, `scales`, `sample`, `halves` and
    `threshold`."""
    return replace(
        detector,
        checkpoint_sha256=None,
        baseline_c=None,
        charts_alone=None,
        model_weight=0.0,
        weight_choice=None,
        **own,
    )


# ---------------------------------------------------------------------------------------------------------- calibration
def _calibration_arrays(prefix: str, detector: Detector) -> dict[str, np.ndarray]:
    samples = {"": detector.sample, **{f"half.{number}.": half for number, half in enumerate(detector.halves or ())}}
    return {
        **{f"{prefix}{of}sample_n": sample.score_n for of, sample in samples.items()},
        **{f"{prefix}{of}segment_n": sample.segment_n for of, sample in samples.items()},
        f"{prefix}level_g": np.array(list(detector.scales.scale.values()), dtype=np.float32),
        f"{prefix}usual_level": detector.scales.usual,
    }


def _calibration_header(detector: Detector) -> dict[str, Any]:
    samples = (detector.sample, *(detector.halves or ()))
    return {
        "threshold": detector.threshold.to_json(),
        "seconds_per_score": [each.seconds_per_score for each in samples],
        "chart_mean": [each.chart_mean for each in samples],
        "margin": [each.margin for each in samples],
        "span": detector.sample.span,
        "changed": list(detector.sample.changed),
        "groups": list(detector.scales.scale),
    }


def _calibration(prefix: str, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """`scales`, `sample`, `halves` and `threshold` of a detector."""
    seconds_of = TypeAdapter(list[float | None]).validate_python(header["seconds_per_score"])
    mean_of, margin_of = (TypeAdapter(list[float]).validate_python(header[name]) for name in ("chart_mean", "margin"))
    sample, *halves = (
        CalibrationSample(
            score_n=arrays[f"{prefix}{of}sample_n"],
            segment_n=arrays[f"{prefix}{of}segment_n"],
            seconds_per_score=seconds,
            span=header["span"],
            chart_mean=mean,
            margin=margin,
        )
        for of, seconds, mean, margin in zip(("", "half.0.", "half.1."), seconds_of, mean_of, margin_of, strict=False)
    )
    sample = replace(sample, changed=tuple(header["changed"]))
    scale = dict(zip(header["groups"], arrays[f"{prefix}level_g"], strict=True))
    return {
        "scales": GroupScales(scale, arrays[f"{prefix}usual_level"][()]),
        "sample": sample,
        "halves": tuple(halves) or None,
        "threshold": _THRESHOLD.validate_python(header["threshold"]),
    }


def _digest(arrays: Mapping[str, np.ndarray]) -> str:
    found = hashlib.sha256()
    for name in sorted(arrays):
        array = np.asarray(arrays[name])
        found.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()
