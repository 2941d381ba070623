"""The detector: everything that makes scores and a threshold of errors, fitted to reference data. Layers, lowest first:

- `split_scores`: scores of a split from both components
- `group_scales`: the scale of scores in each group
- `score_table`: the table of scores
- `calibration`: calibration data in halves
- `detector`: the detector as one object
- `file`: its file
- `injected_faults`: faults in copies of reference data
- `model_weight`: the weight of the model, chosen by these faults
- `fitting`: fits a detector
- `fitted_charts`: fits one of the control charts alone
- `stored`: selects the detector for scoring
"""
