"""The loader in Rust: its worker processes, started from within Python."""

import gc
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
import unittest

from libraries import LIBRARIES, needs_torch, torch
from torchrs.data import DataLoader, Digits, Synthetic, TextWindows


def children():
    """The names of this process's children."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat") as file:
                fields = file.read().rpartition(")")[2].split()
            if int(fields[1]) == os.getpid() and fields[0] != "Z":
                with open(f"/proc/{pid}/cmdline") as file:
                    found.append(file.read().strip("\0").split("\0")[-1])
        except OSError:
            pass
    return sorted(found)


class Loader(unittest.TestCase):
    def test_workers_give_what_one_process_gives(self):
        for shuffle in (False, True):
            one, two = ([(x.tolist(), y.tolist()) for x, y in
                         DataLoader(Digits("validation"), 50, shuffle, num_workers=n, seed=3)] for n in (0, 2))
            self.assertEqual(one, two)
        self.assertEqual(sum(len(y) for _, y in one), 359)
        images, label = Digits("all")[-1]
        self.assertEqual((images.shape, label.shape), ((1, 8, 8), ()))

    def test_workers_are_processes_that_end_with_the_loader(self):
        loader = DataLoader(Synthetic(1000, shape=(1, 4, 4)), 10, num_workers=2)
        batches = iter(loader)
        first = next(batches)
        self.assertEqual(children(), ["loader worker 0", "loader worker 1"])
        held = [library.from_dlpack(part) for library in LIBRARIES for part in first]
        before = [part.tolist() for part in held]
        for _ in batches:
            pass
        # A batch that somebody holds is not written over, and outlives loader and workers.
        del loader, batches, first
        gc.collect()
        for _ in range(100):
            if not children():
                break
            time.sleep(0.05)
        self.assertEqual(children(), [])
        self.assertEqual([part.tolist() for part in held], before)

    def test_resume(self):
        def make():
            return DataLoader(Synthetic(20, shape=(1, 2, 2)), 3, True, seed=1)

        whole, stopped, resumed = make(), make(), make()
        every = [y.tolist() for _, y in whole]
        batches = iter(stopped)
        got = [next(batches)[1].tolist() for _ in range(2)]
        resumed.load_state_dict(stopped.state_dict())
        self.assertEqual(got + [y.tolist() for _, y in resumed], every)

    def test_errors(self):
        with self.assertRaisesRegex(ValueError, "batch_size"):
            DataLoader(Digits(), 0)
        with self.assertRaisesRegex(ValueError, "part"):
            Digits("test")
        with self.assertRaises(TypeError):
            DataLoader(Digits(), 1, workers=2)
        with self.assertRaisesRegex(OSError, "none.txt"):
            TextWindows("none.txt", 4)
        with self.assertRaisesRegex(IndexError, "2000"):
            Digits()[2000]

    def test_a_worker_that_dies_is_told(self):
        loader = DataLoader(Synthetic(100000, shape=(3, 64, 64)), 64, num_workers=1)
        batches = iter(loader)
        next(batches)
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/stat") as file:
                    parent = int(file.read().rpartition(")")[2].split()[1])
            except OSError:
                continue
            if parent == os.getpid():
                os.kill(int(pid), 9)
        with self.assertRaisesRegex(RuntimeError, "loader worker 0.*SIGKILL"):
            for _ in batches:
                pass

    def test_text(self):
        with tempfile.NamedTemporaryFile(suffix=".txt") as file:
            file.write(bytes(range(100)))
            file.flush()
            x, y = next(iter(DataLoader(TextWindows(file.name, 4), 2)))
        self.assertEqual((x + 1).tolist(), y.tolist())

    @needs_torch
    def test_in_pytorch(self):
        import torchrs.torch

        loader = torchrs.torch.DataLoader(Digits("train"), 100, num_workers=1)
        sizes = [len(labels) for _, labels in torch.utils.data.DataLoader(loader, batch_size=None)]
        self.assertEqual((len(loader), sum(sizes)), (15, 1438))
        images, labels = next(iter(loader))
        self.assertEqual((images.shape, labels.dtype), ((100, 1, 8, 8), torch.int64))
        with self.assertRaisesRegex(RuntimeError, "num_workers"):
            context = multiprocessing.get_context("fork")
            next(iter(torch.utils.data.DataLoader(loader, batch_size=None, num_workers=1,
                                                  multiprocessing_context=context)))


class Processes(unittest.TestCase):
    def run_python(self, text):
        done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=120)
        return done.returncode, done.stdout, done.stderr

    def test_after_a_fork(self):
        code, out, err = self.run_python(
            "import os, torchrs\n"
            "torchrs.ones(3)\n"
            "pid = os.fork()\n"
            "if pid == 0:\n"
            "    try: print((torchrs.ones(3) + 1).tolist(), flush=True)\n"
            "    except RuntimeError as error: print('refused', error, flush=True)\n"
            "    os._exit(0)\n"
            "os.waitpid(pid, 0)\n")
        self.assertIn("refused torchrs computed in process", out, err)
        code, out, err = self.run_python(
            "import os, torchrs\n"
            "pid = os.fork()\n"
            "if pid == 0:\n"
            "    print((torchrs.ones(3) + 1).tolist(), flush=True)\n"
            "    os._exit(0)\n"
            "os.waitpid(pid, 0)\n")
        self.assertEqual(out, "[2.0, 2.0, 2.0]\n", err)

    def test_the_end_of_the_interpreter(self):
        # Memory of all sides is alive when the interpreter ends, and workers run.
        names = ", ".join(library.__name__ for library in LIBRARIES)
        code, out, err = self.run_python(
            f"import {names}, torchrs\n"
            "from torchrs.data import DataLoader, Synthetic\n"
            f"x = [torchrs.from_dlpack(library.ones(4)) for library in ({names},)]; z = x[0].numpy()\n"
            f"y = [library.from_dlpack(torchrs.ones(3)) for library in ({names},)]\n"
            "batches = iter(DataLoader(Synthetic(10000), 8, num_workers=2)); first = next(batches)\n"
            "print('done')\n")
        self.assertEqual((code, out), (0, "done\n"), err)
        self.assertEqual(err, "")

    def test_without_an_executable(self):
        code, out, err = self.run_python(
            "import sys; sys.executable = ''\n"
            "from torchrs.data import DataLoader, Digits\n"
            "try: next(iter(DataLoader(Digits(), 8, num_workers=1)))\n"
            "except RuntimeError as error: print(error)\n")
        self.assertIn("init_library", out, err)


if __name__ == "__main__":
    unittest.main()
