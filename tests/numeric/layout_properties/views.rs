//! Chains of views: their elements, their gradients, and writing through them.

use proptest::prelude::*;
use torchrs::{Dtype, Tensor, autograd, catch};

use super::model::{Model, base, chain, seeds, shapes};
use crate::draw::Draw;

fn elements(m: &Model) -> Vec<i64> {
    m.map.iter().map(|&i| i as i64).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn views_have_the_elements_of_the_model(shape in shapes(), seeds in seeds()) {
        let (x, m) = chain(&base(&shape), &Model::new(&shape), &seeds, false);
        prop_assert_eq!(x.shape(), &m.shape[..]);
        prop_assert_eq!(x.to_vec::<i64>(), elements(&m));
        for copy in [x.contiguous(), x.clone_contiguous(), x.to_dtype(Dtype::F32)] {
            prop_assert!(copy.is_contiguous());
            prop_assert_eq!(copy.to_vec::<i64>(), elements(&m));
        }
    }

    #[test]
    fn gradients_go_back_by_the_same_map(shape in shapes(), seeds in seeds()) {
        let x = base(&shape).to_dtype(Dtype::F64).requires_grad_(true);
        let (y, m) = chain(&x, &Model::new(&shape), &seeds, false);
        let weights: Vec<f64> = (0..m.map.len()).map(|i| i as f64 + 1.0).collect();
        let g = Tensor::from_slice(&weights, &m.shape);
        let mut want = vec![0.0; x.numel()];
        for (&at, weight) in m.map.iter().zip(&weights) {
            want[at] += weight;
        }
        // Twice as much by way of a second view of the first.
        let z = &y * 2.0;
        let found = autograd::grad(&[&z], &[&x], &[Some(&g)], autograd::GraphMode::Create).swap_remove(0);
        let found = found.map_or(vec![0.0; x.numel()], |g| g.to_vec::<f64>());
        let want: Vec<f64> = want.iter().map(|g| g * 2.0).collect();
        prop_assert_eq!(found, want);
    }

    #[test]
    fn writing_through_a_view_changes_the_base(shape in shapes(), seeds in seeds()) {
        let x = base(&shape);
        let (view, m) = chain(&x, &Model::new(&shape), &seeds, true);
        let new: Vec<i64> = (0..m.map.len() as i64).map(|i| 1000 + i).collect();
        let source = Tensor::from_slice(&new, &m.shape);
        if m.repeats() {
            prop_assert!(catch(|| view.copy_(&source).numel()).is_err());
            return Ok(());
        }
        let mut want: Vec<i64> = (0..x.numel() as i64).collect();
        for (&at, &v) in m.map.iter().zip(&new) {
            want[at] = v;
        }
        view.copy_(&source);
        prop_assert_eq!(x.to_vec::<i64>(), want);
    }

    #[test]
    fn gradients_pass_around_what_is_overwritten(shape in shapes(), seeds in seeds()) {
        let x = base(&shape).to_dtype(Dtype::F64).requires_grad_(true);
        let y = &x * 3.0;
        let (view, m) = chain(&y, &Model::new(&shape), &seeds, true);
        if m.repeats() {
            return Ok(());
        }
        let source = Tensor::ones(&m.shape, Dtype::F64).requires_grad_(true);
        view.copy_(&(&source * 5.0));
        y.sum().backward();
        let mut want = vec![3.0; x.numel()];
        m.map.iter().for_each(|&at| want[at] = 0.0);
        prop_assert_eq!(x.grad().map_or(vec![0.0; x.numel()], |g| g.to_vec::<f64>()), want);
        if let Some(g) = source.grad() {
            prop_assert_eq!(g.to_vec::<f64>(), vec![5.0; m.map.len()]);
        }
    }

    #[test]
    fn overlapping_copies_read_before_they_write(
        rows in 1usize..6, columns in 1usize..40, seed in any::<u64>(),
    ) {
        let x = base(&[rows, columns]);
        let draw = &mut Draw(seed);
        let (h, w) = (draw.below(rows) + 1, draw.below(columns) + 1);
        let mut corner = || {
            let (i, j) = (draw.below(rows - h + 1), draw.below(columns - w + 1));
            (i, j)
        };
        let (to, from) = (corner(), corner());
        let part = |(i, j): (usize, usize)| x.narrow(0, i, h).narrow(1, j, w);
        let mut want = x.to_vec::<i64>();
        let old = want.clone();
        for i in 0..h {
            for j in 0..w {
                want[(to.0 + i) * columns + to.1 + j] = old[(from.0 + i) * columns + from.1 + j];
            }
        }
        part(to).copy_(&part(from));
        prop_assert_eq!(x.to_vec::<i64>(), want);
    }

    #[test]
    fn a_matrix_is_overwritten_by_its_transpose_and_by_one_of_its_rows(
        n in 1usize..30, row in any::<proptest::sample::Index>(),
    ) {
        let x = base(&[n, n]);
        let want = x.t().to_vec::<i64>();
        x.copy_(&x.t());
        prop_assert_eq!(x.to_vec::<i64>(), want.clone());
        let row = row.index(n);
        x.copy_(&x.select(0, row as i64));
        prop_assert_eq!(x.to_vec::<i64>(), want[row * n..(row + 1) * n].repeat(n));
    }
}
