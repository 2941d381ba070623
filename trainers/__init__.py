"""Training: one loop for both streams and every device. Modules import only modules above them in this list, which has
the lowest first:

- `profiling`: a trace of a few steps
- `elastic`: notes that the processes of a job share
- `distributed`: the processes that train together
- `random_state`: the state of all random generators
- `environment`: the environment of a run, and its device during the run
- `batching`: the global batch size
- `context`: the facts of a run
- `optimizer`: the optimizer and the learning rate
- `strategies`: a single device, DDP or FSDP
- `resuming`: which state to resume, or the initial weights of another run
- `micro_batch`: the search for the micro-batch size
- `objective`: loss and gradients
- `probing`: measures real steps for the search
- `recovery`: from NaN and infinite losses
- `decisions`: sizes chosen for the hardware
- `state`: the content of a checkpoint
- `checkpointer`: the files of checkpoints
- `loop`: the training loop
- `run`: a training from configuration to promoted model
- `estimate`: the duration of a training
- `launching`: starts several processes with torchrun
- `supervising`: restarts a training until it is complete
- `command`: the command line of both entry points
- `slurm_script`: a script for Slurm
- `train_patchtst_ssl`: the entry point for process sensors
- `train_swinmae_ssl`: the entry point for vibration
"""
