"""Scores, thresholds and events. Modules import only modules above them in this list, which has the lowest first:

- `metrics`: scores against labels
- `running`: means, sums and errors along rows that come in pieces
- `alarms`: joins alarms to events and bursts
- `false_alarms`: scores of normal data, and the false alarms of a threshold on them
- `calibrated_threshold`: a threshold, and the false alarms to expect in words
- `thresholds`: sets the threshold by scores of normal data
- `groups`: which recordings are scored together
- `charts`: control charts, which need no model
- `entries`: the entries of a split that get a score
- `predictor`: what a monitor needs of a model, with PyTorch or without
- `scoring`: a trained model, ready to score
- `detector_graph`: scaling, scalogram and model as one graph
- `model_errors`: errors of the model on a split
- `detector`: everything that is fitted to reference data
- `events`: events in scores, and the data around them as figures and documents
- `masked_example`: a window with a random mask, and what the model predicts
- `provenance`: the inputs of scores
- `summary`: the summary of a scoring
- `score_text`: the summary as text
- `run_scoring_example`: the command `landfall score`
- `recalibrate`: the command `landfall calibrate`
- `export_model`: the command `landfall export-model`
- `watch`: monitoring as it happens, and the command `landfall watch`
"""
