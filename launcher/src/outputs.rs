//! `--redirects` and `--tee` in torchrun's meaning: which of a worker's streams go to the log
//! files, and which of them still to the terminal.

use std::collections::BTreeMap;
use std::str::FromStr;

/// One of a worker's two output streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stream {
    Stdout,
    Stderr,
}

impl Stream {
    pub const BOTH: [Stream; 2] = [Stream::Stdout, Stream::Stderr];

    pub fn name(self) -> &'static str {
        match self {
            Stream::Stdout => "stdout",
            Stream::Stderr => "stderr",
        }
    }

    fn bit(self) -> u8 {
        match self {
            Stream::Stdout => 1,
            Stream::Stderr => 2,
        }
    }
}

/// A choice of streams: for all ranks, or by local rank (none for a rank that is not named).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StreamMap {
    All(u8),
    PerRank(BTreeMap<usize, u8>),
}

impl StreamMap {
    /// The highest local rank that it names.
    pub fn last_rank(&self) -> Option<usize> {
        match self {
            StreamMap::All(_) => None,
            StreamMap::PerRank(map) => map.keys().next_back().copied(),
        }
    }

    pub fn has(&self, rank: usize, stream: Stream) -> bool {
        let bits = match self {
            StreamMap::All(bits) => *bits,
            StreamMap::PerRank(map) => map.get(&rank).copied().unwrap_or(0),
        };
        bits & stream.bit() != 0
    }
}

impl FromStr for StreamMap {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = "give 0 none, 1 stdout, 2 stderr or 3 both, or such a number per local rank, \
                    as in 0:3,1:1";
        let bits = |s: &str| s.parse::<u8>().ok().filter(|b| *b <= 3).ok_or(form.to_owned());
        if !text.contains(':') {
            return bits(text).map(StreamMap::All);
        }
        let mut map = BTreeMap::new();
        for entry in text.split(',') {
            let (rank, streams) = entry.split_once(':').ok_or(form)?;
            let rank = rank.parse().map_err(|_| form)?;
            if map.insert(rank, bits(streams)?).is_some() {
                return Err(format!("local rank {rank} stands there twice"));
            }
        }
        Ok(StreamMap::PerRank(map))
    }
}

/// Where one stream of one worker goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Destination {
    pub terminal: bool,
    pub file: bool,
}

/// What the options say together about `stream` of `rank`. torchrun writes no output files for
/// `--log-dir` alone; here it means both, because nobody names a log folder to find it empty.
pub fn destination(
    redirects: Option<&StreamMap>,
    tee: Option<&StreamMap>,
    log_dir: bool,
    rank: usize,
    stream: Stream,
) -> Destination {
    let redirect = redirects.is_some_and(|r| r.has(rank, stream));
    let tees = tee.is_some_and(|t| t.has(rank, stream));
    let log_only = log_dir && redirects.is_none() && tee.is_none();
    Destination { terminal: tees || !redirect, file: tees || redirect || log_only }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(redirects: &str, tee: &str, rank: usize, stream: Stream) -> (bool, bool) {
        let parse = |s: &str| (!s.is_empty()).then(|| s.parse::<StreamMap>().unwrap());
        let (redirects, tee) = (parse(redirects), parse(tee));
        let d = destination(redirects.as_ref(), tee.as_ref(), true, rank, stream);
        (d.terminal, d.file)
    }

    #[test]
    fn redirect_hides_and_tee_doubles() {
        use Stream::*;
        assert_eq!(of("3", "", 1, Stdout), (false, true));
        assert_eq!(of("2", "", 1, Stdout), (true, false));
        assert_eq!(of("", "3", 0, Stderr), (true, true));
        assert_eq!(of("3", "0:1", 0, Stdout), (true, true));
        assert_eq!(of("3", "0:1", 1, Stdout), (false, true));
        assert_eq!(of("", "", 1, Stdout), (true, true));
        assert_eq!(of("0:3,2:1", "", 1, Stderr), (true, false));
    }

    #[test]
    fn malformed_choices_are_refused() {
        for text in ["", "4", "-1", "0:3,", "0:3;1:1", "a:1", "0:9", "0:1,0:2"] {
            assert!(text.parse::<StreamMap>().is_err(), "{text}");
        }
    }
}
