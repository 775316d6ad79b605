//! Formulas over large tensors of several types, narrow ones, or some that repeat: programs for them in particular.

use torchrs::Dtype::{BF16, Bool, F32, F64, I8, I16, I32, I64, U8};
use torchrs::Tensor;

use super::compare::{agree, numbers};

/// Not a multiple of what a thread has at a time, and large enough.
const ODD: usize = 33_003;

simulated! {
    fn conversions() {
        for (from, to) in [(F32, BF16), (BF16, F32), (I64, F32), (F32, Bool), (Bool, F64), (F64, I8), (I32, U8)] {
            agree(&[numbers(&[ODD], 1, from)], 0.0, |x| vec![x[0].detach().to_dtype(to)]);
        }
        // From the middle, and of another order.
        agree(&[numbers(&[3, 210, 101], 1, F32)], 0.0, |x| {
            let (x, half) = (x[0].detach(), BF16);
            vec![
                x.ravel().narrow(0, 3, ODD).to_dtype(half),
                x.narrow(2, 1, 100).to_dtype(half),
                x.narrow(2, 4, 64).to_dtype(half),
                x.transpose(0, 2).to_dtype(half),
                x.slice(1, 0, 210, 2).to_dtype(half),
            ]
        });
    }

    fn comparisons_and_masks() {
        let inputs = |dtype| [numbers(&[ODD], 1, dtype), numbers(&[ODD], 2, dtype), numbers(&[ODD], 3, Bool)];
        for dtype in [BF16, I32] {
            agree(&inputs(dtype), 0.0, |x| vec![x[0].gt(0.5), x[0].eq(&x[1]), x[2].where_(&x[0], &x[1])]);
        }
        agree(&inputs(F32), 0.0, |x| vec![x[0].masked_fill(&x[2], -1.5), x[2].logical_not(), x[2].bitwise_not()]);
    }

    fn narrow_integers() {
        for dtype in [I16, U8, I8] {
            let divisors = numbers(&[ODD], 2, dtype);
            let divisors = &divisors + &divisors.eq(0).to_dtype(dtype);
            agree(&[numbers(&[ODD], 1, dtype), divisors], 0.0, |x| {
                vec![&x[0] * &x[1], x[0].floor_divide(&x[1]), x[0].remainder(&x[1])]
            });
        }
        let least = Tensor::full([ODD], i64::MIN, I64);
        agree(&[least, Tensor::full([ODD], -1, I64)], 0.0, |x| vec![x[0].floor_divide(&x[1]), x[0].fmod(&x[1])]);
    }

    fn operands_that_repeat() {
        // A row, a column, a number per channel, a short row; whole runs of neighbours and not.
        let cases: [([usize; 4], [usize; 4]); 6] = [
            ([1, 1, 130, 256], [1, 1, 1, 256]),
            ([1, 1, 110, 303], [1, 1, 1, 303]),
            ([1, 1, 130, 256], [1, 1, 130, 1]),
            ([3, 7, 41, 41], [1, 7, 1, 1]),
            ([1, 1, 11_003, 3], [1, 1, 1, 3]),
            ([5, 1, 3, 2501], [5, 1, 1, 2501]),
        ];
        for (shape, repeated) in cases {
            for dtype in [F32, BF16] {
                agree(&[numbers(&shape, 1, dtype), numbers(&repeated, 2, dtype)], 1e-2, |x| {
                    vec![&x[0].detach() + &x[1].detach()]
                });
            }
        }
        // Channels last, and numbers that are tensors.
        agree(&[numbers(&[3, 31, 31, 14], 1, F32), numbers(&[14, 1, 1], 2, F32), numbers(&[], 3, F32)], 1e-6, |x| {
            let last = x[0].detach().permute(&[0, 3, 1, 2]);
            vec![&last * &x[1].detach(), &last * &x[2].detach(), last.gt(&x[2])]
        });
    }

    fn results_in_places_of_larger_tensors() {
        agree(&[numbers(&[130, 305], 1, F32), numbers(&[301], 2, F32), numbers(&[1, 256], 3, BF16)], 1e-6, |x| {
            let y = x[0].detach().clone_contiguous();
            y.narrow(1, 2, 301).add_(&x[1].detach());
            y.narrow(1, 4, 256).mul_(&x[2].detach());
            y.narrow(1, 3, 256).copy_(&x[2].detach());
            y.narrow(0, 1, 128).neg_();
            vec![y]
        });
    }
}
