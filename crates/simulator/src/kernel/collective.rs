//! Warps' collectives: what each lane gets when all lanes of a mask have met.

use super::abi::warp;

/// What a lane gets that reads a lane which takes no part: on hardware it is not defined.
pub const UNDEFINED: u64 = 0x7ffb_7ffb_7ffb_7ffb;

/// What a lane brought.
#[derive(Debug, Clone, Copy, Default)]
pub struct Offer {
    /// Its value.
    pub value: u64,
    /// The lane that it reads, for a shuffle.
    pub source: u32,
}

/// The result of one lane, from the offers of those lanes in `present`.
pub fn result(operation: u32, lane: usize, offers: &[Offer; 32], present: u32) -> u64 {
    match operation {
        warp::SHUFFLE => {
            let source = (offers[lane].source & 31) as usize;
            if present >> source & 1 == 1 { offers[source].value } else { UNDEFINED }
        }
        warp::BALLOT => bits(present, |other| offers[other].value != 0),
        warp::MATCH => bits(present, |other| offers[other].value == offers[lane].value),
        warp::SYNC => 0,
        _ => {
            let lanes = (0..32).filter(|lane| present >> lane & 1 == 1);
            let values = lanes.map(|lane| offers[lane].value as u32);
            let reduced = match operation {
                warp::ADD => values.fold(0, u32::wrapping_add),
                warp::MIN_SIGNED => values.map(|v| v as i32).min().unwrap_or(0) as u32,
                warp::MAX_SIGNED => values.map(|v| v as i32).max().unwrap_or(0) as u32,
                warp::MIN => values.min().unwrap_or(0),
                warp::MAX => values.max().unwrap_or(0),
                warp::AND => values.fold(u32::MAX, |a, b| a & b),
                warp::OR => values.fold(0, |a, b| a | b),
                _ => values.fold(0, |a, b| a ^ b),
            };
            u64::from(reduced)
        }
    }
}

/// A bit for each lane in `present` of which `is_set` is true.
fn bits(present: u32, is_set: impl Fn(usize) -> bool) -> u64 {
    (0..32)
        .filter(|lane| present >> lane & 1 == 1 && is_set(*lane))
        .fold(0, |bits, lane| bits | 1 << lane)
}

/// The operation's name in a source.
pub fn name(operation: u32) -> &'static str {
    match operation {
        warp::SYNC => "__syncwarp",
        warp::SHUFFLE => "a shuffle",
        warp::BALLOT => "a vote",
        warp::MATCH => "__match",
        _ => "__reduce",
    }
}
