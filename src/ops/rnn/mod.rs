//! One direction of one recurrent layer over sequences, padded or packed.
//!
//! It is one op, [`fused`], whose loop over the steps is in `cpu::recurrent`. What that does not do (a
//! projected h, mixed precision on the CPU, forward mode, second derivatives) is [`composed`] of recorded ops, a
//! step at a time.

mod composed;
pub(in crate::ops) mod cuda;
mod direction;
mod fused;
#[cfg(test)]
mod samples;

pub(crate) use crate::cpu::recurrent::Cell;
pub(crate) use composed::step;
pub(crate) use direction::{Direction, Recurrent};

use crate::amp;
use crate::tensor::Tensor;

crate::ops::table::ops! {
    cuda { kernels: [CELLS] }
    samples { samples }
}

impl Direction<'_> {
    /// Outputs for the elements `x`, `[sum of the sizes, inputs]`, all first ones before all second ones, ..;
    /// and the last state of each sequence. `first` is the state before: h, and for an LSTM c.
    #[track_caller]
    pub fn run(&self, x: &Tensor, first: &[Tensor]) -> (Tensor, Vec<Tensor>) {
        if amp::is_active()
            && let Some(region) = amp::Region::enter("recurrent_layer", &[Some(x)])
        {
            let Recurrent { weight_hh, bias_hh, weight_hr } = self.recurrent;
            let [weight_ih, weight_hh] = [self.weight_ih, weight_hh].map(|w| region.cast(w));
            let others = [self.bias_ih, bias_hh, weight_hr].map(|t| region.cast(t));
            let [bias_ih, bias_hh, weight_hr] = others.each_ref().map(Option::as_ref);
            let first: Vec<Tensor> = first.iter().map(|h| region.cast(h)).collect();
            let recurrent = Recurrent { weight_hh: &weight_hh, bias_hh, weight_hr };
            let layer = Direction { weight_ih: &weight_ih, bias_ih, recurrent, ..*self };
            return layer.run(&region.cast(x), &first);
        }
        if self.fits(x, first) { fused::run(self, x, first) } else { composed::run(self, x, first) }
    }

    /// Whether the fused op does this; what has errors does not fit, and on the CPU it does not pay to pack the
    /// weights for a single step.
    fn fits(&self, x: &Tensor, first: &[Tensor]) -> bool {
        let Recurrent { weight_hh, bias_hh, weight_hr } = self.recurrent;
        let inputs = || {
            let weights = [Some(self.weight_ih), self.bias_ih, Some(weight_hh), bias_hh];
            weights.into_iter().flatten().chain(first).chain([x])
        };
        let (rows, hidden) = (weight_hh.size(0), weight_hh.size(1));
        let batch = self.sizes.first().copied().unwrap_or(0);
        weight_hr.is_none()
            && !amp::is_active()
            && x.dtype().is_floating_point()
            && inputs().all(|t| t.dtype() == x.dtype() && !t.is_dual())
            && self.sizes.len() > usize::from(!x.device().is_apart())
            && x.numel() > 0
            && self.sizes.is_sorted_by(|a, b| a >= b)
            && x.shape() == [self.sizes.iter().sum(), self.weight_ih.size(1)]
            && rows == self.cell.gates() * hidden
            && self.weight_ih.size(0) == rows
            && [self.bias_ih, bias_hh].into_iter().flatten().all(|b| b.shape() == [rows])
            && first.iter().all(|h| h.shape() == [batch, hidden])
    }
}
