//! Which NUMA node each GPU is on, without a library of NVIDIA's: the driver and the PCI bus tell it in files.

use crate::system::System;

const DRIVER: &str = "/proc/driver/nvidia/gpus";

/// A GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gpu {
    /// Its address on the PCI bus, as `0000:3b:00.0`.
    pub bus: String,
    /// `None`: the machine does not tell, as one with a single node.
    pub node: Option<usize>,
}

/// The GPUs that a worker sees, by its device index; none where there is no driver. `variable`: of the environment.
///
/// # Errors
/// An order of the GPUs that cannot be known, and an entry of `CUDA_VISIBLE_DEVICES` that names none.
pub fn visible(
    system: &System,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Vec<Gpu>, String> {
    // By their address, as nvidia-smi lists them.
    let present = system.names(DRIVER);
    let order = variable("CUDA_DEVICE_ORDER");
    let field = |bus: &str, name| system.field(&format!("{DRIVER}/{bus}/information"), name);
    let mut models: Vec<_> = present.iter().map(|bus| field(bus, "Model")).collect();
    models.dedup();
    if models.len() > 1 && order.as_deref() != Some("PCI_BUS_ID") {
        return Err("this machine has GPUs of several models, which CUDA numbers by speed; set \
             CUDA_DEVICE_ORDER=PCI_BUS_ID, so that their places are known"
            .into());
    }
    let buses = match variable("CUDA_VISIBLE_DEVICES") {
        _ if present.is_empty() => Vec::new(),
        None => present,
        Some(list) => {
            let uuid = |bus: &String| field(bus, "GPU UUID").unwrap_or_default();
            let entries = list.split(',').map(str::trim);
            let entries = entries.take_while(|entry| !entry.is_empty() && !entry.starts_with('-'));
            let find = |entry: &str| match entry.parse::<usize>() {
                Ok(index) => present.get(index).cloned(),
                Err(_) => present.iter().find(|bus| uuid(bus).starts_with(entry)).cloned(),
            };
            let found = entries.map(|entry| {
                find(entry).ok_or_else(|| {
                    format!("CUDA_VISIBLE_DEVICES=\"{list}\": {entry} is none of the {} GPUs of {DRIVER}", present.len())
                })
            });
            found.collect::<Result<Vec<String>, String>>()?
        }
    };
    Ok(buses.into_iter().map(|bus| Gpu { node: node(system, &bus), bus }).collect())
}

/// -1 in the file: not known.
fn node(system: &System, bus: &str) -> Option<usize> {
    let path = format!("/sys/bus/pci/devices/{}/numa_node", bus.to_lowercase());
    system.text(&path)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(second: &str) -> (tempfile::TempDir, System) {
        let model = |model: &str, uuid: &str| format!("Model: \t\t {model}\nGPU UUID: \t {uuid}\n");
        let (first, second) = (model("H100", "GPU-aaaa-1"), model(second, "GPU-bbbb-2"));
        System::of_files(&[
            ("proc/driver/nvidia/gpus/0000:3B:00.0/information", &first),
            ("proc/driver/nvidia/gpus/0000:5e:00.0/information", &second),
            ("sys/bus/pci/devices/0000:3b:00.0/numa_node", "1\n"),
            ("sys/bus/pci/devices/0000:5e:00.0/numa_node", "-1\n"),
        ])
    }

    #[test]
    fn the_driver_and_the_bus_say_where_gpus_are() {
        let (_folder, system) = machine("H100");
        let seen = |list: Option<&str>| {
            let seen = visible(&system, |name| {
                list.filter(|_| name.ends_with("VISIBLE_DEVICES")).map(Into::into)
            })?;
            Ok(seen.into_iter().map(|gpu| (gpu.bus, gpu.node)).collect::<Vec<_>>())
        };
        let first = || ("0000:3B:00.0".to_owned(), Some(1));
        let second = || ("0000:5e:00.0".to_owned(), None);
        assert_eq!(seen(None), Ok(vec![first(), second()]));
        assert_eq!(seen(Some("1, 0")), Ok(vec![second(), first()]));
        assert_eq!(seen(Some("GPU-bb,0,-1,1")), Ok(vec![second(), first()]));
        assert_eq!(seen(Some("")), Ok(vec![]));
        let error: Result<_, String> = seen(Some("2"));
        assert!(error.unwrap_err().contains("2 is none of the 2 GPUs"));
        assert_eq!(
            visible(&System::at(_folder.path().join("sys").as_path()), |_| None),
            Ok(vec![])
        );
    }

    #[test]
    fn an_order_by_speed_is_refused() {
        let (_folder, system) = machine("A2");
        assert!(visible(&system, |_| None).unwrap_err().contains("CUDA_DEVICE_ORDER=PCI_BUS_ID"));
        let ordered =
            visible(&system, |name| (name == "CUDA_DEVICE_ORDER").then(|| "PCI_BUS_ID".into()));
        assert_eq!(ordered.unwrap().len(), 2);
    }
}
