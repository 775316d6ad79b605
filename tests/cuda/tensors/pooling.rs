//! Pooling, interpolation and mirrored padding: on a GPU as on the CPU.

use torchrs::ops::{
    InterpolateMode, InterpolateOptions, PadMode, Pool1dOptions, Pool2dOptions, Pool3dOptions,
};
use torchrs::{Dtype, MemoryFormat, Tensor};

use super::compare::{FLOATS, agree, numbers};

const TOLERANCES: [f64; 4] = [1e-12, 1e-5, 5e-3, 4e-2];

simulated! {
    fn maxima() {
        for (dtype, tolerance) in FLOATS.into_iter().zip(TOLERANCES) {
            let base = Pool2dOptions::new([3, 2]);
            for options in [
                Pool2dOptions::new([2, 2]),
                Pool2dOptions { stride: Some([2, 2]), padding: [1, 1], ..Pool2dOptions::new([3, 3]) },
                Pool2dOptions { stride: Some([1, 1]), padding: [1, 1], ..base },
                Pool2dOptions { stride: Some([3, 5]), ceil_mode: true, ..base },
                Pool2dOptions { dilation: [2, 3], stride: Some([2, 1]), ..base },
            ] {
                agree(&[numbers(&[2, 3, 9, 11], 1, dtype)], tolerance, |x| {
                    let (y, places) = x[0].max_pool2d_with_indices(options);
                    vec![y, places, x[0].detach().max_pool2d(options)]
                });
            }
            agree(&[numbers(&[0, 3, 6, 6], 1, dtype)], 0.0, |x| vec![x[0].max_pool2d(base)]);
            agree(&[numbers(&[2, 3, 7, 5], 1, dtype)], tolerance, |x| vec![x[0].adaptive_max_pool2d([Some(3), Some(2)]).0]);
            agree(&[numbers(&[2, 3, 9], 1, dtype)], tolerance, |x| vec![x[0].max_pool1d(Pool1dOptions::new([3]))]);
            agree(&[numbers(&[2, 4, 5, 6], 1, dtype)], tolerance, |x| {
                vec![x[0].max_pool3d(Pool3dOptions { padding: [1, 0, 1], ..Pool3dOptions::new([2, 2, 3]) })]
            });
        }
        let odd = Tensor::from([[[[f32::NAN, 1.0, f32::NEG_INFINITY, f32::NEG_INFINITY], [2.0, 3.0, f32::NEG_INFINITY, f32::NEG_INFINITY]]]]);
        agree(&[odd], 0.0, |x| {
            let (y, places) = x[0].detach().max_pool2d_with_indices(Pool2dOptions::new([2, 2]));
            vec![y, places]
        });
    }

    fn channels_that_lie_last() {
        let last = |x: &Tensor| x.contiguous_in(MemoryFormat::ChannelsLast);
        for (dtype, tolerance) in FLOATS.into_iter().zip(TOLERANCES) {
            let three = Pool2dOptions { stride: Some([2, 2]), padding: [1, 1], ..Pool2dOptions::new([3, 3]) };
            agree(&[numbers(&[2, 6, 9, 7], 1, dtype)], tolerance, |x| {
                let x = last(&x[0]);
                let (y, places) = x.max_pool2d_with_indices(three);
                if x.device().is_cuda() {
                    assert!(y.is_contiguous_in(MemoryFormat::ChannelsLast));
                    assert!(x.avg_pool2d(three).is_contiguous_in(MemoryFormat::ChannelsLast));
                }
                vec![y, places, x.avg_pool2d(three), x.adaptive_avg_pool2d([Some(1), Some(1)]), x.adaptive_avg_pool2d([Some(4), Some(3)])]
            });
            agree(&[numbers(&[2, 3, 4, 5, 6], 1, dtype)], tolerance, |x| {
                vec![x[0].contiguous_in(MemoryFormat::ChannelsLast3d).max_pool3d(Pool3dOptions::new([2, 2, 2]))]
            });
        }
    }

    fn means() {
        for (dtype, tolerance) in FLOATS.into_iter().zip(TOLERANCES) {
            let three = Pool2dOptions { stride: Some([2, 2]), padding: [1, 1], ..Pool2dOptions::new([3, 3]) };
            for options in [
                Pool2dOptions::new([2, 2]),
                three,
                Pool2dOptions { ceil_mode: true, ..three },
                Pool2dOptions { count_include_pad: false, ceil_mode: true, ..three },
                Pool2dOptions { divisor_override: Some(5), ..three },
                Pool2dOptions { stride: Some([1, 2]), ..Pool2dOptions::new([6, 7]) },
            ] {
                agree(&[numbers(&[2, 3, 8, 11], 1, dtype)], tolerance, |x| vec![x[0].avg_pool2d(options)]);
            }
            for size in [[Some(1), Some(1)], [Some(3), Some(5)], [None, Some(2)]] {
                agree(&[numbers(&[2, 3, 9, 8], 1, dtype)], tolerance, |x| vec![x[0].adaptive_avg_pool2d(size)]);
            }
            agree(&[numbers(&[3, 9], 1, dtype)], tolerance, |x| vec![x[0].avg_pool1d(Pool1dOptions::new([2]))]);
            agree(&[numbers(&[2, 4, 5, 6], 1, dtype)], tolerance, |x| {
                vec![x[0].adaptive_avg_pool3d([Some(2), None, Some(3)]), x[0].avg_pool3d(Pool3dOptions::new([2, 2, 2]))]
            });
        }
    }

    fn interpolation_and_mirrors() {
        for (dtype, tolerance) in FLOATS.into_iter().zip(TOLERANCES) {
            agree(&[numbers(&[2, 3, 5, 6], 1, dtype)], tolerance, |x| {
                let to = |mode| x[0].interpolate(InterpolateOptions::size([7, 4], mode));
                vec![
                    to(InterpolateMode::Nearest),
                    to(InterpolateMode::Bilinear),
                    to(InterpolateMode::Bicubic),
                    x[0].pad(&[2, 1, 3, -1], PadMode::Reflect),
                    x[0].pad(&[3, 1, -1, 2], PadMode::Replicate),
                    x[0].pad(&[4, 1, 0, 2], PadMode::Circular),
                ]
            });
        }
        agree(&[numbers(&[2, 4, 5], 1, Dtype::I32)], 0.0, |x| vec![x[0].pad(&[2, 1], PadMode::Reflect)]);
    }
}
