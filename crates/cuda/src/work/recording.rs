//! Captures under way: what their work will need at every replay, and waits that would spoil them.

use std::fmt;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use torchrs_error::{Error, Result};

use crate::work::executable::Executable;
use crate::work::stream::{self, Stream};

/// Somebody whose work was recorded and who has to know of every replay: a process group. It lives as long
/// as the graph.
#[doc(hidden)]
pub trait Participant: fmt::Debug + Send + Sync {
    /// Tells participants apart.
    fn key(&self) -> usize;

    /// The recorded work is ready, and may be ended with [`Executable::end`] from then on.
    fn recorded(&self, executable: &Arc<Executable>);

    /// Puts a replay on `stream` by `launch`, unless it may not start.
    fn replay(&self, stream: Stream, launch: &mut dyn FnMut() -> Result<()>) -> Result<()>;
}

/// Host memory that recorded work copies from, which every replay reads again.
pub(crate) trait Read: fmt::Debug + Send + Sync {
    /// Work on a stream reads it: as a `record_stream`.
    fn is_read_on(&self, stream: Stream);
}

/// What recorded work needs as long as it can be started.
#[derive(Debug, Default)]
pub(crate) struct Needs {
    pub(crate) participants: Vec<Box<dyn Participant>>,
    /// Memory that it copies from.
    pub(crate) blocks: Vec<Box<dyn Read>>,
    /// What else has to live.
    others: Vec<Box<dyn Keepable>>,
}

/// Anything that a graph can keep.
trait Keepable: fmt::Debug + Send + Sync {}
impl<T: fmt::Debug + Send + Sync> Keepable for T {}

/// What the captures under way have recorded so far, by their devices.
static NEEDS: Mutex<Vec<(usize, Needs)>> = Mutex::new(Vec::new());

/// Adds somebody whose work the capture on a device is recording.
#[doc(hidden)]
pub fn take_part(device: usize, participant: impl Participant + 'static) {
    let mut all = NEEDS.lock();
    if let Some((_, Needs { participants, .. })) = all.iter_mut().find(|one| one.0 == device)
        && !participants.iter().any(|one| one.key() == participant.key())
    {
        participants.push(Box::new(participant));
    }
}

/// Lets the graph that a capture on a device is recording keep the memory that it copies from.
pub(crate) fn keep(device: usize, block: impl Read + 'static) {
    let mut all = NEEDS.lock();
    if let Some((_, needs)) = all.iter_mut().find(|one| one.0 == device) {
        needs.blocks.push(Box::new(block));
    }
}

/// Lets the graph that a capture on a device is recording keep whatever its work needs, such as a library's code.
pub(crate) fn keep_for_replays(device: usize, value: impl fmt::Debug + Send + Sync + 'static) {
    let mut all = NEEDS.lock();
    if let Some((_, needs)) = all.iter_mut().find(|one| one.0 == device) {
        needs.others.push(Box::new(value));
    }
}

/// Begins a capture on a device by `begin`, while nobody waits for a whole device.
pub(crate) fn begin(device: usize, begin: impl FnOnce() -> Result<()>) -> Result<()> {
    let beginning = BEGINNING.write();
    stream::capture_begins();
    NEEDS.lock().push((device, Needs::default()));
    let begun = begin();
    drop(beginning);
    if begun.is_err() {
        drop(end(device));
    }
    begun
}

/// Ends a capture on a device: what its work needs from now on.
pub(crate) fn end(device: usize) -> Needs {
    stream::capture_is_over();
    let mut all = NEEDS.lock();
    let place = all.iter().position(|one| one.0 == device);
    place.map_or_else(Needs::default, |place| all.swap_remove(place).1)
}

/// Held for writing while a capture begins, and for reading by waits for a whole device, which no mode allows beside one.
static BEGINNING: RwLock<()> = RwLock::new(());

/// Lets no capture begin on any device until it is dropped.
///
/// # Errors
/// [`Error::Device`] where one is under way on this device. It goes on: to wait for the device would spoil it.
pub(crate) fn no_capture_on(device: usize) -> Result<RwLockReadGuard<'static, ()>> {
    let guard = BEGINNING.read_recursive();
    match NEEDS.lock().iter().any(|one| one.0 == device) {
        false => Ok(guard),
        true => Err(Error::Device(format!(
            "waiting for cuda:{device} is not possible while a thread captures a graph there: it would spoil the graph; \
             wait for a stream or an event instead, or after the capture"
        ))),
    }
}
