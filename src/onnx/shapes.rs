//! Shapes of results.

use super::graph::{Dim, Value};
use crate::error::{Error, Result};

/// The shape that both broadcast to. A name beside another size than 1 stays a name: the graph's run looks.
pub(super) fn broadcast(op: &str, a: &Value, b: &Value) -> Result<Vec<Dim>> {
    let n = a.dim().max(b.dim());
    let dim = |value: &Value, d: usize| match (d + value.dim()).checked_sub(n) {
        Some(d) => value.shape[d].clone(),
        None => Dim::Fixed(1),
    };
    let one = Dim::Fixed(1);
    (0..n)
        .map(|d| match (dim(a, d), dim(b, d)) {
            (x, y) if x == y || y == one => Ok(x),
            (x, y) if x == one => Ok(y),
            (Dim::Fixed(_), Dim::Fixed(_)) => {
                Err(Error::shape(op, format!("{} and {} do not broadcast", a.text(), b.text())))
            }
            (Dim::Named(_), y) => Ok(y),
            (x, _) => Ok(x),
        })
        .collect()
}

/// A dimension, of which negative ones count from the end.
pub(super) fn axis(op: &str, value: &Value, dim: i64) -> Result<usize> {
    let n = value.dim() as i64;
    if !(-n..n).contains(&dim) {
        let message = format!("{dim} is out of range for {}", value.text());
        return Err(Error::argument(op, "dim", message));
    }
    Ok(if dim < 0 { dim + n } else { dim } as usize)
}

/// How many windows fit.
pub(super) fn windows(
    op: &str,
    size: &Dim,
    [kernel, stride, padding, dilation]: [usize; 4],
    ceil: bool,
) -> Result<Dim> {
    let span = dilation * (kernel - 1) + 1;
    match *size {
        Dim::Fixed(size) if size + 2 * padding >= span => {
            let room = size + 2 * padding - span;
            let mut count = if ceil { room.div_ceil(stride) } else { room / stride } + 1;
            // A window that begins in the padding behind is none.
            if ceil && (count - 1) * stride >= size + padding {
                count -= 1;
            }
            Ok(Dim::Fixed(count))
        }
        Dim::Fixed(size) => Err(Error::shape(
            op,
            format!("a window over {span} is larger than a padded input of {}", size + 2 * padding),
        )),
        // A name of its own for each window.
        Dim::Named(ref name) => {
            Ok(Dim::Named(format!("windows({name}, {kernel}, {stride}, {padding}, {dilation})")))
        }
    }
}
