//! What a reader makes of a slot: plain values, whatever stands there.

use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::Duration;

use super::doing::Doing;
use super::slot::{MAGIC, NAME_WORDS, SCALAR_WORDS, Slot, TimeOf, word};
use super::{BUS, DEVICE_NAME, SCALARS};

/// A slot at one moment. Times are of CLOCK_MONOTONIC, in nanoseconds.
#[derive(Debug, Clone, PartialEq)]
pub struct Reading {
    /// When the worker has taken the slot.
    pub attached_at: u64,
    /// What its training thread is at, and since when.
    pub doing: Option<(Doing, Duration)>,
    /// Steps of its optimizers.
    pub steps: u64,
    /// Nanoseconds by what they went into, in the order of [`TimeOf::ALL`].
    pub times: [u64; TimeOf::ALL.len()],
    /// Nanoseconds that its threads have waited for other ranks.
    pub waited: u64,
    /// Samples that it has done.
    pub samples: u64,
    /// Of a sample, where the program says so.
    pub tokens_per_sample: Option<f64>,
    /// Floating-point operations of a sample.
    pub flops_per_sample: Option<f64>,
    /// What its device can do in a second.
    pub peak_flops: Option<f64>,
    /// Bytes of tensors in the host's memory, and the most of those that were noted.
    pub host_memory: (u64, u64),
    /// Bytes of tensors in the device's memory, and the most.
    pub device_memory: (u64, u64),
    /// The part that is written as a whole; nothing where a worker was killed while it wrote.
    pub logged: Option<Logged>,
}

/// What a worker writes as a whole.
#[derive(Debug, Clone, PartialEq)]
pub struct Logged {
    /// The step of the last numbers.
    pub step: u64,
    /// When they were written; 0: never.
    pub at: u64,
    /// By name, in the order in which the names came.
    pub scalars: Vec<Scalar>,
    /// The last checkpoint.
    pub saved: Option<SavedReading>,
    /// What it computes on.
    pub device: DeviceReading,
}

/// A number that a program has logged.
#[derive(Debug, Clone, PartialEq)]
pub struct Scalar {
    /// Its name.
    pub name: String,
    /// May be anything, also no number.
    pub value: f64,
    /// Of the step.
    pub step: u64,
}

/// A checkpoint that was saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SavedReading {
    /// Its step.
    pub step: u64,
    /// When it was there.
    pub at: u64,
    /// Nanoseconds to save it.
    pub took: u64,
}

/// What a worker computes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceReading {
    /// A GPU's index; nothing: the CPU, or not yet known.
    pub gpu: Option<usize>,
    /// Its name; empty before it is known.
    pub name: String,
    /// A GPU's place on the bus, as `0000:17:00.0`.
    pub bus: String,
}

impl Reading {
    pub(super) fn of(slot: &Slot<'_>) -> Option<Self> {
        if slot.words[word::MAGIC].load(Acquire) != MAGIC {
            return None;
        }
        let get = |place: usize| slot.words[place].load(Relaxed);
        let positive =
            |place| Some(f64::from_bits(get(place))).filter(|n| *n > 0.0 && n.is_finite());
        Some(Reading {
            attached_at: get(word::ATTACHED_AT),
            doing: Doing::of_word(get(word::DOING)),
            steps: get(word::STEPS),
            times: TimeOf::ALL.map(|of| get(word::TIMES + of as usize)),
            waited: get(word::WAITED),
            samples: get(word::SAMPLES),
            tokens_per_sample: positive(word::TOKENS_PER_SAMPLE),
            flops_per_sample: positive(word::FLOPS_PER_SAMPLE),
            peak_flops: positive(word::PEAK_FLOPS),
            host_memory: (get(word::HOST_BYTES), get(word::HOST_PEAK)),
            device_memory: (get(word::DEVICE_BYTES), get(word::DEVICE_PEAK)),
            logged: slot.read_whole(Logged::read),
        })
    }

    /// A number by its name.
    pub fn scalar(&self, name: &str) -> Option<&Scalar> {
        self.logged.as_ref()?.scalars.iter().find(|scalar| scalar.name == name)
    }
}

impl Logged {
    fn read(get: &dyn Fn(usize) -> u64) -> Self {
        let scalar = |place: usize| {
            let at = word::SCALARS + place * SCALAR_WORDS;
            Scalar {
                name: text(get, at, NAME_WORDS),
                value: f64::from_bits(get(at + NAME_WORDS)),
                step: get(at + NAME_WORDS + 1),
            }
        };
        let count = (get(word::COUNT) as usize).min(SCALARS);
        let saved_at = get(word::SAVED_AT);
        let (step, took) = (get(word::SAVED_STEP), get(word::SAVED_TOOK));
        Logged {
            step: get(word::LOGGED_STEP),
            at: get(word::LOGGED_AT),
            scalars: (0..count).map(scalar).collect(),
            saved: (saved_at != 0).then_some(SavedReading { step, at: saved_at, took }),
            device: DeviceReading {
                gpu: (get(word::DEVICE) as usize).checked_sub(1),
                name: text(get, word::DEVICE_NAME, DEVICE_NAME / 8),
                bus: text(get, word::BUS, BUS / 8),
            },
        }
    }
}

/// The text in these words, up to the first zero. Control characters, which no name needs, are shown as such.
fn text(get: &dyn Fn(usize) -> u64, at: usize, words: usize) -> String {
    let bytes: Vec<u8> = (at..at + words).flat_map(|place| get(place).to_le_bytes()).collect();
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    let text = String::from_utf8_lossy(&bytes[..end]);
    text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}
