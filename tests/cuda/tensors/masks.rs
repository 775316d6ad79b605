//! What depends on data: masks, places, distinct elements, counts.

use torchrs::{Dtype, Tensor, cuda};

use super::compare::{ALL, agree, numbers};

/// Truth values of which about two in five are true.
fn mask(shape: &[usize], seed: usize) -> Tensor {
    numbers(shape, seed, Dtype::F64).gt(0.6)
}

simulated! {
    fn places_of_what_is_not_zero() {
        for dtype in ALL {
            for shape in [&[][..], &[1], &[0, 3], &[4097], &[3, 7, 5], &[2, 3, 2, 3, 2]] {
                agree(&[numbers(shape, 3, dtype).to_dtype(dtype)], 0.0, |x| vec![x[0].detach().nonzero()]);
            }
        }
        agree(&[mask(&[300, 301], 1)], 0.0, |x| {
            let mut lists = x[0].nonzero_lists();
            lists.extend([x[0].argwhere(), x[0].t().nonzero(), x[0].zeros_like().nonzero(), x[0].ones_like().nonzero()]);
            lists.push(x[0].ravel().narrow(0, 3, 9000).nonzero());
            lists
        });
    }

    fn chosen_elements() {
        for dtype in ALL {
            for shape in [&[][..], &[5], &[0], &[3, 7], &[70, 71]] {
                let chosen = mask(shape, 2);
                agree(&[numbers(shape, 1, dtype), numbers(&[6000], 4, dtype)], 0.0, |x| {
                    let chosen = chosen.to_device(x[0].device());
                    vec![x[0].masked_select(&chosen), x[0].masked_scatter(&chosen, &x[1])]
                });
            }
        }
        let chosen = mask(&[4, 5], 2);
        agree(&[numbers(&[4, 1], 1, Dtype::F32), numbers(&[5, 4], 1, Dtype::F32)], 0.0, |x| {
            let chosen = chosen.to_device(x[0].device());
            vec![x[0].masked_select(&chosen), x[1].t().masked_select(&chosen), x[1].masked_select(&chosen.t())]
        });
    }

    fn indexing_by_masks() {
        let (one, two) = (mask(&[4], 2), mask(&[4, 5], 3));
        for dtype in [Dtype::F64, Dtype::BF16, Dtype::I32, Dtype::Bool] {
            agree(&[numbers(&[4, 5, 3], 1, dtype), numbers(&[3, 4, 5], 2, dtype)], 0.0, |x| {
                let (one, two) = (one.to_device(x[0].device()), two.to_device(x[0].device()));
                let places = Tensor::from([2i64, 0]).to_device(x[0].device());
                vec![
                    x[0].index(&[Some(&one)]),
                    x[0].index(&[Some(&two)]),
                    x[1].index(&[None, Some(&two)]),
                    x[1].index(&[None, Some(&one)]),
                    x[0].index(&[Some(&one.logical_and(&one.zeros_like()))]),
                    x[1].index(&[Some(&places), Some(&one.narrow(0, 0, 4).logical_and(&one))]).narrow(0, 0, 1),
                ]
            });
        }
    }

    fn writing_by_masks() {
        let (one, two) = (mask(&[4], 2), mask(&[4, 5], 3));
        let (few, many) = (one.nonzero().size(0), two.nonzero().size(0));
        for dtype in [Dtype::F64, Dtype::F16, Dtype::I64] {
            let inputs = [
                numbers(&[4, 5, 3], 1, dtype), numbers(&[3, 4, 5], 2, dtype), numbers(&[], 3, dtype),
                numbers(&[3], 4, dtype), numbers(&[few, 5, 3], 5, dtype), numbers(&[many, 3], 6, dtype),
                numbers(&[3, many], 7, dtype), numbers(&[many], 8, dtype), numbers(&[3, 1], 9, dtype),
                numbers(&[3, few, 5], 10, dtype), numbers(&[few, 1], 10, dtype),
            ];
            for accumulate in [false, true] {
                agree(&inputs, 0.0, |x| {
                    let (one, two) = (one.to_device(x[0].device()), two.to_device(x[0].device()));
                    let (whole, last) = (&x[0], &x[1]);
                    vec![
                        whole.index_put(&[Some(&one)], &x[2], accumulate),
                        whole.index_put(&[Some(&two)], &x[2], accumulate),
                        whole.index_put(&[Some(&two)], &x[3], accumulate),
                        whole.index_put(&[Some(&one)], &x[4], accumulate),
                        whole.index_put(&[Some(&two)], &x[5], accumulate),
                        last.index_put(&[None, Some(&two)], &x[6], accumulate),
                        last.index_put(&[None, Some(&two)], &x[7], accumulate),
                        last.index_put(&[None, Some(&two)], &x[8], accumulate),
                        last.index_put(&[None, Some(&one)], &x[9], accumulate),
                        last.index_put(&[None, Some(&one)], &x[10], accumulate),
                        last.transpose(0, 2).index_put(&[None, Some(&one)], &x[2], accumulate),
                    ]
                });
            }
        }
    }

    fn writing_waits_for_nothing() {
        let x = numbers(&[40, 50], 1, Dtype::F32).cuda(0).requires_grad_(true);
        let chosen = mask(&[40, 50], 2);
        let list = numbers(&[chosen.nonzero().size(0)], 3, Dtype::F32).cuda(0);
        let (chosen, one) = (chosen.cuda(0), numbers(&[], 1, Dtype::F32).cuda(0));
        let before = cuda::synchronisations();
        let y = x.index_put(&[Some(&chosen)], &list, false).index_put(&[Some(&chosen)], &one, true);
        let z = y.index_put(&[Some(&chosen)], &one, false).masked_scatter(&chosen, &list);
        torchrs::autograd::backward(&[&z], &[Some(&z.detach())], torchrs::autograd::GraphMode::Free);
        assert_eq!(cuda::synchronisations(), before);
    }

    fn a_list_of_another_length_ends_the_work() {
        let (x, chosen) = (numbers(&[9], 1, Dtype::F32).cuda(0), mask(&[9], 2).cuda(0));
        let list = numbers(&[8], 3, Dtype::F32).cuda(0);
        assert!(torchrs::catch(|| x.index_put(&[Some(&chosen)], &list, false).sum().item()).is_err());
    }
}
