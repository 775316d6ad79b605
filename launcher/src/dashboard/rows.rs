//! Ranks as rows of numbers, and which of them a client has not seen: what is sent stays short, however many ranks
//! there are.

use std::collections::HashMap;

use serde_json::{Value, json};

use crate::status::snapshot::{RankLine, Snapshot};

/// Rows of one message at most. What has no room comes with the next.
const ROWS: usize = 250;
const MIB: f64 = 1024.0 * 1024.0;

/// A rank as the page has it: what changes the cell's look first.
#[derive(Debug, Clone, PartialEq)]
struct Row {
    look: (u8, bool, String),
    rest: Value,
}

/// What a client has been sent.
#[derive(Debug, Default)]
pub struct Sent {
    rows: HashMap<usize, Row>,
    devices: Vec<String>,
    /// Where the next message goes on, when not all had room.
    next: usize,
}

impl Sent {
    /// The rows of ranks that are new to the client, and the list that they name devices by.
    pub fn news(&mut self, snapshot: &Snapshot) -> (Vec<Value>, &[String]) {
        let first = snapshot.ranks.iter().map(|line| line.step).max().unwrap_or(0);
        let rows: Vec<(usize, Row)> =
            snapshot.ranks.iter().map(|line| (line.rank, self.row(line, first))).collect();
        let count = rows.len();
        self.rows.retain(|rank, _| rows.binary_search_by_key(rank, |row| row.0).is_ok());
        let from = self.next.min(count);
        // From where the last message ended, so that each has its turn; but first those that look different.
        let (late, early) = (from..count, 0..from);
        let mut changed: Vec<(bool, usize)> = late
            .chain(early)
            .filter_map(|place| {
                let (rank, row) = &rows[place];
                match self.rows.get(rank) {
                    Some(old) if old == row => None,
                    Some(old) => Some((old.look == row.look, place)),
                    None => Some((false, place)),
                }
            })
            .collect();
        changed.sort_by_key(|(same_look, _)| *same_look);
        if changed.len() > ROWS {
            changed.truncate(ROWS);
            self.next = changed[ROWS - 1].1 + 1;
        }
        let mut news = Vec::new();
        for (_, place) in changed {
            let (rank, row) = &rows[place];
            news.push(json!([rank, row.look.0, row.look.1 as u8, row.look.2, row.rest]));
            self.rows.insert(*rank, row.clone());
        }
        (news, &self.devices)
    }

    fn row(&mut self, line: &RankLine, first: u64) -> Row {
        let device = match self.devices.iter().position(|device| *device == line.device) {
            Some(place) => place,
            None => {
                self.devices.push(line.device.clone());
                self.devices.len() - 1
            }
        };
        let mib = |bytes: u64| (bytes as f64 / MIB).round();
        let percent = |share: f64| (100.0 * share).round();
        let tensors = match line.device_peak {
            0 => [mib(line.host_tensors), mib(line.host_peak)],
            peak => [mib(line.device_tensors), mib(peak)],
        };
        let rest = json!([
            line.host,
            device,
            // Behind the first.
            first.saturating_sub(line.step),
            percent(line.cpu),
            mib(line.resident),
            tensors[0],
            tensors[1],
            percent(line.waited),
            line.doing_s.round(),
            line.gpu_busy.map(percent),
            mib(line.gpu_total),
        ]);
        Row { look: (line.state as u8, line.slow, line.doing.clone()), rest }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::snapshot::RankState;

    fn snapshot(ranks: usize) -> Snapshot {
        let line = |rank| RankLine { rank, state: RankState::Running, ..Default::default() };
        Snapshot { ranks: (0..ranks).map(line).collect(), ..Default::default() }
    }

    fn ranks(rows: &[Value]) -> Vec<u64> {
        rows.iter().map(|row| row[0].as_u64().unwrap()).collect()
    }

    #[test]
    fn only_what_changes_is_sent() {
        let (mut sent, mut now) = (Sent::default(), snapshot(3));
        assert_eq!(ranks(&sent.news(&now).0), [0, 1, 2]);
        assert!(sent.news(&now).0.is_empty());
        now.ranks[1].cpu = 0.5;
        assert_eq!(ranks(&sent.news(&now).0), [1]);
        now.ranks.iter_mut().for_each(|line| line.step += 1);
        assert!(sent.news(&now).0.is_empty(), "all are as far as the first");
    }

    #[test]
    fn a_message_is_short_and_all_ranks_come_in_turn() {
        let (mut sent, mut now) = (Sent::default(), snapshot(1000));
        let mut came = std::collections::BTreeSet::new();
        for _ in 0..4 {
            let (rows, _) = sent.news(&now);
            assert!(rows.len() <= ROWS && serde_json::to_string(&rows).unwrap().len() < 20_000);
            came.extend(ranks(&rows));
        }
        assert_eq!(came.len(), 1000);
        // All change, and one of them dies: that comes first.
        now.ranks.iter_mut().for_each(|line| line.cpu += 1.0);
        now.ranks[999].state = RankState::Failed;
        assert_eq!(ranks(&sent.news(&now).0)[0], 999);
    }
}
