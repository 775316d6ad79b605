//! The built-in engine: TCP connections between the places of a rail.

use torchrs_links::{Addresses, Call, Encryption, Failure, Links, Listener, Options, Watch};

use super::{Engine, Reduction, Region};
use crate::distributed::Deadline;

/// Joins the places of a rail, of which this process is number `place`; see [`Links::connect`].
pub(in crate::distributed::hosts) fn connect(
    listener: &Listener,
    name: &str,
    members: &[Addresses],
    place: usize,
    encryption: Encryption,
    deadline: &Deadline,
    watch: &Watch<'_>,
) -> Result<Box<dyn Engine>, Failure> {
    let mut options = Options::default();
    options.encryption = encryption;
    let links = Links::connect(listener, name, members, place, &options, deadline, watch)?;
    Ok(Box::new(links))
}

impl Engine for Links {
    fn barrier(&mut self, call: &Call<'_>) -> Result<(), Failure> {
        self.barrier(call)
    }

    fn all_reduce(
        &mut self,
        call: &Call<'_>,
        data: Region<'_>,
        reduction: Reduction,
    ) -> Result<(), Failure> {
        self.all_reduce(call, data.bytes, &|into, from| reduction.combine(into, from))
    }

    fn all_gather(
        &mut self,
        call: &Call<'_>,
        data: Region<'_>,
        lengths: &[usize],
    ) -> Result<(), Failure> {
        self.all_gather(call, data.bytes, lengths)
    }

    fn all_to_all(
        &mut self,
        call: &Call<'_>,
        send: &[u8],
        send_lengths: &[usize],
        receive: Region<'_>,
        receive_lengths: &[usize],
    ) -> Result<(), Failure> {
        self.all_to_all(call, send, send_lengths, receive.bytes, receive_lengths)
    }

    fn give_up(&mut self, why: &str) {
        self.give_up(why);
    }

    fn check(&mut self) -> Result<(), Failure> {
        self.check()
    }
}
