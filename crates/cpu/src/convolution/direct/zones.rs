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
