//! The von Mises distribution of angles.

use std::f64::consts::PI;

use super::constraints::{self, Constraint};
use super::distribution::{Distribution, Shape};
use super::macros::{checked, common, refined, univariate};
use super::params::{Param, broadcast, first, options};
use crate::autograd::no_grad;
use crate::tensor::{Dtype, Tensor};

univariate! {
    /// The von Mises distribution of angles (`torch.distributions.VonMises`).
    ///
    /// ```
    /// use torchrs::distributions::{Distribution, VonMises};
    /// let x = VonMises::new(0.0, 4.0).sample(&[100]);
    /// assert!(x.abs().max().item() <= 3.15);
    /// ```
    VonMises {
        /// The mean angle.
        loc: constraints::real(),
        /// How near to it samples are.
        concentration: constraints::positive(),
    }
}

impl Distribution for VonMises {
    common!(VonMises);
    fn support(&self) -> Constraint {
        constraints::real()
    }
    fn mean(&self) -> Tensor {
        self.loc.clone()
    }
    fn mode(&self) -> Tensor {
        self.loc.clone()
    }
    /// The circular variance.
    fn variance(&self) -> Tensor {
        1.0 - self.concentration.i1e() / self.concentration.i0e()
    }
    /// Best and Fisher's rejection from a wrapped Cauchy distribution, in f64.
    #[track_caller]
    fn sample(&self, sample_shape: &[usize]) -> Tensor {
        no_grad(|| {
            let shape = self.shape.extended(sample_shape);
            let wide = |t: &Tensor| t.detach().to_dtype(Dtype::F64);
            let (loc, k) = (wide(&self.loc), wide(&self.concentration));
            let tau = (k.square() * 4.0 + 1.0).sqrt() + 1.0;
            let rho = (&tau - (&tau * 2.0).sqrt()) / (&k * 2.0);
            let r = (rho.square() + 1.0) / (&rho * 2.0);
            // Where that divides what is left of a difference.
            let r = k.lt(1e-5).where_(&(k.reciprocal() + &k), &r);
            let mut x = Tensor::zeros(&shape, options(&k));
            let mut done = x.ne(0.0);
            while !x.device().is_meta() && done.all().item() == 0.0 {
                let draw = || Tensor::rand(&shape, options(&k));
                let (u1, u2, u3) = (draw(), draw(), draw());
                let z = (u1 * PI).cos();
                let f = (&r * &z + 1.0) / (&r + &z);
                let c = &k * (&r - &f);
                let quick = (&c * (2.0 - &c) - &u2).gt(0.0);
                let slow = ((&c / &u2).log() + 1.0 - &c).ge(0.0);
                let taken = quick.logical_or(&slow).logical_or(&c.isfinite().logical_not());
                let angle = (u3 - 0.5).sign() * f.acos();
                x = taken.logical_and(&done.logical_not()).where_(&angle, &x);
                done = done.logical_or(&taken);
            }
            let x = (x + &loc + PI).remainder(2.0 * PI) - PI;
            x.to_dtype(self.loc.dtype())
        })
    }
    checked! {
        fn log_prob(d, value) {
            // log(i0(k)) is log(i0e(k)) and k.
            let k = &d.concentration;
            k * (value - &d.loc).cos() - (2.0 * PI).ln() - (k.i0e().log() + k)
        }
    }
}
