//! The length of a step along a direction, by Wolfe's strong conditions: the loss falls by at least
//! a share of what its slope promises, and the slope becomes flat. First lengths grow until an
//! interval must hold such a point, then the interval shrinks; guesses are minima of cubic curves.

use crate::tensor::Tensor;

/// Share of the promised fall of the loss.
const FALL: f64 = 1e-4;
/// How flat the slope must become.
const FLATTER: f64 = 0.9;
/// Width of an interval, times the direction's largest element, that counts as none.
const WIDTH: f64 = 1e-9;

/// What is known of a length.
#[derive(Clone)]
pub(super) struct Point {
    /// The length.
    pub at: f64,
    pub loss: f64,
    pub gradient: Tensor,
    /// Of the loss by the length.
    pub slope: f64,
}

/// The minimum of the cubic curve through two points with these slopes, within the bounds.
fn cubic_minimum(a: &Point, b: &Point, bounds: (f64, f64)) -> f64 {
    let (a, b) = if a.at <= b.at { (a, b) } else { (b, a) };
    let d1 = a.slope + b.slope - 3.0 * (a.loss - b.loss) / (a.at - b.at);
    let square = d1 * d1 - a.slope * b.slope;
    if square < 0.0 {
        return (bounds.0 + bounds.1) / 2.0;
    }
    let d2 = square.sqrt();
    let share = (b.slope + d2 - d1) / (b.slope - a.slope + 2.0 * d2);
    let minimum = b.at - (b.at - a.at) * share;
    minimum.max(bounds.0).min(bounds.1)
}

/// A point that satisfies the conditions, or the best one found, and the number of evaluations.
/// `origin` is at length 0, `first` the first length tried, `largest` the direction's largest
/// element; `limit` evaluations are made after the first one.
pub(super) fn strong_wolfe(
    at: &mut dyn FnMut(f64) -> Point,
    origin: Point,
    first: f64,
    largest: f64,
    limit: usize,
) -> (Point, usize) {
    let high = |p: &Point| p.loss > origin.loss + FALL * p.at * origin.slope;
    let flat = |p: &Point| p.slope.abs() <= -FLATTER * origin.slope;
    let mut previous = origin.clone();
    let mut point = at(first);
    let mut tries = 0;
    let (mut low, mut other) = loop {
        if tries == limit {
            break (origin.clone(), point);
        }
        if high(&point) || (tries > 1 && point.loss >= previous.loss) {
            break (previous, point);
        }
        if flat(&point) {
            return (point, tries + 1);
        }
        if point.slope >= 0.0 {
            break (previous, point);
        }
        let bounds = (point.at + 0.01 * (point.at - previous.at), point.at * 10.0);
        let next = cubic_minimum(&previous, &point, bounds);
        previous = std::mem::replace(&mut point, at(next));
        tries += 1;
    };
    if low.loss > other.loss {
        std::mem::swap(&mut low, &mut other);
    }
    let mut stuck = false;
    while tries < limit && (other.at - low.at).abs() * largest >= WIDTH {
        let bounds = (low.at.min(other.at), low.at.max(other.at));
        let mut next = cubic_minimum(&low, &other, bounds);
        // A guess near an end of the interval is moved inside when it happens twice.
        let margin = 0.1 * (bounds.1 - bounds.0);
        if (bounds.1 - next).min(next - bounds.0) < margin {
            if stuck || next >= bounds.1 || next <= bounds.0 {
                let upper = (next - bounds.1).abs() < (next - bounds.0).abs();
                next = if upper { bounds.1 - margin } else { bounds.0 + margin };
                stuck = false;
            } else {
                stuck = true;
            }
        } else {
            stuck = false;
        }
        let point = at(next);
        tries += 1;
        if high(&point) || point.loss >= low.loss {
            other = point;
            if low.loss > other.loss {
                std::mem::swap(&mut low, &mut other);
            }
        } else {
            let done = flat(&point);
            if !done && point.slope * (other.at - low.at) >= 0.0 {
                other = low;
            }
            low = point;
            if done {
                break;
            }
        }
    }
    (low, tries + 1)
}
