"""The section `hosts` of bench-vs-torch: jobs over two hosts, which are network namespaces of this machine
(`tools/hosts/hosts`, as root). Both sides' jobs run in the same namespaces, in turns: torchrs-launch on each host, or
torchrun on each host with c10d's rendezvous and gloo.

Rows `hosts2x1_openmpi` and `hosts2x1_mpich` are our engine over MPI beside the bare `MPI_Allreduce` (`hosts_mpi.py`).

A row's name begins with hosts and ranks per host, `hosts2x1`. Rows `hosts1x2` are the same training on one host, so
what the network costs is the difference.
"""

import json, os, secrets, shutil, subprocess, sys, tempfile, time

import hosts_mpi

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LAB = os.path.join(ROOT, "tools", "hosts", "hosts")
PEER = os.path.join(ROOT, "tools", "bench", "peer_hosts.py")
FIRST = "10.77.0.1"
# Hosts, ranks per host, what their jobs do, how often in a round.
JOBS = [
    (2, 1, "allreduce", 1),
    (2, 2, "start", 3),
    (2, 2, "allreduce", 1),
    (2, 4, "allreduce", 1),
    (2, 1, "resnet18", 1),
    (1, 2, "resnet18", 1),
    (2, 1, "nanogpt", 1),
    (1, 2, "nanogpt", 1),
]
# A job that takes longer has gone wrong.
LIMIT_S = 120


def missing():
    """Why hosts cannot be made here; None where they can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    tools = [tool for tool in ("ip", "unshare", "nsenter", "setpriv") if not shutil.which(tool)]
    return f"without {', '.join(tools)}" if tools else None


def build():
    """Builds what our jobs run: the launcher's path and the worker's."""
    cargo = ["cargo", "build", "--release", "--quiet", "--package", "torchrs-launcher", "--bin", "torchrs-launch"]
    subprocess.run(cargo, cwd=ROOT, check=True)
    cargo = ["cargo", "bench", "--quiet", "--no-run", "--bench", "hosts", "--message-format", "json"]
    built = subprocess.run(cargo, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    messages = [json.loads(line) for line in built.splitlines()]
    worker = next(m["executable"] for m in messages if m.get("target", {}).get("name") == "hosts" and m.get("executable"))
    return os.path.join(os.path.dirname(os.path.dirname(worker)), "torchrs-launch"), worker


class Lab:
    """Hosts while it lives, for whoever runs `command`s there."""

    def __init__(self, hosts):
        self.folder = tempfile.mkdtemp(prefix="torchrs-hosts-")
        # One clock for all: starts are timed by it.
        self.env = {**os.environ, "HOSTS_DIR": os.path.join(self.folder, "lab"), "HOSTS_SKEW": "0"}
        subprocess.run([LAB, "up", str(hosts), "--owner", str(os.getpid())], env=self.env, check=True)

    def close(self):
        subprocess.run([LAB, "down"], env=self.env)
        shutil.rmtree(self.folder, ignore_errors=True)


class Side:
    """Our jobs, or PyTorch's."""

    def __init__(self, lab, python, ours):
        self.lab, self.python, self.ours = lab, python, ours
        self.port = 29400 if ours else 29700

    def command(self, hosts, ranks, host, port, token):
        """What is started on a host, up to the worker's arguments."""
        if self.ours:
            launcher, worker = self.ours
            several = ["--nnodes", str(hosts), "--node-rank", str(host), "--master-addr", FIRST, "--master-port", str(port)]
            return [launcher, *(several if hosts > 1 else []), "--nproc", str(ranks), worker]
        several = ["--nnodes", str(hosts), "--rdzv-backend", "c10d", "--rdzv-endpoint", f"{FIRST}:{port}"]
        several += ["--rdzv-id", token, "--local-addr", f"10.77.0.{host + 1}"]
        alone = ["--nnodes", "1", "--master-addr", FIRST, "--master-port", str(port)]
        run = several if hosts > 1 else alone
        return [self.python, "-m", "torch.distributed.run", *run, "--nproc-per-node", str(ranks), PEER]

    def job(self, hosts, ranks, what):
        """Runs one: its rows, and when it was started."""
        self.port += 1
        token = secrets.token_hex(16)
        env = {**self.lab.env, "TORCHRS_JOB_TOKEN": token, "GLOO_SOCKET_IFNAME": "eth0"}
        env.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")
        arguments = [f"hosts{hosts}x{ranks}", what]
        start, programs = time.time(), []
        with tempfile.TemporaryFile("w+") as errors:
            for host in range(hosts):
                command = [LAB, "exec", str(host + 1), *self.command(hosts, ranks, host, self.port, token), *arguments]
                pipes = dict(stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True)
                programs.append(subprocess.Popen(command, env=env, **pipes))
            try:
                printed = [program.communicate(timeout=LIMIT_S)[0] for program in programs]
            except subprocess.TimeoutExpired:
                for program in programs:
                    program.kill()
                sys.exit(f"{' '.join(arguments)} took longer than {LIMIT_S} s: {' '.join(command)}")
            if any(program.returncode for program in programs):
                errors.seek(0)
                sys.exit(f"{' '.join(command)} failed\n{errors.read()}")
        lines = [line for text in printed for line in text.splitlines()]
        return start, [json.loads(line[line.index("{"):]) for line in lines if '{"' in line]

    def measure(self, hosts, ranks, what, found):
        """Adds what a job says to `found`: medians and least times by name."""
        start, rows = self.job(hosts, ranks, what)
        ended = [row["ended"] for row in rows if "ended" in row]
        if ended:
            assert len(ended) == hosts * ranks, rows
            seconds = max(ended) - start
            rows = [{"name": f"hosts{hosts}x{ranks}_start_to_first_allreduce", "median_s": seconds, "min_s": seconds}]
        for row in rows:
            found.setdefault(row["name"], []).append(row)


def measure(python, rounds, filter_):
    """The section's rows, of both sides in turns: for each name (ours, PyTorch's)."""
    lab = Lab(2)
    try:
        sides = Side(lab, python, build()), Side(lab, python, None)
        found = {}, {}
        for turn in range(rounds):
            for hosts, ranks, what, times in JOBS:
                if filter_ not in f"hosts{hosts}x{ranks}_{what}":
                    continue
                print(f"hosts: round {turn + 1} of {rounds}, {hosts} x {ranks} {what}", file=sys.stderr)
                for _ in range(times):
                    for side, its in zip(sides, found):
                        side.measure(hosts, ranks, what, its)
            hosts_mpi.measure(lab, sides[0].ours[1], filter_, found)
    finally:
        lab.close()
    return {name: (found[0][name], found[1][name]) for name in found[0] if name in found[1]}


def efficiency_table(rows):
    """What two hosts reach of one host's speed, with as many ranks on the same cores."""
    times = {row["name"]: row for row in rows}
    lines = []
    for name, one in times.items():
        two = times.get(name.replace("hosts1x2", "hosts2x1"))
        if name.startswith("hosts1x2_") and two:
            shares = [one[side] / two[side] for side in ("ours_s", "peer_s")]
            lines.append(f"| {name.removeprefix('hosts1x2_')} | {shares[0]:.2f} | {shares[1]:.2f} |")
    head = "| step on two hosts, beside one host with as many ranks | torchrs | PyTorch |\n| --- | --- | --- |\n"
    return head + "\n".join(lines) if lines else ""
