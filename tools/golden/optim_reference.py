"""Writes tests/fixtures/optim_reference.json: what PyTorch's optimizers, schedules and averages give.

    python tools/golden/optim_reference.py > tests/fixtures/optim_reference.json
"""

import json
import warnings

import torch
from torch import nn, optim
from torch.optim import lr_scheduler as ls, swa_utils

warnings.simplefilter("ignore")
torch.set_default_dtype(torch.float64)
torch.manual_seed(0)


def trajectory(op, steps=7, shape=(3,), **kwargs):
    p = torch.randn(shape, requires_grad=True)
    case = {"op": op, "kwargs": kwargs, "shape": shape, "initial": p.flatten().tolist(), "grads": [], "values": []}
    optimizer = getattr(optim, op)([p], **kwargs)
    for _ in range(steps):
        p.grad = torch.randn(shape)
        case["grads"].append(p.grad.flatten().tolist())
        optimizer.step()
        case["values"].append(p.flatten().tolist())
    return case


def rates(op, steps=9, rates=(0.5, 0.1), **kwargs):
    groups = [{"params": [torch.zeros(1, requires_grad=True)], "lr": lr} for lr in rates]
    optimizer = optim.SGD(groups, lr=1.0, momentum=0.9)
    make = getattr(ls, op, None) or getattr(swa_utils, op)
    scheduler = make(optimizer, **kwargs)
    case = {"op": op, "kwargs": kwargs, "initial": list(rates), "lr": [], "momentum": []}
    for t in range(steps + 1):
        if t:
            optimizer.step()
            scheduler.step()
        case["lr"].append([g["lr"] for g in optimizer.param_groups])
        case["momentum"].append([g["momentum"] for g in optimizer.param_groups])
    return case


def flat(state):
    return {name: t.flatten().tolist() for name, t in state.items()}


def averages(use_buffers, decay):
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    fn = None if decay is None else swa_utils.get_ema_multi_avg_fn(decay)
    average = swa_utils.AveragedModel(model, multi_avg_fn=fn, use_buffers=use_buffers)
    case = {"use_buffers": use_buffers, "decay": decay, "initial": flat(model.state_dict()), "models": [], "averages": []}
    for i in range(4):
        with torch.no_grad():
            for t in model.state_dict().values():
                t.copy_(torch.randn(t.shape).abs() + i if t.is_floating_point() else torch.tensor(8 * i))
        average.update_parameters(model)
        case["models"].append(flat(model.state_dict()))
        case["averages"].append(flat(average.module.state_dict()))
    return case


def batch_norm():
    model = nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 2), nn.BatchNorm1d(2, momentum=0.4))
    batches = [torch.randn(5, 2) * (i + 1) + i for i in range(3)]
    initial = flat(model.state_dict())
    swa_utils.update_bn(batches, model)
    return {"initial": initial, "batches": [b.flatten().tolist() for b in batches], "after": flat(model.state_dict())}


print(
    json.dumps(
        {
            "optimizers": [
                trajectory("RAdam", lr=0.1),
                trajectory("RAdam", lr=0.1, betas=[0.8, 0.9], weight_decay=0.1, steps=9),
                trajectory("RAdam", lr=0.1, betas=[0.8, 0.7], weight_decay=0.1, decoupled_weight_decay=True),
                trajectory("Rprop", lr=0.1),
                trajectory("Rprop", lr=0.5, etas=[0.3, 1.9], step_sizes=[0.2, 0.9], maximize=True),
                trajectory("Adadelta", rho=0.8, weight_decay=0.1),
                trajectory("Adamax", lr=0.1, weight_decay=0.1, maximize=True),
            ],
            "schedules": [
                rates("CyclicLR", base_lr=0.1, max_lr=1.0, step_size_up=3),
                rates("CyclicLR", base_lr=[0.1, 0.2], max_lr=[1.0, 0.5], step_size_up=2, step_size_down=3, mode="triangular2"),
                rates("CyclicLR", base_lr=0.1, max_lr=1.0, step_size_up=2, mode="exp_range", gamma=0.9, base_momentum=0.5),
                rates("CyclicLR", base_lr=0.1, max_lr=1.0, step_size_up=3, cycle_momentum=False),
                rates("PolynomialLR", total_iters=4, power=1.0),
                rates("PolynomialLR", total_iters=6, power=2.5),
                rates("ConstantLR", factor=0.25, total_iters=0),
                rates("ConstantLR", factor=1.0, total_iters=3),
                rates("SWALR", swa_lr=0.05),
                rates("SWALR", swa_lr=[0.05, 0.3], anneal_epochs=4, anneal_strategy="linear"),
                rates("SWALR", swa_lr=0.05, anneal_epochs=3, anneal_strategy="cos"),
                rates("SWALR", swa_lr=0.05, anneal_epochs=0),
            ],
            "averages": [averages(b, d) for b in (False, True) for d in (None, 0.9)],
            "batch_norm": batch_norm(),
        }
    )
)
