#!/usr/bin/env python3
"""PyTorch's side of the bench `fsdp`: DDP and FSDP2 on CPU processes over gloo, a JSON line per row.

    peer_fsdp.py [none|ddp|fsdp|fsdp_keep...] [WIDTH...]

The model is a GPT of 4 blocks, of heads of 32, over 256 words and 64 places; 4 x 64 tokens a rank; fused AdamW; one thread
a process, two processes. `fsdp_keep` keeps parameters from forward to backward. A step is over when its slowest rank is.
"""

import json
import os
import socket
import subprocess
import sys
import time

MODES = ["none", "ddp", "fsdp", "fsdp_keep"]
WIDTHS = ["128", "256", "512", "1024"]
LAYERS, BATCH, TOKENS, WORDS = 4, 4, 64, 256


def model(width):
    import torch
    from torch import nn
    from torch.nn import functional as F

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.l1, self.l2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.o = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.f, self.p = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            parts = self.qkv(self.l1(x)).split(width, 2)
            q, k, v = (part.view(BATCH, TOKENS, width // 32, 32).transpose(1, 2) for part in parts)
            seen = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
            x = x + self.o(seen.reshape(BATCH, TOKENS, width))
            return x + self.p(F.gelu(self.f(self.l2(x)), approximate="tanh"))

    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            self.te, self.pe = nn.Embedding(WORDS, width), nn.Embedding(TOKENS, width)
            self.b = nn.ModuleList(Block() for _ in range(LAYERS))
            self.ln, self.head = nn.LayerNorm(width), nn.Linear(width, WORDS, bias=False)

        def forward(self, tokens):
            x = self.te(tokens) + self.pe(torch.arange(TOKENS))
            for block in self.b:
                x = block(x)
            return self.head(self.ln(x))

    return Gpt()


def wrapped(net, mode, world):
    from torch import nn

    if mode == "ddp":
        return nn.parallel.DistributedDataParallel(net)
    if mode.startswith("fsdp"):
        from torch.distributed.device_mesh import init_device_mesh

        try:
            from torch.distributed.fsdp import fully_shard
        except ImportError:
            from torch.distributed._composable.fsdp import fully_shard
        mesh = init_device_mesh("cpu", (world,))
        for block in net.b:
            fully_shard(block, mesh=mesh, reshard_after_forward=mode == "fsdp")
        fully_shard(net, mesh=mesh, reshard_after_forward=False)
    return net


def rank_of(mode, width):
    import torch
    import torch.distributed as dist
    from torch.nn import functional as F

    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    world = dist.get_world_size()
    net = wrapped(model(width), mode, world)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=True)
    x, y = torch.randint(0, WORDS, (BATCH, TOKENS)), torch.randint(0, WORDS, (BATCH * TOKENS,))

    def step():
        optimizer.zero_grad()
        F.cross_entropy(net(x).view(-1, WORDS), y).backward()
        optimizer.step()

    for _ in range(3):
        step()
    seconds = []
    for _ in range(12 if width > 512 else 30):
        dist.barrier()
        start = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - start)
    own, all_ranks = torch.tensor(seconds), [torch.empty(len(seconds)) for _ in range(world)]
    dist.all_gather(all_ranks, own)
    if dist.get_rank() == 0:
        steps = torch.stack(all_ranks).max(0).values.sort().values.tolist()
        row = {"name": f"gpt4_{width}_{mode}{world}_adamw_fused", "threads": 1, "median_s": steps[len(steps) // 2]}
        row |= {"min_s": steps[0], "unit": "tok/s", "rate": BATCH * TOKENS * world / steps[0]}
        print(json.dumps(row), flush=True)
    dist.destroy_process_group()


def main():
    if "--rank-of" in sys.argv:
        mode, width = sys.argv[-2:]
        return rank_of(mode, int(width))
    modes = [mode for mode in MODES if mode in sys.argv] or MODES
    widths = [arg for arg in sys.argv[1:] if arg.isdigit()] or WIDTHS
    for width in widths:
        for mode in modes:
            world = 1 if mode == "none" else 2
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                port = free.getsockname()[1]
            job = {"WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
            job |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
            command = [sys.executable, os.path.abspath(__file__), "--rank-of", mode, width]
            ranks = [subprocess.Popen(command, env=os.environ | job | {"RANK": str(rank)}) for rank in range(world)]
            if any([rank.wait() for rank in ranks]):
                sys.exit(f"peer_fsdp.py: {mode} of width {width} failed")


if __name__ == "__main__":
    main()
