"""The benchmarks of gpu-check: our rows and PyTorch's in turns, section by section, and their table."""

import math, os, shutil, subprocess, sys, time

import gpu_check_kernels
from gpu_check_run import ROOT, Late, Lines, end, ending, row_of

# What decides most comes first: what there is no time for is missing at the end.
SECTIONS = ["gpt2", "resnet50", "llama", "attention", "products", "bytes", "optim", "launches", "bert", "alexnet", "vgg19"]
# Those that PyTorch runs compiled, too, behind the first round; seconds for a row of them, and the least that must be left.
COMPILED_SECTIONS = ["gpt2", "resnet50", "llama", "bert"]
COMPILE, LEAST = 120, 45
# Seconds for a row, its kernels' compilation included; the first of PyTorch's rows waits for its start.
ROW, START = 30, 60
TORCHRS, PYTORCH, COMPILED = 0, 1, 2
NAMES = ("torchrs", "PyTorch", "compiled PyTorch")


def interpreter(named):
    """An interpreter with PyTorch, or none. What `--python` names has to be one that runs."""
    test = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"
    for python in [named, os.environ.get("TORCHRS_PEER_PYTHON"), sys.executable, shutil.which("python3")]:
        try:
            if python and subprocess.run([python, "-c", test], capture_output=True, timeout=20).returncode == 0:
                return python
        except (OSError, subprocess.SubprocessError) as error:
            if python == named:
                sys.exit(f"gpu-check: {named} does not run: {error}")
    return None


class Rows:
    """Rows of both sides, by name; a side's time is the least of its rounds' medians."""

    def __init__(self, stage, ours, peer, simulated):
        self.stage, self.ours, self.peer_command, self.simulated = stage, ours, peer, simulated
        self.sides, self.about, self.peer = ({}, {}, {}), None, None
        self.began = [None, None, None]

    def take(self, side, row):
        """Notes a row of a side; whether a section ends with it."""
        side = COMPILED if row.get("compiled") else side
        if "peer" in row:
            self.about = row["peer"]
            print(f"    {self.about}", flush=True)
        elif "begin" in row:
            self.began[side] = row["begin"]
        elif "name" in row:
            self.began[side] = None
            self.sides[side].setdefault(row["name"], []).append(row)
            if "error" in row:
                self.stage.fail(f"{NAMES[side]}: {row['name']}", row["error"])
        return "done" in row

    def lose(self, side, section, why):
        """Notes a row that hung or ended its process."""
        name = self.began[side] or f"section {section}"
        self.take(side, {"name": name, "error": why, "compiled": side == COMPILED})
        return name

    def measure(self, sections, rounds):
        """Section by section, as many rounds as there is time for."""
        try:
            for turn in range(rounds):
                start = time.monotonic()
                for section in sections:
                    print(f"    round {turn + 1}: {section}, {self.stage.left():.0f} s left", flush=True)
                    self.torchrs(section)
                    self.pytorch(section)
                    self.stage.changed()
                if turn == 0 and not self.simulated:
                    self.compiled([section for section in COMPILED_SECTIONS if section in sections])
                if self.stage.left() < 1.1 * (time.monotonic() - start):
                    break
        finally:
            if self.peer:
                end(self.peer.process)
        if self.stage.left() <= 1:
            raise Late(self.summary())

    def torchrs(self, section):
        """Our rows; behind one that ends the process, the rest in a new one."""
        skip = []
        for _ in range(4):
            if self.stage.left() < 2:
                return
            more = ["--skip", ",".join(skip)] if skip else []
            lines = Lines(self.stage, self.ours(section) + more, stderr=self.stage.log)
            failed = False
            for row in lines.rows(ROW, self.stage.write):
                self.take(TORCHRS, row)
                skip += [row["name"]] if "name" in row else []
                failed = "error" in row
            if self.stage.left() < 1:
                return
            if lines.status != 0 and not failed:
                skip.append(self.lose(TORCHRS, section, lines.why))
            if lines.status == 0 or skip[-1:] == [f"section {section}"]:
                return

    def compiled(self, sections):
        """PyTorch's rows of compiled models, while there is time to compile."""
        for section in sections:
            if self.peer_command and self.stage.left() >= LEAST:
                print(f"    compiled: {section}, {self.stage.left():.0f} s left", flush=True)
                self.pytorch(f"{section}:compile", COMPILE)
                self.stage.changed()

    def pytorch(self, section, seconds=ROW):
        """The same rows of the one process that PyTorch has."""
        if self.peer_command is None or self.stage.left() < 2:
            return
        started = self.peer is None
        try:
            if started:
                env = {**os.environ, **({"OMP_NUM_THREADS": "1"} if self.simulated else {})}
                self.peer = Lines(self.stage, self.peer_command, env, stdin=subprocess.PIPE, stderr=self.stage.log)
            self.peer.process.stdin.write(f"{section}\n")
            self.peer.process.stdin.flush()
            while True:
                line = self.peer.next(START if started and self.about is None else seconds)
                if line is None:
                    raise BrokenPipeError
                self.stage.write(line)
                if self.take(PYTORCH, row_of(line)):
                    return
        except (BrokenPipeError, Late) as error:
            end(self.peer.process)
            why = "took too long" if isinstance(error, Late) else f"the process {ending(self.peer.process.wait())}"
            if self.stage.left() > 1:
                self.lose(COMPILED if self.began[COMPILED] else PYTORCH, section, why)
            self.peer = None

    def best(self, side, name):
        good = [row for row in self.sides[side].get(name, []) if "error" not in row]
        return min(good, key=lambda row: row["median_s"], default=None)

    def names(self):
        return list(dict.fromkeys([*self.sides[TORCHRS], *self.sides[PYTORCH]]))

    def table(self):
        """All rows, as the report keeps them; ratios are PyTorch's time by ours."""
        copy, kept = self.best(TORCHRS, "copy_f32_256Mi"), []
        for name in self.names():
            ours, peer = self.best(TORCHRS, name), self.best(PYTORCH, name)
            row = {"name": name, "unit": (ours or peer or {}).get("unit", "")}
            for side, key, of in ((TORCHRS, "ours", ours), (PYTORCH, "peer", peer)):
                if of:
                    row[key] = speed(of)
                    row[f"{key}_host_us"] = of["host_s"] * 1e6
                elif side == TORCHRS or self.peer_command:
                    errors = [r["error"] for r in self.sides[side].get(name, []) if "error" in r]
                    row[f"{key}_error"] = errors[0][:300] if errors else "not run"
            if ours and peer:
                row["ratio"] = peer["median_s"] / ours["median_s"]
            compiled = self.best(COMPILED, name)
            if compiled:
                row["compiled"] = speed(compiled)
            if ours and compiled:
                row["compiled_ratio"] = compiled["median_s"] / ours["median_s"]
            if ours and copy and row["unit"] == "GB/s":
                row["of_copy"] = row["ours"] / speed(copy)
            kept.append(row)
        return kept

    def text(self):
        """The table for people, and what it says of each goal."""
        head = "| row | unit | torchrs | PyTorch | torchrs / PyTorch | of a copy | host us | PyTorch's | compiled | torchrs / compiled |"
        lines = [head, "| --- " * 10 + "|"]
        show = lambda row, key, form: format(row[key], form) if key in row else row.get(f"{key}_error", "")[:60].replace("|", "/")
        for row in self.table():
            cells = [show(row, "ours", ".4g"), show(row, "peer", ".4g"), show(row, "ratio", ".2f"), show(row, "of_copy", ".0%")]
            cells += [show(row, "ours_host_us", ".1f"), show(row, "peer_host_us", ".1f")]
            cells += [show(row, "compiled", ".4g"), show(row, "compiled_ratio", ".2f")]
            lines.append(f"| {row['name']} | {row['unit']} | " + " | ".join(cells) + " |")
        return "\n".join(lines + [""] + self.goals())

    def goals(self):
        """A line per goal: met, missed, or why nobody knows. A row of which PyTorch has a time and we have none is
        behind."""
        table = self.table()
        rows = [row for row in table if "ratio" in row]
        if not rows:
            return ["- no row has both sides: no goal can be judged"]
        judged = [{"ratio": 0.0, **row} for row in table if "peer" in row]
        behind = sorted((row for row in judged if row["ratio"] < 1), key=lambda row: row["ratio"])
        names = named(behind, lambda ratio: ratio)
        lines = [verdict(not behind, f"at least 1.0 on every row: {len(judged) - len(behind)} of {len(judged)}", names)]
        kinds = (("device-time", lambda row: row["unit"] != "us"), ("host-time", lambda row: row["unit"] == "us"))
        means = [f"{len(part)} {word} rows {mean(part):.2f}" for word, kind in kinds if (part := list(filter(kind, rows)))]
        lines.append(verdict(mean(rows) >= 1.2, f"geometric mean at least 1.2: all rows {mean(rows):.2f}", ", ".join(means)))
        host = [row for row in judged if row["unit"] == "us"]
        slow = [row for row in host if row["ratio"] <= 3]
        text = f"host time under a third of PyTorch's: {len(host) - len(slow)} of {len(host)} rows"
        lines += [verdict(not slow, text, named(slow, lambda ratio: 1 / ratio))] if host else []
        others = [row["name"] for row in table if "peer" not in row]
        return lines + ([f"- not measured on both sides: {len(others)} ({', '.join(others[:8])})"] if others else [])

    def summary(self):
        """How many rows both sides have, and their means. In a simulated run both must have the same ones."""
        both = [name for name in self.names() if self.best(TORCHRS, name) and self.best(PYTORCH, name)]
        failed = sum(any("error" in row for row in rows) for side in self.sides for rows in side.values())
        note = f"{len(both)} rows of both sides, {failed} failed"
        ours_only = [name for name in self.names() if self.best(TORCHRS, name) and name not in both]
        if ours_only:
            note += f", {len(ours_only)} of torchrs alone"
        if both and not self.simulated:
            rows = [row for row in self.table() if "ratio" in row]
            worst = min(rows, key=lambda row: row["ratio"])
            note += f"; geometric mean {mean(rows):.2f}, worst {worst['name']} {worst['ratio']:.2f}"
        if self.simulated and self.peer_command and set(self.sides[TORCHRS]) != set(self.sides[PYTORCH]):
            apart = sorted(set(self.sides[TORCHRS]) ^ set(self.sides[PYTORCH]))
            raise AssertionError(f"{note}; rows of one side: {', '.join(apart)}")
        if self.simulated and failed:
            raise AssertionError(note)
        return note


def mean(rows):
    """The geometric mean of ratios."""
    return math.exp(sum(math.log(row["ratio"]) for row in rows) / len(rows))


def speed(row):
    """A row's rate, or its microseconds, by its median."""
    return row["rate"] * row["min_s"] / row["median_s"] if row["unit"] != "us" else row["median_s"] * 1e6


def named(rows, number):
    """Rows with a number of their ratio, or why there is none."""
    return ", ".join(f"{row['name']} {row.get('ours_error') or format(number(row['ratio']), '.2f'):.40}" for row in rows[:8])


def verdict(met, text, more):
    return f"- {'met' if met else 'MISSED'}: {text}" + (f" ({more})" if more else "")


def commands(machine, python, quick):
    """What runs a section of ours, and PyTorch's side."""
    options = ["--tiny", "--budget", "0"] if machine.simulated else ["--budget", "0.05"] if quick else []
    ours = lambda section: [machine.program("gpu_check"), "bench", section, *options]
    device = ["--device", "cpu"] if machine.simulated else []
    return ours, [python, os.path.join(ROOT, "tools", "bench", "peer_gpu_bench.py"), *device, *options] if python else None


def warm(stage):
    """Every section with tiny sizes, all at a time: their kernels are compiled, and rows that fail are found early."""
    from concurrent.futures import ThreadPoolExecutor

    program = stage.machine.program("gpu_check")
    before = gpu_check_kernels.compiled(stage.machine.kernels)

    def one(section):
        status, text = stage.run([program, "bench", section, "--tiny", "--budget", "0"])
        rows = [row for line in text.splitlines() if (row := row_of(line))]
        for row in rows:
            if "error" in row:
                stage.fail(row["name"], row["error"])
        if status is not None and status != 0 and not any("error" in row for row in rows):
            stage.fail(f"section {section}", ending(status) + ": " + text.strip()[-200:])
        return status is not None, sum("error" not in row for row in rows if "name" in row)

    with ThreadPoolExecutor(max(2, min(9, stage.machine.cores))) as pool:
        results = list(pool.map(one, SECTIONS))
    compiled = gpu_check_kernels.compiled(stage.machine.kernels) - before
    note = f"{sum(count for _, count in results)} rows ran, {compiled} programs compiled"
    if stage.machine.packed_kernels:
        note += f" that are not among the pack's {gpu_check_kernels.compiled(stage.machine.packed_kernels)}"
    if not all(done for done, _ in results):
        raise Late(note)
    if stage.failures:
        raise AssertionError(f"{note}, {len(stage.failures)} failed")
    return note
