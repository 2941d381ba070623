"""Training: one loop for both streams and every device.

Layers, lowest first; a module imports only from layers above it in this list:

1. profiling, elastic, distributed, random_state, environment, batching
2. context (facts of a run), optimizer, strategies (single device, DDP, FSDP), resuming (or initial weights of another
   run), micro_batch (the search for its size)
3. objective (loss and gradients), probing (measures real steps for that search)
4. recovery (from NaN and infinite losses), decisions (sizes chosen for the hardware)
5. state (the content of a checkpoint), checkpointer (its files)
6. loop, run, estimate
7. launching, supervising, command, slurm_script, and one entry point per stream
"""
