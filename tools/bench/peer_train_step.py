#!/usr/bin/env python3
"""PyTorch's side of benches/train_step.rs: the default training step (the digits CNN, AdamW, 16
samples per rank) under DistributedDataParallel with gloo. Run by torchrun; rank 0 prints one JSON
line in peer_bench.py's format."""

import json, time

import torch, torch.nn as nn, torch.nn.functional as F
import torch.distributed as dist


class Cnn(nn.Module):
    """The `Cnn` of examples/train/models.rs for 1x8x8 images and 10 classes."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3, padding=1)
        self.conv2 = nn.Conv2d(32, 64, 3, padding=1)
        self.fc1 = nn.Linear(64 * 4 * 4, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rank, world = dist.get_rank(), dist.get_world_size()
    net = nn.parallel.DistributedDataParallel(Cnn(), gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(net.parameters(), lr=2e-3, fused=True)
    x, y = torch.randn(16, 1, 8, 8), torch.randint(0, 10, (16,))

    def step():
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()

    for _ in range(20):
        step()
    samples = []
    for _ in range(30):
        dist.barrier()
        start = time.perf_counter()
        for _ in range(20):
            step()
        samples.append((time.perf_counter() - start) / 20)
    if rank == 0:
        samples.sort()
        print(json.dumps({"name": f"train_step_ddp{world}_digits_cnn", "threads": 1, "median_s": samples[15],
                          "min_s": samples[0], "unit": "sample/s", "rate": 16 * world / samples[0]}), flush=True)
    dist.destroy_process_group()


main()
