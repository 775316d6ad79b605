//! What a program does for a job whose hosts come and go: it says when its state is saved, so that hosts that wait may
//! take part (`torchrs-launch --nnodes MIN:MAX --scale-up at-checkpoint`).

use torchrs_job::store::{AWAITS_WELCOME, WELCOME};

use super::{ProcessGroup, Store};
use crate::error::{Error, Result};

/// What rank 0 tells the others.
const NO: u8 = 0;
const YES: u8 = 1;

/// Whether hosts wait to take part until the program [welcomes](welcome_change) them. All ranks of the group call it,
/// and all get the same answer in the same step, so that they can act on it together. A small broadcast: ask after
/// each checkpoint, or every so many steps to save one for those who wait.
///
/// Always `false` without torchrs-launch, and where it was not started with `--scale-up at-checkpoint`: with `now` the
/// launcher does not ask, with `never` nobody takes part.
///
/// ```
/// # use torchrs::Result;
/// use torchrs::distributed;
/// # fn step() -> Result<()> { Ok(()) }
/// # fn save_checkpoint() -> Result<()> { Ok(()) }
/// # fn main() -> Result<()> {
/// let group = distributed::init_process_group(Default::default())?;
/// for number in 1..=100 {
///     step()?;
///     if number % 50 == 0 {
///         save_checkpoint()?;
///         if distributed::is_change_pending(&group)? {
///             distributed::welcome_change(&group)?;
///         }
///     }
/// }
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// As [`ProcessGroup::broadcast`]; [`Error::Store`] on all ranks when rank 0 cannot ask the launcher.
#[track_caller]
pub fn is_change_pending(group: &ProcessGroup) -> Result<bool> {
    let mine = match group.rank() {
        0 => pending(group).map_or_else(|error| error.to_string().into_bytes(), |p| vec![p]),
        _ => Vec::new(),
    };
    match &group.broadcast_bytes(&mine, 0)?[..] {
        [NO] => Ok(false),
        [YES] => Ok(true),
        why => {
            let why = String::from_utf8_lossy(why);
            Err(Error::Store(format!("is_change_pending: on rank 0: {why}")))
        }
    }
}

/// Says that the program's state is saved: hosts that wait take part now. All ranks of the group call it, and it returns
/// when all have. The launcher then ends the workers as at a signal (SIGTERM, and SIGKILL after `--grace`) and starts
/// them again on all hosts; what they do until then is lost unless they save it. It counts as no restart.
///
/// Nothing happens where no [change is pending](is_change_pending) any more.
///
/// # Errors
/// As [`ProcessGroup::barrier`]; [`Error::Store`] on rank 0 when the launcher is gone.
#[track_caller]
pub fn welcome_change(group: &ProcessGroup) -> Result<()> {
    // Other ranks may have parts of the state.
    group.barrier()?;
    match Store::of_launcher()?.filter(|_| group.rank() == 0) {
        Some(store) => store.within(group.timeout()).set(WELCOME, b""),
        None => Ok(()),
    }
}

fn pending(group: &ProcessGroup) -> Result<u8> {
    let Some(store) = Store::of_launcher()? else { return Ok(NO) };
    let told = store.within(group.timeout()).try_get(AWAITS_WELCOME)?;
    Ok(if told.as_deref() == Some(b"1") { YES } else { NO })
}
