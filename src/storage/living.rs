//! Which blocks of memory live, on the host and on GPUs, and where they were made: for the error of memory that runs
//! out, and for a profile's memory timeline.
//!
//! Blocks of [`LARGE`] bytes and more are always known: they cost far more than their entry. All others are while a
//! profile asks for them.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::Write;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use super::Device;
use crate::error::within::users_line;

/// Bytes from which a block is always known.
pub(crate) const LARGE: usize = 1 << 20;
/// Lines about blocks in an error.
const LINES: usize = 8;

static WATCHED: AtomicBool = AtomicBool::new(false);
static BLOCKS: Mutex<Option<HashMap<(Device, usize), Living>>> = Mutex::new(None);
static LOG: Mutex<Vec<Change>> = Mutex::new(Vec::new());
static MAKER: OnceLock<fn() -> Maker> = OnceLock::new();
/// Bytes that host tensors may have; 0 is any number.
static LIMIT: AtomicUsize = AtomicUsize::new(0);

/// Who makes a block.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Maker {
    pub op: Option<Cow<'static, str>>,
    pub module: Option<Arc<str>>,
}

struct Living {
    bytes: usize,
    at: &'static Location<'static>,
    /// Dtype and shape of the first tensor in it.
    tensor: Option<(String, Vec<usize>)>,
}

/// A block that is made or freed.
#[derive(Debug)]
pub(crate) struct Change {
    pub at_ns: u64,
    pub device: Device,
    pub address: usize,
    pub bytes: usize,
    /// Of a block that is made.
    pub made: Option<(Maker, &'static Location<'static>)>,
}

/// Whether small blocks are to be told as well.
#[inline(always)]
pub(super) fn is_watched() -> bool {
    WATCHED.load(Relaxed)
}

/// A block is there.
#[cold]
#[track_caller]
pub(super) fn made(device: Device, address: usize, bytes: usize) {
    let at = users_line(Location::caller());
    if is_watched() {
        let maker = MAKER.get().map(|maker| maker()).unwrap_or_default();
        log(device, address, bytes, Some((maker, at)));
    }
    if bytes >= LARGE {
        let mut blocks = BLOCKS.lock();
        let living = Living { bytes, at, tensor: None };
        blocks.get_or_insert_default().insert((device, address), living);
    }
}

/// A block goes back.
#[cold]
pub(super) fn freed(device: Device, address: usize, bytes: usize) {
    if is_watched() {
        log(device, address, bytes, None);
    }
    if bytes >= LARGE
        && let Some(blocks) = BLOCKS.lock().as_mut()
    {
        blocks.remove(&(device, address));
    }
}

fn log(
    device: Device,
    address: usize,
    bytes: usize,
    made: Option<(Maker, &'static Location<'static>)>,
) {
    let mut log = LOG.lock();
    log.push(Change { at_ns: now_ns(), device, address, bytes, made });
}

/// What the block at that address holds.
#[cold]
pub(crate) fn holds(device: Device, address: usize, dtype: &dyn ToString, shape: &[usize]) {
    if let Some(blocks) = BLOCKS.lock().as_mut()
        && let Some(living) = blocks.get_mut(&(device, address))
        && living.tensor.is_none()
    {
        living.tensor = Some((dtype.to_string(), shape.to_vec()));
    }
}

/// Tells of all blocks from now on; `maker` says who makes one.
pub(crate) fn watch(maker: fn() -> Maker) {
    MAKER.get_or_init(|| maker);
    LOG.lock().clear();
    WATCHED.store(true, SeqCst);
}

/// What was made and freed since [`watch`].
pub(crate) fn unwatch() -> Vec<Change> {
    WATCHED.store(false, SeqCst);
    std::mem::take(&mut *LOG.lock())
}

/// The largest living blocks of a device, as the end of an error's message; those that are alike in one line.
#[cold]
pub(super) fn report(device: Device) -> String {
    let mut alike: HashMap<String, (usize, usize)> = HashMap::new();
    if let Some(blocks) = BLOCKS.lock().as_ref() {
        for (_, living) in blocks.iter().filter(|((of, _), _)| *of == device) {
            let what = match &living.tensor {
                Some((dtype, shape)) => format!("{dtype} {shape:?}"),
                None => "bytes".to_owned(),
            };
            let text = format!("{} {what}, made at {}", bytes(living.bytes), living.at);
            let (count, sum) = alike.entry(text).or_default();
            (*count, *sum) = (*count + 1, *sum + living.bytes);
        }
    }
    let mut alike: Vec<(String, (usize, usize))> = alike.into_iter().collect();
    if alike.is_empty() {
        return format!("\n  no tensor of {} or more is alive", bytes(LARGE));
    }
    alike.sort_by(|a, b| (b.1.1, &a.0).cmp(&(a.1.1, &b.0)));
    let mut text = "\n  the largest living tensors:".to_owned();
    for (line, (count, _)) in alike.iter().take(LINES) {
        let times = if *count > 1 { format!("{count} x ") } else { String::new() };
        let _ = write!(text, "\n    {times}{line}");
    }
    let rest = &alike[alike.len().min(LINES)..];
    if !rest.is_empty() {
        let count: usize = rest.iter().map(|(_, (count, _))| count).sum();
        let sum: usize = rest.iter().map(|(_, (_, sum))| sum).sum();
        let _ = write!(text, "\n    and {count} more, {} together", bytes(sum));
    }
    text
}

/// Limits the bytes of tensors in this process's host memory, or with `None` no more: what would exceed it is an error,
/// which lists the largest tensors, and not the end of the process by the system. Memory shared between processes and
/// mapped files do not count.
///
/// Without a limit that of the process's control group holds (`memory.max` and `memory.swap.max`), as in a container.
///
/// ```
/// use torchrs::{Dtype, Tensor, catch, storage::{memory_stats, set_host_memory_limit}};
/// set_host_memory_limit(Some(memory_stats().in_use + (8 << 20)));
/// let error = catch(|| Tensor::zeros([1 << 26], Dtype::F32)).unwrap_err();
/// assert!(error.to_string().contains("no room for 256.00 MiB"), "{error}");
/// set_host_memory_limit(None);
/// ```
pub fn set_host_memory_limit(bytes: Option<usize>) {
    LIMIT.store(bytes.map_or(0, |bytes| bytes.max(1)), SeqCst);
}

/// Bytes that host tensors may have, and whose limit that is.
pub(super) fn limit() -> Option<(usize, &'static str)> {
    static OF_GROUP: OnceLock<Option<usize>> = OnceLock::new();
    match LIMIT.load(Relaxed) {
        0 => OF_GROUP.get_or_init(of_group).map(|limit| (limit, "its control group's memory.max")),
        limit => Some((limit, "set_host_memory_limit")),
    }
}

/// The memory and swap of the process's control group (version 2), the least of it and those around it.
fn of_group() -> Option<usize> {
    let own = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = own.lines().find_map(|line| line.strip_prefix("0::/"))?.trim();
    let mut folder = std::path::Path::new("/sys/fs/cgroup").join(path);
    let mut least = None;
    while folder.starts_with("/sys/fs/cgroup") {
        let read = |name: &str| {
            let text = std::fs::read_to_string(folder.join(name)).ok()?;
            text.trim().parse::<usize>().ok()
        };
        // `max` is no number: no limit.
        if let Some(memory) = read("memory.max") {
            let unlimited_swap =
                folder.join("memory.swap.max").exists() && read("memory.swap.max").is_none();
            if !unlimited_swap {
                let both = memory.saturating_add(read("memory.swap.max").unwrap_or(0));
                least = Some(least.map_or(both, |least: usize| least.min(both)));
            }
        }
        if !folder.pop() {
            break;
        }
    }
    least
}

/// Bytes as people read them.
pub(crate) fn bytes(n: usize) -> String {
    let value = n as f64;
    match n {
        ..1024 => format!("{n} bytes"),
        1024..0x10_0000 => format!("{:.2} KiB", value / 1024.0),
        0x10_0000..0x4000_0000 => format!("{:.2} MiB", value / 1_048_576.0),
        _ => format!("{:.2} GiB", value / 1_073_741_824.0),
    }
}

/// `CLOCK_MONOTONIC`: the same for all processes of a host.
pub(crate) fn now_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes to `time`, which is there; this clock exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
