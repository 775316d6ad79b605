//! A worker's slot: which word holds what, and how a worker writes it.

use std::borrow::Cow;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, fence};

use super::doing::Doing;
use super::{BUS, DEVICE_NAME, NAME, SCALARS};

/// Bytes of a slot.
pub(super) const SLOT_BYTES: usize = 4096;
/// Words of a slot.
pub(super) const SLOT_WORDS: usize = SLOT_BYTES / 8;

/// The first word of a slot that a worker of this layout has taken.
pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"trsboar1");

/// Which word holds what. Words up to [`SEQUENCE`](word::SEQUENCE) are written one by one.
pub(super) mod word {
    pub const MAGIC: usize = 0;
    pub const ATTACHED_AT: usize = 1;
    pub const DOING: usize = 2;
    pub const STEPS: usize = 3;
    /// Four, in the order of [`TimeOf`](super::TimeOf).
    pub const TIMES: usize = 4;
    pub const WAITED: usize = 8;
    pub const SAMPLES: usize = 9;
    pub const TOKENS_PER_SAMPLE: usize = 10;
    pub const FLOPS_PER_SAMPLE: usize = 11;
    pub const PEAK_FLOPS: usize = 12;
    pub const HOST_BYTES: usize = 13;
    pub const HOST_PEAK: usize = 14;
    pub const DEVICE_BYTES: usize = 15;
    pub const DEVICE_PEAK: usize = 16;
    /// Odd while what follows is written.
    pub const SEQUENCE: usize = 24;
    pub const LOGGED_STEP: usize = 25;
    pub const LOGGED_AT: usize = 26;
    pub const SAVED_STEP: usize = 27;
    /// 0: nothing was saved yet.
    pub const SAVED_AT: usize = 28;
    pub const SAVED_TOOK: usize = 29;
    /// The device's index and 1; 0 is the CPU.
    pub const DEVICE: usize = 30;
    pub const COUNT: usize = 31;
    pub const DEVICE_NAME: usize = 32;
    pub const BUS: usize = 40;
    pub const SCALARS: usize = 48;
}

/// Words of a name.
pub(super) const NAME_WORDS: usize = NAME / 8;
/// Words of a scalar: name, value, step.
pub(super) const SCALAR_WORDS: usize = NAME_WORDS + 2;

const _: () = assert!(word::SCALARS + SCALARS * SCALAR_WORDS <= SLOT_WORDS);
const _: () = assert!(word::DEVICE_NAME + DEVICE_NAME / 8 <= word::BUS);
const _: () = assert!(word::BUS + BUS / 8 <= word::SCALARS);

/// What a training thread's time goes into, beside its own computing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeOf {
    /// Waiting for batches.
    Data,
    /// In collectives, and waiting for those that were started.
    Communication,
    /// Steps of optimizers.
    Optimizer,
    /// Saving checkpoints.
    Checkpoint,
}

impl TimeOf {
    /// All, in the order of their words.
    pub const ALL: [TimeOf; 4] =
        [TimeOf::Data, TimeOf::Communication, TimeOf::Optimizer, TimeOf::Checkpoint];
}

/// One worker's part of a board.
#[derive(Debug, Clone, Copy)]
pub struct Slot<'a> {
    pub(super) words: &'a [AtomicU64; SLOT_WORDS],
}

impl<'a> Slot<'a> {
    pub(super) fn over(words: &'a [AtomicU64; SLOT_WORDS]) -> Self {
        Slot { words }
    }

    #[inline]
    fn set(&self, place: usize, value: u64) {
        self.words[place].store(value, Relaxed);
    }

    #[inline]
    fn add(&self, place: usize, value: u64) {
        self.words[place].fetch_add(value, Relaxed);
    }

    /// The worker is there.
    pub fn attach(&self, now_ns: u64) {
        self.set(word::ATTACHED_AT, now_ns);
        self.words[word::MAGIC].store(MAGIC, Release);
    }

    /// Says what the training thread is at from now on; [`done`](Self::done) ends it.
    #[inline]
    pub fn begin(&self, doing: Doing, now_ns: u64) {
        self.set(word::DOING, doing.word(now_ns));
    }

    /// The training thread is at its own computing again, and has spent that time.
    #[inline]
    pub fn done(&self, of: TimeOf, ns: u64) {
        self.set(word::DOING, 0);
        self.add(word::TIMES + of as usize, ns);
    }

    /// An optimizer has taken a step.
    #[inline]
    pub fn count_step(&self) {
        self.add(word::STEPS, 1);
    }

    /// A thread has waited for other ranks inside a collective.
    #[inline]
    pub fn waited_for_ranks(&self, ns: u64) {
        self.add(word::WAITED, ns);
    }

    /// So many samples are done; what one of them is, as far as that is known: else 0.
    pub fn count_samples(&self, samples: u64, tokens: f64, flops: f64, peak_flops: f64) {
        self.set(word::TOKENS_PER_SAMPLE, tokens.to_bits());
        self.set(word::FLOPS_PER_SAMPLE, flops.to_bits());
        self.set(word::PEAK_FLOPS, peak_flops.to_bits());
        self.add(word::SAMPLES, samples);
    }

    /// Bytes of tensors in the host's memory.
    pub fn set_host_memory(&self, bytes: u64) {
        self.set(word::HOST_BYTES, bytes);
        self.words[word::HOST_PEAK].fetch_max(bytes, Relaxed);
    }

    /// Bytes of tensors in the device's memory, now and at most.
    pub fn set_device_memory(&self, bytes: u64, peak: u64) {
        self.set(word::DEVICE_BYTES, bytes);
        self.set(word::DEVICE_PEAK, peak);
    }

    /// Writes numbers of a step, by name: new names are added while there is room, other numbers stay.
    pub(super) fn log(&self, step: u64, scalars: &[(&str, f64)], now_ns: u64) {
        self.whole(|slot| {
            slot.set(word::LOGGED_STEP, step);
            slot.set(word::LOGGED_AT, now_ns);
            let mut count = (slot.get(word::COUNT) as usize).min(SCALARS);
            for (name, value) in scalars {
                let name = packed::<NAME_WORDS>(&told_apart(name));
                let is = |place: &usize| {
                    let at = slot.scalar(*place);
                    (0..NAME_WORDS).all(|i| slot.get(at + i) == name[i])
                };
                let place = match (0..count).find(is) {
                    Some(place) => place,
                    None if count < SCALARS => {
                        count += 1;
                        count - 1
                    }
                    None => continue,
                };
                let at = slot.scalar(place);
                name.iter().enumerate().for_each(|(i, word)| slot.set(at + i, *word));
                slot.set(at + NAME_WORDS, value.to_bits());
                slot.set(at + NAME_WORDS + 1, step);
            }
            slot.set(word::COUNT, count as u64);
        });
    }

    /// A checkpoint of this step was saved.
    pub(super) fn saved(&self, step: u64, took_ns: u64, now_ns: u64) {
        self.whole(|slot| {
            slot.set(word::SAVED_STEP, step);
            slot.set(word::SAVED_TOOK, took_ns);
            slot.set(word::SAVED_AT, now_ns.max(1));
        });
    }

    /// What the worker computes on: a GPU's index and place on the bus, or the CPU, and its name.
    pub(super) fn set_device(&self, gpu: Option<(usize, &str)>, name: &str) {
        self.whole(|slot| {
            slot.set(word::DEVICE, gpu.map_or(0, |(index, _)| index as u64 + 1));
            let name = packed::<{ DEVICE_NAME / 8 }>(name);
            name.iter().enumerate().for_each(|(i, word)| slot.set(word::DEVICE_NAME + i, *word));
            let bus = packed::<{ BUS / 8 }>(gpu.map_or("", |(_, bus)| bus));
            bus.iter().enumerate().for_each(|(i, word)| slot.set(word::BUS + i, *word));
        });
    }

    fn scalar(&self, place: usize) -> usize {
        word::SCALARS + place * SCALAR_WORDS
    }

    fn get(&self, place: usize) -> u64 {
        self.words[place].load(Relaxed)
    }

    /// Writes the part that is read as a whole. One thread at a time.
    fn whole(&self, write: impl FnOnce(&Self)) {
        let sequence = &self.words[word::SEQUENCE];
        let before = sequence.load(Relaxed) & !1;
        sequence.store(before + 1, Relaxed);
        // The words are not written before the number is odd, and not after it is even.
        fence(Release);
        write(self);
        sequence.store(before + 2, Release);
    }

    /// Reads the part that is written as a whole; nothing while it is being written, or where a worker was killed in
    /// the middle of that.
    pub(super) fn read_whole<T>(&self, read: impl Fn(&dyn Fn(usize) -> u64) -> T) -> Option<T> {
        let sequence = &self.words[word::SEQUENCE];
        for _ in 0..64 {
            let before = sequence.load(Acquire);
            if before & 1 == 0 {
                let value = read(&|place| self.get(place));
                fence(Acquire);
                if sequence.load(Relaxed) == before {
                    return Some(value);
                }
            }
            std::hint::spin_loop();
        }
        None
    }
}

/// A name that fits and has no control characters, as a slot has names: where it does not, its beginning and a mark by
/// which it differs from others with that beginning.
fn told_apart(name: &str) -> Cow<'_, str> {
    if name.len() <= NAME && !name.contains(char::is_control) {
        return name.into();
    }
    // FNV-1a.
    let step = |hash: u32, byte: &u8| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
    let mark = format!("~{:08x}", name.as_bytes().iter().fold(0x811c_9dc5, step));
    let mut shown = name.replace(char::is_control, "?");
    while shown.len() > NAME - mark.len() {
        shown.pop();
    }
    (shown + &mark).into()
}

/// A text in words, cut at the end of a character, filled up with zeros.
fn packed<const N: usize>(text: &str) -> [u64; N] {
    let mut end = text.len().min(8 * N);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let mut words = [0; N];
    for (word, bytes) in words.iter_mut().zip(text.as_bytes()[..end].chunks(8)) {
        let mut part = [0; 8];
        part[..bytes.len()].copy_from_slice(bytes);
        *word = u64::from_le_bytes(part);
    }
    words
}
