"""Control charts of both streams. They need no model: they are fitted to reference rows and score new rows.

Layers, lowest first:

- `reference_rows`: reference rows, standardised and divided into folds
- `switches`: which channels are scored where commands are among them
- `components`: residuals of principal components
- `reference_range`: the range of each channel, and distances from it
- `first_rows`: how much larger errors are where the past is not known
- `autoregression`: predicts a row from the rows before it
- `innovations`: the part of a channel that neither the last rows nor the other channels predict
- `operating_context`: similar states of a process, and the usual size of residuals there
- `cross_channel_regression`: predicts a channel from the other channels
- `attribution`: the channels that an event comes from, by this regression
- `cross_channel`: the chart of these residuals by operating context
- `control_charts`: the charts of a process that does not repeat itself
- `process`: the charts of each group of recordings of process sensors
- `vibration_features`: level, spectrum, low-frequency lines and modulation of a window
- `operating_point`: the features that are expected at a shaft speed and load
- `vibration`: the charts of vibration
- `streams`: the charts of either stream, fitted as a configuration says
"""
