//! Which cores each worker gets, of a machine that is known.

use std::collections::{BTreeMap, BTreeSet};

use super::gpus::Gpu;
use super::topology::Topology;
use super::{Cores, NumaBinding};
use crate::system::as_list;

/// The cores of each of `nproc` workers. Worker `r` has GPU `r`; where there are fewer GPUs than workers they are spread
/// over the nodes in order. Only cores in `allowed` are given.
pub fn of_workers(
    mode: NumaBinding,
    nproc: usize,
    topology: &Topology,
    gpus: &[Gpu],
    allowed: &Cores,
) -> Result<Vec<Cores>, String> {
    let nodes: Vec<usize> = match nproc <= gpus.len() {
        // As torchrun: a GPU whose place is not told is on node 0.
        true => gpus[..nproc].iter().map(|gpu| gpu.node.unwrap_or(0)).collect(),
        false => spread(nproc, topology, allowed),
    };
    let mut workers: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (rank, node) in nodes.iter().enumerate() {
        workers.entry(*node).or_default().push(rank);
    }
    let mut cores = vec![Cores::new(); nproc];
    for (node, ranks) in workers {
        let all = topology.nodes.get(&node);
        let all = all.ok_or_else(|| format!("the machine has no NUMA node {node}"))?;
        let own: Cores = all.intersection(allowed).copied().collect();
        if own.is_empty() {
            let rank = ranks[0];
            return Err(match nproc <= gpus.len() {
                true => format!(
                    "GPU {rank} ({}) is on NUMA node {node} (cores {}), of which this process may use none (its \
                     cores: {}; taskset, cgroup)",
                    gpus[rank].bus,
                    as_list(all),
                    as_list(allowed)
                ),
                false => {
                    "this machine has no NUMA node with cores that this process may use".into()
                }
            });
        }
        let of_ranks = match mode {
            NumaBinding::Node => vec![own; ranks.len()],
            NumaBinding::Socket => vec![socket(topology, &own, allowed)?; ranks.len()],
            NumaBinding::Exclusive => exclusive(topology, &own, node, ranks.len())?,
            NumaBinding::CoreComplex => complexes(topology, &own, ranks.len())?,
        };
        for (rank, of_rank) in ranks.into_iter().zip(of_ranks) {
            cores[rank] = of_rank;
        }
    }
    Ok(cores)
}

/// The nodes of workers without GPUs: neighbours together, each node with its share.
fn spread(nproc: usize, topology: &Topology, allowed: &Cores) -> Vec<usize> {
    let usable = topology.nodes.iter().filter(|(_, cores)| !cores.is_disjoint(allowed));
    let usable: Vec<usize> = usable.map(|(node, _)| *node).collect();
    (0..nproc).map(|rank| usable.get(rank * usable.len() / nproc).copied().unwrap_or(0)).collect()
}

/// The cores of all nodes that are on the socket of these.
fn socket(topology: &Topology, own: &Cores, allowed: &Cores) -> Result<Cores, String> {
    let first = own.first().expect("a node has a core");
    let socket = topology.socket(*first)?;
    let mut cores = Cores::new();
    for of_node in topology.nodes.values() {
        let Some(first) = of_node.first() else { continue };
        if topology.socket(*first)? == socket {
            cores.extend(of_node.intersection(allowed));
        }
    }
    Ok(cores)
}

/// Sets of `own` as `of` groups them, in the order of their first cores.
fn groups(own: &Cores, of: impl Fn(usize) -> Result<Cores, String>) -> Result<Vec<Cores>, String> {
    let mut groups = BTreeSet::new();
    for core in own {
        groups.insert(of(*core)?.intersection(own).copied().collect::<Cores>());
    }
    Ok(groups.into_iter().collect())
}

/// A share of the physical cores for each; the first ones get what does not divide.
fn exclusive(
    topology: &Topology,
    own: &Cores,
    node: usize,
    workers: usize,
) -> Result<Vec<Cores>, String> {
    let physical = groups(own, |core| topology.physical(core))?;
    let count = physical.len();
    if count < workers {
        return Err(format!(
            "{workers} workers are on NUMA node {node}, of whose physical cores this process may use {count} \
             (cores {}): start fewer workers, or give --numa-binding node",
            as_list(own)
        ));
    }
    let mut rest = physical.into_iter();
    let share = |worker| count / workers + usize::from(worker < count % workers);
    Ok((0..workers).map(|worker| rest.by_ref().take(share(worker)).flatten().collect()).collect())
}

/// A complex for each, those with most cores first, and from the beginning again.
fn complexes(topology: &Topology, own: &Cores, workers: usize) -> Result<Vec<Cores>, String> {
    let mut complexes = groups(own, |core| topology.complex(core))?;
    complexes.sort_by_key(|complex| std::cmp::Reverse(complex.len()));
    Ok((0..workers).map(|worker| complexes[worker % complexes.len()].clone()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::{System, list};

    /// Two sockets of two nodes each; a node has four physical cores in two complexes. Threads `c` and `c + 16` are
    /// one core. A fifth node has memory alone.
    fn machine() -> (tempfile::TempDir, Topology) {
        let mut files = vec![("sys/devices/system/node/node4/cpulist".to_owned(), String::new())];
        for node in 0..4 {
            let (first, last) = (4 * node, 4 * node + 3);
            let text = format!("{first}-{last},{}-{}\n", first + 16, last + 16);
            files.push((format!("sys/devices/system/node/node{node}/cpulist"), text));
        }
        for core in 0..32 {
            let folder = format!("sys/devices/system/cpu/cpu{core}");
            let (physical, first) = (core % 16, core % 16 / 2 * 2);
            let complex = format!("{first}-{},{}-{}\n", first + 1, first + 16, first + 17);
            let mut file =
                |name: &str, text: String| files.push((format!("{folder}/{name}"), text));
            file("topology/physical_package_id", format!("{}\n", physical / 8));
            file("topology/thread_siblings_list", format!("{physical},{}\n", physical + 16));
            file("cache/index0/level", "1\n".into());
            file("cache/index0/shared_cpu_list", format!("{physical},{}\n", physical + 16));
            file("cache/index3/level", "3\n".into());
            file("cache/index3/shared_cpu_list", complex);
        }
        let files: Vec<(&str, &str)> = files.iter().map(|(p, t)| (&**p, &**t)).collect();
        let (folder, system) = System::of_files(&files);
        let topology = Topology::read(&system).unwrap();
        (folder, topology)
    }

    fn on(nodes: &[usize]) -> Vec<Gpu> {
        let gpu = |node: &usize| Gpu { bus: format!("0000:{node:02}:00.0"), node: Some(*node) };
        nodes.iter().map(gpu).collect()
    }

    fn bound(
        mode: NumaBinding,
        nproc: usize,
        gpus: &[usize],
        allowed: &str,
    ) -> Result<Vec<String>, String> {
        let (_folder, topology) = machine();
        let allowed = list(allowed).unwrap();
        let cores = of_workers(mode, nproc, &topology, &on(gpus), &allowed)?;
        Ok(cores.iter().map(as_list).collect())
    }

    fn all(mode: NumaBinding, nproc: usize, gpus: &[usize]) -> Vec<String> {
        bound(mode, nproc, gpus, "0-31").unwrap()
    }

    #[test]
    fn a_worker_gets_the_cores_of_its_gpus_node() {
        assert_eq!(
            all(NumaBinding::Node, 3, &[3, 0, 0]),
            ["12-15,28-31", "0-3,16-19", "0-3,16-19"]
        );
        assert_eq!(all(NumaBinding::Socket, 2, &[3, 0]), ["8-15,24-31", "0-7,16-23"]);
        let few = bound(NumaBinding::Node, 1, &[1], "0-5").unwrap();
        assert_eq!(few, ["4-5"]);
        let error = bound(NumaBinding::Node, 1, &[1], "0-3").unwrap_err();
        assert!(
            error.contains("GPU 0 (0000:01:00.0) is on NUMA node 1 (cores 4-7,20-23)"),
            "{error}"
        );
    }

    #[test]
    fn no_two_workers_share_an_exclusive_core() {
        assert_eq!(
            all(NumaBinding::Exclusive, 4, &[0, 0, 0, 2]),
            ["0-1,16-17", "2,18", "3,19", "8-11,24-27"]
        );
        let error = bound(NumaBinding::Exclusive, 5, &[0; 5], "0-31").unwrap_err();
        assert!(error.contains("5 workers are on NUMA node 0"), "{error}");
        // One thread of a core is a core.
        let half = bound(NumaBinding::Exclusive, 2, &[0, 0], "0-1").unwrap();
        assert_eq!(half, ["0", "1"]);
    }

    #[test]
    fn workers_of_a_node_have_complexes_in_turn() {
        assert_eq!(
            all(NumaBinding::CoreComplex, 3, &[1, 1, 1]),
            ["4-5,20-21", "6-7,22-23", "4-5,20-21"]
        );
        // The larger one first.
        let few = bound(NumaBinding::CoreComplex, 1, &[0], "1-3,18-19").unwrap();
        assert_eq!(few, ["2-3,18-19"]);
    }

    #[test]
    fn workers_without_gpus_are_spread_over_the_nodes() {
        let nodes = ["0-3,16-19", "4-7,20-23", "8-11,24-27", "12-15,28-31"];
        assert_eq!(all(NumaBinding::Node, 4, &[]), nodes);
        assert_eq!(all(NumaBinding::Node, 2, &[]), [nodes[0], nodes[2]]);
        // More workers than GPUs: they cannot have one each.
        assert_eq!(all(NumaBinding::Node, 2, &[3]), [nodes[0], nodes[2]]);
        assert_eq!(all(NumaBinding::Exclusive, 6, &[])[..2], ["0-1,16-17", "2-3,18-19"]);
        let one = bound(NumaBinding::Node, 2, &[], "8-9").unwrap();
        assert_eq!(one, ["8-9", "8-9"]);
    }
}
