//! Storages without memory, of tensors on the meta device: a size, a version, and an address that nothing is at.

use std::any::Any;
use std::cell::Cell;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use super::{Owner, Storage};
use crate::error::{Error, throw};
use crate::storage::Device;

/// What storages begin at a multiple of, as memory of a GPU does.
const ALIGNMENT: usize = 512;

/// Addresses of storages without memory. They are apart, for ops that look whether tensors overlap, and no processor
/// has memory there: whoever reads one is stopped.
static NEXT: AtomicUsize = AtomicUsize::new(1 << 60);

thread_local! {
    /// Whether modules are built now on this thread.
    static BUILDING: Cell<bool> = const { Cell::new(false) };
}

/// Says whether modules are built from now on; gives what was said before.
pub(crate) fn set_building(building: bool) -> bool {
    BUILDING.replace(building)
}

/// What those above note of a storage without memory, and how often it was changed while modules were built.
#[derive(Default)]
pub(super) struct Notes {
    notes: Option<Box<dyn Any + Send + Sync>>,
    changes: u32,
}

impl fmt::Debug for Notes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Notes")
    }
}

impl Storage {
    /// `nbytes` bytes that are nowhere.
    pub(super) fn meta(nbytes: usize) -> Storage {
        let room = nbytes.saturating_add(1).div_ceil(ALIGNMENT).saturating_mul(ALIGNMENT);
        let address = NEXT.fetch_add(room, Relaxed);
        Storage::new(
            std::ptr::without_provenance_mut(address),
            nbytes,
            Device::Meta,
            Owner::Meta(Notes::default()),
        )
    }

    /// Counts a change while modules are built: what is done with them afterwards changes no initial value.
    #[cold]
    pub(super) fn count_change(&self) {
        if BUILDING.get()
            && let Owner::Meta(own) = &mut *self.0.owner.lock()
        {
            own.changes += 1;
        }
    }

    /// Calls `f` with what is noted of a storage without memory, and the number of its changes; not for others.
    pub(crate) fn with_notes<R>(
        &self,
        f: impl FnOnce(&mut Option<Box<dyn Any + Send + Sync>>, u32) -> R,
    ) -> Option<R> {
        match &mut *self.0.owner.lock() {
            Owner::Meta(own) => Some(f(&mut own.notes, own.changes)),
            _ => None,
        }
    }
}

/// Something asked for the values of a tensor that has none.
#[cold]
#[track_caller]
pub(crate) fn no_values(op: Option<&str>) -> ! {
    let op = op.map_or_else(String::new, |op| format!("{op}: "));
    throw(Error::Device(format!(
        "{op}a tensor on meta has a shape and no values; give its module memory with `Module::to_empty(device)` and \
         values with `Module::reset_parameters()` or `load_state_dict`, or make the tensor on another device"
    )))
}
