//! Bytes of any length between ranks (`torch.distributed.all_gather_object`, without pickling: what
//! the bytes mean is the caller's business).

use super::ProcessGroup;
use crate::error::Result;
use crate::{Dtype, Tensor};

impl ProcessGroup {
    /// Every rank's bytes, in rank order. Lengths may differ. Collective; for small messages
    /// (names, options), not for bulk data.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/distributed/two_ranks.rs"));
    /// # fn main() -> torchrs::Result<()> {
    /// # two_ranks(|group| {
    /// let name = ["left", "right"][group.rank()];
    /// assert_eq!(group.all_gather_bytes(name.as_bytes())?, [&b"left"[..], b"right"]);
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`all_gather`](Self::all_gather).
    pub fn all_gather_bytes(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        let lengths = self.all_gather(&Tensor::from_slice(&[bytes.len() as i64], [1]))?;
        let lengths: Vec<usize> = lengths.iter().map(|t| t.item_i64() as usize).collect();
        let longest = lengths.iter().copied().max().unwrap_or(0);
        let mut padded = bytes.to_vec();
        padded.resize(longest, 0);
        let gathered = self.all_gather(&Tensor::from_slice(&padded, [longest]))?;
        Ok(gathered.iter().zip(lengths).map(|(t, len)| t.narrow(0, 0, len).to_vec()).collect())
    }

    /// Rank `root`'s bytes, on every rank; the others' `bytes` are ignored. Collective.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/distributed/two_ranks.rs"));
    /// # fn main() -> torchrs::Result<()> {
    /// # two_ranks(|group| {
    /// let name = ["left", "right"][group.rank()];
    /// assert_eq!(group.broadcast_bytes(name.as_bytes(), 1)?, b"right");
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`broadcast`](Self::broadcast).
    pub fn broadcast_bytes(&self, bytes: &[u8], root: usize) -> Result<Vec<u8>> {
        let length = Tensor::from_slice(&[bytes.len() as i64], [1]);
        self.broadcast(&length, root)?;
        let length = length.item_i64() as usize;
        let data = if self.rank() == root {
            Tensor::from_slice(bytes, [length])
        } else {
            Tensor::zeros([length], Dtype::U8)
        };
        self.broadcast(&data, root)?;
        Ok(data.to_vec())
    }
}
