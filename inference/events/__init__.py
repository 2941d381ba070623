"""Events, and the data around them. Layers, lowest first:

- `documents`: the documents about events
- `finding`: events in scores, their statistics and top channels
- `metrics`: events against labelled faults
- `what_if`: events at other thresholds
- `timeline`: the figure of all scores
- `reconstruction`: scalograms that the model predicts
- `views`: the data around an event
- `envelope`: envelope spectra of an event of vibration and of its normal neighbours
- `writing`: writes these documents
- `panels`: events as figures
"""
