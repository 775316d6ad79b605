//! The clock of the page: a look each second, and soon after something has happened; whoever streams waits for it.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::status::history::{History, Point};
use crate::status::{Look, Status};

/// Between two looks.
const PACE: Duration = Duration::from_secs(1);
/// Between two looks when much happens.
const LEAST: Duration = Duration::from_millis(150);

/// The looks at a job.
#[derive(Default)]
pub struct Feed {
    last: Mutex<Option<Arc<Frame>>>,
    newer: Condvar,
    history: Mutex<History>,
}

/// A look, and what charts get from it.
pub struct Frame {
    /// Counts them, from 1.
    pub number: u64,
    pub look: Arc<Look>,
    pub points: BTreeMap<String, Vec<Point>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Feed {
    /// Starts the clock.
    pub fn start(status: Arc<Status>) -> std::io::Result<Arc<Self>> {
        let feed = Arc::new(Feed::default());
        let own = feed.clone();
        let clock = move || {
            for number in 1.. {
                let begun = Instant::now();
                let look = status.look();
                let points = locked(&own.history).take(&look.snapshot);
                *locked(&own.last) = Some(Arc::new(Frame { number, look: look.clone(), points }));
                own.newer.notify_all();
                status.wait_for_news(&look, PACE.saturating_sub(begun.elapsed()));
                // Sixty-four deaths at once are one look.
                thread::sleep(LEAST.saturating_sub(begun.elapsed()));
            }
        };
        thread::Builder::new().name("status-clock".into()).stack_size(512 << 10).spawn(clock)?;
        Ok(feed)
    }

    /// A frame that is newer than the one with this number; nothing if none comes in time.
    pub fn newer_than(&self, number: u64, time: Duration) -> Option<Arc<Frame>> {
        let last = locked(&self.last);
        let is_old = |last: &mut Option<Arc<Frame>>| {
            last.as_ref().is_none_or(|frame| frame.number <= number)
        };
        let waited = self.newer.wait_timeout_while(last, time, is_old);
        let (last, _) = waited.unwrap_or_else(PoisonError::into_inner);
        last.clone().filter(|frame| frame.number > number)
    }

    /// All points of the charts.
    pub fn history(&self) -> Value {
        serde_json::to_value(locked(&self.history).all()).unwrap_or_default()
    }
}
