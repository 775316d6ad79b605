//! Sums, means or maxima of rows of a table, one for each bag of indices.
//!
//! A sum or mean is a [linear map](crate::ops::windows::resample) of the table's rows, done without a copy of those
//! that are named. Weighted sums and maxima are a lookup and `index_add` or `index_reduce`, whose
//! derivatives follow; so are the sums of half types, of which only the rows looked up become f32.

pub(in crate::ops) mod cuda;
mod options;

pub use options::{BagMode, EmbeddingBagOptions};

use super::embedding::checked;
use crate::error::{Error, throw};
#[cfg(test)]
use crate::ops::checks::samples::{OpSample, values};
use crate::ops::{
    ScatterReduce, gpu, limits::assert_indices, windows::resample::LinearMap,
    windows::resample::resample,
};
use crate::tensor::{Dtype, Tensor};

impl Tensor {
    /// For each bag of indices, the sum, mean or maximum of the rows of this table that it names
    /// (`torch.nn.functional.embedding_bag`). The rows of a matrix of indices are bags; a list of
    /// indices is cut at `offsets`, the places where bags start.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let (x, indices) = (Tensor::from([[1f32], [10.], [100.]]), Tensor::from([0i64, 1, 2]));
    /// let y = x.embedding_bag(&indices, Some(&Tensor::from([0i64, 1])), Default::default());
    /// assert_eq!(y.to_vec::<f32>(), [1.0, 55.0]);
    /// ```
    ///
    /// # Panics
    /// Throws when this is not a matrix or an index not the number of a row, when offsets are missing
    /// for a list, given for a matrix or not in order, and when weights do not fit the indices.
    #[track_caller]
    pub fn embedding_bag(
        &self,
        indices: &Tensor,
        offsets: Option<&Tensor>,
        options: EmbeddingBagOptions,
    ) -> Tensor {
        if let Some(max_norm) = options.max_norm {
            self.embedding_renorm_(indices, max_norm, options.norm_type);
        }
        if options.scale_grad_by_freq {
            if options.mode == BagMode::Max {
                let message = "true for maxima; it is for sums and means";
                throw(Error::argument("embedding_bag", "scale_grad_by_freq", message));
            }
            let table = self.scaled_by_freq(indices);
            let options =
                EmbeddingBagOptions { max_norm: None, scale_grad_by_freq: false, ..options };
            return table.embedding_bag(indices, offsets, options);
        }
        let rows = self.shape().first().copied().unwrap_or(0) as i64;
        let padding = options.padding_idx.map(|p| if p < 0 { p + rows } else { p });
        if let Some(weights) = &options.per_sample_weights
            && (weights.shape() != indices.shape() || options.mode != BagMode::Sum)
        {
            throw(Error::argument(
                "embedding_bag",
                "per_sample_weights",
                format!(
                    "shape {:?} for indices {:?}; they fit the indices and are for sums only",
                    weights.shape(),
                    indices.shape()
                ),
            ));
        }
        if let (Some(gpu), 2) = (gpu::of("embedding_bag", &[self, indices]), self.dim()) {
            let bags = number_of_bags(indices, offsets, options.include_last_offset);
            return cuda::embedding_bag(gpu, self, indices, offsets, bags, &options, padding);
        }
        if self.dim() == 2 {
            assert_indices("embedding_bag", "indices", indices, rows as usize, false);
        }
        let (bag_of, bags) = bag_numbers(indices, offsets, options.include_last_offset);
        let flat = indices.to_vec::<i64>();
        let kept = || (0..flat.len()).filter(|&i| Some(flat[i]) != padding);
        let chosen: Vec<i64> = kept().map(|i| flat[i]).collect();
        let bag: Vec<i64> = kept().map(|i| bag_of[i]).collect();
        // Half types are added up in f32 and rounded once.
        let wide = self.dtype().compute();
        if self.dim() == 2
            && self.dtype() == wide
            && options.per_sample_weights.is_none()
            && options.mode != BagMode::Max
        {
            checked(&Tensor::from_slice(&chosen, [chosen.len()]), rows as usize);
            let mut first = 0;
            let map = LinearMap::new(
                rows as usize,
                (0..bags as i64).map(|b| {
                    let count = bag[first..].iter().take_while(|&&of| of == b).count();
                    let mine = &chosen[first..first + count];
                    first += count;
                    let mean = options.mode == BagMode::Mean;
                    let weight = if mean { 1.0 / count as f64 } else { 1.0 };
                    mine.iter().map(move |&row| (row as usize, weight))
                }),
            );
            return resample("embedding_bag", self, 0, [map]);
        }
        let (chosen, bag) = (Tensor::from(chosen), Tensor::from(bag));
        let mut found = self.embedding(&chosen, None).to_dtype(wide);
        if let Some(weights) = &options.per_sample_weights {
            let places = Tensor::from(kept().map(|i| i as i64).collect::<Vec<i64>>());
            let weights = weights.ravel().to_dtype(wide).index_select(0, &places);
            found = found * weights.unsqueeze(1);
        }
        let zeros = Tensor::zeros([bags, self.size(1)], wide.on_host());
        let out = match options.mode {
            BagMode::Sum => zeros.index_add(0, &bag, &found),
            BagMode::Mean => {
                let counts = Tensor::zeros([bags], Dtype::I64.on_host());
                let counts = counts.index_add(0, &bag, &bag.ones_like()).clamp_min(1i64);
                zeros.index_add(0, &bag, &found) / counts.unsqueeze(1)
            }
            // Below every number, so that no maximum is shared with where it starts; bags without
            // indices end at 0.
            BagMode::Max => {
                let lowest = zeros.full_like(f64::NEG_INFINITY);
                let out = lowest.index_reduce(0, &bag, &found, ScatterReduce::Amax, false);
                let full = Tensor::zeros([bags], Dtype::I64.on_host()).index_add(
                    0,
                    &bag,
                    &bag.ones_like(),
                );
                out.masked_fill(&full.eq(0i64).unsqueeze(1), 0.0)
            }
        };
        out.to_dtype(self.dtype())
    }
}

/// The bag of each index, in row-major order, and the number of bags.
#[track_caller]
fn bag_numbers(indices: &Tensor, offsets: Option<&Tensor>, closed: bool) -> (Vec<i64>, usize) {
    let n = indices.numel();
    match (indices.shape(), offsets) {
        (&[bags, width], None) => ((0..n).map(|i| (i / width) as i64).collect(), bags),
        (&[_], Some(offsets)) if offsets.dim() == 1 => {
            let mut ends = offsets.to_vec::<i64>();
            if !closed {
                ends.push(n as i64);
            }
            let rising = ends.windows(2).all(|w| w[0] <= w[1]);
            if !rising || ends.first() != Some(&0) || ends.last() > Some(&(n as i64)) {
                throw(Error::argument(
                    "embedding_bag",
                    "offsets",
                    format!("{:?}: must rise from 0 to at most {n}", offsets.to_vec::<i64>()),
                ));
            }
            // Indices after a last offset belong to the last bag.
            let bags = ends.len() - 1;
            let bag = |i: usize| ends.partition_point(|&end| end <= i as i64) as i64 - 1;
            ((0..n).map(|i| bag(i).min(bags as i64 - 1)).collect(), bags)
        }
        _ => unfit(indices, offsets),
    }
}

/// The number of bags, without looking at the offsets.
#[track_caller]
fn number_of_bags(indices: &Tensor, offsets: Option<&Tensor>, closed: bool) -> usize {
    match (indices.shape(), offsets) {
        (&[bags, _], None) => bags,
        (&[_], Some(offsets)) if offsets.dim() == 1 => {
            offsets.numel().saturating_sub(usize::from(closed))
        }
        _ => unfit(indices, offsets),
    }
}

#[cold]
#[track_caller]
fn unfit(indices: &Tensor, offsets: Option<&Tensor>) -> ! {
    throw(Error::shape(
        "embedding_bag",
        format!(
            "indices {:?} with offsets {:?}; a matrix has none, a list needs a list of them",
            indices.shape(),
            offsets.map(Tensor::shape)
        ),
    ))
}

#[cfg(test)]
pub(in crate::ops) fn samples() -> Vec<OpSample> {
    let case = |name: &str, mode| {
        OpSample::new(name, [values([5, 3], 4)], move |x| {
            let (indices, offsets) = (Tensor::from([2i64, 0, 2, 4, 1]), Tensor::from([0i64, 2, 2]));
            let [indices, offsets] = [indices, offsets].map(|t| t.to_device(x[0].device()));
            let options = EmbeddingBagOptions { mode, padding_idx: Some(-4), ..Default::default() };
            x[0].embedding_bag(&indices, Some(&offsets), options)
        })
    };
    // The empty bags' 0 is no competitor of a maximum that is 0.
    let zero_above = || Tensor::from([[0.0f64, -1.0], [-0.5, 0.0], [-2.0, -0.25]]);
    vec![
        case("embedding_bag(sum)", BagMode::Sum),
        case("embedding_bag(mean)", BagMode::Mean),
        case("embedding_bag(max)", BagMode::Max),
        OpSample::new("embedding_bag(max), maximum 0", [zero_above()], |x| {
            let options = EmbeddingBagOptions { mode: BagMode::Max, ..Default::default() };
            let indices = Tensor::from([[0i64, 2], [1, 0]]).to_device(x[0].device());
            x[0].embedding_bag(&indices, None, options)
        }),
        OpSample::new("embedding_bag(weights)", [values([5, 3], 4), values([5], 9)], |x| {
            let options = EmbeddingBagOptions {
                mode: BagMode::Sum,
                per_sample_weights: Some(x[1].clone()),
                ..Default::default()
            };
            let (indices, offsets) = (Tensor::from([2i64, 0, 2, 4, 1]), Tensor::from([0i64, 2, 2]));
            let [indices, offsets] = [indices, offsets].map(|t| t.to_device(x[0].device()));
            x[0].embedding_bag(&indices, Some(&offsets), options)
        }),
    ]
}
