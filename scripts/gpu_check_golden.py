"""PyTorch's recorded results on the device. Cases are dealt out to a process per core, as kernels have to be compiled;
a case that hangs, ends its process or leaves the device unusable is named, and a new process goes on behind it."""

import os, subprocess, threading

from gpu_check_run import ROOT, Late, Lines, ending, row_of

# Seconds for a case with its kernels' compilation, and how often a part is started again.
CASE, RESTARTS = 40, 12
OUTCOMES = ("passed", "known", "wrong", "missing", "not implemented", "skipped")


class Part:
    """One of the processes, as often as it has to be started."""

    def __init__(self, stage, command, env, name):
        self.stage, self.command, self.env, self.name = stage, command, env, name
        self.counts, self.running, self.last, self.late = dict.fromkeys(OUTCOMES, 0), None, None, False

    def run(self):
        for _ in range(RESTARTS + 1):
            if not self.once():
                return
        self.stage.fail(self.name, f"was started {RESTARTS + 1} times; the cases behind {self.last} were not run")

    def once(self):
        """Runs to an end of the process; whether there are cases left to run."""
        more = ["--after", self.last] if self.last else []
        with open(os.path.join(self.stage.machine.work, f"{self.name}.log"), "a") as log:
            lines = Lines(self.stage, self.command + more, self.env, stderr=log)
            lost, failed, hung = False, False, False
            try:
                while (line := lines.next(CASE)) is not None:
                    log.write(line)
                    lost = self.take(line) or lost
            except Late:
                hung = True
            if hung:
                lines.process.kill()
            status = lines.end()
        if hung and self.stage.left() < 1:
            self.late = True
            return False
        if self.running:
            failed = True
            why = f"took more than {CASE} s" if hung else f"the process {ending(status)}"
            self.stage.fail(self.running, why)
            self.counts["wrong"] += 1
            self.last, self.running = self.running, None
        elif hung:
            self.stage.fail(self.name, "hung between cases")
        elif status != 0 and not lost and not self.bad and not more:
            self.stage.fail(self.name, f"{ending(status)} without a case")
        return bool(lost or failed)

    @property
    def bad(self):
        return self.counts["wrong"] + self.counts["missing"]

    def take(self, line):
        """Notes a line; whether it says that the device is lost."""
        row = row_of(line)
        if "begin" in row:
            self.running = row["begin"]
        elif "case" in row:
            self.running, self.last = None, row["case"]
            self.counts[row["outcome"]] += 1
            if row["outcome"] in ("wrong", "missing"):
                self.stage.fail(row["case"], row["why"] if row["outcome"] == "wrong" else f"no kernel: {row['why']}")
        elif "lost" in row:
            if row["lost"] not in [failure["name"] for failure in self.stage.failures]:
                self.counts["wrong"] += 1
                self.stage.fail(row["lost"], "the device takes no work behind it")
            return True
        return False


def cases():
    folder = os.path.join(ROOT, "golden")
    return folder if os.path.isdir(folder) else os.path.join(ROOT, "tests", "golden", "cases")


def golden(stage, quick=False, words=()):
    """All cases, or with `quick` one of each op and kind."""
    machine = stage.machine
    program = machine.binary("golden")
    if program is None:
        raise FileNotFoundError("golden is not built")
    count = 1 if machine.simulated else max(1, min(14, machine.cores))
    parts, threads = [], []
    for part in range(count):
        folder = os.path.join(machine.work, f"golden-{part}")
        env = {**machine.environment(), "TORCHRS_GOLDEN_DIR": cases(), "TORCHRS_GOLDEN_REPORT": folder}
        command = [program, "--device", "cuda", "--lines", "--part", f"{part}/{count}", *words]
        command += ["--per-op", "1"] if quick else []
        parts.append(Part(stage, command, env, f"golden-{part}"))
        threads.append(threading.Thread(target=parts[-1].run))
        threads[-1].start()
    for thread in threads:
        thread.join()
    sums = {outcome: sum(part.counts[outcome] for part in parts) for outcome in OUTCOMES}
    note = ", ".join(f"{count} {outcome}" for outcome, count in sums.items() if count or outcome in ("passed", "wrong"))
    if any(part.late for part in parts):
        raise Late(note + "; in progress: " + ", ".join(part.running or part.name for part in parts if part.late))
    if stage.failures or not sums["passed"]:
        raise AssertionError(note)
    return note
