"""Training: one loop for both streams and every device.

Layers, lowest first; a module imports only from layers above it in this list:

1. profiling, elastic, distributed, random_state, environment
2. context (what a run knows), optimizer, strategies (single device, DDP, FSDP), resuming (or other initial weights),
   micro_batch (which size)
3. objective (loss and gradients), probing (real steps of these sizes)
4. recovery (non-finite losses), decisions (what the hardware decides)
5. state (what a checkpoint holds), checkpointer (files)
6. loop, run, estimate
7. launching, supervising, command, slurm_script, and one entry point per stream
"""
