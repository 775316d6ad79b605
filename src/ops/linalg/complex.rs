//! Systems of complex matrices, as real ones of twice the size:
//!
//! ```text
//! (A + iB) (X + iY) = C + iD      [A -B] [X]   [C]
//!                                 [B  A] [Y] = [D]
//! ```

use super::checks::{check_square, eye_like, is_vector};
use super::solve;
use crate::error::{Error, throw};
use crate::tensor::Tensor;

/// The complex matrices as real ones.
fn both_parts(a: &Tensor) -> Tensor {
    let (re, im) = (a.real(), a.imag());
    let top = Tensor::cat(&[re.clone(), -&im], -1);
    Tensor::cat(&[top, Tensor::cat(&[im, re], -1)], -2)
}

/// X with `A X = B`, where `b` is vectors or matrices as for [`solve`]; both of one complex type.
#[track_caller]
pub(super) fn solve_systems(op: &str, a: &Tensor, b: &Tensor) -> Tensor {
    check_square(op, &a.real());
    if a.dtype() != b.dtype() {
        let message = format!("takes one type, got {} and {}", a.dtype(), b.dtype());
        throw(Error::dtype(op, message));
    }
    if b.dim() == 0 {
        throw(Error::shape(op, "B has no dimension; takes vectors or matrices"));
    }
    if is_vector(a, b) {
        return solve_systems(op, a, &b.unsqueeze(-1)).squeeze_dim(-1);
    }
    let x = solve(&both_parts(a), &Tensor::cat(&[b.real(), b.imag()], -2));
    let n = a.size(-1);
    Tensor::complex(&x.narrow(-2, 0, n).contiguous(), &x.narrow(-2, n as i64, n).contiguous())
}

/// The inverse of complex matrices.
#[track_caller]
pub(super) fn inverse(op: &str, a: &Tensor) -> Tensor {
    check_square(op, &a.real());
    let eye = eye_like(&a.real()).expand(a.shape()).to_dtype(a.dtype());
    solve_systems(op, a, &eye)
}

#[cfg(test)]
mod tests {
    use super::super::{inv, solve};
    use crate::autograd::gradcheck;
    use crate::error::catch;
    use crate::ops::random::Generator;
    use crate::tensor::{Dtype, Tensor};

    #[test]
    fn complex_systems_are_solved_and_have_gradients() {
        let number = |seed| {
            let pairs = Generator::new(seed).randn([2, 3, 3, 2], Dtype::F64);
            pairs.view_as_complex().detach()
        };
        let (a, b) = (number(1), number(2));
        let apart = |x: &Tensor, y: &Tensor| (x - y).abs().max().item();
        assert!(apart(&a.matmul(&solve(&a, &b)), &b) < 1e-12);
        let eye = Tensor::eye(3, Dtype::F64).expand(&[2, 3, 3]).to_dtype(Dtype::C128);
        assert!(apart(&a.matmul(&inv(&a)), &eye) < 1e-12);
        let a = a.requires_grad_(true);
        gradcheck(|x| inv(&x[0]), &[&a], Default::default()).expect("gradients");
        assert!(catch(|| solve(&a, &b.real())).is_err());
        // A list for each matrix, not one matrix for all.
        let a = a.detach();
        let lists = b.select(-1, 0);
        assert!(apart(&solve(&a, &lists), &solve(&a, &lists.unsqueeze(-1)).squeeze_dim(-1)) == 0.0);
        let list = lists.i(0);
        assert!(apart(&a.i(0).matmul(&solve(&a.i(0), &list)), &list) < 1e-12);
        assert!(catch(|| inv(&a.narrow(-1, 0, 2))).is_err());
    }
}
