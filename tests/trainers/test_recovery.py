"""Steps with a non-finite loss or gradient: rolled back completely, reported, and limited in number."""

import copy
import json
import math
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from core import checkpoint
from core.config.compose import load_config, local_config_file
from core.config.schema import Training
from core.data.windows import Series, WindowSet
from core.devices.capabilities import DeviceCapabilities
from core.devices.manager import DeviceManager
from core.devices.plan import DevicePlan
from core.errors import LandfallError, StoppedError
from core.runlog import RunLog, read_metrics
from core.stopping import StopRequest
from tests.trainers.conftest import TINY
from tests.trainers.process_groups import TOGETHER, assert_same_curve, finish, history, start
from trainers import loop, recovery
from trainers import run as training_run
from trainers.objective import Objective
from trainers.optimizer import build_optimizer
from trainers.recovery import PATIENCE, NonFiniteGuard, higher_precision, save_skipped_step
from trainers.run import train
from trainers.strategies import SingleDevice

# Unscaled values: the square of a spike of 1e30 is infinite. Four windows contain it, in steps of one window.
BARE = ("data.scaling.method=none", "data.scaling.clip=1e38", "training.batch_size=1", "model.dropout=0.2")
SPIKED_ROW, FILE = 200, "data/fdc/train_1.csv"


@pytest.fixture
def spiked(plant: Path) -> Path:
    frame = pd.read_csv(plant / FILE)
    frame.loc[SPIKED_ROW, "c1"] = 1e30
    frame.to_csv(plant / FILE, index=False)
    return plant


def run_training(root: Path, *overrides: str, manager: DeviceManager | None = None):
    values = [*TINY, "training.epochs=2", "training.recoveries=20", *overrides]
    loaded = load_config(local_config_file("patchtst"), values, root=root, environment={})
    return train(loaded, root=root, run_id="run-1", manager=manager)


def folder(root: Path) -> Path:
    return root / "runs/patchtst_ssl/run-1"


def records(root: Path, kind: str) -> list[dict]:
    untimed = ("time", "seconds", "windows_per_second", "memory_mb", "gpu_utilisation")
    found = [record for record in read_metrics(folder(root) / "metrics.jsonl") if record["kind"] == kind]
    return [{key: value for key, value in record.items() if key not in untimed} for record in found]


def last_state(root: Path) -> dict:
    state = checkpoint.load(root / "checkpoints/patchtst_ssl.last.pt")
    return {name: state[name] for name in ("model", "optimizer", "random", "recovery")}


def assert_equal(one, other, where: str = "") -> None:
    if isinstance(one, dict):
        assert one.keys() == other.keys(), where
        for key in one:
            assert_equal(one[key], other[key], f"{where}.{key}")
    elif isinstance(one, list | tuple):
        for number, pair in enumerate(zip(one, other, strict=True)):
            assert_equal(*pair, f"{where}[{number}]")
    elif isinstance(one, torch.Tensor):
        assert torch.equal(one, other), where
    else:
        assert one == other, where


@pytest.fixture
def asks_later(monkeypatch) -> None:
    """As on CUDA: a flag on the device skips the update, and the host reads it when steps are logged."""
    at_once = NonFiniteGuard.__init__

    def later(guard, plan):
        at_once(guard, plan)
        guard.reads_every_step = False

    monkeypatch.setattr(NonFiniteGuard, "__init__", later)


# --------------------------------------------------------------------------------------------------------- rolling back
@pytest.mark.slow
def test_only_the_steps_with_a_spike_are_skipped(spiked, caplog):
    result = run_training(spiked, *BARE, "training.learning_rate=0.003")
    assert result.history[-1].val_loss < result.history[0].val_loss
    assert all(math.isfinite(record.train_loss) for record in result.history)
    state = checkpoint.load(spiked / "checkpoints/patchtst_ssl.last.pt")
    assert all(values.isfinite().all() for values in state["model"].values() if values.is_floating_point())

    logged = records(spiked, "recovery")
    assert len(logged) == 8, "four windows contain the spike, in each of two epochs"
    assert [record["loss"] for record in logged] == [None] * 8
    assert logged[0]["remedy"].endswith("the learning rate x 0.5 from here on")
    status = json.loads((folder(spiked) / "status.json").read_text())
    assert (status["state"], status["recoveries"]) == ("completed", 8)
    losses = [record["loss"] for record in records(spiked, "step") if record["epoch"] == 1]
    assert result.history[0].train_loss == pytest.approx(np.mean(losses)), "of the windows that were used"
    taken = {record["step"] for record in records(spiked, "step")}
    assert taken.isdisjoint(record["step"] for record in logged)
    assert len(taken) + 8 == status["steps"]
    assert f"of {FILE}, loss not finite" in caplog.text
    assert "(recovery 8 of 20)" in caplog.text


@pytest.mark.nightly
def test_the_origin_is_saved(spiked):
    run_training(spiked, *BARE, "training.batch_size=8")
    first = json.loads((folder(spiked) / "skipped-step-1.json").read_text())
    (logged, *_) = records(spiked, "recovery")
    facts = ("epoch", "step", "loss", "grad_norm", "precision", "lr")
    assert {name: first[name] for name in facts} == {name: logged[name] for name in facts}
    assert (first["precision"], len(first["windows"])) == ("32", 8)
    bad, good = first["windows"][0], first["windows"][-1]
    assert (bad["file"], bad["recording"], bad["loss"]) == (FILE, FILE, None)
    assert bad["rows"][0] <= SPIKED_ROW <= bad["rows"][1] == bad["rows"][0] + 31
    assert math.isfinite(good["loss"])
    with np.load(folder(spiked) / "skipped-step-1.npz") as kept:
        assert kept["x_btc"].shape == (8, 32, 3)
        at = kept["window"].tolist().index(bad["window"])
        assert kept["x_btc"][at, SPIKED_ROW - bad["rows"][0], 1] == np.float32(1e30)


def everything(trainer: loop.Trainer) -> dict:
    parts = {
        "model": trainer.model.state_dict(),
        "optimizer": trainer.optimizer.state_dict()["state"],
        "rng": trainer.objective.backend.rng_state(),
        "loss": trainer._loss_sum,
    }
    return copy.deepcopy(parts)


@pytest.mark.nightly
@pytest.mark.parametrize("late", [pytest.param(False, marks=pytest.mark.nightly), True])
def test_a_skipped_step_changes_nothing(spiked, monkeypatch, request, late):
    """Weights, moments, batch statistics and the state that dropout draws from, to the bit."""
    if late:
        request.getfixturevalue("asks_later")
    before, compared = {}, []
    optimize, roll_back = loop.Trainer._optimize, loop.Trainer._roll_back

    def noted(trainer, index_b, epoch, step):
        before[epoch, step] = everything(trainer)
        return optimize(trainer, index_b, epoch, step)

    def checked(trainer, run, lost, *arguments):
        roll_back(trainer, run, lost, *arguments)
        assert_equal(everything(trainer), before[trainer.position.epoch, lost.index])
        compared.append(lost.index)

    monkeypatch.setattr(loop.Trainer, "_optimize", noted)
    monkeypatch.setattr(loop.Trainer, "_roll_back", checked)
    run_training(spiked, *BARE)
    assert len(compared) == 8


@pytest.mark.nightly
def test_late_and_immediate_checks_give_the_same_run(spiked, request):
    run_training(spiked, *BARE)
    at_once, steps, logged = last_state(spiked), records(spiked, "step"), records(spiked, "recovery")
    request.getfixturevalue("asks_later")
    run_training(spiked, *BARE)
    assert_equal(last_state(spiked), at_once)
    assert records(spiked, "step") == steps
    assert records(spiked, "recovery") == logged


@pytest.mark.nightly
def test_a_finite_run_does_not_depend_on_the_kind_of_check(plant, request):
    run_training(plant)
    at_once = last_state(plant)
    request.getfixturevalue("asks_later")
    run_training(plant)
    assert_equal(last_state(plant), at_once)


@pytest.mark.slow
@pytest.mark.parametrize(
    "after",
    [
        pytest.param("before the first", marks=pytest.mark.nightly),
        pytest.param("with the first still pending", marks=pytest.mark.nightly),
        pytest.param("right after the first", marks=pytest.mark.nightly),
        "later",
    ],
)
def test_a_resumed_run_recovers_like_an_uninterrupted_one(spiked, request, monkeypatch, after):
    request.getfixturevalue("asks_later")
    overrides = (*BARE, "training.resume=auto")
    run_training(spiked, *overrides)
    straight, steps, logged = last_state(spiked), records(spiked, "step"), records(spiked, "recovery")
    (spiked / "checkpoints/patchtst_ssl.last.pt").unlink()

    first = logged[0]["step"]
    calls = {"before the first": first - 2, "with the first still pending": first, "later": first + 40}
    limit = calls.get(after, first + 3)  # the host reads at most three steps later
    monkeypatch.setattr(training_run, "StopRequest", lambda hours: StopAt(limit))
    with pytest.raises(StoppedError):
        run_training(spiked, *overrides)
    monkeypatch.setattr(training_run, "StopRequest", StopRequest)
    run_training(spiked, *overrides)
    assert_equal(last_state(spiked), straight)
    assert records(spiked, "step") == steps
    assert records(spiked, "recovery") == logged


class StopAt(StopRequest):
    """Is due after a number of calls."""

    def __init__(self, limit: int):
        super().__init__()
        self.left = limit

    def is_due(self, next_seconds: float) -> bool:
        self.left -= 1
        self.reason = self.reason or ("a test" if self.left < 0 else None)
        return self.reason is not None


# ------------------------------------------------------------------------------------------------------------- remedies
def on(*dtypes: str):
    """A machine whose only device supports these data types."""
    cpu = DeviceCapabilities("cpu", "Plain CPU", 1, 64_000, 60_000, ("float32", *dtypes), True, "a test")

    def manager(root: Path, *overrides: str) -> DeviceManager:
        values = [*TINY, *overrides]
        config = load_config(local_config_file("patchtst"), values, root=root, environment={}).config
        return DeviceManager(config, SimpleNamespace(detect_capabilities=lambda: [cpu]))

    return manager


@pytest.mark.parametrize(
    "machine, raised",
    [(on("float16", "bfloat16"), "bf16-mixed"), pytest.param(on("float16"), "32", marks=pytest.mark.nightly)],
    ids=["bfloat16", "none"],
)
def test_an_overflow_of_float16_raises_the_precision(plant, machine, raised, caplog):
    """Values of 1e5 overflow float16 but not bfloat16: the step is repeated, and none is skipped."""
    for path in sorted((plant / "data/fdc").glob("*.csv")):
        frame = pd.read_csv(path)
        frame["c0"] += 1e5
        frame.to_csv(path, index=False)
    overrides = ("data.scaling.method=none", "data.scaling.clip=1e38", "precision=16-mixed")
    run_training(plant, *overrides, manager=machine(plant, *overrides))
    (logged,) = records(plant, "recovery")
    assert (logged["step"], logged["precision"], logged["remedy"]) == (
        1,
        "16-mixed",
        f"computing in {raised} from here on",
    )
    taken = [record["step"] for record in records(plant, "step")]
    assert taken == list(range(1, taken[-1] + 1)), "no step is skipped"
    state = checkpoint.load(plant / "checkpoints/patchtst_ssl.last.pt")
    assert state["recovery"] == {"used": 1, "rate_factor": 1.0, "precision": raised}
    hardware = checkpoint.describe(plant / "checkpoints/patchtst_ssl.last.pt")["hardware"]
    assert hardware["precision"] == raised
    assert "raised after loss" in hardware["precision_reason"]

    again = (*overrides, "training.resume=auto")
    run_training(plant, *again, manager=machine(plant, *again))
    assert checkpoint.describe(plant / "checkpoints/patchtst_ssl.last.pt")["hardware"]["precision"] == raised
    assert len(records(plant, "recovery")) == 1


@pytest.mark.slow
def test_after_validation_has_raised_the_precision_skipped_steps_are_reported(plant, monkeypatch):
    """An overflow of the gradient is normal only with loss scaling."""
    validate, clip, overflows = Objective.mean_loss, SingleDevice.clip_gradients, []

    def not_finite_at_first(objective, *arguments):
        loss = validate(objective, *arguments)
        if objective.plan.precision == "16-mixed":
            overflows.append(torch.tensor(math.inf))
            return math.inf
        return loss

    monkeypatch.setattr(Objective, "mean_loss", not_finite_at_first)
    monkeypatch.setattr(SingleDevice, "clip_gradients", lambda *given: overflows.pop() if overflows else clip(*given))
    run_training(plant, "precision=16-mixed", manager=on("float16")(plant, "precision=16-mixed"))
    logged = [(record["epoch"], record["precision"], record["lr"] is None) for record in records(plant, "recovery")]
    assert logged == [(1, "16-mixed", True), (2, "32", False)]


@pytest.mark.parametrize(
    "precision, native, next_one",
    [
        ("16-mixed", ("float32", "bfloat16"), "bf16-mixed"), ("16-mixed", ("float32",), "32"),
        ("bf16-mixed", ("float32", "bfloat16"), "32"), ("32", ("float32", "bfloat16"), None),
    ],
)  # fmt: skip
def test_precision_rises_as_far_as_the_hardware_supports(precision, native, next_one):
    plan = DevicePlan("cpu", "CPU", precision, 1, "a test", "a test", native_dtypes=native)
    assert higher_precision(plan) == next_one


def test_windows_that_are_too_large_to_save_are_not_gathered(tmp_path, monkeypatch):
    """If the windows of a step fit into memory only as micro-batches, gathering all of them would end the run."""
    series = Series.of([], np.zeros((100, 3), dtype=np.float32))
    windows = WindowSet(series, np.arange(8), 32, np.array([[0, 100]]))
    kept, index_b = tmp_path / "step.npz", torch.arange(8)
    save_skipped_step(kept.with_suffix(".json"), {}, windows, index_b)
    with np.load(kept) as held:
        assert held["x_btc"].shape == (8, 32, 3)
    kept.unlink()
    monkeypatch.setattr(recovery, "MAX_SAVED_BYTES", 8 * 32 * 3 * 4 - 1)
    monkeypatch.setattr(WindowSet, "batch", lambda *_: pytest.fail("put together"))
    save_skipped_step(kept.with_suffix(".json"), {}, windows, index_b)
    assert not kept.exists()


def test_recoveries_are_limited_and_the_error_names_origin_and_hint(spiked):
    with pytest.raises(LandfallError) as caught:
        run_training(spiked, *BARE, "training.recoveries=2")
    message = str(caught.value)
    assert "after 2 recoveries" in message
    assert f"of {FILE}, loss not finite; see runs/patchtst_ssl/run-1/skipped-step-3.json" in message
    assert "training.learning_rate" in caught.value.hint
    assert len(list(folder(spiked).glob("skipped-step-*.json"))) == 3
    status = json.loads((folder(spiked) / "status.json").read_text())
    assert (status["state"], status["recoveries"]) == ("failed", 2)


def test_no_recovery_with_a_limit_of_zero(spiked):
    with pytest.raises(LandfallError, match="after 0 recoveries"):
        run_training(spiked, *BARE, "training.recoveries=0")


def test_an_epoch_of_skipped_steps_is_an_error(spiked):
    """One step per epoch, and it contains the spike."""
    with pytest.raises(LandfallError, match="no step of epoch 1 was finite"):
        run_training(spiked, *BARE, "training.batch_size=128")


def test_a_validation_loss_that_is_not_finite_is_an_error(plant):
    """The train split ends before the spike; the validation split begins with it."""
    for path in sorted((plant / "data/fdc").glob("*.csv")):
        frame = pd.read_csv(path)
        frame.loc[270, "c1"] = 1e30
        frame.to_csv(path, index=False)
    with pytest.raises(LandfallError, match=r"validation loss \w+ after step \d+ \(epoch 1, precision 32\)"):
        run_training(plant, *BARE)


# ----------------------------------------------------------------------------------------------- what needs no recovery
@pytest.mark.slow
@pytest.mark.parametrize("method", ["robust", "zscore"])
def test_training_works_on_every_kind_of_bad_channel(plant, method):
    """A spike of 1e30, a channel that is constant in the train split, one with 99 % missing values, one with two values
    only, and bursts whose interquartile range is zero."""
    for path in sorted((plant / "data/fdc").glob("*.csv")):
        frame = pd.read_csv(path)
        row_n = np.arange(len(frame))
        frame.loc[SPIKED_ROW, "c1"] = 1e30
        frame["constant"] = np.where(row_n < 240, 20.0, 25.0)
        frame["sparse"] = np.where(row_n % 100 == 0, frame["c0"], np.nan)
        frame["flicker"] = 20.0 + 2**-10 * (row_n % 50 == 0)
        frame["bursts"] = 5.0 * (row_n % 80 < 2)
        frame.to_csv(path, index=False)
    result = run_training(plant, f"data.scaling.method={method}")
    first, last = result.history
    assert last.train_loss < first.train_loss < 1.5
    assert last.val_loss < 20.0**2, "the square of the clip"
    assert records(plant, "recovery") == []
    assert [record for record in records(plant, "step") if record["loss"] is None] == []


# ---------------------------------------------------------------------------------------------------------------- guard
def step_under(guard: NonFiniteGuard, *, loss: float = 1.0, norm: float = 1.0) -> tuple[bool, bool]:
    """Whether a step with these figures changed the weights, and whether it counts as skipped."""
    model = nn.Linear(2, 1)
    before = model.weight.detach().clone()
    optimizer = build_optimizer(model, Training(), fused=True)
    model(torch.ones(1, 2)).sum().backward()
    lost = guard.step(optimizer, torch.tensor(loss), torch.tensor(norm))
    return not torch.equal(model.weight, before), bool(lost)


NOT_FINITE = [{"loss": math.nan}, {"loss": math.inf}, {"norm": math.nan}, {"norm": math.inf}]


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("figures", NOT_FINITE)
def test_a_non_finite_step_and_its_followers_are_skipped(figures, late):
    guard = NonFiniteGuard(DevicePlan("cpu", "CPU", "32", 1, "", ""))
    guard.reads_every_step = not late
    assert step_under(guard) == (True, False)
    assert step_under(guard, **figures) == (False, True)
    assert step_under(guard) == (False, True)


@pytest.mark.parametrize("late", [False, True])
def test_with_loss_scaling_an_overflow_counts_only_if_it_persists(late):
    guard = NonFiniteGuard(DevicePlan("cpu", "CPU", "16-mixed", 1, "", ""))
    guard.reads_every_step = not late
    for _ in range(2):
        for _ in range(PATIENCE - 1):
            assert step_under(guard, norm=math.inf) == (False, False)
        assert step_under(guard) == (True, False)
    for _ in range(PATIENCE - 1):
        assert step_under(guard, norm=math.nan) == (False, False)
    assert step_under(guard, norm=math.nan) == (False, True)
    assert step_under(guard) == (False, True)


def test_with_loss_scaling_a_non_finite_loss_counts_immediately():
    """The scale applies to gradients, so another scale would not help."""
    guard = NonFiniteGuard(DevicePlan("cpu", "CPU", "16-mixed", 1, "", ""))
    assert step_under(guard, loss=math.inf) == (False, True)


# ----------------------------------------------------------------------------------------------------------- the record
def test_a_resumed_log_keeps_the_recoveries_of_its_checkpoint(workspace):
    config = load_config(local_config_file("patchtst"), TINY, root=workspace, environment={}).config
    with RunLog(workspace, config, "run-1", steps=10) as run:
        for step in (3, 5):
            run.recovery({"epoch": 1, "step": step, "loss": math.nan, "remedy": "left out"})
        run.rewind(1, step=4, epoch=0)
    (kept,) = read_metrics(run.metrics_file)
    assert (kept["kind"], kept["step"], kept["loss"]) == ("recovery", 3, None)
    assert json.loads((run.folder / "status.json").read_text())["recoveries"] == 1


# ---------------------------------------------------------------------------------------------------- several processes
@pytest.mark.nightly
@pytest.mark.parametrize("strategy", ["ddp", pytest.param("fsdp", marks=pytest.mark.nightly)])
def test_all_processes_of_a_run_recover_in_the_same_way(spiked, tmp_path_factory, strategy):
    """One of two processes has the spike in its shard of a step: both skip it, and learn what one process learns."""
    overrides = [*BARE, "training.batch_size=8", "model.dropout=0", "model.norm=layer"]
    expected = run_training(spiked, *overrides).history
    logged = records(spiked, "recovery")
    root = shutil.copytree(spiked, tmp_path_factory.mktemp("together") / "plant")
    words = [*TINY, *overrides, "training.epochs=2", "training.recoveries=20", "training.batch_size=4"]
    finish(start(root, [*words, *TOGETHER, f"distributed.strategy={strategy}", "training.effective_batch=8"]))
    assert_same_curve(expected, history(root))
    (metrics,) = root.glob("runs/patchtst_ssl/2*/metrics.jsonl")
    together = [record for record in read_metrics(metrics) if record["kind"] == "recovery"]
    assert [record["step"] for record in together] == [record["step"] for record in logged]
    assert [record["origin"].partition(";")[0] for record in together] == [
        record["origin"].partition(";")[0] for record in logged
    ]
