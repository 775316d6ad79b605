#!/usr/bin/env python3
"""Prints the tables of `bench-vs-torch` from what it wrote with --json.

    tools/bench/bench_table.py FILE.json...
    tools/bench/bench_table.py --book [--check]

Of a row that several files have, the last file's counts. `--book` writes the book's performance tables and pictures
from perf/*.json (`bench_book.py`); with `--check` it writes nothing and fails if one of them is stale.
"""

import json, math, sys

# What a table of several sections is called.
TITLES = {
    "launch": "Start-up",
    "ddp": "Data parallel, two ranks of one thread",
    "train_step": "The default training step on two ranks",
    "loader": "Loading data",
    "images": "Images and tokens, two workers",
    "parquet": "Rows of Parquet files, two workers",
    "transforms": "Image transforms, u8",
    "hosts": "Two hosts, as network namespaces of one machine",
    "overhead": "Small ops",
    "elem": "Elementwise, reductions, norms, pooling, indexing",
    "gemm": "Matrix products",
    "conv": "Convolutions",
    "attn": "Attention",
    "optim": "Optimizer steps",
    "train": "Whole training steps",
}


def show(seconds):
    for unit, scale in (("s", 1), ("ms", 1e-3), ("us", 1e-6)):
        if float(f"{seconds / scale:.3g}") >= 1:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def geometric_mean(ratios):
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def is_behind(ratio):
    """Whether a ratio is below one as tables show it."""
    return round(ratio, 2) < 1


def by_threads(rows):
    """Rows of each thread count, the fewest first."""
    return {n: [row for row in rows if row["threads"] == n] for n in sorted({row["threads"] for row in rows})}


def line(cells):
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def section_table(rows):
    """One line for each name, the least ratio of any thread count first: times, ratios and shares of the ceiling. Where
    PyTorch is slower unless told of a faster way, that time is in brackets."""
    counts = list(by_threads(rows))
    named = {}
    for row in rows:
        named.setdefault(row["name"], {})[row["threads"]] = row
    memory, shares, least = (any(key in row for row in rows) for key in ("ours_peak_mib", "share", "ratio_at_best"))
    columns = ["torchrs", "PyTorch", "ratio"] + ["at best"] * least + ["share"] * shares
    head = ["row"]
    for n in counts:
        of = f"{n} thread{'s' if n > 1 else ''}: " if len(counts) > 1 else ""
        head += [of + columns[0], *columns[1:]]
    head += ["peak MiB", "PyTorch's", "of that its import"] if memory else []
    lines = [line(head), line(["---"] * len(head))]
    for name, its in sorted(named.items(), key=lambda item: min(row["ratio"] for row in item[1].values())):
        cells = [name]
        for n in counts:
            row = its.get(n)
            if row is None:
                cells += [""] * len(columns)
                continue
            share = [f"{row['share']:.0%}" if "share" in row else ""] * shares
            ratios = [f"{row['ratio']:.2f}"] + [f"{row['ratio_at_best']:.2f}" if "ratio_at_best" in row else ""] * least
            default = f" ({show(row['peer_default_s'])})" if "peer_default_s" in row else ""
            cells += [show(row["ours_s"]), show(row["peer_s"]) + default, *ratios, *share]
        for what in ("ours_peak_mib", "peer_peak_mib", "peer_import_mib") if memory else ():
            cells.append(max((row[what] for row in its.values() if what in row), default=""))
        lines.append(line(cells))
    return "\n".join(lines)


def summary_table(rows):
    """A line for each section: geometric means, the worst row and how many are behind, for each thread count."""
    counts = list(by_threads(rows))
    head = ["section"]
    for n in counts:
        head += [f"{n} thread{'s' if n > 1 else ''}: geometric mean", "by least times", "worst", "behind"]
    lines = [line(head), line(["---"] * len(head))]
    for section in dict.fromkeys(row["section"] for row in rows):
        its = by_threads([row for row in rows if row["section"] == section])
        cells = [TITLES.get(section, section)]
        for n in counts:
            if n not in its:
                cells += [""] * 4
                continue
            worst = min(its[n], key=lambda row: row["ratio"])
            cells += [f"{geometric_mean([row[key] for row in its[n]]):.2f}" for key in ("ratio", "ratio_at_best")]
            cells += [f"{worst['name']} {worst['ratio']:.2f}"]
            cells += [f"{sum(is_behind(row['ratio']) for row in its[n])} of {len(its[n])}"]
        lines.append(line(cells))
    return "\n".join(lines)


def main():
    if "--book" in sys.argv[1:]:
        import bench_book

        sys.exit(bench_book.main("--check" in sys.argv[1:]))
    rows = {}
    for path in sys.argv[1:]:
        with open(path) as file:
            for row in json.load(file):
                rows[row["section"], row["name"], row["threads"]] = row
    if not rows:
        sys.exit("usage: bench_table.py FILE.json... of bench-vs-torch --json")
    rows = list(rows.values())
    print(summary_table(rows))
    for section in dict.fromkeys(row["section"] for row in rows):
        print(f"\n## {TITLES.get(section, section)}\n")
        print(section_table([row for row in rows if row["section"] == section]))


if __name__ == "__main__":
    main()
