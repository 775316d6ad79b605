//! Parts of a grid by what their points see of the source: at its border some taps of a filter lie outside for all
//! points of a row or a column, and need not be multiplied.

use std::ops::Range;
use std::slice;

use crate::convolution::field::Window;

/// A rectangle of the grid, and the taps through which some of its points see the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zone {
    /// Its first row and column.
    pub origin: [usize; 2],
    /// Its rows and columns.
    pub grid: [usize; 2],
    /// Places among the window's taps, in order; one, if they see nothing at all.
    pub taps: Vec<usize>,
}

/// The division of the grid that costs least: none, by rows, or by rows and the largest of those parts by columns too.
pub fn zones(window: &Window, cost: impl Fn(&Zone) -> f64) -> Vec<Zone> {
    let [rows, columns] = [0, 1].map(|d| classes(window, d));
    let divided = |rows: &[Class], columns: &[Class]| -> Vec<Zone> {
        let zone = |row: &Class, column: &Class| {
            let seen = |&t: &usize| row.sees[t] && column.sees[t];
            let taps: Vec<usize> = (0..window.taps.len()).filter(seen).collect();
            let taps = if taps.is_empty() { vec![0] } else { taps };
            let (origin, grid) = ([row.at.start, column.at.start], [row.at.len(), column.at.len()]);
            Zone { origin, grid, taps }
        };
        rows.iter().flat_map(|row| columns.iter().map(move |column| zone(row, column))).collect()
    };
    let (all_rows, all_columns) = ([merged(&rows)], [merged(&columns)]);
    let largest = (0..rows.len()).max_by_key(|&r| rows[r].at.len()).unwrap_or(0);
    let both = rows.iter().enumerate().flat_map(|(r, row)| {
        divided(slice::from_ref(row), if r == largest { &columns } else { &all_columns })
    });
    let candidates =
        [divided(&all_rows, &all_columns), divided(&rows, &all_columns), both.collect()];
    let total = |zones: &[Zone]| zones.iter().map(&cost).sum::<f64>();
    let best = candidates.into_iter().min_by(|a, b| total(a).total_cmp(&total(b)));
    best.expect("candidates")
}

/// Rows or columns of the grid that follow one another and see the source through the same taps.
#[derive(Clone)]
struct Class {
    at: Range<usize>,
    sees: Vec<bool>,
}

/// The classes of a dimension.
fn classes(window: &Window, d: usize) -> Vec<Class> {
    let sees = |i: usize, tap: &[isize; 2]| {
        let at = (i * window.step[d]) as isize + tap[d];
        (0..window.source[d] as isize).contains(&at)
    };
    let mut classes: Vec<Class> = Vec::new();
    for i in 0..window.grid[d] {
        let same = |class: &Class| {
            window.taps.iter().zip(&class.sees).all(|(tap, seen)| sees(i, tap) == *seen)
        };
        match classes.last_mut() {
            Some(last) if same(last) => last.at.end = i + 1,
            _ => classes.push(Class {
                at: i..i + 1,
                sees: window.taps.iter().map(|tap| sees(i, tap)).collect(),
            }),
        }
    }
    classes
}

/// All classes of a dimension as one.
fn merged(classes: &[Class]) -> Class {
    let [first, .., last] = classes else { return classes[0].clone() };
    let sees = (0..first.sees.len()).map(|t| classes.iter().any(|class| class.sees[t]));
    Class { at: first.at.start..last.at.end, sees: sees.collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A filter of 3x3 with a border of one.
    fn window(grid: [usize; 2]) -> Window {
        let taps = (0..9).map(|t| [t / 3 - 1, t % 3 - 1]).collect();
        Window { source: grid, grid, step: [1, 1], taps }
    }

    fn products(zones: &[Zone]) -> usize {
        zones.iter().map(|zone| zone.grid[0] * zone.grid[1] * zone.taps.len()).sum()
    }

    #[test]
    fn every_point_is_in_one_zone_with_all_taps_that_it_sees() {
        for grid in [[1, 1], [1, 7], [2, 5], [14, 14]] {
            let window = window(grid);
            for dear in [0.0, 20.0, 1e6] {
                // The more a zone costs, the fewer there are.
                let zones = zones(&window, |zone| {
                    (zone.grid[0] * zone.grid[1] * zone.taps.len()) as f64 + dear
                });
                let mut seen = vec![0; grid[0] * grid[1]];
                for zone in &zones {
                    for i in zone.origin[0]..zone.origin[0] + zone.grid[0] {
                        for j in zone.origin[1]..zone.origin[1] + zone.grid[1] {
                            seen[i * grid[1] + j] += 1;
                            for (t, tap) in window.taps.iter().enumerate() {
                                let at = [i as isize + tap[0], j as isize + tap[1]];
                                let inside = (0..2).all(|d| (0..grid[d] as isize).contains(&at[d]));
                                assert!(!inside || zone.taps.contains(&t), "{grid:?} {zone:?}");
                            }
                        }
                    }
                }
                assert!(seen.iter().all(|n| *n == 1), "{grid:?} {zones:?}");
            }
        }
    }

    #[test]
    fn what_lies_outside_is_not_multiplied() {
        let window = window([14, 14]);
        let plain = |zone: &Zone| (zone.grid[0] * zone.grid[1] * zone.taps.len()) as f64;
        let best = zones(&window, plain);
        assert_eq!((best.len(), products(&best)), (5, 12 * 12 * 9 + 2 * 14 * 6 + 2 * 12 * 6));
        assert_eq!(zones(&window, |zone| plain(zone) + 1e6).len(), 1);
        // Taps that no point sees.
        let narrow = self::window([14, 1]);
        assert_eq!(products(&zones(&narrow, |zone| plain(zone) + 1e6)), 14 * 3);
    }
}
