//! Results that will never be there: a collective that ended without one, long after the call that started
//! it had returned. Whoever next waits for the device hears of it, once, unless its caller has heard already.

use std::sync::atomic::{
    AtomicBool, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};

use parking_lot::Mutex;

use torchrs_error::{Error, Result};

/// Something was lost and nobody has heard of it.
static ANY: AtomicBool = AtomicBool::new(false);
static LOST: Mutex<Vec<Loss>> = Mutex::new(Vec::new());

struct Loss {
    device: usize,
    number: u64,
    error: Error,
}

/// Takes down that results on a device are lost; before the device goes on. Gives a number for [`heard`].
pub fn lose(device: usize, error: Error) -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Relaxed);
    LOST.lock().push(Loss { device, number, error });
    ANY.store(true, Release);
    number
}

/// Its caller knows of a loss.
pub fn heard(number: u64) {
    forget(&mut LOST.lock(), |loss| loss.number == number);
}

/// To be called after a wait for a device, before its results are used.
///
/// # Errors
/// What was lost there.
#[inline]
pub(crate) fn check(device: usize) -> Result<()> {
    if ANY.load(Acquire) { check_slowly(device) } else { Ok(()) }
}

#[cold]
fn check_slowly(device: usize) -> Result<()> {
    let mut lost = LOST.lock();
    let first = lost.iter().find(|loss| loss.device == device).map(|loss| loss.error.clone());
    forget(&mut lost, |loss| loss.device == device);
    first.map_or(Ok(()), Err)
}

fn forget(lost: &mut Vec<Loss>, which: impl Fn(&Loss) -> bool) {
    lost.retain(|loss| !which(loss));
    ANY.store(!lost.is_empty(), Release);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::ipc;
    use crate::simulated_test::on_gpu;
    use crate::work::stream::Stream;
    use crate::work::wait;

    #[test]
    fn a_loss_is_told_once_and_on_its_device_only() {
        let (here, there) = (1000, 1001);
        let error = || Error::Aborted("lost".into());
        lose(here, error());
        lose(here, error());
        let known = lose(there, error());
        assert!(check(here).is_err() && check(here).is_ok());
        heard(known);
        assert!(check(there).is_ok());
    }

    fn waits() {
        let stream = Stream::current(0).unwrap();
        let event = stream.record_event().unwrap();
        let lost = || lose(0, Error::Aborted("lost".into()));
        lost();
        stream.finish().unwrap();
        event.finish().unwrap();
        wait::finish(0).unwrap();
        drop(ipc::unknown_mapping(0));
        wait::synchronize(0).unwrap_err();
        lost();
        stream.synchronize().unwrap_err();
        lost();
        event.synchronize().unwrap_err();
        wait::synchronize(0).unwrap();
    }

    #[test]
    fn only_those_who_use_results_are_told() {
        on_gpu("work::lost::tests::only_those_who_use_results_are_told", waits);
    }
}
