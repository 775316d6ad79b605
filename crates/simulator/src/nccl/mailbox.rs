//! The mailboxes through which one rank sends to another, piece by piece, and what is sent.

use super::element::DataType;
use std::cell::UnsafeCell;
use std::sync::atomic::AtomicU64;

/// Bytes of a piece.
pub const PIECE: usize = 16 << 10;

/// The mailbox of a pair.
#[repr(C, align(64))]
pub struct Mailbox {
    /// Pieces that were put in.
    pub sent: AtomicU64,
    /// Pieces that were taken out.
    pub received: AtomicU64,
    /// Elements of the whole transfer.
    pub count: AtomicU64,
    /// Their type.
    pub data_type: AtomicU64,
    /// Bytes on their way.
    pub piece: UnsafeCell<[u8; PIECE]>,
}

/// One call of `ncclSend` or `ncclRecv`.
#[derive(Debug, Clone, Copy)]
pub struct Transfer {
    /// Whether it sends.
    pub sends: bool,
    /// The other rank.
    pub peer: usize,
    /// Where the elements are, or go.
    pub address: usize,
    /// Elements.
    pub count: usize,
    /// Their type.
    pub data_type: DataType,
}

impl Transfer {
    /// Bytes of all elements.
    pub fn bytes(&self) -> usize {
        self.count * self.data_type.size()
    }

    /// For messages.
    pub fn describe(&self) -> String {
        let (verb, word) = if self.sends { ("Send", "to") } else { ("Recv", "from") };
        let (count, data_type) = (self.count, self.data_type.name());
        format!("{verb}({count} {data_type} {word} rank {})", self.peer)
    }
}
