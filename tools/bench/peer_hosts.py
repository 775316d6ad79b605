#!/usr/bin/env python3
"""PyTorch's side of benches/hosts.rs: a rank of the benchmarks over several hosts, with gloo. torchrun starts it on each
host, as bench-vs-torch's section `hosts` has it. Arguments: what the rows' names begin with, and `start`,
`allreduce`, `resnet18` or `nanogpt`.
"""

import json, os, sys, time

import torch
import torch.distributed as dist
import torch.nn.functional as F

# Label, bytes, repetitions; as in benches/hosts.rs.
SIZES = ("4KiB", 4 << 10, 200), ("256KiB", 256 << 10, 100), ("4MiB", 4 << 20, 40), ("100MiB", 100 << 20, 7)


def say(row):
    # One write: several ranks share the pipe.
    os.write(1, (json.dumps(row) + "\n").encode())


def emit(name, seconds, unit, work):
    if dist.get_rank() == 0:
        seconds.sort()
        say({"name": name, "threads": 1, "median_s": seconds[len(seconds) // 2], "min_s": seconds[0], "unit": unit,
             "rate": work / seconds[0]})


def timed(count, call):
    """Seconds of each call, from a barrier on."""
    seconds = []
    for _ in range(count):
        dist.barrier()
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return seconds


def start():
    one = torch.ones(1)
    dist.all_reduce(one)
    say({"ended": time.time()})
    assert one.item() == dist.get_world_size()


def all_reduce(prefix):
    for label, nbytes, count in SIZES:
        count = -(-count // (dist.get_world_size() // 2))
        x = torch.zeros(nbytes // 4)
        dist.all_reduce(x)
        emit(f"{prefix}_allreduce_{label}", timed(count, lambda: dist.all_reduce(x)), "GB/s", nbytes * 1e-9)


def train(prefix, model):
    if model == "resnet18":
        import torchvision

        net, unit, work = torchvision.models.resnet18(), "img/s", 8
        x, y = torch.randn(8, 3, 224, 224), torch.randint(0, 1000, (8,))
        make = lambda p: torch.optim.SGD(p, lr=1e-3, momentum=0.9, fused=True)
    else:
        from peer_bench import gpt

        net, unit, work = gpt(torch, 6, 384, 6, 65, 256), "tok/s", 4 * 256
        x, y = torch.randint(0, 65, (4, 256)), torch.randint(0, 65, (4 * 256,))
        make = lambda p: torch.optim.AdamW(p, lr=1e-4, fused=True)
    net = torch.nn.parallel.DistributedDataParallel(net, gradient_as_bucket_view=True)
    optimizer = make(net.parameters())

    def step():
        optimizer.zero_grad()
        scores = net(x)
        F.cross_entropy(scores.view(-1, scores.shape[-1]), y).backward()
        optimizer.step()

    for _ in range(2):
        step()
    batch = "b8" if model == "resnet18" else "b4"
    emit(f"{prefix}_{model}_{batch}_per_rank", timed(7, step), unit, work * dist.get_world_size())


def main():
    prefix, what = sys.argv[1:]
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    if what == "start":
        start()
    elif what == "allreduce":
        all_reduce(prefix)
    else:
        train(prefix, what)
    dist.barrier()
    # gloo's threads keep a process at its end now and then (PyTorch 2.5.1, torchrun on two hosts).
    os._exit(0)


if __name__ == "__main__":
    main()
