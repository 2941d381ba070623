"""Plants as csv files, in the formats of data historians and spreadsheets."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pandas as pd

from benchmarks.plants.plant import SENSORS, Plant, Signals

START = {"train": pd.Timestamp("2026-03-02 06:00:00"), "test": pd.Timestamp("2026-03-09 06:00:00")}


@dataclass(frozen=True)
class Style:
    """The format of a table. text: adds a column of text, which is not a sensor."""

    separator: str = ","
    decimal: str = "."
    time_column: str = "timestamp"
    time_format: str = "%Y-%m-%d %H:%M:%S"
    missing: str = ""
    text: bool = False


StyleName = Literal["plain", "german", "american"]
STYLES: dict[StyleName, Style] = {
    "plain": Style(),
    "german": Style(";", ",", "Zeit", "%d.%m.%Y %H:%M:%S", "n/a", text=True),
    "american": Style("\t", ".", "Date", "%m/%d/%Y %I:%M:%S %p", "NaN", text=True),
}


def write_plant(plant: Plant, folder: Path, style: Style) -> None:
    """Writes `train_1.csv`, `test_1.csv` and the labels of the latter."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, values in (("train", plant.train), ("test", plant.test)):
        _frame(values, name, style).to_csv(
            folder / f"{name}_1.csv", index=False, sep=style.separator, decimal=style.decimal, na_rep=style.missing
        )
    start, stop = (START["test"] + pd.Timedelta(seconds=row) for row in (plant.start, plant.stop - 1))
    found = pd.DataFrame({"start": [start], "end": [stop], "fault": [plant.fault]})
    found.to_csv(folder / "test_1.labels.csv", index=False)


def _frame(values: Signals, name: str, style: Style) -> pd.DataFrame:
    rows = len(values[SENSORS[0]])
    time_t = pd.date_range(START[name], periods=rows, freq="s").strftime(style.time_format)
    frame = pd.DataFrame({style.time_column: time_t, **{sensor: values[sensor].round(4) for sensor in SENSORS}})
    if style.text:
        frame["operator"] = ["early shift" if row < rows // 2 else "late shift" for row in range(rows)]
    return frame
