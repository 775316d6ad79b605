//! Numbers over the whole run, for charts: of bounded length. When a series is full every other point goes, so that it
//! still reaches from the run's beginning to now.

use std::collections::BTreeMap;

use serde::Serialize;

use super::numbers::{Number, short};
use super::snapshot::Snapshot;

/// Points of a series at most.
const POINTS: usize = 512;
/// Series at most.
const SERIES: usize = 40;

/// A point: the step, and the number.
pub type Point = (u64, Number);

/// One number over time.
#[derive(Debug, Clone, Default, Serialize)]
struct Series {
    points: Vec<Point>,
    /// Of so many new points one is kept.
    every: usize,
    skipped: usize,
}

impl Series {
    fn push(&mut self, point: Point) -> bool {
        // After a restart a run goes on from its checkpoint.
        while self.points.last().is_some_and(|last| last.0 >= point.0) {
            self.points.pop();
        }
        self.skipped += 1;
        if self.skipped < self.every {
            return false;
        }
        self.skipped = 0;
        if self.points.len() >= POINTS {
            let mut place = 0;
            self.points.retain(|_| {
                place += 1;
                place % 2 == 1
            });
            self.every = self.every.max(1) * 2;
        }
        self.points.push(point);
        true
    }
}

/// All series of a job.
#[derive(Debug, Default)]
pub struct History {
    series: BTreeMap<String, Series>,
    /// The step of the last point of what is logged, by name.
    seen: BTreeMap<String, u64>,
}

impl History {
    /// Takes what is new in a snapshot; gives the points that are.
    pub fn take(&mut self, snapshot: &Snapshot) -> BTreeMap<String, Vec<Point>> {
        let mut new = BTreeMap::new();
        for scalar in &snapshot.scalars {
            if self.seen.get(&scalar.name) != Some(&scalar.step) {
                self.seen.insert(scalar.name.clone(), scalar.step);
                self.push(&scalar.name, (scalar.step, scalar.value), &mut new);
            }
        }
        let speed = &snapshot.speed;
        let logged = |name: &str| snapshot.scalars.iter().any(|scalar| scalar.name == name);
        let counted = [
            ("samples/s", speed.samples_per_s),
            ("tokens/s", speed.tokens_per_s),
            ("steps/s", Some(speed.steps_per_s)),
            ("mfu", speed.mfu),
        ];
        for (name, number) in counted {
            let Some(number) = number.filter(|n| *n > 0.0 && !logged(name)) else { continue };
            self.push(name, (speed.step, Number(short(number))), &mut new);
        }
        new
    }

    fn push(&mut self, name: &str, point: Point, new: &mut BTreeMap<String, Vec<Point>>) {
        if !self.series.contains_key(name) && self.series.len() >= SERIES {
            return;
        }
        let series = self.series.entry(name.to_owned()).or_default();
        if series.push(point) {
            new.insert(name.to_owned(), vec![point]);
        }
    }

    /// All points, by name.
    pub fn all(&self) -> BTreeMap<&str, &[Point]> {
        self.series.iter().map(|(name, series)| (&**name, &*series.points)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::snapshot::ScalarLine;

    fn logged(step: u64, value: f64) -> Snapshot {
        let scalars = vec![ScalarLine { name: "loss".into(), value: Number(value), step }];
        Snapshot { scalars, ..Default::default() }
    }

    #[test]
    fn a_series_stays_short_and_reaches_back_to_the_beginning() {
        let mut history = History::default();
        for step in 1..=10_000 {
            history.take(&logged(step, step as f64));
        }
        let points = history.all()["loss"];
        assert!(points.len() > POINTS / 3 && points.len() <= POINTS, "{}", points.len());
        assert!(points[0].0 == 1 && points.last().unwrap().0 > 9_900, "{points:?}");
        assert!(points.windows(2).all(|two| two[0].0 < two[1].0));
    }

    #[test]
    fn a_run_that_goes_on_from_its_checkpoint_takes_back_what_came_after() {
        let mut history = History::default();
        for (step, value) in [(1, 9.0), (2, 8.0), (2, 8.0), (3, 7.0), (2, 6.0)] {
            history.take(&logged(step, value));
        }
        assert_eq!(history.all()["loss"], [(1, Number(9.0)), (2, Number(6.0))]);
    }
}
