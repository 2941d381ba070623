import logging
import os
import random
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
import yaml

from core.config.compose import load_config, local_config_file
from core.config.execution import Execution, Profile
from core.config.hardware import list_profiles, load_profile
from core.config.overrides import PROFILE_DIR
from core.config.schema import STREAMS
from core.devices.capabilities import DeviceCapabilities
from core.devices.plan import Misfit, misfits
from core.errors import ConfigError, UsageError
from core.reproducibility import derive_seed, make_reproducible
from tests.support import REPO_ROOT, most_nightly

PROFILES = list_profiles(REPO_ROOT)
NAMED = {
    "auto", "cpu", "single_gpu", "multi_gpu", "kaggle_t4", "kaggle_a10", "kaggle_l4", "kaggle_h100", "hpc_a100",
    "workstation_3090", "lab_4090", "cloud_v100", "mps",
}  # fmt: skip

CPU = DeviceCapabilities("cpu", "Plain CPU", 8, 16_000, 8_000, ("float32",), True, "8 cores may be used")
T4 = DeviceCapabilities(
    "cuda", "Tesla T4", 1, 15_102, 15_000, ("float32", "float16"), True, "passed", "7.5", supports_distributed=True
)
BF16 = (*T4.native_dtypes, "bfloat16")
A100 = replace(T4, name="A100", count=8, memory_total_mb=40_536, native_dtypes=BF16, compute_capability="8.0")
APPLE = DeviceCapabilities("mps", "Apple M3", 1, 16_384, 8_000, ("float32", "float16"), True, "passed")


def profile(name: str, **values) -> Execution:
    return load_profile(name, REPO_ROOT).model_copy(update=values)


# --------------------------------------------------------------------------------------------------------------- files
def test_all_profiles_exist():
    assert set(PROFILES) == NAMED


@pytest.mark.parametrize("name", PROFILES)
def test_a_profile_contains_every_field(name):
    values = yaml.safe_load((REPO_ROOT / PROFILE_DIR / f"{name}.yaml").read_text())
    assert values.keys() | {"hardware"} == Profile.model_fields.keys() | {"device"}
    assert values["device"]["prefer"]


@pytest.mark.parametrize("name", PROFILES)
def test_a_profile_is_valid(name):
    found = load_profile(name, REPO_ROOT)
    assert (found.seed, found.numpy_seed, found.gradient_clip_val) == (42, 42, 1.0)
    assert found.pythonhashseed == (None if name == "auto" else 42)
    if name.startswith("kaggle_"):
        assert 0 < found.timeout_hours <= found.hardware.session_hours == 9
    assert (found.deterministic, found.cudnn_benchmark) == ((False, True) if name == "hpc_a100" else (True, False))
    assert f"| `{name}` |" in (REPO_ROOT / PROFILE_DIR / "README.md").read_text()


@pytest.mark.parametrize(
    "precision, names",
    [
        ("16-mixed", {"kaggle_t4", "cloud_v100"}),
        ("bf16-mixed", {"kaggle_a10", "kaggle_l4", "kaggle_h100", "hpc_a100", "workstation_3090", "lab_4090"}),
        ("32", {"cpu", "mps"}),
        ("auto", {"auto", "single_gpu", "multi_gpu"}),
    ],
)
def test_the_precision_is_that_of_the_hardware(precision, names):
    assert {name for name in PROFILES if load_profile(name, REPO_ROOT).precision == precision} == names


def test_an_unknown_profile_is_rejected_with_the_known_ones():
    with pytest.raises(UsageError, match=r"no device profile 'tpu_pod'.*auto, cloud_v100, cpu"):
        load_profile("tpu_pod", REPO_ROOT)


def test_a_faulty_profile_is_named_with_its_key(workspace):
    file = f"{PROFILE_DIR}/mine.yaml"
    (workspace / file).write_text("devices: few\ntimeout_hour: 3\ndeterministic: true\n")
    with pytest.raises(ConfigError) as caught:
        load_profile("mine", workspace)
    assert caught.value.source == file
    assert "timeout_hour" in {fault.key for fault in caught.value.faults}


# ------------------------------------------------------------------------------------------------------------- recipes
RECIPES = {
    "local=default local/devices=cpu": (1, "32", "cpu", None),
    "local=default local/devices=single_gpu": (1, "auto", "gpu", None),
    "trainer=multi_gpu local=hpc local/devices=multi_gpu devices=4": (4, "auto", "gpu", None),
    "trainer=kaggle_safe local=default local/devices=kaggle_t4": ("auto", "16-mixed", "gpu", 8.5),
    "trainer=kaggle_safe local=default local/devices=kaggle_a10": (1, "bf16-mixed", "gpu", 8.5),
    "trainer=kaggle_safe local=default local/devices=kaggle_l4": ("auto", "bf16-mixed", "gpu", 8.5),
    "trainer=multi_gpu local=hpc local/devices=hpc_a100 devices=8": (8, "bf16-mixed", "gpu", 24),
}


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("recipe", most_nightly(RECIPES, but=2))
def test_a_profile_is_composed_as_written(stream, recipe):
    config = load_config(local_config_file(stream), recipe.split(), root=REPO_ROOT, environment={}).config
    devices, precision, prefer, hours = RECIPES[recipe]
    assert (config.devices, config.precision, config.device.prefer) == (devices, precision, prefer)
    assert config.timeout_hours == hours
    assert config.distributed.strategy == "ddp"
    assert (config.training.batch_size, config.model.size, config.training.epochs) == ("auto", "auto", 20)
    assert config.training.resume == ("never" if recipe.startswith("local=default") else "unfinished")
    assert config.distributed.timeout_minutes <= 30
    assert config.logging.artifacts_dir == "artifacts"


# ------------------------------------------------------------------------------------------------------------- misfits
def texts(found: list[Misfit]) -> list[str]:
    return [str(misfit) for misfit in found]


def test_a_cluster_profile_on_one_t4_reports_each_mismatch():
    memory, capability, precision = texts(misfits(profile("hpc_a100"), [T4, CPU], T4))
    assert re.match(r"hardware\.memory_gb: Tesla T4 has 16 GB, .* 40 \(leave training\.batch_size=auto\b", memory)
    assert re.match(r"hardware\.compute_capability: Tesla T4 has 7\.5, .*8\.0 .*local/devices=auto\)", capability)
    assert re.match(r"precision: bfloat16 .*Tesla T4.*\(set precision=16-mixed\)", precision)


@pytest.mark.parametrize(
    "name, chosen",
    [
        ("auto", CPU),
        ("auto", T4),
        ("cpu", CPU),
        ("mps", APPLE),
        ("single_gpu", APPLE),
        ("multi_gpu", A100),
        ("hpc_a100", A100),
        ("kaggle_t4", T4),
        ("kaggle_t4", replace(T4, count=2)),
        ("cloud_v100", replace(T4, name="Tesla V100", memory_total_mb=16_160, compute_capability="7.0")),
        ("kaggle_a10", replace(A100, name="A10", count=1, memory_total_mb=22_723, compute_capability="8.6")),
        ("kaggle_l4", replace(A100, name="L4", count=4, memory_total_mb=23_034, compute_capability="8.9")),
        ("workstation_3090", replace(A100, name="RTX 3090", memory_total_mb=24_268, compute_capability="8.6")),
        ("lab_4090", replace(A100, name="RTX 4090", memory_total_mb=24_564, compute_capability="8.9")),
        ("kaggle_h100", replace(A100, name="H100", memory_total_mb=81_559, compute_capability="9.0")),
        ("lab_4090", replace(A100, name="RTX 6000", memory_total_mb=97_887, compute_capability="12.0")),
    ],
)
def test_a_profile_fits_the_hardware_it_was_made_for(name, chosen):
    assert misfits(profile(name), [chosen, CPU], chosen) == []


@pytest.mark.parametrize(
    "found, seen",
    [
        ([CPU], "cuda: there is none"),
        ([replace(T4, usable=False, reason="this torch is a CPU-only build"), CPU], "this torch is a CPU-only build"),
        ([T4, CPU], "cuda: was not chosen"),
    ],
)
def test_a_profile_for_another_platform_reports_only_the_platform(found, seen):
    (misfit,) = misfits(profile("hpc_a100"), found, CPU)
    assert misfit.key == "hardware.kind"
    assert "Plain CPU is cpu" in misfit.problem
    assert misfit.problem.endswith(seen)
    assert misfit.remedy == "use local/devices=auto"


@pytest.mark.parametrize("hours, words", [(8.5, None), (9, None), (12, "12 h"), (None, "no limit")])
@pytest.mark.parametrize("chosen", [CPU, T4])
def test_a_timeout_beyond_the_session_limit_is_reported(hours, words, chosen):
    found = misfits(profile("kaggle_t4", timeout_hours=hours), [chosen, CPU], chosen)
    reported = [misfit for misfit in found if misfit.key == "timeout_hours"]
    assert len(reported) == (words is not None)
    for misfit in reported:
        assert words in misfit.problem
        assert "9 h" in misfit.problem
        assert misfit.remedy == "set timeout_hours=8.5"


def test_amd_has_no_cuda_capability():
    instinct = replace(A100, name="MI300X", compute_capability="9.4", hip_version="6.2")
    wanted = profile("hpc_a100").hardware.model_copy(update={"compute_capability": 10.0})
    assert misfits(profile("hpc_a100", hardware=wanted), [instinct], instinct) == []
    assert misfits(profile("hpc_a100", hardware=wanted), [A100], A100) != []


def test_apple_has_no_float64():
    settings = profile("mps").device.model_copy(update={"enable_x64": True})
    (misfit,) = misfits(profile("mps", device=settings), [APPLE, CPU], APPLE)
    assert (misfit.key, misfit.problem) == ("device.enable_x64", "Apple's GPU has no float64")


@pytest.mark.parametrize("update", [{"amp": False}, {"enable_x64": True}])
def test_missing_types_are_not_reported_without_mixed_precision(update):
    wanted = profile("kaggle_a10", hardware=profile("auto").hardware)
    assert [misfit.key for misfit in misfits(wanted, [T4], T4)] == ["precision"]
    settings = wanted.device.model_copy(update=update)
    assert misfits(wanted.model_copy(update={"device": settings}), [T4], T4) == []


def test_a_device_without_float16_computes_in_float32():
    pascal = replace(T4, name="GTX 1080", native_dtypes=("float32",))
    (misfit,) = misfits(Execution(precision="16-mixed"), [pascal], pascal)
    assert misfit.remedy == "set precision=32"


# --------------------------------------------------------------------------------------------------- seeds and kernels
@pytest.fixture
def _process_as_it_was(monkeypatch):
    """Restores seeds and switches, which are global, for other tests."""
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "")
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG")
    deterministic, benchmark = torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.benchmark
    allow_tf32 = torch.backends.cudnn.allow_tf32
    python, numpy = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[]):
        yield
    random.setstate(python)
    np.random.set_state(numpy)
    torch.use_deterministic_algorithms(deterministic)
    torch.backends.cudnn.benchmark = benchmark
    torch.backends.cudnn.allow_tf32 = allow_tf32


def draw() -> tuple[float, float, float]:
    return random.random(), float(np.random.rand()), float(torch.rand(()))


@pytest.mark.slow
@pytest.mark.usefixtures("_process_as_it_was")
def test_all_global_generators_follow_the_seed():
    draws = []
    for seed in (1, 1, 2):
        make_reproducible(Profile(seed=seed))
        draws.append(draw())
    assert draws[0] == draws[1]
    assert all(one != other for one, other in zip(draws[0], draws[2], strict=True))


@pytest.mark.usefixtures("_process_as_it_was")
def test_numpy_may_have_a_seed_of_its_own():
    make_reproducible(Profile(seed=1, numpy_seed=42))
    assert np.random.rand() == np.random.RandomState(42).rand()
    assert random.random() == random.Random(derive_seed(1, "python")).random(), "the others keep theirs"


@pytest.mark.usefixtures("_process_as_it_was")
@pytest.mark.parametrize("deterministic, benchmark, timed", [
    (False, True, True), (False, False, False), (True, False, False), (True, True, False),
])  # fmt: skip
def test_cudnn_benchmark_is_off_in_deterministic_mode(deterministic, benchmark, timed):
    make_reproducible(Profile(deterministic=deterministic, cudnn_benchmark=benchmark))
    assert torch.backends.cudnn.benchmark is timed


@pytest.mark.usefixtures("_process_as_it_was")
def test_convolutions_are_computed_in_fp32():
    torch.backends.cudnn.allow_tf32 = True
    make_reproducible(Profile())
    assert not torch.backends.cudnn.allow_tf32


@pytest.mark.usefixtures("_process_as_it_was")
def test_deterministic_kernels_are_enabled():
    """`put_` of several values in one place has no deterministic form, not even on a CPU."""
    make_reproducible(Profile(deterministic=True))
    assert torch.are_deterministic_algorithms_enabled()
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    with pytest.raises(RuntimeError, match="deterministic"):
        torch.zeros(3).put_(torch.tensor([0, 0]), torch.ones(2))
    make_reproducible(Profile(deterministic=False))
    torch.zeros(3).put_(torch.tensor([0, 0]), torch.ones(2))


@pytest.mark.usefixtures("_process_as_it_was")
@pytest.mark.parametrize("found, warned", [("7", True), ("42", False)])
def test_a_wrong_hash_seed_is_reported_if_no_restart_is_possible(monkeypatch, caplog, found, warned):
    monkeypatch.setenv("PYTHONHASHSEED", found)
    with caplog.at_level(logging.WARNING):
        make_reproducible(Profile(pythonhashseed=42))
    assert ("PYTHONHASHSEED is 7, the profile requires 42" in caplog.text) is warned
