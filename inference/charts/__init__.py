"""Control charts of both streams. They need no model: they are fitted to reference rows and score new rows.

Layers, lowest first:

- `reference_rows`: reference rows, standardised and divided into folds
- `components`: principal components, and what they leave of a row
- `autoregression`: what the last rows predict of the next one
- `innovations`: what the last rows and the other channels do not predict of a channel
- `operating_context`: similar states of a process, and the usual size of residuals there
- `cross_channel_regression`: what the other channels predict of a channel
- `attribution`: which channels explain its residuals
- `cross_channel`: the chart of its residual by operating context
- `control_charts`: the charts of a process that does not repeat itself
- `process`: the charts of each group of recordings of process sensors
- `vibration_features`: level, spectrum, low-frequency lines and modulation of a window
- `vibration`: the charts of vibration
- `streams`: the charts of either stream, fitted as a configuration says
"""
