//! Updates that wait for others like them, so that a GPU does all of them in a few launches.

use std::cell::RefCell;

use smallvec::SmallVec;

use super::format::format_of;
use super::operands::{compute_of, constants};
use super::row::Row;
use crate::cuda::{Stream, pointwise::Update, pointwise::execute_many};
use crate::error::throw;
use crate::loops::{Constant, Format};
use crate::storage::Device;
use crate::tensor::{Scalar, Tensor};

/// Most operands of an update that waits.
const MOST: usize = 8;

/// Updates by the same row with the same parameters, of one element type on one device.
struct Group {
    row: &'static Row,
    params: Vec<u64>,
    constants: Vec<Constant>,
    format: Format,
    device: usize,
    updates: Vec<Update>,
    /// Operands live until the launch.
    kept: Vec<Tensor>,
}

thread_local! {
    static WAITING: RefCell<Option<Vec<Group>>> = const { RefCell::new(None) };
}

/// Runs `f`, whose updates on GPUs are done when it ends. No operand of one may be changed or read in any
/// other way by `f` afterwards.
#[track_caller]
pub(crate) fn together(f: impl FnOnce()) {
    /// Forgets what waits when `f` panics.
    struct Forget;
    impl Drop for Forget {
        fn drop(&mut self) {
            WAITING.take();
        }
    }
    if WAITING.with_borrow(Option::is_some) {
        return f();
    }
    WAITING.set(Some(Vec::new()));
    let forget = Forget;
    f();
    let groups = WAITING.take().unwrap_or_default();
    drop(forget);
    groups.into_iter().for_each(Group::launch);
}

/// Whether an update that is checked was left to wait: on a GPU, inside of [`together`], of dense operands
/// of one type.
pub(super) fn waits(row: &'static Row, inputs: &[&Tensor], params: &[Scalar]) -> bool {
    let first = inputs[0];
    let Device::Cuda(device) = first.device() else { return false };
    let fits = |t: &&Tensor| {
        t.is_contiguous() && t.dtype() == first.dtype() && t.device() == first.device()
    };
    if inputs.len() > MOST || !inputs.iter().all(fits) {
        return false;
    }
    WAITING.with_borrow_mut(|waiting| {
        let Some(groups) = waiting else { return false };
        let format = format_of(first.dtype());
        let bits: SmallVec<[u64; 16]> = params.iter().map(|p| p.to_f64().to_bits()).collect();
        let same = |group: &Group| {
            std::ptr::eq(group.row, row)
                && group.params[..] == bits[..]
                && (group.format, group.device) == (format, device)
        };
        // Steps go through the parameters in order: the last group is mostly the one.
        let place = groups.iter().rposition(same).unwrap_or_else(|| {
            groups.push(Group {
                row,
                params: bits.to_vec(),
                constants: constants(params).to_vec(),
                format,
                device,
                updates: Vec::new(),
                kept: Vec::new(),
            });
            groups.len() - 1
        });
        let group = &mut groups[place];
        let at = inputs.iter().map(|t| t.device_ptr()).collect();
        group.updates.push(Update { at, count: first.numel() });
        group.kept.extend(inputs.iter().map(|t| t.detach()));
        true
    })
}

impl Group {
    #[track_caller]
    fn launch(self) {
        let compute = compute_of(self.kept[0].dtype());
        let done = Stream::current(self.device).and_then(|stream| {
            // SAFETY: dense tensors of one type, which are kept until the launch and whose memory is used
            // again on the same stream only; written ones overlap nothing, as was checked.
            unsafe {
                execute_many(
                    self.row.kernel.text(),
                    (compute, self.format),
                    &self.constants,
                    self.row.writes,
                    &self.updates,
                    stream,
                )
            }
        });
        if let Err(error) = done {
            throw(error);
        }
    }
}
