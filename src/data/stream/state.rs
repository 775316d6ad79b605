//! Where a stream's loader is: what a checkpoint keeps.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// Where a [`StreamLoader`](super::StreamLoader) is, of the lanes of one rank, or after [`merge`](Self::merge) of all.
///
/// ```
/// use torchrs::data::stream::{StreamLoader, StreamState, TokenFiles, TokenType};
/// # let file = tempfile::NamedTempFile::new().unwrap();
/// # std::fs::write(file.path(), [0; 42]).unwrap();
/// let windows = TokenFiles::new(file.path(), TokenType::U16, 5)?;
/// let loader = StreamLoader::builder(windows).batch_size(1).build()?;
/// loader.iter().next().unwrap()?;
/// let json = serde_json::to_string(&loader.state_dict()).unwrap();
/// let state: StreamState = serde_json::from_str(&json).unwrap();
/// assert_eq!((state.epoch, state.batches), (0, 1));
/// loader.load_state_dict(&state)?;
/// assert_eq!(loader.iter().count(), 3);
/// # Ok::<(), torchrs::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct StreamState {
    /// Seed of the order.
    pub seed: u64,
    /// The epoch.
    pub epoch: u64,
    /// Batches that each rank has yielded in the epoch.
    pub batches: u64,
    /// Whether the epoch's iteration ran to its end.
    pub finished: bool,
    /// How often all of the stream was read before.
    pub pass: u64,
    /// Into how many lanes the stream is divided.
    pub num_lanes: usize,
    /// Ranks of the job.
    pub world_size: usize,
    /// Samples of a batch.
    pub batch_size: usize,
    /// Whether files are in random order.
    pub shuffle_shards: bool,
    /// How many files the dataset has, if it has files.
    pub num_shards: Option<usize>,
    /// Which of the rank's lanes comes next.
    pub turn: usize,
    /// The lanes that this state knows, by number.
    pub lanes: BTreeMap<usize, LaneState>,
}

/// Where a lane is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneState {
    /// Samples that it has given in this pass.
    pub samples: u64,
    /// Whether it has given all.
    pub ended: bool,
    /// Where its reader is, as the dataset wrote it; empty at the beginning.
    #[serde(with = "hex")]
    pub position: Vec<u8>,
}

impl StreamState {
    /// The state of all lanes, from the states of all ranks: with it a job goes on with another number of ranks.
    ///
    /// # Errors
    /// [`Error::Config`] when the states are not of one moment of one job, or lanes are missing.
    pub fn merge(states: &[StreamState]) -> Result<StreamState> {
        let wrong = |message: String| Err(Error::config("StreamState::merge", message));
        let Some(first) = states.first() else { return wrong("no state is given".to_owned()) };
        let mut merged = first.clone();
        // By number of batches: then ranks' own turns mean nothing.
        merged.turn = 0;
        for state in &states[1..] {
            let other = StreamState { turn: 0, lanes: BTreeMap::new(), ..state.clone() };
            let same = StreamState { lanes: BTreeMap::new(), ..merged.clone() };
            if other != same {
                return wrong(format!(
                    "states of different moments: epoch {}, batch {}, and epoch {}, batch {}",
                    first.epoch, first.batches, state.epoch, state.batches
                ));
            }
            for (lane, at) in &state.lanes {
                if merged.lanes.insert(*lane, at.clone()).is_some() {
                    return wrong(format!("lane {lane} is in two of the states"));
                }
            }
        }
        if states.iter().all(|state| state.turn == first.turn) {
            merged.turn = first.turn;
        }
        match merged.is_complete() {
            true => Ok(merged),
            false => wrong(format!(
                "{} of {} lanes are there; give the states of all {} ranks",
                merged.lanes.len(),
                merged.num_lanes,
                merged.world_size
            )),
        }
    }

    /// Whether all lanes are known.
    pub(super) fn is_complete(&self) -> bool {
        (0..self.num_lanes).all(|lane| self.lanes.contains_key(&lane))
    }
}

/// Bytes as hexadecimal digits, which are short in a JSON file too.
mod hex {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
        let text: String =
            digits.map(|d| char::from(b"0123456789abcdef"[usize::from(d)])).collect();
        serializer.serialize_str(&text)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(input: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(input)?;
        let digits: Option<Vec<u8>> =
            text.chars().map(|c| c.to_digit(16).map(|digit| digit as u8)).collect();
        match digits {
            Some(digits) if digits.len() % 2 == 0 => {
                Ok(digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())
            }
            _ => Err(D::Error::custom("a lane's position is not in hexadecimal digits")),
        }
    }
}
