"""What gpu-check does with results of real GPUs, tried with programs that only pretend: rows and goals, cases that end or
hang their process, tests that fail, and reports that stay small. Run by tests/cuda/gpu_check_script.rs."""

import io, json, os, signal, stat, subprocess, sys, tarfile, tempfile, time, unittest
from contextlib import redirect_stdout
from unittest import mock

sys.dont_write_bytecode = True
import gpu_check_golden, gpu_check_kernels, gpu_check_report, gpu_check_rows, gpu_check_tests
from gpu_check_run import ROOT, Late, Machine, Plan, Stage

HEAD = "#!" + sys.executable + "\nimport json, os, sys, time\nsay = lambda **row: print(json.dumps(row), flush=True)\n"
# Twelve cases in two parts: one wrong, one hangs, one kills its process, one loses the device, one is known.
GOLDEN = HEAD + """
k, n = map(int, sys.argv[sys.argv.index("--part") + 1].split("/"))
after = sys.argv[sys.argv.index("--after") + 1] if "--after" in sys.argv else None
ids = [f"case{i}" for i in range(12) if i % n == k]
for id in ids[ids.index(after) + 1 if after else 0:]:
    say(begin=id)
    if id == "case3":
        time.sleep(60)
    if id == "case4":
        os.kill(os.getpid(), 11)
    outcome = {"case2": "wrong", "case5": "known", "case6": "wrong"}.get(id, "passed")
    say(case=id, outcome=outcome, why="numbers differ" if outcome == "wrong" else "")
    if id == "case6":
        say(lost=id)
        sys.exit(1)
say(done=True)
sys.exit(1 if k == 0 else 0)
"""
# Part 0 crashes and hangs between cases, and once does not start; part 1 never does.
GAPS = HEAD + """
after = sys.argv[sys.argv.index("--after") + 1] if "--after" in sys.argv else None
if "1/2" in sys.argv:
    sys.exit(101)
if after == "case2" and not os.path.exists("tried"):
    open("tried", "w").close()
    sys.exit(101)
for id, outcome in {None: [("case0", "wrong"), ("case1", "passed")], "case1": [("case2", "passed")], "case2": []}[after]:
    say(begin=id)
    say(case=id, outcome=outcome, why="")
if after is None:
    os.kill(os.getpid(), 11)
if after == "case1":
    time.sleep(60)
say(done=True)
"""
# A section of rows: the second kills the process, the third fails.
OURS = HEAD + """
skip = sys.argv[sys.argv.index("--skip") + 1].split(",") if "--skip" in sys.argv else []
rows = [("gemm", "TFLOP/s"), ("dies", "GB/s"), ("fails", "GB/s"), ("copy_f32_256Mi", "GB/s"), ("host_add", "us")]
for name, unit in rows:
    if name in skip:
        continue
    say(begin=name)
    if name == "dies":
        os.kill(os.getpid(), 9)
    if name == "fails":
        say(name=name, error="a kernel failed")
        continue
    say(name=name, unit=unit, median_s=1e-3, min_s=0.9e-3, rate=100.0, host_s=2e-6)
"""
PEER = HEAD + """
say(peer="PyTorch 9 on a GPU")
for section in map(str.strip, sys.stdin):
    rows = ("gemm", "TFLOP/s", 2e-3), ("fails", "GB/s", 1e-3), ("copy_f32_256Mi", "GB/s", 0.9e-3), ("host_add", "us", 4e-3)
    for name, unit, seconds in () if ":" in section else rows:
        say(begin=name)
        say(name=name, unit=unit, median_s=seconds, min_s=seconds, rate=50.0, host_s=9e-6)
    if section == "gpt2:compile":
        say(begin="train", compiled=True)
        os.kill(os.getpid(), 9)
    if section.endswith(":compile"):
        say(begin="gemm", compiled=True)
        say(name="gemm", compiled=True, unit="TFLOP/s", median_s=0.5e-3, min_s=0.5e-3, rate=50.0, host_s=9e-6)
    if section == "second":
        sys.exit(5)
    say(done=section)
"""
TESTS = HEAD + """
if "--list" in sys.argv:
    names = "passes", "fails", "hangs", "crashes", "skips", "is_a_part", "passes_on_hardware"
    print("\\n".join(f"a::{name}: test" for name in names))
elif sys.argv[1] == "a::fails":
    print("thread 'main' panicked at src/x.rs:1:2:\\nleft is not right"), sys.exit(101)
elif sys.argv[1] == "a::hangs":
    time.sleep(60)
elif sys.argv[1] == "a::crashes":
    os.kill(os.getpid(), 11)
elif sys.argv[1] == "a::is_a_part" or sys.argv[1] == "a::passes_on_hardware" and "--include-ignored" not in sys.argv:
    print(f"test {sys.argv[1]} ... ignored\\n\\ntest result: ok. 0 passed; 0 failed; 1 ignored")
else:
    print("skipped: only the simulated GPU has X\\n" * (sys.argv[1] == "a::skips") + "test result: ok. 1 passed; 0 failed")
"""
# Starts something, and never ends.
HANGS = HEAD + """
import subprocess
with open("started.new", "w") as file:
    print(os.getpid(), subprocess.Popen(["sleep", "60"]).pid, file=file)
os.rename("started.new", "started")
time.sleep(60)
"""


class Pretended(Machine):
    """A machine without a GPU whose programs are scripts."""

    def __init__(self, work):
        self.work, self.simulated, self.folders, self.cores = work, False, [], 2

    def binary(self, name):
        return os.path.join(self.work, name)


def runs(pid):
    """Whether a process still does anything."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


class Checks(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.machine = Pretended(self.folder.name)
        for name, text in (("golden", GOLDEN), ("gpu_check", OURS), ("peer", PEER), ("cuda", TESTS)):
            self.pretend(self.machine.binary(name), text)
        gpu_check_golden.CASE = gpu_check_tests.TEST = 1
        self.quiet = redirect_stdout(io.StringIO())
        self.quiet.__enter__()
        self.stage = Stage(self.machine, "stage", 30)

    def tearDown(self):
        self.stage.log.close()
        self.quiet.__exit__(None, None, None)
        self.folder.cleanup()

    def pretend(self, path, text):
        with open(path, "w") as file:
            file.write(text)
        os.chmod(path, stat.S_IRWXU)

    def rows(self, sections):
        ours = lambda section: [self.machine.binary("gpu_check"), "bench", section]
        rows = gpu_check_rows.Rows(self.stage, ours, [self.machine.binary("peer")], False)
        rows.measure(sections, 1)
        return rows

    def test_golden_goes_on_behind_what_ends_a_process(self):
        with self.assertRaises(AssertionError) as error:
            gpu_check_golden.golden(self.stage)
        self.assertEqual(str(error.exception), "7 passed, 1 known, 4 wrong")
        found = {failure["name"]: failure["message"] for failure in self.stage.failures}
        self.assertEqual(sorted(found), ["case2", "case3", "case4", "case6"])
        self.assertIn("SIGSEGV", found["case4"])
        self.assertIn("took more than", found["case3"])

    def test_golden_loses_no_case_between_processes(self):
        self.pretend(self.machine.binary("golden"), GAPS)
        with self.assertRaises(AssertionError) as error:
            gpu_check_golden.golden(self.stage)
        self.assertEqual(str(error.exception), "2 passed, 1 wrong")
        found = [f"{failure['name']}: {failure['message']}" for failure in self.stage.failures]
        unstarted = "golden-1: the process ended with status 101"
        self.assertEqual(sorted(found), sorted([
            "case0: ", "golden-0 behind case1: the process ended by SIGSEGV", "golden-0 behind case2: took more than 1 s",
            "golden-0 behind case2: the process ended with status 101",
            unstarted, unstarted, unstarted, "golden-1: what comes there was not run",
        ]))

    def test_what_fails_in_a_part_of_golden_is_told(self):
        self.pretend(self.machine.binary("golden"), HEAD + "say(case='case0', outcome='strange', why='')")
        self.assertRaises(KeyError, gpu_check_golden.golden, self.stage)

    def test_a_test_that_hangs_or_crashes_is_named(self):
        with self.assertRaises(AssertionError) as error:
            gpu_check_tests.tests(self.stage, [("cuda", [])], 5)
        self.assertEqual(str(error.exception), "2 passed, 3 failed, 2 skipped")
        found = {failure["name"]: failure["message"] for failure in self.stage.failures}
        self.assertIn("left is not right", found["a::fails"])
        self.assertIn("took more than", found["a::hangs"])
        self.assertIn("SIGSEGV", found["a::crashes"])

    def test_tests_behind_the_end_of_a_stage_are_not_run(self):
        todo = gpu_check_tests.listed(self.stage, "cuda", [])
        self.stage.until = self.stage.start
        with mock.patch("gpu_check_tests.listed", lambda *_: todo), self.assertRaises(Late) as late:
            gpu_check_tests.tests(self.stage, [("cuda", [])])
        self.assertEqual(str(late.exception), "0 passed, 0 failed, 7 not run")
        self.stage.log.seek(0)
        self.assertEqual(self.stage.log.read().count("$ "), 1)

    def test_a_test_that_is_still_running_at_the_end_of_a_stage_is_named(self):
        self.stage.until = time.monotonic() + 1.5
        with self.assertRaises(Late) as late:
            gpu_check_tests.tests(self.stage, [("cuda", ["hangs"])])
        self.assertEqual(str(late.exception), "0 passed, 0 failed, 1 not run; in progress: a::hangs")

    def test_rows_have_ratios_and_goals(self):
        rows = self.rows(["first"])
        table = {row["name"]: row for row in rows.table()}
        self.assertAlmostEqual(table["gemm"]["ratio"], 2.0)
        self.assertAlmostEqual(table["host_add"]["ours"], 1000.0)
        self.assertIn("SIGKILL", table["dies"]["ours_error"])
        self.assertEqual(table["dies"]["peer_error"], "not run")
        self.assertAlmostEqual(table["copy_f32_256Mi"]["of_copy"], 1.0)
        every, means, host, others = rows.goals()
        self.assertIn("MISSED: at least 1.0 on every row: 2 of 4 (fails a kernel failed, copy_f32_256Mi 0.90)", every)
        self.assertIn("not measured on both sides: 1 (dies)", others)
        self.assertIn("met: geometric mean at least 1.2: all rows 1.93 (2 device-time rows 1.34, 1 host-time rows 4.00)", means)
        self.assertIn("met: host time under a third of PyTorch's: 1 of 1", host)
        self.assertIn("| gemm | TFLOP/s | 90 | 50 | 2.00 |  | 2.0 | 9.0 |  |  |", rows.text())

    def test_compiled_models_are_a_side_of_their_own(self):
        self.stage.until += 60
        rows = self.rows(["gpt2", "resnet50"])
        table = {row["name"]: row for row in rows.table()}
        self.assertAlmostEqual(table["gemm"]["ratio"], 2.0)
        self.assertAlmostEqual(table["gemm"]["compiled_ratio"], 0.5)
        self.assertIn("SIGKILL", rows.sides[2]["train"][0]["error"])
        self.assertIn("| gemm | TFLOP/s | 90 | 50 | 2.00 |  | 2.0 | 9.0 | 50 | 0.50 |", rows.text())

    def test_the_peer_may_end_and_is_started_again(self):
        rows = self.rows(["second", "first"])
        self.assertEqual(len(rows.sides[1]["gemm"]), 2)
        self.assertIn("ended with status 5", rows.sides[1]["section second"][0]["error"])

    def test_without_pytorch_there_are_our_rows(self):
        ours = lambda section: [self.machine.binary("gpu_check"), "bench", section]
        rows = gpu_check_rows.Rows(self.stage, ours, None, False)
        rows.measure(["first"], 1)
        self.assertIn("no goal", rows.goals()[0])
        self.assertIn("| gemm | TFLOP/s | 90 |", rows.text())
        self.assertNotIn("peer_error", rows.table()[0])

    def test_a_run_that_is_ended_ends_all_and_leaves_a_report(self):
        work, out = (os.path.join(self.folder.name, name) for name in ("work", "out"))
        examples = os.path.join(self.folder.name, "debug", "examples")
        os.makedirs(examples)
        self.pretend(os.path.join(examples, "gpu_check"), HANGS)
        command = [sys.executable, os.path.join(ROOT, "scripts", "gpu-check"), "--stages", "graphs", "--work", work, "--out", out]
        env = {**os.environ, "CARGO_TARGET_DIR": self.folder.name}
        process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL)
        while not os.path.exists(os.path.join(work, "started")):
            self.assertIsNone(process.poll())
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(5), 1)
        with open(os.path.join(out, "gpu-check.json")) as file:
            self.assertEqual([stage["result"] for stage in json.load(file)["stages"]], ["running"])
        with open(os.path.join(work, "started")) as file:
            pids = file.read().split()
        until = time.monotonic() + 5
        while any(map(runs, pids)):
            self.assertLess(time.monotonic(), until)
            time.sleep(0.02)

    def test_a_report_is_small_whatever_happened(self):
        report = gpu_check_report.Report(self.machine, os.path.join(self.folder.name, "out"))
        failures = [{"name": f"case{i}", "message": "x" * 300} for i in range(500)]
        report.stages.append({"stage": "golden", "result": "failed", "seconds": 1.0, "note": "", "failures": failures})
        report.rows = self.rows(["first"])
        with open(os.path.join(self.folder.name, "long.log"), "wb") as file:
            file.write(b"first" + os.urandom(2 << 20) + b"last")
        report.write()
        files = os.listdir(report.out)
        self.assertEqual(sorted(files), ["gpu-check.json", "gpu-check.md", "logs.tar.gz"])
        self.assertLess(max(os.path.getsize(report.path(name)) for name in files), 1 << 20)
        with open(report.path("gpu-check.json")) as file:
            content = json.load(file)
        self.assertEqual((content["failed"], len(content["failures"])), (500, 60))
        self.assertEqual(content["failures"][0]["name"], "case0")
        with tarfile.open(report.path("logs.tar.gz")) as archive:
            data = archive.extractfile("long.log").read()
        self.assertTrue(data.startswith(b"first") and data.endswith(b"last"))


# `torchrs-warm`, which knows one of two architectures.
WARM = HEAD + """
folder = sys.argv[sys.argv.index("--folder") + 1]
assert "sm_90a" in sys.argv[sys.argv.index("--architectures") + 1]
open(os.path.join(folder, "fill-0123-13.0.cubin"), "w").write("code")
open(os.path.join(folder, ".turns"), "w").close()
print("left out: sm_120a")
sys.exit(1)
"""


class Kernels(unittest.TestCase):
    def packed(self, text):
        """A pack made with a program of this text: its folder, and what was printed."""
        pack, out = tempfile.mkdtemp(), io.StringIO()
        program = os.path.join(pack, "torchrs-warm")
        with open(program, "w") as file:
            file.write(text)
        os.chmod(program, stat.S_IRWXU)
        with redirect_stdout(out):
            gpu_check_kernels.pack(pack, pack, program)
        return pack, out.getvalue()

    def test_compiled_kernels_come_with_the_pack_and_are_found_from_it(self):
        pack, said = self.packed(WARM)
        self.assertIn("1 compiled kernels", said)
        work = tempfile.mkdtemp()
        folder = gpu_check_kernels.unpacked(pack, work)
        self.assertEqual(os.listdir(folder), ["fill-0123-13.0.cubin"])
        self.assertEqual(gpu_check_kernels.compiled(folder), 1)
        with mock.patch.dict(os.environ, {"TORCHRS_KERNEL_PACK": "/mine"}):
            self.assertEqual(gpu_check_kernels.environment(folder), {"TORCHRS_KERNEL_PACK": f"/mine:{folder}"})
        self.assertEqual(gpu_check_kernels.environment(None), {})

    def test_without_a_compiler_the_pack_has_no_kernels_and_says_so(self):
        pack, said = self.packed(HEAD + "sys.exit(2)")
        self.assertIn("no kernels in the pack", said)
        self.assertIsNone(gpu_check_kernels.unpacked(pack, tempfile.mkdtemp()))


class Times(unittest.TestCase):
    def test_what_comes_before_the_first_stage_is_nobodys_loss(self):
        seconds, limit = [5, 20, 150, 300], 475
        for before in (0, 4, 40):
            there = limit - before
            plan = Plan(seconds, there)
            for at, own in enumerate(seconds):
                left = plan.left(at, there)
                self.assertAlmostEqual(left, own * (limit - before) / limit)
                there -= left
        # What one leaves is the next one's.
        self.assertEqual(Plan(seconds, limit).left(1, 474), 24)


if __name__ == "__main__":
    unittest.main(warnings="ignore")
