//! A device without memory: work on it is prepared as on any other, and none of it is started. By that an op finds
//! the shapes of its results where there is nothing to compute.

use std::sync::LazyLock;

use super::devices::{Properties, Uuid};

/// The index of the device without memory.
pub const NOWHERE: usize = u32::MAX as usize;

/// Figures by which ops choose among kernels: those of a usual GPU, though nothing depends on which.
pub(super) fn properties() -> &'static Properties {
    static PROPERTIES: LazyLock<Properties> = LazyLock::new(|| Properties {
        name: "nowhere".to_owned(),
        total_memory: 0,
        capability: (9, 0),
        multiprocessors: 132,
        threads_per_multiprocessor: 2048,
        threads_per_block: 1024,
        warp_size: 32,
        shared_memory_per_block: 48 << 10,
        shared_memory_per_block_optin: 227 << 10,
        l2_cache: 50 << 20,
        uuid: Uuid([0; 16]),
        pci_bus_id: String::new(),
    });
    &PROPERTIES
}
