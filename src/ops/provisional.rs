//! Slow stand-ins until the reductions land; this file is then deleted.
use crate::Tensor;
use crate::autograd::record;
use smallvec::smallvec;

impl Tensor {
    pub fn sum(&self) -> Tensor {
        let t = Tensor::full([], self.to_vec::<f64>().iter().sum::<f64>(), self.dtype());
        let shape = self.layout().shape.clone();
        record("sum", &[self], t, |_| move |c| smallvec![Some(c.grad(0).expand(&shape))])
    }
    pub fn sum_to_size(&self, shape: &[usize]) -> Tensor {
        let out = Tensor::zeros(shape, self.dtype());
        let e = out.expand(self.shape());
        e.add_overlapping(self);
        let from = self.layout().shape.clone();
        record("sum_to_size", &[self], out, |_| move |c| smallvec![Some(c.grad(0).expand(&from))])
    }
}
