"""How gpu-check runs programs: where they are, what they find in their environment, how they are watched and ended."""

import glob, json, os, queue, signal, subprocess, sys, tarfile, tempfile, threading, time

import gpu_check_kernels

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
SIMULATOR = "libtorchrs_simulated_gpu.so"
# The pack's binaries, which would be three times as large without.
PACKED = os.path.join(ROOT, "bin.tar.xz")
# name, cargo's arguments to build it
BINARIES = {
    "gpu_check": ["--example", "gpu_check"],
    "train": ["--example", "train"],
    "torchrs-launch": ["-p", "torchrs-launcher", "--bin", "torchrs-launch"],
    "golden": ["--test", "golden"],
    "cuda": ["--test", "cuda"],
}
# Where drivers lie that no loader knows of.
DRIVERS = ["/usr/local/nvidia/lib64", "/usr/local/nvidia/lib"]


class Plan:
    """Seconds of stages. Where there are fewer than all ask for, each gets as much less: what was done before the first
    one, as a look for PyTorch, is not the first one's loss."""

    def __init__(self, seconds, there):
        self.seconds, self.share = seconds, min(1, there / max(1, sum(seconds)))

    def left(self, at, there):
        """Of a stage that begins when so many seconds are there: all but those of later stages."""
        return there - self.share * sum(self.seconds[at + 1 :])


class Late(Exception):
    """A stage's time is over."""


# Processes that run, each with those that it started.
RUNNING = set()


class Machine:
    """Folders, binaries and the environment that all stages share."""

    # Where the pack's compiled kernels are, if it has some.
    packed_kernels = None

    def __init__(self, work, simulated, python=None):
        self.work, self.simulated = os.path.abspath(work), simulated
        self.cores = os.cpu_count() or 1
        os.makedirs(self.work, exist_ok=True)
        if os.path.exists(PACKED):
            with tarfile.open(PACKED) as archive:
                archive.extractall(self.work)
        self.folders = [] if simulated else wheels(python or sys.executable)
        self.packed_kernels = gpu_check_kernels.unpacked(ROOT, self.work)

    def binary(self, name):
        """Where a binary is: in the pack, or the newest that cargo has built."""
        if os.path.exists(PACKED):
            unpacked = os.path.join(self.work, "bin", name)
            return unpacked if os.path.exists(unpacked) else None
        target = os.path.join(ROOT, os.environ.get("CARGO_TARGET_DIR", "target"))
        # Tests have a hash behind their names; benches and tests may be called as examples are.
        places = {"--test": f"deps/{name}-*", "--example": f"examples/{name}", "-p": name}
        place = [places[BINARIES[name][0]]] if name in BINARIES else [name, f"deps/{name}"]
        patterns = [f"{target}/{profile}/{part}" for profile in ("release", "debug") for part in place]
        is_program = lambda path: os.access(path, os.X_OK) and os.path.isfile(path) and not path.endswith(".d")
        found = [path for pattern in patterns for path in glob.glob(pattern) if is_program(path)]
        return max(found, key=os.path.getmtime, default=None)

    def program(self, name):
        """A binary that there has to be."""
        path = self.binary(name)
        if path is None:
            raise FileNotFoundError(f"{name} is not built")
        return path

    @property
    def kernels(self):
        """Where this run's compiled kernels are."""
        return os.environ.get("TORCHRS_KERNEL_CACHE") or os.path.join(self.work, "kernels")

    def environment(self, devices=1):
        """Of torchrs' programs: one folder of compiled kernels for all stages."""
        caches = {"TORCHRS_KERNEL_CACHE": self.kernels, "TORCHRS_TEST_KERNEL_CACHE": self.kernels}
        env = {**os.environ, **caches, **gpu_check_kernels.environment(self.packed_kernels)}
        if self.simulated:
            library = os.environ.get("TORCHRS_SIMULATED_GPU_LIBRARY") or self.binary(SIMULATOR)
            quiet = {"TORCHRS_SIMULATED_QUIET": "1", "TORCHRS_SIMULATED_MEMORY": "4GiB"}
            env.update(quiet, TORCHRS_SIMULATE_GPUS=str(devices), TORCHRS_SIMULATED_GPU_LIBRARY=library or "")
        else:
            join = lambda name, folders: ":".join([*filter(None, [os.environ.get(name)]), *folders])
            env["TORCHRS_TEST_REAL_GPU"] = "1"
            env["TORCHRS_CUDA_PATH"] = join("TORCHRS_CUDA_PATH", [*self.folders, *filter(os.path.isdir, DRIVERS)])
            # cuDNN opens its parts by their names.
            env["LD_LIBRARY_PATH"] = join("LD_LIBRARY_PATH", self.folders)
        return env


def wheels(python):
    """The folders of an interpreter's packages that have NVIDIA's libraries."""
    code = "import glob, json, sys; print(json.dumps([f for p in sys.path for f in sorted(glob.glob(p + '/nvidia/*/lib'))]))"
    try:
        found = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=20, check=True).stdout
        return [folder for folder in json.loads(found) if glob.glob(os.path.join(folder, "*.so*"))]
    except (OSError, ValueError, subprocess.SubprocessError):
        return []


def ending(status):
    """An exit status in words."""
    if status is not None and status < 0:
        try:
            return f"ended by {signal.Signals(-status).name}"
        except ValueError:
            return f"ended by signal {-status}"
    return f"ended with status {status}"


def row_of(line):
    """The row that a program printed, or an empty one for a line that is none."""
    try:
        row = json.loads(line)
    except json.JSONDecodeError:
        return {}
    return row if isinstance(row, dict) else {}


def end(process):
    """Ends a process and its group."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, sign)
            process.wait(3)
        except OSError:
            break
        except subprocess.TimeoutExpired:
            continue
    RUNNING.discard(process)


def end_all():
    """Ends all processes at once."""
    for process in list(RUNNING):
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except OSError:
            continue


class Stage:
    """A stage that runs: its time, its log, and what failed in it; `changed` is told when more has."""

    def __init__(self, machine, name, limit, changed=lambda: None):
        self.machine, self.limit, self.changed = machine, limit, changed
        self.start, self.until = time.monotonic(), time.monotonic() + limit
        self.log = open(os.path.join(machine.work, f"{name}.log"), "w+", errors="replace")
        self.lock = threading.Lock()
        # What failed, in order: a name and a message.
        self.failures = []

    def left(self):
        return self.until - time.monotonic()

    def write(self, text):
        """Adds to the log."""
        with self.lock:
            self.log.write(text)
            self.log.flush()

    def fail(self, name, message):
        """Notes and prints what failed."""
        text = next((line.strip() for line in message.splitlines() if line.strip()), "")[:300]
        with self.lock:
            self.failures.append({"name": name, "message": text})
            if len(self.failures) <= 20:
                print(f"    {name}: {text[:240]}", flush=True)
        self.changed()

    def begin(self, command, env=None, **more):
        self.write(f"$ {' '.join(command)}\n")
        env, more = env or self.machine.environment(), {"stdin": subprocess.DEVNULL, **more}
        # A group can be ended as a whole; a session of its own would outlive the one that ends with this script.
        process = subprocess.Popen(
            command, env=env, cwd=self.machine.work, process_group=0, text=True, errors="replace", **more
        )
        RUNNING.add(process)
        return process

    def run(self, command, env=None, limit=None):
        """Runs a command to its end: its status, or none where it took too long, and what it printed."""
        with tempfile.TemporaryFile("w+", errors="replace") as out:
            process = self.begin(command, env, stdout=out, stderr=subprocess.STDOUT)
            try:
                status = process.wait(max(min(self.left(), limit or self.left()), 0.1))
            except subprocess.TimeoutExpired:
                status = None
            finally:
                end(process)
            out.seek(0)
            text = out.read()
        self.write(text)
        return status, text

    def check(self, command, env=None, shown=12):
        """Runs a command that must succeed, and prints its last lines."""
        status, text = self.run(command, env)
        lines = text.strip().splitlines()
        for line in lines[-shown:] if status == 0 else lines[-40:]:
            print(f"    {line[:300]}", flush=True)
        if status is None:
            raise Late(lines[-1][:200] if lines else "nothing was printed")
        if status != 0:
            raise AssertionError(f"{os.path.basename(command[0])} {ending(status)}: {lines[-1][:200] if lines else ''}")
        return text


class Lines:
    """A process and the lines that it prints, each waited for no longer than wanted."""

    def __init__(self, stage, command, env=None, **more):
        self.stage = stage
        self.process = stage.begin(command, env, stdout=subprocess.PIPE, **more)
        self.queue = queue.Queue()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            self.queue.put(line)
        self.queue.put(None)

    def next(self, seconds):
        """The next line; none behind the last. `Late` where none comes in time."""
        try:
            return self.queue.get(timeout=max(min(seconds, self.stage.left()), 0.01))
        except queue.Empty:
            raise Late() from None

    def rows(self, seconds, log):
        """The rows of all lines, to the process's end: its own, or that of one that prints nothing for so long. Then
        `status` is its status, and `why` that in words."""
        late = False
        try:
            while (line := self.next(seconds)) is not None:
                log(line)
                yield row_of(line)
        except Late:
            late = True
            self.process.kill()
        self.status = self.end()
        self.why = f"took more than {seconds} s" if late else f"the process {ending(self.status)}"

    def end(self):
        """Ends the process, and waits for it; its status."""
        try:
            self.process.wait(2 if self.queue.empty() else 0.2)
        except subprocess.TimeoutExpired:
            pass
        end(self.process)
        return self.process.wait()
