"""Jobs of Open MPI's and MPICH's launchers over the same two hosts: the engine over MPI beside a bare `MPI_Allreduce`.
Both run in one worker, in turns."""

import json, os, shutil, subprocess, sys

HERE = os.path.dirname(os.path.abspath(__file__))
LAB = os.path.join(os.path.dirname(HERE), "hosts", "hosts")
# In names of rows; launcher; what it needs; what its package is called.
FAMILIES = [
    (
        "openmpi",
        "mpirun.openmpi",
        ["-np", "2", "--host", "h1:1,h2:1", "--map-by", "ppr:1:node", "--bind-to", "none", "-x", "OMP_NUM_THREADS"],
    ),
    ("mpich", "mpirun.mpich", ["-n", "2", "-ppn", "1", "-hosts", "h1,h2"]),
]
# A job that takes longer has gone wrong.
LIMIT_S = 120

AGENT = """#!/bin/bash
# What the launchers take for ssh.
while [[ $1 == -* ]]; do shift; done
host=$1; shift
exec {lab} exec "${{host#h}}" bash -c "$*"
"""


def families():
    """Those that are installed; of others it says so."""
    found = []
    for name, launcher, options in FAMILIES:
        if shutil.which(launcher):
            found.append((name, launcher, options))
        else:
            print(f"hosts: no {launcher}: the engine over MPI is not measured with it", file=sys.stderr)
    return found


def run(lab, family, worker):
    """Runs a job of one rank on each host: what it prints."""
    name, launcher, options = family
    agent = os.path.join(lab.folder, "agent")
    if not os.path.exists(agent):
        with open(agent, "w") as file:
            file.write(AGENT.format(lab=LAB))
        os.chmod(agent, 0o755)
    env = {**lab.env, "OMP_NUM_THREADS": "1", "HYDRA_LAUNCHER": "ssh", "HYDRA_LAUNCHER_EXEC": agent}
    env.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_plm_rsh_agent=agent)
    # Between hosts that are on one machine, as between two machines.
    env.update(OMPI_MCA_btl="tcp,self", OMPI_MCA_pml="ob1")
    env.update(OMPI_MCA_btl_tcp_if_include="eth0", OMPI_MCA_oob_tcp_if_include="eth0")
    command = [LAB, "exec", "1", launcher, *options, worker, f"hosts2x1_{name}", "mpi"]
    pipes = dict(stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    ended = subprocess.run(command, env=env, timeout=LIMIT_S, **pipes)
    if ended.returncode:
        sys.exit(f"{' '.join(command)} failed\n{ended.stdout}{ended.stderr}")
    return [json.loads(line[line.index("{"):]) for line in ended.stdout.splitlines() if '{"' in line]


def measure(lab, worker, filter_, found):
    """Adds the rows of each family to `found`: ours, and the bare call's."""
    for family in families():
        if filter_ not in f"hosts2x1_{family[0]}_allreduce":
            continue
        print(f"hosts: 2 x 1 over MPI, {family[0]}", file=sys.stderr)
        for row in run(lab, family, worker):
            side = found[1] if row.pop("bare") else found[0]
            side.setdefault(row["name"], []).append(row)
