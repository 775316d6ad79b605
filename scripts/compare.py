#!/usr/bin/env python3
"""Runs a benchmark of ours and PyTorch's side of it in turns, on this machine, and prints a table.

    scripts/compare.py SECTION [--rounds 3] [--python PYTHON] [--threads 1] [--filter TEXT]

SECTION names a row of SECTIONS below. PYTHON is an interpreter that has torch and torchvision.
Both sides print JSON lines {"name", "threads", "median_s", "min_s", ...}; rows are matched by name
and thread count, the least of all rounds counts, and the ratio is PyTorch's time over ours.
"""

import argparse, json, os, subprocess, sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PEER = os.path.join(ROOT, "scripts", "peer_bench.py")
LAUNCH = ["cargo", "launch"]

# section: (our command, PyTorch's command); {python} and {threads} are filled in
SECTIONS = {
    "elem": (["cargo", "bench", "--bench", "pointwise", "--bench", "ops"], ["{python}", PEER, "elem"]),
    "overhead": (["cargo", "bench", "--bench", "pointwise"], ["{python}", PEER, "overhead"]),
    "nn": (["cargo", "bench", "--bench", "nn_ops"], ["{python}", PEER, "gemm", "conv", "attn", "elem"]),
    "ddp": (["cargo", "bench", "--bench", "collectives"], ["{python}", PEER, "ddp"]),
    "loader": (["cargo", "bench", "--bench", "loader"], ["{python}", PEER, "loader"]),
    "launch": (["cargo", "bench", "--bench", "launch"], ["{python}", PEER, "launch"]),
    "train_step": (
        ["cargo", "bench", "--bench", "train_step"],
        ["{python}", "-m", "torch.distributed.run", "--nproc-per-node", "2",
         os.path.join(ROOT, "scripts", "peer_train_step.py")],
    ),
}


def rows(command, env):
    """The JSON lines of a command's output, by (name, threads)."""
    result = subprocess.run(command, cwd=ROOT, env={**os.environ, **env}, stdout=subprocess.PIPE, text=True)
    if result.returncode != 0:
        sys.exit(f"{' '.join(command)} failed with status {result.returncode}")
    found = {}
    for line in result.stdout.splitlines():
        line = line[line.find("{"):] if "{" in line else ""
        try:
            row = json.loads(line)
            found[row["name"].replace("_gloo", "_").replace("_shm", "_").replace("__", "_"), row["threads"]] = row
        except (json.JSONDecodeError, KeyError, TypeError):
            continue
    return found


def least(best, new):
    for key, row in new.items():
        if "min_s" in row and (key not in best or row["min_s"] < best[key]["min_s"]):
            best[key] = row


def show(seconds):
    for unit, scale in (("s", 1), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("section", choices=SECTIONS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--threads", default="1")
    parser.add_argument("--filter", default="")
    args = parser.parse_args()
    ours_command, peer_command = SECTIONS[args.section]
    peer_command = [part.format(python=args.python) for part in peer_command]
    if PEER in peer_command:
        peer_command += ["--threads", args.threads] + (["--filter", args.filter] if args.filter else [])
    env = {"OMP_NUM_THREADS": args.threads, "MKL_NUM_THREADS": args.threads}
    ours, peer = {}, {}
    for turn in range(args.rounds):
        print(f"round {turn + 1} of {args.rounds}", file=sys.stderr)
        least(ours, rows(ours_command, env))
        least(peer, rows(peer_command, env))
    print("| row | threads | torchrs | PyTorch | PyTorch / torchrs |\n| --- | --- | --- | --- | --- |")
    for key in ours:
        if key in peer and args.filter in key[0]:
            a, b = ours[key]["min_s"], peer[key]["min_s"]
            print(f"| {key[0]} | {key[1]} | {show(a)} | {show(b)} | {b / a:.2f} |")
    for side, name in ((ours, "torchrs"), (peer, "PyTorch")):
        other = peer if side is ours else ours
        alone = [key[0] for key in side if key not in other and args.filter in key[0]]
        if alone:
            print(f"only {name}: {', '.join(alone)}", file=sys.stderr)


main()
