//! Elements and slices by index, joining, padding, triangles: on a GPU as on the CPU.

use torchrs::ops::PadMode;
use torchrs::{Device, Dtype, Tensor};

use super::compare::{ALL, FLOATS, INTEGERS, agree, numbers};

const GPU: Device = Device::Cuda(0);

simulated! {
    fn joining_of_tensors() {
        for dtype in ALL {
            for (shapes, dim) in [
                (vec![vec![2, 3], vec![2, 1], vec![2, 4]], 1),
                (vec![vec![3, 2, 5], vec![1, 2, 5]], 0),
                (vec![vec![0], vec![4]], 0),
                (vec![vec![2, 0, 3], vec![2, 2, 3]], 1),
                (vec![vec![4, 8]; 40], -1),
            ] {
                let parts: Vec<Tensor> = shapes.iter().enumerate().map(|(k, s)| numbers(s, k, dtype)).collect();
                agree(&parts, 0.0, |x| vec![Tensor::cat(x, dim)]);
            }
            let same = [numbers(&[2, 3], 1, dtype), numbers(&[2, 3], 2, dtype)];
            agree(&same, 0.0, |x| vec![Tensor::stack(x, 0), Tensor::stack(x, -1), Tensor::cat(&[x[0].t(), x[1].t()], 1)]);
        }
        let mixed = [numbers(&[3], 1, Dtype::I32), numbers(&[2], 2, Dtype::F16)];
        agree(&mixed, 0.0, |x| vec![Tensor::cat(x, 0)]);
        agree(&[numbers(&[5, 7], 1, Dtype::F32)], 0.0, |x| {
            let mut out = x[0].split(2, 0);
            out.extend(x[0].chunk(3, 1));
            out.push(x[0].detach().repeat(&[2, 1, 3]));
            out.push(x[0].detach().repeat_interleave(3, 1));
            out.push(x[0].roll(&[1, -2], &[0, 1]));
            out
        });
    }

    fn reversing() {
        for dtype in [Dtype::F64, Dtype::BF16, Dtype::U8] {
            agree(&[numbers(&[2, 3, 5], 1, dtype)], 0.0, |x| {
                vec![x[0].flip(&[0, 2]), x[0].transpose(0, 2).flip(&[1]), x[0].flip(&[])]
            });
        }
        agree(&[numbers(&[0, 3], 1, Dtype::F32), numbers(&[], 1, Dtype::F32)], 0.0, |x| vec![x[0].flip(&[1]), x[1].flip(&[])]);
    }

    fn slices_by_index() {
        for dtype in ALL {
            for (shape, dim, index) in [
                (&[5, 3][..], 0, vec![4i64, 0, 4, 2]),
                (&[3, 4, 8], 1, vec![3, 3, 1]),
                (&[3, 4], -1, vec![]),
                (&[7], 0, vec![6]),
            ] {
                let n = index.len();
                let mut source = shape.to_vec();
                source[if dim < 0 { shape.len() - 1 } else { dim as usize }] = n;
                let index = Tensor::from_slice(&index, [n]);
                let inputs = [numbers(shape, 1, dtype), numbers(&source, 2, dtype)];
                agree(&inputs, if dtype.is_floating_point() { 1e-2 } else { 0.0 }, |x| {
                    let index = index.to_device(x[0].device());
                    vec![x[0].index_select(dim, &index), x[0].index_add(dim, &index, &x[1])]
                });
            }
        }
        agree(&[numbers(&[4, 6], 1, Dtype::F32)], 0.0, |x| vec![x[0].t().index_select(0, &Tensor::from([5i32, 1]).to_device(x[0].device()))]);
    }

    fn rows_of_a_table() {
        for (dtype, tolerance) in [(Dtype::F64, 1e-13), (Dtype::F32, 1e-6), (Dtype::F16, 2e-3), (Dtype::BF16, 2e-2)] {
            let indices = Tensor::from([[2i64, 0, 2], [4, 1, 2]]);
            for padding in [None, Some(2), Some(-5)] {
                agree(&[numbers(&[5, 6], 1, dtype)], tolerance, |x| {
                    vec![x[0].embedding(&indices.to_device(x[0].device()), padding)]
                });
            }
            agree(&[numbers(&[5, 3], 1, dtype)], tolerance, |x| {
                vec![x[0].embedding(&Tensor::from([3i32]).to_device(x[0].device()).reshape([]), None)]
            });
        }
    }

    fn elements_by_index() {
        for dtype in ALL {
            let tolerance = if dtype.is_floating_point() { 1e-2 } else { 0.0 };
            let index = Tensor::from([[0i64, 2, 1, 2], [1, 1, 0, 0]]);
            let apart = Tensor::from([[0i64, 2, 1, 2], [1, 1, 0, 0]]);
            agree(&[numbers(&[3, 4], 1, dtype), numbers(&[2, 5], 2, dtype)], tolerance, |x| {
                let (index, apart) = (index.to_device(x[0].device()), apart.to_device(x[0].device()));
                let view = x[0].clone_contiguous();
                view.t().scatter_add_(1, &index.narrow(0, 0, 1).t(), &x[1].t());
                vec![
                    x[0].gather(0, &index),
                    x[0].t().gather(1, &index.narrow(1, 0, 2)),
                    x[0].scatter(0, &apart, &x[1]),
                    x[0].scatter_value(0, &index, 3),
                    x[0].scatter_add(0, &index, &x[1]),
                    view,
                ]
            });
        }
        agree(&[numbers(&[2, 3, 4], 1, Dtype::F32)], 0.0, |x| {
            let device = x[0].device();
            let order = Tensor::from([[[1i64], [-2], [0]], [[3], [2], [1]]]).to_device(device);
            vec![
                x[0].take_along_dim(&order, 2),
                x[0].gather(1, &Tensor::zeros([2, 0, 4], (Dtype::I64, device))),
                Tensor::from([[2i64, 0], [1, 1]]).to_device(device).one_hot(3),
            ]
        });
    }

    fn indexing_by_tensors() {
        for dtype in [Dtype::F64, Dtype::F32, Dtype::F16, Dtype::I32, Dtype::Bool] {
            agree(&[numbers(&[3, 4, 2], 1, dtype), numbers(&[2, 2], 2, dtype)], 1e-2, |x| {
                let device = x[0].device();
                let i = Tensor::from([[0i64, 2], [1, -1]]).to_device(device);
                let j = Tensor::from([3i64, 0]).to_device(device);
                let (k, l) = (Tensor::from([2i64, 0]).to_device(device), Tensor::from([1i64, 1]).to_device(device));
                vec![
                    x[0].index(&[Some(&i)]),
                    x[0].index(&[Some(&i), Some(&j)]),
                    x[0].index(&[None, Some(&i)]),
                    x[0].index(&[Some(&k), None, Some(&l)]),
                    x[0].index_put(&[Some(&k), Some(&j)], &x[1], false),
                    x[0].index_put(&[Some(&l), Some(&j)], &x[1], true),
                ]
            });
        }
    }

    fn masks_and_triangles() {
        for dtype in ALL {
            agree(&[numbers(&[2, 5, 7], 1, dtype)], 0.0, |x| {
                let mask = x[0].gt(0);
                let mut out: Vec<Tensor> = [-9, -1, 0, 2, 9].iter().flat_map(|&d| [x[0].tril(d), x[0].triu(d)]).collect();
                out.push(x[0].transpose(1, 2).tril(0));
                out.push(x[0].masked_fill(&mask, 1));
                out.push(mask.where_(&x[0], &x[0].full_like(1)));
                out
            });
        }
        agree(&[numbers(&[0, 3], 1, Dtype::F32)], 0.0, |x| vec![x[0].triu(0)]);
    }

    fn padding_with_a_number() {
        for dtype in FLOATS.into_iter().chain(INTEGERS) {
            agree(&[numbers(&[2, 3, 4], 1, dtype)], 0.0, |x| {
                vec![x[0].pad(&[1, 2, 0, -1, 2, 0], PadMode::Constant(1.into())), x[0].pad(&[-1, -1], PadMode::Constant(0.into()))]
            });
        }
    }

    fn views_that_overlap_themselves() {
        for dtype in FLOATS {
            agree(&[numbers(&[3, 7], 1, dtype)], 1e-2, |x| {
                vec![x[0].as_strided(&[4, 3], &[2, 1], 3).contiguous(), x[0].t().as_strided(&[2, 2, 2], &[1, 1, 0], 0).contiguous()]
            });
        }
        agree(&[numbers(&[4, 6], 1, Dtype::F64)], 1e-12, |x| {
            let y = &x[0] * 2.0;
            y.select(0, 1).mul_(3.0);
            vec![y.slice(1, 0, 6, 2).contiguous(), y.diagonal(0, 0, 1).contiguous(), y.unbind(0)[2].clone_contiguous()]
        });
    }

    fn an_index_out_of_range_ends_the_program() {
        let x = numbers(&[5, 3], 1, Dtype::F32).to_device(GPU);
        let y = x.index_select(0, &Tensor::from([0i64, 5]).to_device(GPU));
        let error = torchrs::catch(|| y.to_vec::<f32>()).unwrap_err().to_string();
        assert!(error.starts_with("index_select: argument `index`: 5 at position 1"), "{error}");
    }
}
