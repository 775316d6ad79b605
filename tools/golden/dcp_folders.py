"""Writes the folders of PyTorch's distributed checkpoints that tests/data/formats/ reads, and beside each, as
FOLDER.pt, what PyTorch itself reads from it.

    python tools/golden/dcp_folders.py tests/fixtures/dcp [FOLDER...]

`plain_2_5` is written with PyTorch 2.5, all others with a newer one.
"""

import os
import pathlib
import shutil
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor


def plain(rank, world_size):
    """Tensors of all kinds, and what is none, in nested dicts and lists."""
    dtypes = ["float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool"]
    base = torch.arange(12.0).reshape(3, 4)
    return {
        "types": {d: torch.tensor([0, 1, 1, 0, 1]).to(getattr(torch, d)) for d in dtypes},
        "complex": torch.tensor([1 + 2j, -0.5j]),
        "turned": base.t(),
        "part": base[1:, ::2],
        "rows": base[1:],
        "expanded": torch.tensor([5.0]).expand(2, 3),
        "images": torch.arange(24.0).reshape(1, 2, 3, 4).to(memory_format=torch.channels_last),
        "empty": torch.zeros(0, 3),
        "scalar": torch.tensor(2.5),
        "parameter": nn.Parameter(torch.ones(2)),
        "list": [torch.tensor([1, 2]), {"deep": torch.tensor(3), "name": "täst"}],
        "step": 7,
        "lr": 0.1,
        "worst": float("inf"),
        "name": "run",
        "nothing": None,
        "flags": [True, False],
        "pair": (0.9, 0.999),
        "betas": {"first": 0.9, "of": {0: "a"}},
        "device": torch.device("cpu"),
    }


def sharded(rank, world_size):
    """Tensors of which each rank has a part, some of them unevenly, one of them of only two ranks."""
    mesh = init_device_mesh("cpu", (world_size,))

    def numbers(*shape):
        return torch.arange(float(torch.tensor(shape).prod())).reshape(shape)

    return {
        "rows": distribute_tensor(numbers(7, 3), mesh, [Shard(0)]),
        "columns": distribute_tensor(numbers(2, 5).to(torch.bfloat16), mesh, [Shard(1)]),
        "few": distribute_tensor(numbers(2, 2), mesh, [Shard(0)]),
        "whole": numbers(4),
    }


def fsdp(rank, world_size):
    """A model in shards and its optimizer after two steps."""
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (world_size,))
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2, bias=False))
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.ones(2, 3)).sum().backward()
        optimizer.step()
    state, optim = get_state_dict(model, optimizer)
    return {"model": state, "optim": optim, "epoch": 3}


KINDS = {"plain": (plain, 1), "plain_2_5": (plain, 1), "sharded": (sharded, 3), "fsdp": (fsdp, 2)}


def write(rank, name, folder, meeting):
    make, world_size = KINDS[name]
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=world_size)
    # Its absolute path would be in the metadata.
    os.chdir(folder.parent)
    dcp.save(make(rank, world_size), checkpoint_id=folder.name)
    dist.destroy_process_group()


if __name__ == "__main__":
    out = pathlib.Path(sys.argv[1]).resolve()
    out.mkdir(parents=True, exist_ok=True)
    is_old = torch.__version__.startswith("2.5.")
    for name in sys.argv[2:] or [name for name in KINDS if name.endswith("_2_5") == is_old]:
        shutil.rmtree(out / name, ignore_errors=True)
        with tempfile.TemporaryDirectory() as meeting:
            mp.spawn(write, (name, out / name, f"{meeting}/meeting"), nprocs=KINDS[name][1])
        dcp_to_torch_save(out / name, out / f"{name}.pt")
