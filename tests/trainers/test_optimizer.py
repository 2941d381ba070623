import subprocess
import sys

from tests.support import REPO_ROOT


def test_the_optimizer_is_pytorchs_to_the_bit_and_imports_no_compiler():
    code = """
import sys
import torch
from core.config.schema import Training
from trainers.optimizer import build_optimizer

models = [torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Linear(7, 3)) for _ in range(2)]
models[1].load_state_dict(models[0].state_dict())
settings = Training(learning_rate=0.01, weight_decay=0.1)
own = build_optimizer(models[0], settings, fused=False)

def step(model, optimizer):
    model(torch.arange(20.0).view(4, 5)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)

for _ in range(3):
    step(models[0], own)
own.load_state_dict(own.state_dict())
assert not {"torch._dynamo", "torch._inductor"} & sys.modules.keys()
weights, biases = ([p for p in models[1].parameters() if (p.ndim > 1) is many] for many in (True, False))
groups = [{**group, "params": same} for group, same in zip(own.param_groups, (weights, biases))]
plain = torch.optim.AdamW(groups, lr=settings.learning_rate, betas=settings.betas)
for _ in range(3):
    step(models[1], plain)
assert all(torch.equal(one, other) for one, other in zip(models[0].parameters(), models[1].parameters()))
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=REPO_ROOT)
