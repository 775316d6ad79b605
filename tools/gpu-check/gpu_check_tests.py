"""Test programs on the device: every test in a process of its own with a limit of its own, some at a time."""

import concurrent.futures, re, threading

from gpu_check_run import Late, ending

# Seconds for a test, its kernels' compilation included.
TEST = 60


def listed(stage, name, filters):
    """The tests of a program whose names hold one of the filters."""
    program = stage.machine.program(name)
    status, text = stage.run([program, "--list", "--format", "terse"], limit=20)
    if status != 0:
        raise AssertionError(f"{name} --list {ending(status)}")
    tests = [line[: -len(": test")] for line in text.splitlines() if line.endswith(": test")]
    return [(program, test) for test in tests if not filters or any(part in test for part in filters)]


def message(text):
    """The first line of what a test that failed says: that of the process inside it, if there is one."""
    lines = [line.strip() for line in text.splitlines()]
    after = [lines[i + 1] for i, line in enumerate(lines[:-1]) if re.match(r"thread .* panicked at", line)]
    # The test that starts itself again repeats what the inner process printed, head first.
    plain = [line for line in after if line and not line.startswith("running ")]
    said = plain or [line for line in lines if "error" in line.lower()] or [line for line in lines[-1:] if line]
    return said[0] if said else "nothing was printed"


def tests(stage, programs, threads=None, apart=()):
    """Runs the tests of programs, each with filters; not those whose names hold one of the words apart."""
    todo = [test for name, filters in programs for test in listed(stage, name, filters)]
    todo = [(program, name) for program, name in todo if not any(word in name for word in apart)]
    if not todo:
        raise AssertionError("there is no such test")
    env, limit = stage.machine.environment(2), min(TEST, 0.7 * stage.limit)
    counts, reasons, lock = {"passed": 0, "failed": 0, "skipped": 0, "not run": 0}, set(), threading.Lock()
    running = set()

    def one(test):
        program, name = test
        if stage.left() < 1:
            with lock:
                counts["not run"] += 1
            return
        # Others that are ignored are parts of tests.
        large = ["--include-ignored"] if name.endswith("_on_hardware") and not stage.machine.simulated else []
        running.add(name)
        status, text = stage.run([program, name, "--exact", "--nocapture", "--test-threads=1", *large], env, limit)
        skips = [line.strip() for line in text.splitlines() if "skipped: " in line]
        with lock:
            outcome = "failed" if status != 0 else "passed" if "1 passed" in text else "skipped"
            if status is None and stage.left() < 1:
                outcome = "not run"
            else:
                running.discard(name)
            if outcome == "passed" and skips and all("a part" not in line for line in skips):
                outcome = "skipped"
            counts[outcome] += 1
            reasons.update(line[line.index("skipped: ") :][:160] for line in skips)
        if outcome == "failed":
            stage.fail(name, f"took more than {limit:.0f} s" if status is None else ending(status) + ": " + message(text))

    # Tests of times and memory want no crowd.
    with concurrent.futures.ThreadPoolExecutor(threads or max(1, min(6, stage.machine.cores // 2))) as pool:
        list(pool.map(one, todo))
    for reason in sorted(reasons)[:12]:
        print(f"    {reason}", flush=True)
    note = ", ".join(f"{count} {word}" for word, count in counts.items() if count or word in ("passed", "failed"))
    if counts["not run"]:
        raise Late(note + (f"; in progress: {', '.join(sorted(running))}" if running else ""))
    if counts["failed"]:
        raise AssertionError(note)
    if not counts["passed"]:
        raise AssertionError(f"no test ran: {note}")
    return note
