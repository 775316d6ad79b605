#!/usr/bin/env python3
"""PyTorch's side of the bench `checkpoint`: distributed checkpoints of two CPU processes over gloo, a JSON line per row.

    peer_dcp.py [MIB]

The state is 32 float32 tensors of MIB MiB together (1024), each a DTensor that is cut along dimension 0. A row's rate is
that of the slowest rank over the bytes of the whole state. `dcp.save` brings its files to disk, as ours do.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time

WORLD, TENSORS, REPEAT = 2, 32, 3
FOLDER = os.path.join(tempfile.gettempdir(), "peer_dcp")


class Bench:
    def __init__(self, rank, gigabytes):
        self.rank, self.gigabytes = rank, gigabytes

    def slowest(self, seconds):
        import torch
        import torch.distributed as dist

        seconds = torch.tensor(seconds)
        dist.all_reduce(seconds, dist.ReduceOp.MAX)
        return seconds.item()

    def row(self, name, work, before=lambda: None):
        import torch.distributed as dist

        seconds = []
        for _ in range(REPEAT):
            before()
            dist.barrier()
            start = time.perf_counter()
            work()
            seconds.append(self.slowest(time.perf_counter() - start))
        self.print(name, seconds)

    def print(self, name, seconds):
        seconds = sorted(seconds)
        if self.rank == 0:
            row = {"name": name, "threads": WORLD, "median_s": seconds[len(seconds) // 2], "min_s": seconds[0]}
            print(json.dumps({**row, "unit": "GB/s", "rate": self.gigabytes / seconds[0]}), flush=True)


def measure(mib):
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, mesh = dist.get_rank(), init_device_mesh("cpu", (WORLD,))
    torch.manual_seed(0)
    rows = mib * 2**20 // 4 // TENSORS // 1024
    state = {
        f"layer{i}.weight": distribute_tensor(torch.randn(rows, 1024), mesh, [Shard(0)]) for i in range(TENSORS)
    }
    bench = Bench(rank, TENSORS * rows * 4096 / 1e9)
    own = [tensor.to_local() for tensor in state.values()]
    copies = [torch.zeros_like(tensor) for tensor in own]
    bench.row("memcpy_own_half", lambda: [copy.copy_(tensor) for copy, tensor in zip(copies, own)])
    del copies

    def clean():
        dist.barrier()
        if rank == 0:
            shutil.rmtree(FOLDER, ignore_errors=True)
            os.sync()
        dist.barrier()

    bench.row("dcp_save2", lambda: dcp.save(state, storage_writer=dcp.FileSystemWriter(FOLDER)), clean)
    bench.row("dcp_load2", lambda: dcp.load(state, checkpoint_id=FOLDER))
    blocking, total = [], []
    for _ in range(REPEAT + 1):
        clean()
        start = time.perf_counter()
        future = dcp.async_save(state, storage_writer=dcp.FileSystemWriter(FOLDER))
        blocking.append(bench.slowest(time.perf_counter() - start))
        getattr(future, "upload_completion", future).result()
        total.append(bench.slowest(time.perf_counter() - start))
    bench.print("dcp_async_blocking2_first", blocking[:1])
    bench.print("dcp_async_blocking2", blocking[1:])
    bench.print("dcp_async_total2", total[1:])
    clean()
    dist.destroy_process_group()


def main():
    mib = next((argument for argument in sys.argv[1:] if argument.isdigit()), "1024")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    job = {"WORLD_SIZE": str(WORLD), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, os.path.abspath(__file__), mib]
    ranks = [subprocess.Popen(command, env={**os.environ, **job, "RANK": str(rank)}) for rank in range(WORLD)]
    sys.exit(max(rank.wait() for rank in ranks))


if __name__ == "__main__":
    measure(int(sys.argv[1])) if "RANK" in os.environ else main()
