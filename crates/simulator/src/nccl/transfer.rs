//! What one rank sends to another goes through a mailbox, piece by piece. All transfers of a group go on
//! together, so that two ranks may send to each other at once; those of a pair keep their order.

use super::element::DataType;
use super::mailbox::{Mailbox, PIECE, Transfer};
use super::seat::{Seat, Stop};
use std::sync::atomic::Ordering;

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
