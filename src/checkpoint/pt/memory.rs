//! What the values of a pickle may take of memory: in proportion to its length, and no more than there is.

use crate::checkpoint::raw::room_for;

/// Memory for values, per byte of a pickle, and for any pickle.
const PER_BYTE: usize = 128;
const AT_LEAST: usize = 16 << 20;

/// Counts what is taken. Small things cannot be asked for one by one; room for them is, in advance.
pub(super) struct Memory {
    taken: usize,
    room: usize,
    limit: usize,
}

impl Memory {
    /// For a pickle of so many bytes.
    pub(super) fn new(length: usize) -> Self {
        Memory {
            taken: 0,
            room: 0,
            limit: length.saturating_mul(PER_BYTE).saturating_add(AT_LEAST),
        }
    }

    /// Counts so many bytes more.
    ///
    /// # Errors
    /// When that is more than a pickle of this length can mean, or than there is.
    pub(super) fn take(&mut self, bytes: usize) -> Result<(), String> {
        self.taken = self.taken.saturating_add(bytes);
        if self.taken > self.limit {
            return Err("unfolds to far more than the file holds".to_owned());
        }
        if self.taken > self.room {
            let more = self.taken.max(1 << 20);
            room_for(more)?;
            self.room = self.taken.saturating_add(more);
        }
        Ok(())
    }
}
