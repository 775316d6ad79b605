//! Samples of distributions, their gradients and densities: the CPU's.

use torchrs::distributions::{
    Beta, Binomial, Categorical, Dirichlet, Distribution, Gamma, LKJCholesky, MultivariateNormal,
    NegativeBinomial, Normal, Poisson, VonMises, Wishart,
};
use torchrs::{Device, Dtype, Tensor};

const GPU: Device = Device::Cuda(0);

simulated! {
    fn samples_and_gradients_of_distributions_are_the_cpus() {
        let of = |values: &[f64], device| Tensor::from_slice(values, [values.len()]).to_device(device);
        let all = |device: Device| -> Vec<Box<dyn Distribution>> {
            let list = |values: &[f64]| of(values, device);
            let (eye, loc) = (Tensor::eye(2, (Dtype::F64, device)) * 2.0, list(&[0.5, 1.0]));
            vec![
                Box::new(Normal::new(list(&[0.0, 3.0]), 2.0)),
                Box::new(Gamma::new(list(&[0.3, 4.0]), 2.0)),
                Box::new(Beta::new(list(&[0.3, 4.0]), 2.0)),
                Box::new(Dirichlet::new(list(&[0.3, 4.0]))),
                Box::new(Poisson::new(list(&[0.3, 40.0]))),
                Box::new(Binomial::from_probs(list(&[3.0, 80.0]), 0.4)),
                Box::new(NegativeBinomial::from_probs(list(&[3.0, 8.0]), 0.4)),
                Box::new(Categorical::from_logits(&list(&[0.3, 1.0]))),
                Box::new(VonMises::new(list(&[0.3, 1.0]), 2.0)),
                Box::new(LKJCholesky::new(3, list(&[0.3, 1.0]))),
                Box::new(MultivariateNormal::from_covariance(loc, eye.clone())),
                Box::new(Wishart::from_covariance(3.0, eye)),
            ]
        };
        for (on_gpu, on_cpu) in all(GPU).iter().zip(&all(Device::Cpu)) {
            let draw = |d: &dyn Distribution| {
                torchrs::manual_seed(8);
                let x = d.sample(&[7]);
                let p = d.log_prob(&x);
                (x, p)
            };
            let ((x, p), (want, density)) = (draw(&**on_gpu), draw(&**on_cpu));
            assert_eq!((x.device(), p.device()), (GPU, GPU), "{}", on_gpu.name());
            assert!(x.cpu().allclose(&want, Default::default()), "{}: {x} {want}", on_gpu.name());
            assert!(p.cpu().allclose(&density, Default::default()), "{}: {p} {density}", on_gpu.name());
        }
        let slope = |device| {
            torchrs::manual_seed(9);
            let a = of(&[0.1, 0.9, 3.0, 700.0], device).requires_grad_(true);
            Gamma::new(&a, 1.0).rsample(&[]).sum().backward();
            a.grad().expect("a gradient")
        };
        assert!(slope(GPU).cpu().allclose(&slope(Device::Cpu), Default::default()));
        assert_eq!(Gamma::new(of(&[2.0], GPU), 1.0).cdf(&of(&[1.0], GPU)).device(), GPU);
    }
}
