"""Sensor data: from files to batches of windows.

A file is read, cleaned, measured and resampled once (`ingest`); the result is kept on disk (`store`). `dataset` checks
its quality, assigns its rows to splits, fits the scaler and cuts windows; `feed` and `inputs` pass them to a model.

Layers, lowest first; each module imports only modules above it in this list:

- `blocks`: arrays larger than memory
- `medians`: exact medians and percentiles of such arrays
- `recording`: values and times of one measurement
- `segments`: row ranges without a gap
- `sentinels`: values that stand for "no value"
- `files`: names and first bytes of sensor files
- `sidecars`: facts about a file, such as its declared sampling rate
- `in_use`: which streams and splits have data
- `store_entries`: folders of arrays, written completely or not at all
- `quality`: rules, limits and reports
- `timestamps`: text and numbers to nanoseconds
- `arrays`: npy and npz files
- `dialects`: encoding, delimiter and decimal sign of csv files
- `tables`: csv and parquet files in blocks
- `channels`: which columns are channels
- `sampling`: the sampling rate of time stamps, and even times
- `readers`: files to recordings
- `annotations`: time spans that a user labelled on the dashboard
- `operating_points`: shaft speed and load of a recording of vibration, from its sidecar
- `labels`: labels, for evaluation
- `cleaning`: rows in order of time, and their gaps
- `quality_metrics`: what the rules of quality are applied to
- `resampling`: one sampling rate for all
- `ingest`: reading, cleaning, measuring and resampling of one file
- `scaling`: centre and scale of each channel
- `store`: files after ingest, on disk
- `windows`: windows over concatenated recordings
- `courses`: whether recordings are runs of the same recipe
- `splits`: which rows belong to which split
- `counters`: channels that only increase
- `scalogram`: images of vibration
- `figures`: tables and figures of a split, for notebooks
- `dataset`: the data of a stream
- `identity`: digests of a split, to detect changed data
- `overlap`: rows that two splits share
- `feed`: batches on the device
- `inputs`: the input of a model
"""
