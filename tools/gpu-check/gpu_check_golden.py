"""PyTorch's recorded results on the device. Cases are dealt out to a process per core, as kernels have to be compiled;
a case that hangs, ends its process or leaves the device unusable is named, and a new process goes on behind it."""

import os
from concurrent.futures import ThreadPoolExecutor

from gpu_check_run import ROOT, Late, Lines

# Seconds for a case with its kernels' compilation, and how many processes in turn may end without a case.
CASE, TRIES = 40, 3
OUTCOMES = ("passed", "known", "wrong", "missing", "not implemented", "skipped")


class Part:
    """A part of the cases, in as many processes as it takes."""

    def __init__(self, stage, command, env, name):
        self.stage, self.command, self.env, self.name = stage, command, env, name
        self.counts, self.running, self.last, self.late = dict.fromkeys(OUTCOMES, 0), None, None, False

    def run(self):
        tries = TRIES
        while tries:
            before = self.last
            if self.once() or self.late:
                return
            tries = tries - 1 if self.last == before else TRIES
        self.stage.fail(self.place(), "what comes there was not run")

    def place(self):
        """Where it is, between cases."""
        return f"{self.name} behind {self.last}" if self.last else self.name

    def once(self):
        """Runs a process; whether it came to the end of the cases."""
        more = ["--after", self.last] if self.last else []
        done = lost = False
        with open(os.path.join(self.stage.machine.work, f"{self.name}.log"), "a") as log:
            lines = Lines(self.stage, self.command + more, self.env, stderr=log)
            for row in lines.rows(CASE, log.write):
                self.take(row)
                done, lost = done or "done" in row, lost or "lost" in row
        if done:
            return True
        self.late = self.stage.left() < 1
        if self.late:
            return False
        if self.running:
            self.counts["wrong"] += 1
            self.last, name, self.running = self.running, self.running, None
            self.stage.fail(name, lines.why)
        elif not lost:
            self.stage.fail(self.place(), lines.why)
        return False

    def take(self, row):
        """Notes a row."""
        if "begin" in row:
            self.running = row["begin"]
        elif "case" in row:
            self.running, self.last = None, row["case"]
            self.counts[row["outcome"]] += 1
            if row["outcome"] in ("wrong", "missing"):
                self.stage.fail(row["case"], row["why"] if row["outcome"] == "wrong" else f"no kernel: {row['why']}")
        elif "lost" in row and row["lost"] not in [failure["name"] for failure in self.stage.failures]:
            self.counts["wrong"] += 1
            self.stage.fail(row["lost"], "the device takes no work behind it")


def cases():
    folder = os.path.join(ROOT, "golden")
    return folder if os.path.isdir(folder) else os.path.join(ROOT, "tests", "golden", "cases")


def golden(stage, quick=False, words=()):
    """All cases, or with `quick` one of each op and kind."""
    machine = stage.machine
    program = machine.program("golden")
    count = 1 if machine.simulated else max(1, min(14, machine.cores))
    parts = []
    for part in range(count):
        folder = os.path.join(machine.work, f"golden-{part}")
        env = {**machine.environment(), "TORCHRS_GOLDEN_DIR": cases(), "TORCHRS_GOLDEN_REPORT": folder}
        command = [program, "--device", "cuda", "--lines", "--part", f"{part}/{count}", *words]
        command += ["--per-op", "1"] if quick else []
        parts.append(Part(stage, command, env, f"golden-{part}"))
    with ThreadPoolExecutor(count) as pool:
        list(pool.map(Part.run, parts))
    sums = {outcome: sum(part.counts[outcome] for part in parts) for outcome in OUTCOMES}
    note = ", ".join(f"{count} {outcome}" for outcome, count in sums.items() if count or outcome in ("passed", "wrong"))
    if any(part.late for part in parts):
        raise Late(note + "; in progress: " + ", ".join(part.running or part.name for part in parts if part.late))
    if stage.failures or not sums["passed"]:
        raise AssertionError(note)
    return note
