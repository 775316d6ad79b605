#!/bin/bash
# Sixteen workers on two hosts, started by Open MPI or MPICH: `HOSTS=h1,h2 PER_HOST=8 ./mpirun.sh ./train`.
# Both reach the other hosts by ssh, which must ask for no password.
set -euo pipefail

hosts=${HOSTS:?give the names of the hosts: HOSTS=h1,h2}
per_host=${PER_HOST:-8}
[ $# -gt 0 ] || { echo "usage: HOSTS=h1,h2 PER_HOST=8 $0 PROGRAM [ARGUMENTS...]" >&2; exit 2; }
IFS=, read -ra names <<< "$hosts"
ranks=$(( ${#names[@]} * per_host ))

# Rank, number of ranks and local rank are read from the variables of either. Where to meet, and a secret that all
# workers have, rank 0 says by MPI: nothing has to be given. What MPI sends is not encrypted.
version=$(mpirun --version)
case $version in
*"Open MPI"* | *OpenRTE*)
    slots=("${names[@]/%/:$per_host}")
    # It hands on no variables but those that are named by -x. Its binding would put all workers of a host that has fewer
    # cores than workers on the same ones.
    exec mpirun -np "$ranks" --host "$(IFS=,; echo "${slots[*]}")" --map-by "ppr:$per_host:node" --bind-to none "$@"
    ;;
*HYDRA*)
    # It hands on all variables. Ranks of a host follow each other (-ppn).
    exec mpirun -n "$ranks" -ppn "$per_host" -hosts "$hosts" "$@"
    ;;
*)
    echo "mpirun is neither Open MPI's nor MPICH's: ${version%%$'\n'*}" >&2
    exit 1
    ;;
esac
