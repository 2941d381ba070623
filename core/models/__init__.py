"""The two models. Layers, lowest first; each module imports only modules above it in this list:

- `positions`: initial values of learned positions
- `blocks`: runs blocks, with or without gradient checkpointing
- `normalisation`: batch normalisation that does not depend on the batch size
- `masking`: masks, loss and inpainting, for both models
- `visible_windows`: window attention between visible patches
- `patchtst`: PatchTST-SSL
- `swinmae`: Swin-MAE
- `skill`: comparison with the mean input
- `factory`: builds the model of a configuration
"""
