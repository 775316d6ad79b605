//! Slow stand-ins until the pointwise tables land; this file is then deleted.
use crate::Tensor;
use crate::autograd::{record, record_inplace};
use crate::tensor::{Dtype, Element, broadcast_shapes, dispatch};
use smallvec::smallvec;

fn binary(a: &Tensor, b: &Tensor, f: fn(f64, f64) -> f64) -> Tensor {
    let shape = broadcast_shapes(a.shape(), b.shape()).unwrap();
    let (x, y) =
        (a.detach().expand(&shape).to_vec::<f64>(), b.detach().expand(&shape).to_vec::<f64>());
    let v: Vec<f64> = x.iter().zip(&y).map(|(x, y)| f(*x, *y)).collect();
    Tensor::from_slice(&v, shape).to_dtype(a.dtype())
}
impl Tensor {
    pub fn to_dtype(&self, d: Dtype) -> Tensor {
        let v = self.to_vec::<f64>();
        let t = Tensor::empty(self.shape(), d);
        dispatch!(d, T => unsafe { t.as_mut_slice::<T>() }.iter_mut().zip(v).for_each(|(o, v)| *o = T::from_f64(v)));
        let from = self.dtype();
        record("to_dtype", &[self], t, |_| move |c| smallvec![Some(c.grad(0).to_dtype(from))])
    }
    pub fn copy_(&self, src: &Tensor) -> &Tensor {
        self.assert_inplace_legal("copy_");
        let v = src.detach().expand(self.shape()).to_vec::<f64>();
        let mut i = 0;
        dispatch!(self.dtype(), T => self.for_each_position(|p| { unsafe { self.data_ptr().cast::<T>().offset(p).write(T::from_f64(v[i])) }; i += 1; }));
        record_inplace("copy_", self, &[self, src], |_| move |c| smallvec![None, Some(c.grad(0))]);
        self
    }
    fn for_each_position(&self, mut f: impl FnMut(isize)) {
        let mut out = vec![0isize];
        for (&n, &s) in self.shape().iter().zip(self.strides()) {
            out = out.iter().flat_map(|&p| (0..n as isize).map(move |i| p + i * s)).collect();
        }
        out.into_iter().for_each(&mut f);
    }
    pub fn fill_(&self, v: f64) -> &Tensor {
        self.assert_inplace_legal("fill_");
        dispatch!(self.dtype(), T => self.for_each_position(|p| unsafe { self.data_ptr().cast::<T>().offset(p).write(T::from_f64(v)) }));
        record_inplace("fill_", self, &[self], |_| move |_| smallvec![None]);
        self
    }
    pub fn clone_contiguous(&self) -> Tensor {
        let t = Tensor::empty(self.shape(), self.dtype());
        t.copy_(self);
        t
    }
    pub fn contiguous(&self) -> Tensor {
        if self.is_contiguous() { self.clone() } else { self.clone_contiguous() }
    }
    pub fn add_(&self, o: &Tensor) -> &Tensor {
        self.assert_inplace_legal("add_");
        let r = binary(self, o, |a, b| a + b);
        crate::no_grad(|| {
            self.detach().copy_(&r);
        });
        record_inplace("add_", self, &[self, o], |_| {
            |c| smallvec![Some(c.grad(0)), Some(c.grad(0))]
        });
        self
    }
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
macro_rules! op {
    ($t:ident $m:ident $f:expr; $b:expr) => {
        impl std::ops::$t<&Tensor> for &Tensor {
            type Output = Tensor;
            fn $m(self, o: &Tensor) -> Tensor {
                record(stringify!($m), &[self, o], binary(self, o, $f), |s| {
                    let (a, b) = (s.save(self), s.save(o));
                    move |c| $b(c.grad(0), c.get(&a), c.get(&b))
                })
            }
        }
        impl std::ops::$t<Tensor> for Tensor {
            type Output = Tensor;
            fn $m(self, o: Tensor) -> Tensor {
                (&self).$m(&o)
            }
        }
        impl std::ops::$t<&Tensor> for Tensor {
            type Output = Tensor;
            fn $m(self, o: &Tensor) -> Tensor {
                (&self).$m(o)
            }
        }
        impl std::ops::$t<Tensor> for &Tensor {
            type Output = Tensor;
            fn $m(self, o: Tensor) -> Tensor {
                self.$m(&o)
            }
        }
        impl std::ops::$t<f64> for &Tensor {
            type Output = Tensor;
            fn $m(self, o: f64) -> Tensor {
                self.$m(&Tensor::full([], o, self.dtype()))
            }
        }
        impl std::ops::$t<f64> for Tensor {
            type Output = Tensor;
            fn $m(self, o: f64) -> Tensor {
                (&self).$m(o)
            }
        }
    };
}
op!(Add add |a, b| a + b; |g: Tensor, _, _| smallvec![Some(g.clone()), Some(g)]);
op!(Mul mul |a, b| a * b; |g: Tensor, a: Tensor, b: Tensor| smallvec![Some(&g * &b), Some(&g * &a)]);
