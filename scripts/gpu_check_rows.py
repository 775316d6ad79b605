"""The benchmarks of gpu-check: our rows and PyTorch's in turns, section by section, and their table."""

import json, math, os, queue, shutil, subprocess, sys, threading, time

# The cheap ones first: what there is no time for is missing at the end.
SECTIONS = ["launches", "bytes", "products", "attention", "gpt2", "optim", "resnet50", "alexnet", "vgg19"]


def interpreter(named):
    """An interpreter with PyTorch, or none."""
    test = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"
    for python in [named or os.environ.get("TORCHRS_PEER_PYTHON"), sys.executable, shutil.which("python3")]:
        if python and subprocess.run([python, "-c", test], check=False).returncode == 0:
            return python
    return None


class Peer:
    """PyTorch's process, which stays: it is told sections one by one."""

    def __init__(self, process):
        self.process, self.lines = process, queue.Queue()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put(None)

    def ask(self, section, seconds):
        """A section's lines. None behind them where the process ended or took longer."""
        end = time.monotonic() + seconds
        self.process.stdin.write(f"{section}\n")
        self.process.stdin.flush()
        while True:
            try:
                line = self.lines.get(timeout=max(end - time.monotonic(), 0.01))
            except queue.Empty:
                line = None
            if line is None or '"done"' in line:
                if line is None:
                    yield None
                return
            yield line


class Rows:
    """Rows of both sides, by name; a side's time is the least of its rounds' medians."""

    def __init__(self, stage, ours, peer, simulated):
        self.stage, self.ours, self.peer_command, self.simulated = stage, ours, peer, simulated
        self.sides, self.about, self.peer = ({}, {}), None, None

    def take(self, side, line):
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            return
        if "peer" in row:
            self.about = row["peer"]
            print(f"    {self.about}", flush=True)
        elif "name" in row:
            self.sides[side].setdefault(row["name"], []).append(row)
            if "error" in row:
                print(f"    {('torchrs', 'PyTorch')[side]}: {row['name']}: {row['error'][:200]}", flush=True)

    def measure(self, sections, rounds, late):
        try:
            for turn in range(rounds):
                start = time.monotonic()
                for section in sections:
                    print(f"    round {turn + 1}: {section}", flush=True)
                    self.one(section)
                if self.stage.left() < 1.1 * (time.monotonic() - start):
                    break
        finally:
            if self.peer:
                self.peer.process.kill()
                self.peer.process.wait()
        if self.stage.left() <= 1:
            raise late(self.summary())

    def one(self, section):
        """Ours, then PyTorch's."""
        if self.stage.left() < 2:
            return
        process = self.stage.begin(self.ours(section), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self.stage.log)
        killer = threading.Timer(min(self.stage.left(), 60), process.kill)
        killer.start()
        for line in process.stdout:
            self.take(0, line)
        killer.cancel()
        if process.wait() != 0:
            name = f"section {section}"
            self.take(0, json.dumps({"name": name, "error": f"ended with status {process.returncode}"}))
        if self.peer_command is None or self.stage.left() < 2:
            return
        if self.peer is None:
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self.stage.log}
            env = {**os.environ, **({"OMP_NUM_THREADS": "1"} if self.simulated else {})}
            self.peer = Peer(self.stage.begin(self.peer_command, env, **pipes))
        try:
            for line in self.peer.ask(section, min(self.stage.left(), 60)):
                if line is None:
                    raise BrokenPipeError
                self.take(1, line)
        except BrokenPipeError:
            self.take(1, json.dumps({"name": f"section {section}", "error": "PyTorch's side ended or took too long"}))
            self.peer.process.kill()
            self.peer.process.wait()
            self.peer = None

    def best(self, side, name):
        good = [row for row in self.sides[side].get(name, []) if "error" not in row]
        return min(good, key=lambda row: row["median_s"], default=None)

    def table(self):
        """Prints all rows; what the report keeps of them."""
        names = dict.fromkeys([*self.sides[0], *self.sides[1]])
        copy, kept = self.best(0, "copy_f32_256Mi"), []
        for name in names:
            ours, peer = self.best(0, name), self.best(1, name)
            row = {"name": name, "unit": (ours or peer or {}).get("unit", "")}
            for side, of in (("ours", ours), ("peer", peer)):
                if of:
                    row[side] = of["rate"] * of["min_s"] / of["median_s"] if row["unit"] != "us" else of["median_s"] * 1e6
                    row[f"{side}_host_us"] = of["host_s"] * 1e6
                else:
                    errors = [r["error"] for r in self.sides[side == "peer"].get(name, []) if "error" in r]
                    row[f"{side}_error"] = errors[0] if errors else "no such row"
            if ours and peer:
                row["ratio"] = peer["median_s"] / ours["median_s"]
            if ours and copy and row["unit"] == "GB/s":
                row["of_copy"] = row["ours"] / copy["rate"]
            kept.append(row)
        if self.simulated:
            return [{key: row[key] for key in row if key in ("name", "unit", "ours_error", "peer_error")} for row in kept]
        print("\n| row | unit | torchrs | PyTorch | torchrs / PyTorch | of a copy | host us | PyTorch's |")
        print("| --- | --- | --- | --- | --- | --- | --- | --- |")
        show = lambda row, key, form: format(row[key], form) if key in row else ""
        for row in kept:
            cells = [show(row, "ours", ".4g"), show(row, "peer", ".4g"), show(row, "ratio", ".2f"), show(row, "of_copy", ".0%")]
            cells += [show(row, "ours_host_us", ".1f"), show(row, "peer_host_us", ".1f")]
            print(f"| {row['name']} | {row['unit']} | " + " | ".join(cells) + " |")
        print(f"\n{self.summary()}")
        return kept

    def summary(self):
        """How many rows both sides have, and their mean."""
        names = [name for name in self.sides[0] if self.best(0, name) and self.best(1, name)]
        failed = sum(any("error" in row for row in rows) for side in self.sides for rows in side.values())
        note = f"{len(names)} rows of both sides, {failed} failed"
        ours_only = [name for name in self.sides[0] if self.best(0, name) and name not in names]
        if ours_only:
            note += f", {len(ours_only)} of torchrs alone"
        if names and not self.simulated:
            ratios = [self.best(1, name)["median_s"] / self.best(0, name)["median_s"] for name in names]
            mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
            worst = min(zip(ratios, names))
            behind = sum(ratio < 1 for ratio in ratios)
            note += f"; geometric mean {mean:.2f}, worst {worst[1]} {worst[0]:.2f}, {behind} behind"
        if failed and self.simulated:
            raise AssertionError(note)
        return note
