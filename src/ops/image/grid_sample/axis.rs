//! One dimension of an image that is read at any points.

use super::options::{GridSampleOptions, GridSamplePadding};

pub(super) struct Axis {
    pub(super) size: usize,
    pub(super) options: GridSampleOptions,
}

impl Axis {
    /// Where a point outside is read, and the derivative of that place: 1, -1 or 0.
    #[inline(always)]
    pub(super) fn inside(&self, p: f64) -> (f64, f64) {
        let last = (self.size - 1) as f64;
        // Infinity has an edge to go to; elsewhere it is outside, as NaN is everywhere.
        let border = self.options.padding_mode == GridSamplePadding::Border;
        if p.is_nan() || (p.is_infinite() && !border) {
            return (-100.0, 0.0);
        }
        let (p, slope) = match self.options.padding_mode {
            GridSamplePadding::Zeros => return (p, 1.0),
            GridSamplePadding::Border => (p, 1.0),
            GridSamplePadding::Reflection => {
                let (low, span) =
                    if self.options.align_corners { (0.0, last) } else { (-0.5, last + 1.0) };
                if span == 0.0 {
                    return (0.0, 0.0);
                }
                let (distance, sign) = ((p - low).abs(), if p < low { -1.0 } else { 1.0 });
                let (extra, flips) = (distance % span, (distance / span).floor());
                if flips % 2.0 == 0.0 { (extra + low, sign) } else { (span - extra + low, -sign) }
            }
        };
        if p <= 0.0 {
            (0.0, 0.0)
        } else if p >= last {
            (last, 0.0)
        } else {
            (p, slope)
        }
    }

    #[inline(always)]
    pub(super) fn position(&self, p: f64) -> Option<usize> {
        (0.0..self.size as f64).contains(&p).then_some(p as usize)
    }
}
