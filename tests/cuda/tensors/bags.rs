//! Bags of rows, sequences of labels, images read at points: on a GPU as on the CPU.

use torchrs::ops::{
    BagMode, CTCLossOptions, EmbeddingBagOptions, GridSampleMode, GridSampleOptions,
    GridSamplePadding, Reduction, ctc_loss,
};
use torchrs::{Dtype, Tensor};

use super::compare::{agree, numbers};

const FLOATS: [(Dtype, f64); 4] =
    [(Dtype::F64, 1e-12), (Dtype::F32, 1e-5), (Dtype::F16, 4e-3), (Dtype::BF16, 3e-2)];

simulated! {
    fn bags_of_rows() {
        let indices = Tensor::from([2i64, 0, 2, 4, 1, 1, 3, 2]);
        let matrix = indices.reshape([2, 4]);
        let starts = [Tensor::from([0i64, 2, 2, 5]), Tensor::from([0i64, 8]), Tensor::from([0i32, 1, 4, 4, 4, 8]).long()];
        for (dtype, tolerance) in FLOATS {
            for mode in [BagMode::Sum, BagMode::Mean, BagMode::Max] {
                for padding_idx in [None, Some(2), Some(-4)] {
                    agree(&[numbers(&[5, 37], 1, dtype)], 2.0 * tolerance, |x| {
                        let on = |t: &Tensor| t.to_device(x[0].device());
                        let options = EmbeddingBagOptions { mode, padding_idx, ..Default::default() };
                        let closed = EmbeddingBagOptions { include_last_offset: true, ..options.clone() };
                        let mut all = vec![x[0].embedding_bag(&on(&matrix), None, options.clone())];
                        all.extend(starts.iter().map(|s| x[0].embedding_bag(&on(&indices), Some(&on(s)), options.clone())));
                        all.extend(starts.iter().map(|s| x[0].embedding_bag(&on(&indices), Some(&on(s)), closed.clone())));
                        all
                    });
                }
            }
            for padding_idx in [None, Some(2)] {
                agree(&[numbers(&[5, 37], 1, dtype), numbers(&[8], 3, dtype)], 2.0 * tolerance, |x| {
                    let on = |t: &Tensor| t.to_device(x[0].device());
                    let options = |weights: &Tensor| EmbeddingBagOptions {
                        mode: BagMode::Sum, per_sample_weights: Some(weights.clone()), padding_idx, ..Default::default()
                    };
                    vec![
                        x[0].embedding_bag(&on(&indices), Some(&on(&starts[0])), options(&x[1])),
                        x[0].embedding_bag(&on(&matrix).int(), None, options(&x[1].reshape([2, 4]))),
                    ]
                });
            }
        }
        // Of equal maxima all get a part; nothing gets none.
        let table = Tensor::from([[0f64, -1.0], [0.0, -2.0], [-2.0, -1.0]]);
        agree(&[table], 1e-12, |x| {
            let on = |t: Tensor| t.to_device(x[0].device());
            let options = EmbeddingBagOptions { mode: BagMode::Max, ..Default::default() };
            let (indices, none) = (on(Tensor::from([0i64, 2, 1, 0])), on(Tensor::from([0i64; 0])));
            vec![
                x[0].embedding_bag(&indices, Some(&on(Tensor::from([0i64, 0, 3]))), options.clone()),
                x[0].embedding_bag(&none, Some(&on(Tensor::from([0i64, 0]))), options),
            ]
        });
    }

    fn sequences_of_labels() {
        let lengths = [Tensor::from([20i64, 17, 3, 0, 20]), Tensor::from([4i64, 5, 3, 0, 0])];
        let mut targets = vec![3i64, 1, 1, 3, 0, 2, 2, 2, 5, 2, 4, 1, 1];
        targets.resize(25, 1);
        let targets = Tensor::from_slice(&targets, [5, 5]);
        for (dtype, tolerance) in FLOATS {
            for reduction in [Reduction::None, Reduction::Sum, Reduction::Mean] {
                for (blank, zero_infinity) in [(0, true), (6, true), (0, false)] {
                    agree(&[numbers(&[20, 5, 7], 1, dtype)], tolerance * 4.0, |x| {
                        let on = |t: &Tensor| t.to_device(x[0].device());
                        let scores = x[0].log_softmax(2);
                        let [inputs, labels] = lengths.each_ref().map(on);
                        let options = CTCLossOptions { blank, reduction, zero_infinity };
                        let mut all = vec![ctc_loss(&scores, &on(&targets), &inputs, &labels, options)];
                        if zero_infinity {
                            // Targets one after the other, lengths on the host; labels and time for many threads.
                            let [inputs, labels] = lengths.each_ref();
                            all.push(ctc_loss(&scores, &targets.ravel().narrow(0, 3, 12), inputs, labels, options));
                        }
                        all
                    });
                }
            }
        }
        let targets = numbers(&[2, 200], 3, Dtype::I64).abs();
        agree(&[numbers(&[420, 2, 12], 1, Dtype::F32)], 1e-4, |x| {
            let lengths = [Tensor::from([420i64, 400]), Tensor::from([200i64, 150])];
            vec![ctc_loss(&x[0].log_softmax(2), &targets.to_device(x[0].device()), &lengths[0], &lengths[1], Default::default())]
        });
    }

    fn images_at_points() {
        use GridSampleMode::*;
        use GridSamplePadding::*;
        for (image, grid) in [(&[2, 3, 5, 6][..], &[2, 7, 9, 2][..]), (&[2, 2, 3, 4, 2], &[2, 3, 4, 5, 3])] {
            for mode in [Bilinear, Nearest, Bicubic] {
                if mode == Bicubic && image.len() == 5 {
                    continue;
                }
                for padding_mode in [Zeros, Border, Reflection] {
                    for align_corners in [false, true] {
                        for (dtype, tolerance) in [(Dtype::F64, 1e-11), (Dtype::F32, 1e-3)] {
                            let mut points = (numbers(grid, 3, Dtype::F64) * 0.57 + 0.013).to_vec::<f64>();
                            points[5] = f64::NAN;
                            points[9] = f64::INFINITY;
                            let points = Tensor::from_slice(&points, grid).to_dtype(dtype);
                            let options = GridSampleOptions { mode, padding_mode, align_corners };
                            agree(&[numbers(image, 1, dtype), points], tolerance, |x| vec![x[0].grid_sample(&x[1], options)]);
                        }
                    }
                }
            }
        }
        agree(&[numbers(&[1, 2, 8, 8], 1, Dtype::F16), numbers(&[1, 2, 3], 2, Dtype::F16)], 1e-2, |x| {
            vec![x[0].grid_sample(&x[1].affine_grid(&[1, 2, 4, 4], true), Default::default())]
        });
    }
}
