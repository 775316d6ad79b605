//! Distinct elements, counts, places in order, elements put together by index: on a GPU as on the CPU.

use torchrs::ops::{Interpolation, ScatterReduce, SearchOptions, Unique};
use torchrs::{Dtype, Tensor};

use super::compare::{ALL, FLOATS, INTEGERS, agree, numbers};

fn all_of(unique: Unique) -> Vec<Tensor> {
    vec![unique.values, unique.inverse, unique.counts]
}

simulated! {
    fn distinct_elements() {
        for dtype in ALL {
            for shape in [&[][..], &[0], &[1], &[3, 7], &[5000]] {
                let x = numbers(shape, 3, dtype);
                agree(&[x], 0.0, |x| {
                    let x = x[0].detach();
                    [all_of(x.unique()), all_of(x.unique_consecutive())].concat()
                });
            }
        }
        let nan = Tensor::from([1f32, f32::NAN, -0.0, f32::NAN, 0.0, 1.0]);
        agree(&[nan], 0.0, |x| all_of(x[0].detach().unique()));
    }

    fn distinct_slices() {
        for (shape, dims) in [(&[7, 3][..], 0..2), (&[2, 6, 5], 0..3), (&[40], 0..1), (&[0, 3], 0..1), (&[4, 0], 0..1)] {
            for dtype in [Dtype::F32, Dtype::I64, Dtype::Bool] {
                for dim in dims.clone() {
                    // Few different numbers, so that slices are equal.
                    let x = numbers(shape, 3, Dtype::F64).gt(0.9).to_dtype(dtype);
                    agree(&[x], 0.0, |x| {
                        let x = x[0].detach();
                        [all_of(x.unique_dim(dim)), all_of(x.unique_consecutive_dim(dim))].concat()
                    });
                }
            }
        }
    }

    fn counts_of_numbers() {
        for dtype in INTEGERS {
            for length in [0, 1, 5, 9000] {
                let x = numbers(&[length], 3, dtype).abs();
                agree(&[x.clone(), numbers(&[length], 4, Dtype::F64)], 1e-12, |x| {
                    let weights = x[1].detach();
                    vec![
                        x[0].bincount(None, 0), x[0].bincount(None, 40), x[0].bincount(None, 20_000),
                        x[0].bincount(Some(&weights), 3),
                    ]
                });
            }
        }
        for (dtype, _) in FLOATS.map(|dtype| (dtype, ())) {
            agree(&[numbers(&[70, 90], 3, dtype)], 0.0, |x| {
                let x = x[0].detach();
                vec![x.histc(7, -2.0, 1.0), x.histc(10, 0.0, 0.0), x.histc(10_000, -3.0, 3.0), x.t().histc(1, 0.0, 2.0)]
            });
        }
    }

    fn repeating_by_counts() {
        let repeats = Tensor::from([2i64, 0, 3, 1]);
        agree(&[numbers(&[4, 3], 1, Dtype::F32), numbers(&[3, 4], 2, Dtype::F64)], 1e-6, |x| {
            let repeats = repeats.to_device(x[0].device());
            vec![
                x[0].repeat_interleave_each(&repeats, 0),
                x[1].repeat_interleave_each(&repeats.int(), -1),
                x[1].repeat_interleave_each(&repeats.narrow(0, 2, 1), None),
            ]
        });
        let x = Tensor::from([1f32, 2.]).cuda(0);
        let wrong = torchrs::catch(|| x.repeat_interleave_each(&Tensor::from([1i64, -1]).cuda(0), 0));
        assert!(wrong.unwrap_err().to_string().contains("at least 0"));
    }

    fn places_in_order() {
        for dtype in ALL {
            let sorted = numbers(&[50], 1, dtype).sort(0, false).0;
            agree(&[sorted.detach(), numbers(&[7, 11], 2, dtype)], 0.0, |x| {
                let (sorted, values) = (x[0].detach(), x[1].detach());
                vec![
                    sorted.searchsorted(&values, false),
                    sorted.searchsorted(&values, true),
                    values.bucketize(&sorted, SearchOptions { out_int32: true, ..Default::default() }),
                    sorted.searchsorted(1, true),
                    sorted.to_dtype(Dtype::F64).searchsorted(&values, true),
                    values.isin(&sorted, false),
                    values.isin(&sorted.narrow(0, 3, 5), true),
                    values.isin(&sorted.narrow(0, 3, 0), true),
                ]
            });
        }
        let rows = numbers(&[3, 4, 9], 1, Dtype::F32);
        agree(&[rows, numbers(&[3, 4, 5], 2, Dtype::F32)], 0.0, |x| {
            let (rows, order) = x[0].detach().sort(-1, false);
            let values = x[1].detach();
            let options = SearchOptions { sorter: Some(&order), ..Default::default() };
            vec![rows.searchsorted(&values, true), x[0].detach().searchsorted(&values, options)]
        });
        let nan = Tensor::from([0f32, 1.0, f32::NAN, f32::NAN]);
        agree(&[nan, Tensor::from([f32::NAN, 0.5, f32::INFINITY])], 0.0, |x| {
            let (a, b) = (x[0].detach(), x[1].detach());
            vec![a.searchsorted(&b, false), a.searchsorted(&b, true)]
        });
    }

    fn middles_and_parts() {
        for dtype in [Dtype::F64, Dtype::F32, Dtype::BF16, Dtype::I64, Dtype::U8] {
            for (shape, dim) in [(&[][..], 0), (&[7], 0), (&[6, 5], 0), (&[3, 40], -1), (&[2, 3, 4], 1)] {
                agree(&[numbers(shape, 3, dtype)], 0.0, |x| {
                    let x = &x[0];
                    let (mut all, n) = (vec![x.median(), x.nanmedian()], x.shape().get(if dim < 0 { x.dim() - 1 } else { dim as usize }).copied().unwrap_or(1));
                    let pairs = [x.median_dim(dim, false), x.nanmedian_dim(dim, true), x.mode(dim, false), x.mode(dim, true), x.kthvalue(n.div_ceil(2), dim, false)];
                    all.extend(pairs.into_iter().flat_map(|(values, places)| [values, places]));
                    all
                });
            }
        }
        let holes = Tensor::from([[1f32, f32::NAN, 3.0, 2.0], [4.0, 0.0, -1.0, 5.0], [f32::NAN; 4]]);
        agree(&[holes], 1e-6, |x| {
            let mut all = vec![x[0].median(), x[0].nanmedian()];
            let pairs = [x[0].median_dim(1, false), x[0].nanmedian_dim(1, false), x[0].mode(0, false)];
            all.extend(pairs.into_iter().flat_map(|(values, places)| [values, places]));
            all.push(x[0].nanquantile_dim(0.3, 1, false, Interpolation::Linear));
            all
        });
        for dtype in [Dtype::F64, Dtype::F32] {
            let parts = Tensor::from([0f64, 0.1, 0.5, 0.99, 1.0]).to_dtype(dtype);
            agree(&[numbers(&[5, 9], 3, dtype)], 1e-6, |x| {
                let parts = parts.to_device(x[0].device());
                use Interpolation::*;
                let mut all = vec![x[0].quantile(0.4), x[0].nanquantile(&parts)];
                for how in [Linear, Lower, Higher, Midpoint, Nearest] {
                    all.push(x[0].quantile_dim(&parts, 1, false, how));
                    all.push(x[0].quantile_dim(0.4, 1, true, how));
                    all.push(x[0].nanquantile_dim(&parts, 0, true, how));
                }
                all
            });
        }
    }

    fn ranks_in_long_lines() {
        for dtype in ALL {
            for (shape, dim) in [(&[3, 257][..], 1), (&[1000, 2], 0), (&[2, 300, 3], 1), (&[70, 300], -1), (&[1, 17_000], 1)] {
                agree(&[numbers(shape, 3, dtype)], 0.0, |x| {
                    let x = &x[0];
                    let pairs = [x.median_dim(dim, false), x.nanmedian_dim(dim, true), x.kthvalue(1, dim, false), x.kthvalue(200, dim, true)];
                    pairs.into_iter().flat_map(|(values, places)| [values, places]).collect()
                });
            }
        }
        let holes = numbers(&[4, 500], 3, Dtype::F32);
        let holes = holes.masked_fill(&holes.gt(&Tensor::from([[9f32], [2.9], [0.0], [-9.0]])), f64::NAN);
        let ends = Tensor::from([f64::NEG_INFINITY, -0.0, 0.0, f64::INFINITY, f64::NAN]).repeat(&[100]);
        agree(&[holes, ends], 0.0, |x| {
            let pairs = [x[0].median_dim(1, false), x[0].nanmedian_dim(1, false), x[1].median_dim(0, false), x[1].nanmedian_dim(0, false), x[1].kthvalue(250, 0, false)];
            pairs.into_iter().flat_map(|(values, places)| [values, places]).collect()
        });
        let whole = Tensor::from([i64::MAX, i64::MIN, 0]).repeat(&[200]);
        agree(&[whole], 0.0, |x| {
            let ((a, b), (c, d)) = (x[0].median_dim(0, false), x[0].kthvalue(600, 0, false));
            vec![a, b, c, d]
        });
    }

    fn put_together_by_index() {
        use ScatterReduce::*;
        let index = Tensor::from([[0i64, 2, 1, 2, 0], [1, 1, 0, 0, 0], [0, 2, 2, 2, 0]]);
        let list = Tensor::from([2i64, 0, 2, 2]);
        for dtype in [Dtype::F64, Dtype::F32, Dtype::F16, Dtype::BF16, Dtype::I64, Dtype::I32, Dtype::U8] {
            let tolerance = match dtype {
                Dtype::F16 => 4e-3,
                Dtype::BF16 => 4e-2,
                Dtype::F32 => 1e-5,
                _ => 1e-12,
            };
            for reduce in [Sum, Mean, Prod, Amax, Amin] {
                for include_self in [true, false] {
                    let inputs = [numbers(&[3, 5], 1, dtype), numbers(&[4, 6], 2, dtype), numbers(&[4, 5], 4, dtype)];
                    agree(&inputs, tolerance, |x| {
                        let (index, list) = (index.to_device(x[0].device()), list.to_device(x[0].device()));
                        vec![
                            x[0].scatter_reduce(0, &index, &x[1], reduce, include_self),
                            x[0].scatter_reduce(1, &index.narrow(1, 0, 2), &x[1].t(), reduce, include_self),
                            x[0].index_reduce(0, &list, &x[2], reduce, include_self),
                        ]
                    });
                }
            }
        }
        let nan = Tensor::from([1f32, f32::NAN, -3.0, f32::NEG_INFINITY]);
        agree(&[nan, Tensor::from([-0.0f32, f32::NAN, 5.0, 6.0])], 0.0, |x| {
            let (a, b, places) = (x[0].detach(), x[1].detach(), Tensor::from([0i64, 2, 1, 3]).to_device(x[0].device()));
            vec![a.scatter_reduce(0, &places, &b, Amax, true), a.scatter_reduce(0, &places, &b, Amin, true)]
        });
    }

    fn put_and_take() {
        for dtype in [Dtype::F32, Dtype::I32] {
            agree(&[numbers(&[3, 4], 1, dtype), numbers(&[5], 2, dtype)], 1e-6, |x| {
                let index = Tensor::from([3i64, 0, -1, 7, 3]).to_device(x[0].device());
                let apart = Tensor::from([3i64, 0, -1, 7, 4]).to_device(x[0].device());
                vec![x[0].take(&index), x[0].put(&index, &x[1], true), x[0].put(&apart, &x[1], false)]
            });
        }
    }
}
