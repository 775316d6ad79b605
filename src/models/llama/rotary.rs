//! Cosines and sines of the angles of rotary embeddings.

use parking_lot::Mutex;

use crate::autograd::{no_grad, without_inference_mode};
use crate::tensor::{Dtype, Tensor};

/// Of places from 0, as far as they were asked for, and of frequencies that stay. Angles are computed in f64, since those
/// of late places have many digits before the point.
pub(super) struct Rotary {
    frequencies: Vec<f64>,
    known: Mutex<Option<[Tensor; 2]>>,
}

impl Rotary {
    pub(super) fn new(frequencies: Vec<f64>) -> Self {
        Rotary { frequencies, known: Mutex::new(None) }
    }

    /// Cosines and sines for heads of features `x`, whose tokens are at these places: `[length, 1, pairs]`.
    pub(super) fn from(&self, past: usize, length: usize, x: &Tensor) -> [Tensor; 2] {
        let end = past + length;
        let target = (x.dtype().compute(), x.device());
        let mut known = self.known.lock();
        let fits =
            |[cos, _]: &[Tensor; 2]| (cos.dtype(), cos.device()) == target && cos.size(0) >= end;
        let tables = match known.take().filter(fits) {
            Some(tables) => tables,
            // Some more, since generation asks for one more each time. What is kept serves training, too.
            None => without_inference_mode(|| {
                let end = end.next_power_of_two() as i64;
                self.of(&Tensor::arange(0i64, end, 1i64, Dtype::I64), x)
            }),
        };
        let part = [0, 1].map(|i| tables[i].narrow(0, past, length));
        *known = Some(tables);
        part
    }

    /// The same for places that are given, `[length]` or `[batch, length]`: `[.., length, 1, pairs]`.
    pub(super) fn of(&self, places: &Tensor, x: &Tensor) -> [Tensor; 2] {
        no_grad(|| {
            let pairs = self.frequencies.len();
            let frequencies = Tensor::from_slice(&self.frequencies, [pairs]);
            let places = places.to_dtype(Dtype::F64).unsqueeze(-1).unsqueeze(-1);
            let angles = &places * frequencies.to_device(places.device());
            let ready = |t: Tensor| t.to_dtype(x.dtype().compute()).to_device(x.device());
            [ready(angles.cos()), ready(angles.sin())]
        })
    }
}
