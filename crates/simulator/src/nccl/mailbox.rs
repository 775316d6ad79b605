//! What one rank sends to another goes through a mailbox, piece by piece. All transfers of a group go on
//! together, so that two ranks may send to each other at once; those of a pair keep their order.

use super::communicator::{Seat, Stop};
use super::element::DataType;
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a piece.
const PIECE: usize = 16 << 10;

/// The mailbox of a pair.
#[repr(C, align(64))]
pub struct Mailbox {
    /// Pieces that were put in.
    sent: AtomicU64,
    /// Pieces that were taken out.
    received: AtomicU64,
    /// Elements of the whole transfer, and their type.
    count: AtomicU64,
    data_type: AtomicU64,
    piece: UnsafeCell<[u8; PIECE]>,
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

/// How far a transfer is.
struct Progress {
    transfer: Transfer,
    done: usize,
    complete: bool,
}

impl Seat {
    /// Performs transfers side by side.
    pub fn transfer(&self, transfers: &[Transfer]) -> Result<(), Stop> {
        let mut all: Vec<Progress> = transfers
            .iter()
            .map(|transfer| Progress { transfer: *transfer, done: 0, complete: false })
            .collect();
        while all.iter().any(|one| !one.complete) {
            let waits_for: Vec<usize> =
                all.iter().filter(|one| !one.complete).map(|one| one.transfer.peer).collect();
            self.wait_while_open(&waits_for, transfers, || self.advance(&mut all).transpose())??;
        }
        Ok(())
    }

    /// Moves what can be moved now; nothing when that is nothing.
    fn advance(&self, all: &mut [Progress]) -> Result<Option<()>, Stop> {
        let mut moved = false;
        for i in 0..all.len() {
            // Transfers of a pair keep their order.
            let (sends, peer) = (all[i].transfer.sends, all[i].transfer.peer);
            let first = all[..i].iter().all(|one| {
                one.complete || one.transfer.sends != sends || one.transfer.peer != peer
            });
            while first && !all[i].complete && self.advance_one(&mut all[i])? {
                moved = true;
                self.board.cell(peer).ring();
            }
        }
        Ok(moved.then_some(()))
    }

    /// Moves a piece if there is one, or room for one.
    fn advance_one(&self, one: &mut Progress) -> Result<bool, Stop> {
        let transfer = &one.transfer;
        let (from, to) = match transfer.sends {
            true => (self.rank, transfer.peer),
            false => (transfer.peer, self.rank),
        };
        let mailbox = self.board.mailbox(from, to);
        let full = mailbox.sent.load(Ordering::Acquire) != mailbox.received.load(Ordering::Acquire);
        if full == transfer.sends {
            return Ok(false);
        }
        let bytes = PIECE.min(transfer.bytes() - one.done);
        let here = (transfer.address + one.done) as *mut u8;
        let piece = mailbox.piece.get().cast::<u8>();
        if transfer.sends {
            mailbox.count.store(transfer.count as u64, Ordering::Relaxed);
            mailbox.data_type.store(transfer.data_type as u64, Ordering::Relaxed);
            // SAFETY: the buffer was checked and is kept; an empty mailbox is the sender's.
            unsafe { piece.copy_from_nonoverlapping(here, bytes) };
            mailbox.sent.fetch_add(1, Ordering::AcqRel);
        } else {
            self.check_sender(mailbox, transfer)?;
            // SAFETY: the buffer was checked and is kept; a full mailbox is the receiver's.
            unsafe { here.copy_from_nonoverlapping(piece, bytes) };
            mailbox.received.fetch_add(1, Ordering::AcqRel);
        }
        one.done += bytes;
        one.complete = one.done == transfer.bytes();
        Ok(true)
    }

    /// Refuses what does not fit what is received.
    fn check_sender(&self, mailbox: &Mailbox, transfer: &Transfer) -> Result<(), Stop> {
        let count = mailbox.count.load(Ordering::Relaxed) as usize;
        let number = mailbox.data_type.load(Ordering::Relaxed) as u32;
        if count == transfer.count && number == transfer.data_type as u32 {
            return Ok(());
        }
        let name = DataType::from_number(number).map_or("unknown", DataType::name);
        Err(Stop::Mismatch(format!(
            "rank {} called Send({count} {name} to rank {}), rank {} called {}",
            transfer.peer,
            self.rank,
            self.rank,
            transfer.describe()
        )))
    }
}
