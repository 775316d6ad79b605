//! Where the cores of a machine are: nodes, sockets, physical cores, last-level caches.

use std::collections::BTreeMap;

use super::Cores;
use crate::system::{System, list};

/// A machine's cores.
#[derive(Debug)]
pub struct Topology {
    /// The cores of each NUMA node, by the node's number. Nodes of memory alone have none.
    pub nodes: BTreeMap<usize, Cores>,
    system: System,
}

const NODES: &str = "/sys/devices/system/node";

impl Topology {
    /// # Errors
    /// A machine of which `/sys` says nothing.
    pub fn read(system: &System) -> Result<Self, String> {
        let numbers = system.names(NODES).into_iter();
        let numbers = numbers.filter_map(|name| name.strip_prefix("node")?.parse::<usize>().ok());
        let mut nodes = BTreeMap::new();
        for node in numbers {
            let path = format!("{NODES}/node{node}/cpulist");
            let cores = system.text(&path).and_then(|text| list(&text));
            nodes.insert(node, cores.ok_or_else(|| format!("{path} is no list of cores"))?);
        }
        if nodes.is_empty() {
            // A kernel without NUMA: one node.
            let path = "/sys/devices/system/cpu/online";
            let cores = system.text(path).and_then(|text| list(&text));
            nodes.insert(0, cores.ok_or_else(|| format!("{path} is no list of cores"))?);
        }
        Ok(Topology { nodes, system: system.clone() })
    }

    /// The socket of a core.
    pub fn socket(&self, core: usize) -> Result<usize, String> {
        let path = topology(core, "physical_package_id");
        // -1, on some machines: not known.
        let id = self.system.text(&path).and_then(|text| text.parse::<i64>().ok());
        id.map(|id| id.max(0) as usize).ok_or_else(|| format!("{path} is no number"))
    }

    /// The hardware threads of the physical core that this one belongs to.
    pub fn physical(&self, core: usize) -> Result<Cores, String> {
        self.siblings(&topology(core, "thread_siblings_list"), core)
    }

    /// The cores that share the last-level cache of this one: of the highest level that `/sys` tells.
    pub fn complex(&self, core: usize) -> Result<Cores, String> {
        let folder = format!("/sys/devices/system/cpu/cpu{core}/cache");
        let level = |index: &String| {
            self.system.text(&format!("{folder}/{index}/level"))?.parse::<usize>().ok()
        };
        let indices =
            self.system.names(&folder).into_iter().filter(|name| name.starts_with("index"));
        let last = indices.filter_map(|index| Some((level(&index)?, index))).max();
        let (_, index) = last.ok_or_else(|| format!("{folder} tells of no cache"))?;
        self.siblings(&format!("{folder}/{index}/shared_cpu_list"), core)
    }

    fn siblings(&self, path: &str, core: usize) -> Result<Cores, String> {
        let cores = self.system.text(path).and_then(|text| list(&text));
        cores
            .filter(|cores| cores.contains(&core))
            .ok_or_else(|| format!("{path} is no list of cores with {core} in it"))
    }
}

fn topology(core: usize, name: &str) -> String {
    format!("/sys/devices/system/cpu/cpu{core}/topology/{name}")
}
