"""Where and how a run computes: devices, precision, memory, processes and limits.

Part of `core.config.schema`. Nothing here imports torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator

from core.config.fields import Contradiction, Count, CountOrAuto, Positive, Ratio, Section
from core.config.variables import may_be_set
from core.secrets.names import has_secret_word


def _as_text(value: Any) -> Any:
    """YAML reads `precision: 32` as a number."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _as_preference(value: Any) -> Any:
    """`cuda` is the name of `gpu` in PyTorch and JAX."""
    return "gpu" if value == "cuda" else value


def _as_number_of_devices(value: Any) -> Any:
    """A device's name is a frequent mistake: the number of devices and their kind are two keys."""
    if isinstance(value, str) and value in ("cpu", "gpu", "cuda", "tpu", "mps", "xpu"):
        raise ValueError(f"{value!r} is not a number of devices; choose the device with device.prefer={value}")
    return value


DeviceKind = Literal["tpu", "cuda", "mps", "xpu", "cpu"]
Precision = Literal["32", "16-mixed", "bf16-mixed"]
PrecisionChoice = Annotated[Literal["auto", Precision], BeforeValidator(_as_text)]

TPU_BATCH_FACTOR = 128
# Share of a device's memory that each strategy may take.
MEMORY_FRACTIONS = {"conservative": 0.60, "balanced": 0.75, "aggressive": 0.90}
# The largest number of parameters each strategy is for; a small model leaves the memory to others.
_STRATEGY_BY_PARAMETERS = ((1_000_000, "conservative"), (100_000_000, "balanced"), (float("inf"), "aggressive"))


class Memory(Section):
    strategy: Literal["conservative", "balanced", "aggressive", "custom", "auto"] = Field(
        "balanced",
        description="Share of the memory of the device that a run may use: 60 %, 75 %, 90 %, or `custom` with "
        "`fraction`. `auto` chooses by the size of the model: `conservative` below a million parameters, `balanced` "
        "below a hundred million, `aggressive` from there on.",
    )
    fraction: Ratio | None = Field(None, description="The share with `custom`; otherwise empty.")

    def contradictions(self) -> Iterator[Contradiction]:
        if (self.strategy == "custom") != (self.fraction is not None):
            yield Contradiction(
                f"strategy = {self.strategy} with fraction = {self.fraction}: custom needs one, others none",
                ("strategy", "fraction"),
            )

    @property
    def share(self) -> float:
        """The share that applies; that of `balanced` with `auto`, until the model is known."""
        return self.fraction if self.fraction is not None else MEMORY_FRACTIONS.get(self.strategy, 0.75)

    def for_model(self, num_parameters: int) -> Memory:
        """The settings with the strategy that suits a model of this size."""
        return Memory(strategy=next(name for bound, name in _STRATEGY_BY_PARAMETERS if num_parameters < bound))


class Device(Section):
    """The hardware that a run uses, and how."""

    prefer: Annotated[Literal["auto", "cpu", "gpu", "tpu", "mps", "xpu"], BeforeValidator(_as_preference)] = Field(
        "auto",
        description="Device to use; `auto` takes the first of `order` that passes a real operation, `gpu` (or `cuda`) "
        "the first of them that is a GPU. If it is missing, the next best is used, with a warning.",
    )
    order: tuple[DeviceKind, ...] = Field(
        ("tpu", "cuda", "mps", "xpu", "cpu"),
        description="Priority of the platforms; the CPU is always available, and last.",
    )
    strict: bool = Field(False, description="A preferred device or a profile that does not fit is an error.")
    allow_tpu: bool | None = Field(
        None,
        description="Whether a TPU may be used. `true`: by `auto` too; `false`: never; empty: only if `prefer` names "
        "it.",
    )
    tpu_batch_factor: Count = Field(
        TPU_BATCH_FACTOR,
        description="Factor of the batch size on a TPU. The batch sizes of the tiers for TPUs are for a factor of "
        f"{TPU_BATCH_FACTOR}, and scale with it.",
    )
    prefer_cuda: bool = Field(
        True, description="Whether a CUDA GPU may be used; `false` excludes it, regardless of `prefer`."
    )
    amp: bool = Field(True, description="Allow mixed precision; `false` computes in fp32, whatever `precision` is.")
    enable_jit: bool = Field(False, description="Compile the model with torch.compile.")
    enable_x64: bool = Field(False, description="Compute in float64.")
    memory: Memory = Field(Memory(), description="Memory limit of a run.")
    environment: dict[str, str] = Field(
        {},
        description="Environment variables set before the hardware is initialised, such as NCCL_DEBUG; only those in "
        "`core/config/variables.py`, which name no file and load no code.",
    )

    def contradictions(self) -> Iterator[Contradiction]:
        if self.prefer == "tpu" and self.allow_tpu is False:
            yield Contradiction(
                "prefer = tpu, but allow_tpu = false excludes TPUs; change one of the two", ("prefer", "allow_tpu")
            )

    @property
    def may_use_tpu(self) -> bool:
        return self.allow_tpu if self.allow_tpu is not None else self.prefer == "tpu"

    @field_validator("environment")
    @classmethod
    def _holds_no_secret_and_only_allowed_names(cls, environment: dict[str, str]) -> dict[str, str]:
        if secret := next(filter(has_secret_word, environment), None):
            raise ValueError(f"{secret} looks like a secret, and configurations are saved: export it instead")
        if refused := [name for name in environment if not may_be_set(name)]:
            raise ValueError(f"{', '.join(refused)}: a configuration may not set this variable; export it yourself")
        return environment


class Hardware(Section):
    """What a device profile was made for."""

    kind: DeviceKind | None = Field(None, description="Platform; empty fits any.")
    memory_gb: float = Field(0.0, ge=0.0, description="Minimum memory of one device, in GB.")
    compute_capability: float = Field(0.0, ge=0.0, description="Minimum CUDA compute capability.")
    session_hours: Positive | None = Field(
        None, description="Maximum session time of the platform; a longer `timeout_hours` is reported. Empty: no limit."
    )


class Profile(Section):
    """A device profile: the keys of `configs/local/devices/*.yaml`."""

    devices: Annotated[CountOrAuto, BeforeValidator(_as_number_of_devices)] = Field(
        1, description="Number of devices to train on, one process each; `auto` takes all of the kind."
    )
    precision: PrecisionChoice = Field(
        "auto", description="Precision; `auto` uses bf16 only where the hardware supports it natively."
    )
    deterministic: bool = Field(
        True,
        description="The same command gives the same numbers on the same hardware. An operation without a "
        "deterministic implementation is an error, and `cudnn_benchmark` has no effect.",
    )
    cudnn_benchmark: bool = Field(
        False, description="cuDNN benchmarks its kernels and uses the fastest; no effect with `deterministic`."
    )
    seed: int = Field(42, ge=0, description="Seed of weights, shuffling and masks, each from its own generator.")
    numpy_seed: int | None = Field(None, ge=0, lt=2**32, description="Seed of NumPy; empty: derived from `seed`.")
    pythonhashseed: int | None = Field(
        None,
        ge=0,
        lt=2**32,
        description="PYTHONHASHSEED of the process; empty: not changed. Commands restart themselves to set it.",
    )
    timeout_hours: Positive | None = Field(
        None, description="Wall-time limit of the process; a checkpoint is saved before it and the run exits with 75."
    )
    max_threads: int = Field(
        0,
        ge=0,
        description="Maximum number of CPU threads; 0 uses all but one of the cores available to the process, up to "
        "OMP_NUM_THREADS.",
    )
    tune: bool = Field(
        True,
        description="Let the process keep freed memory for later allocations: steps on a CPU take less time, with the "
        "same results.",
    )
    gradient_clip_val: float = Field(1.0, ge=0.0, description="Maximum gradient norm; 0 does not clip.")
    log_device_info: bool = Field(True, description="Report device, memory, batch and model at the start of a run.")
    profile_runtime: bool = Field(
        False, description="Write a torch profiler trace of the first steps to the run's folder."
    )
    hardware: Hardware = Field(Hardware(), description="What the profile was made for; a mismatch is reported.")


class Distributed(Section):
    """How several processes train one model."""

    strategy: Literal["none", "ddp", "fsdp"] = Field(
        "ddp",
        description="With more than one device: `ddp` starts one process per device; `fsdp` does too, and shards the "
        "weights, for models that do not fit on one device; `none` uses the first device only.",
    )
    nodes: Count = Field(1, description="Number of machines; each runs the same command.")
    min_nodes: Count | None = Field(
        None, description="Minimum number of machines to continue with if others are lost; empty: all."
    )
    rendezvous: str = Field("", description="host:port of the first machine; required with several nodes.")
    timeout_minutes: Positive = Field(
        30.0, description="Maximum time to wait for another process, at the rendezvous and in a collective operation."
    )
    max_restarts: int = Field(
        0,
        ge=0,
        description="How often all processes are restarted after one died; they resume from the last checkpoint.",
    )

    def contradictions(self) -> Iterator[Contradiction]:
        if self.min_nodes is None:
            return
        if self.min_nodes > self.nodes:
            yield Contradiction(f"min_nodes = {self.min_nodes} of nodes = {self.nodes}", ("min_nodes", "nodes"))
        elif self.min_nodes < self.nodes and not self.max_restarts:
            yield Contradiction(
                f"min_nodes = {self.min_nodes} with max_restarts = 0: continuing with fewer machines is a restart",
                ("min_nodes", "max_restarts"),
            )


class Execution(Profile):
    """Where and how a run computes."""

    device: Device = Field(Device(), description="Hardware and precision.")
    distributed: Distributed = Field(Distributed(), description="Several processes.")
