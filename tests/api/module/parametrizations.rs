//! Parametrized weights against PyTorch's numbers, names and texts.

use torchrs::nn::utils::parametrizations::{
    OrthogonalMap, OrthogonalOptions, orthogonal, spectral_norm, weight_norm,
};
use torchrs::nn::utils::parametrize::{
    Parametrization, Parametrized, register_parametrization, remove_parametrizations,
};
use torchrs::nn::{Conv2d, ConvTranspose1d, Forward, LSTM, Linear, Module, RNNOptions, Sequential};
use torchrs::{Dtype, Tensor, autograd, catch, no_grad};

fn close(got: &Tensor, want: &[f64], tolerance: f64, what: &str) {
    let got = got.to_vec::<f64>();
    let close = |(a, b): (&f64, &f64)| (a - b).abs() <= tolerance * (1.0 + b.abs());
    let all = got.len() == want.len() && got.iter().zip(want).all(close);
    assert!(all, "{what}: {got:?}, not {want:?}");
}

/// A layer in f64 with this weight, without a bias.
fn layer(weight: &Tensor) -> Linear {
    let mut layer = Linear::no_bias(weight.size(1), weight.size(0));
    layer.double();
    no_grad(|| _ = layer.weight.copy_(weight));
    layer
}

fn example() -> (Linear, Tensor) {
    let weight = Tensor::from([[0.5f64, -1.0, 2.0], [1.5, 0.25, -0.75]]);
    (layer(&weight), Tensor::from([[1f64, 2., -1.], [0.5, -0.5, 3.]]))
}

fn original(module: &dyn Module, i: &str) -> Tensor {
    let name = format!("parametrizations.weight.original{i}");
    let all = module.named_parameters();
    all.into_iter().find(|(n, _)| *n == name).unwrap_or_else(|| panic!("no {name}")).1
}

fn names(module: &dyn Module) -> Vec<String> {
    module.state_dict().keys().map(str::to_owned).collect()
}

#[test]
fn weight_norm_is_that_of_pytorch() {
    let want = [-5.25, 4.125, 10.125, -2.4375];
    let grads: [(Option<i64>, &[f64], [f64; 6]); 3] = [
        (
            Some(0),
            &[75.69433067560986, 18.05242450671522],
            [
                -25.339285714285715,
                2.8660714285714306,
                7.767857142857139,
                -15.236413043478263,
                24.413722826086957,
                -22.334918478260867,
            ],
        ),
        (
            Some(1),
            &[5.3956362576622965, 34.78870371614901, 74.74540262812889],
            [-3.121875, 3.9375, 1.8955479452054647, 1.040625, 15.75, 5.054794520547951],
        ),
        (
            None,
            &[71.5843792133156],
            [
                -19.39759615384616,
                -9.017307692307682,
                31.534615384615364,
                -47.78653846153848,
                18.98870192307692,
                -6.0598557692307615,
            ],
        ),
    ];
    for (dim, lengths, directions) in grads {
        let (layer, x) = example();
        let layer = weight_norm(layer, "weight", dim);
        assert_eq!(
            names(&layer),
            ["parametrizations.weight.original0", "parametrizations.weight.original1"]
        );
        no_grad(|| _ = original(&layer, "0").mul_(1.5));
        let y = layer.forward(&x);
        close(&y, &want, 1e-12, "output");
        y.square().sum().backward();
        close(&original(&layer, "0").grad().unwrap(), lengths, 1e-12, "lengths");
        close(&original(&layer, "1").grad().unwrap(), &directions, 1e-12, "directions");
    }
}

#[test]
fn spectral_norm_is_that_of_pytorch() {
    let (layer, x) = example();
    let mut layer = spectral_norm(layer, "weight", Default::default());
    layer.train();
    let state = layer.state_dict();
    assert_eq!(
        names(&layer),
        [
            "parametrizations.weight.original",
            "parametrizations.weight.0._u",
            "parametrizations.weight.0._v"
        ]
    );
    let (u, v) = (&state["parametrizations.weight.0._u"], &state["parametrizations.weight.0._v"]);
    u.copy_(&Tensor::from([0.6f64, 0.8]));
    v.copy_(&Tensor::from([1f64, 0., 0.]));
    let want = [-2.208081042567791, 1.734920819160407, 4.258442010666453, -1.0251804840493315];
    let y = layer.forward(&x);
    close(&y, &want, 1e-12, "output");
    y.square().sum().backward();
    close(u, &[0.31622776601683794, 0.9486832980505138], 1e-12, "u");
    close(v, &[0.9975093361076329, -0.04987546680538166, -0.04987546680538159], 1e-12, "v");
    let grad = [
        -10.873988267617134,
        -7.719982178658942,
        19.444196925818662,
        -30.781168782950907,
        6.641048488898788,
        -4.453478874285291,
    ];
    close(&original(&layer, "").grad().unwrap(), &grad, 1e-12, "gradient");
    layer.eval();
    close(&layer.forward(&x), &want, 1e-12, "evaluated");
    // Two forwards before one backward.
    layer.train();
    (layer.forward(&x) - layer.forward(&(&x * 2.0))).sum().backward();
    layer.to(Dtype::F32);
    assert_eq!(layer.forward(&x.to_dtype(Dtype::F32)).dtype(), Dtype::F32);
}

/// Numbers of PyTorch for `sin(0.7 i)` as weight and original: without a base, or with the identity.
#[test]
fn orthogonal_maps_are_those_of_pytorch() {
    use OrthogonalMap::{Cayley, Householder, MatrixExp};
    type Case = (OrthogonalMap, [usize; 2], &'static [f64], &'static [f64]);
    let cases: [Case; 6] = [
        (
            MatrixExp,
            [3, 3],
            &[
                -0.21844623937544844,
                -0.6924443379051612,
                -0.687606049570397,
                -0.6942528577519256,
                -0.3848994206866515,
                0.6081656069347919,
                -0.6857800011709355,
                0.6102239546741532,
                -0.39665162943801,
            ],
            &[
                0.0,
                0.0,
                0.0,
                0.7891563009618212,
                0.0,
                0.0,
                -0.8283928154216273,
                -1.6069012180987265,
                0.0,
            ],
        ),
        (
            Cayley,
            [3, 3],
            &[
                0.13269164477568285,
                -0.9910647091011484,
                0.013552482465585491,
                0.0039927931699228,
                0.014207767326257184,
                0.9998910925447357,
                -0.9911493252832422,
                -0.1326230814068914,
                0.005842368416561871,
            ],
            &[
                0.0,
                0.0,
                0.0,
                -0.1606194198814378,
                0.0,
                0.0,
                0.0909800604675657,
                -0.6885653862040015,
                0.0,
            ],
        ),
        (
            Householder,
            [3, 3],
            &[
                0.0,
                0.0,
                -0.690024044758498,
                0.0,
                0.0,
                -0.3828092846996146,
                0.0,
                0.0,
                0.6142669364396003,
            ],
            &[
                0.0,
                0.0,
                0.0,
                -0.1600437442561543,
                0.0,
                0.0,
                0.043129332730141294,
                0.03537473045970055,
                0.0,
            ],
        ),
        (
            Householder,
            [3, 2],
            &[0.0, 0.015270971976005984, 0.0, -0.3102094077778235, 0.0, 0.950545591090212],
            &[0.0, 0.0, -0.15713563251544674, 0.0, 0.4395026550697565, -0.15876521762784057],
        ),
        (
            MatrixExp,
            [2, 3],
            &[
                -0.6299636727265007,
                0.7381083279858263,
                0.2415406119121738,
                0.0748681962499701,
                0.3672827122790669,
                -0.9270912373931757,
            ],
            &[0.0, 0.2032476869925029, -1.2362143189986383, 0.0, 0.0, -0.1755163990190903],
        ),
        (
            Cayley,
            [3, 2],
            &[
                0.018002653163322502,
                -0.7867571721097445,
                0.9997909718919362,
                0.008184012402149691,
                -0.009691078498210541,
                -0.6172083716824321,
            ],
            &[0.0, 0.0, 0.06952246420472696, 0.0, -0.5535163636182331, -0.6575925433692036],
        ),
    ];
    for (map, [rows, columns], q, grad) in cases {
        let what = format!("{map:?} {rows} x {columns}");
        let numbers = Tensor::arange(0.0, (rows * columns) as f64, 1.0, Dtype::F64);
        let numbers = numbers.reshape([rows as i64, columns as i64]);
        let weight = (&numbers * 0.7).sin();
        let options = OrthogonalOptions { orthogonal_map: Some(map), use_trivialization: false };
        let module = orthogonal(layer(&weight), "weight", options);
        if map == Householder {
            // Kept, up to being orthogonal: columns with a positive triangular factor.
            let kept = module.value("weight");
            let triangle = kept.t().matmul(&weight);
            close(&triangle.tril(-1), &vec![0.0; columns * columns], 1e-12, &what);
            assert!(triangle.diagonal(0, 0, 1).to_vec::<f64>()[..2].iter().all(|&d| d > 0.0));
        }
        let free = original(&module, "");
        no_grad(|| _ = free.copy_(&(&weight * 2.0)));
        let got = module.value("weight");
        close(&got, q, 1e-12, &what);
        (got * numbers.cos()).sum().backward();
        close(&free.grad().unwrap(), grad, 1e-11, &what);
    }
}

#[test]
fn with_a_base_an_orthogonal_weight_is_kept() {
    let quarter_turn = Tensor::from([[0f64, -1.], [1., 0.]]);
    let module = orthogonal(layer(&quarter_turn), "weight", Default::default());
    assert_eq!(
        names(&module),
        ["parametrizations.weight.original", "parametrizations.weight.0.base"]
    );
    close(&module.value("weight"), &quarter_turn.to_vec::<f64>(), 1e-15, "kept");
    module.assign("weight", &Tensor::from([[0.6f64, 0.8], [-0.8, 0.6]]));
    close(&module.value("weight"), &[0.6, 0.8, -0.8, 0.6], 1e-15, "assigned");
    // PyTorch's numbers for sin(0.7 i) and 1 on the diagonal.
    let weight = (Tensor::arange(0.0, 9.0, 1.0, Dtype::F64).reshape([3, 3]) * 0.7).sin();
    let weight = weight + Tensor::eye(3, Dtype::F64);
    let want = [
        0.6318524339287903,
        -0.6986413186945042,
        0.33565281102810374,
        0.5454209393072206,
        0.7084598162806581,
        0.4478846812303424,
        -0.5507072731528908,
        -0.09992495448275487,
        0.8286956635388691,
    ];
    for map in [OrthogonalMap::MatrixExp, OrthogonalMap::Cayley, OrthogonalMap::Householder] {
        let options = OrthogonalOptions { orthogonal_map: Some(map), ..Default::default() };
        let module = orthogonal(layer(&weight), "weight", options);
        close(&module.value("weight"), &want, 1e-12, "made orthogonal");
        // It stays so in training, for wide and batched weights as well.
        let module = orthogonal(Conv2d::new(2, 3, (3, 4)), "weight", options);
        let free = original(&module, "");
        no_grad(|| _ = free.add_(&(free.ones_like().tril(-1) * 0.3)));
        let q = module.value("weight");
        let off = q.matmul(&q.mt()) - Tensor::eye(3, Dtype::F32);
        assert!(off.abs().max().item() < 1e-5, "{map:?} {off:?}");
    }
}

#[test]
fn derivatives_of_all_maps_are_right() {
    for map in [OrthogonalMap::MatrixExp, OrthogonalMap::Cayley, OrthogonalMap::Householder] {
        let options = OrthogonalOptions { orthogonal_map: Some(map), ..Default::default() };
        let start = (Tensor::arange(0.0, 9.0, 1.0, Dtype::F64).reshape([3, 3]) * 0.7).sin();
        let module = orthogonal(layer(&start), "weight", options);
        let free = original(&module, "");
        // Through the graph of the module: first gradients as functions, then theirs.
        let loss = module.value("weight").sin().sum();
        let first = autograd::grad(&[&loss], &[&free], &[None], autograd::GraphMode::Create);
        let first = first.into_iter().next().flatten().unwrap();
        let second =
            autograd::grad(&[&first.square().sum()], &[&free], &[None], autograd::GraphMode::Free);
        let second = second.into_iter().next().flatten().unwrap().to_vec::<f64>();
        let gradient_at = |shift: f64, at: usize| {
            let mut values = free.to_vec::<f64>();
            values[at] += shift;
            let keep = free.detach().clone_contiguous();
            no_grad(|| _ = free.copy_(&Tensor::from_slice(&values, [3, 3])));
            let loss = module.value("weight").sin().sum();
            let grad = autograd::grad(&[&loss], &[&free], &[None], autograd::GraphMode::Free);
            no_grad(|| _ = free.copy_(&keep));
            grad.into_iter().next().flatten().unwrap().square().sum().item()
        };
        for at in [3, 6, 7] {
            let numeric = (gradient_at(1e-5, at) - gradient_at(-1e-5, at)) / 2e-5;
            assert!((numeric - second[at]).abs() < 1e-6, "{map:?} {at}: {numeric} {}", second[at]);
        }
    }
}

#[derive(Module, Clone)]
struct Symmetric;

impl Parametrization for Symmetric {
    fn forward(&self, originals: &[Tensor]) -> Tensor {
        let upper = originals[0].triu(0);
        &upper + upper.triu(1).t()
    }
    fn right_inverse(&self, value: &Tensor) -> Option<Vec<Tensor>> {
        Some(vec![value.triu(0)])
    }
}

#[derive(Module, Clone)]
struct Doubled;

impl Parametrization for Doubled {
    fn forward(&self, originals: &[Tensor]) -> Tensor {
        &originals[0] * 2.0
    }
}

#[derive(Module, Clone)]
struct Longer;

impl Parametrization for Longer {
    fn forward(&self, originals: &[Tensor]) -> Tensor {
        Tensor::cat(&[&originals[0], &originals[0]], 0)
    }
}

#[test]
fn parametrizations_are_chained_assigned_and_removed() {
    let start = layer(&Tensor::from([[1f64, 2.], [3., 4.]]));
    let weight = start.weight.tensor().clone();
    let module = register_parametrization(start, "weight", Symmetric);
    assert!(module.is_parametrized("weight") && original(&module, "").ptr_eq(&weight));
    close(&module.value("weight"), &[1., 2., 2., 4.], 0.0, "symmetric");
    module.assign("weight", &Tensor::from([[5f64, 6.], [6., 7.]]));
    close(&weight, &[5., 6., 0., 7.], 0.0, "assigned");
    let module = module.register("weight", Doubled);
    close(&module.value("weight"), &[10., 12., 12., 14.], 0.0, "chained");
    let error = catch(|| module.assign("weight", &weight)).unwrap_err().to_string();
    assert!(error.contains("Doubled") && error.contains("right inverse"), "{error}");
    let x = Tensor::ones([1, 2], Dtype::F64);
    close(&module.computed().forward(&x), &[22., 26.], 0.0, "computed");
    let copy = module.deep_copy();
    no_grad(|| _ = weight.zero_());
    close(&copy.forward(&x), &[22., 26.], 0.0, "copied");

    let removed = remove_parametrizations(copy, "weight", true);
    assert!(!removed.is_parametrized("weight"));
    let plain = removed.into_module();
    close(&plain.weight, &[10., 12., 12., 14.], 0.0, "left parametrized");
    assert!(plain.weight.requires_grad() && plain.weight.grad().is_none());
    let plain = module.remove("weight", false).into_module();
    assert!(plain.weight.ptr_eq(&weight));

    let normed = weight_norm(plain, "weight", 0);
    let error = catch(|| normed.clone().remove("weight", false).name().to_owned()).unwrap_err();
    assert!(error.to_string().contains("2 originals"), "{error}");
    assert!(
        catch(|| normed.clone().into_module().repr()).unwrap_err().to_string().contains("weight")
    );
    assert!(normed.remove("weight", true).into_module().weight.requires_grad());
}

#[test]
fn what_does_not_fit_is_named() {
    let error = |f: &dyn Fn() -> Parametrized<Linear>| match catch(f) {
        Ok(_) => panic!("no error"),
        Err(error) => error.to_string(),
    };
    let missing = error(&|| weight_norm(Linear::new(2, 2), "wight", 0));
    assert!(missing.contains("`wight`") && missing.contains("\"weight\", \"bias\""), "{missing}");
    let shape = error(&|| register_parametrization(Linear::new(2, 2), "weight", Longer));
    assert!(shape.contains("[4, 2]") && shape.contains("[2, 2]"), "{shape}");
    let vector = error(&|| orthogonal(Linear::new(2, 2), "bias", Default::default()));
    assert!(vector.contains("[2]"), "{vector}");
    let dim = torchrs::nn::utils::parametrizations::SpectralNormOptions {
        dim: Some(2),
        ..Default::default()
    };
    assert!(error(&|| spectral_norm(Linear::new(2, 2), "weight", dim)).contains("2"));
}

#[test]
fn names_and_texts_are_those_of_pytorch() {
    let module = weight_norm(Linear::new(4, 3), "weight", 0);
    let text = "ParametrizedLinear(
  in_features=4, out_features=3, bias=True
  (parametrizations): ModuleDict(
    (weight): ParametrizationList(
      (0): _WeightNorm()
    )
  )
)";
    assert_eq!(module.repr(), text);
    let lstm = weight_norm(LSTM::new(2, 3, RNNOptions::default()), "weight_hh_l0", 0);
    assert_eq!(
        names(&lstm),
        [
            "weight_ih_l0",
            "bias_ih_l0",
            "bias_hh_l0",
            "parametrizations.weight_hh_l0.original0",
            "parametrizations.weight_hh_l0.original1"
        ]
    );
    let x = Tensor::ones([4, 1, 2], Dtype::F32);
    let (out, _) = lstm.computed().forward(&x, None);
    out.sum().backward();
    assert!(lstm.parameters().iter().all(|p| p.grad().is_some()));
    let transposed = ConvTranspose1d::new(2, 3, 2, Default::default());
    let transposed = spectral_norm(transposed, "weight", Default::default());
    assert_eq!(transposed.state_dict()["parametrizations.weight.0._u"].shape(), &[3]);
    // Inside another module, loaded and converted with it.
    let net = || {
        Sequential::new().append(spectral_norm(Conv2d::new(1, 2, 3), "weight", Default::default()))
    };
    let (mut from, to) = (net(), net());
    to.load_state_dict(&from.state_dict(), true).unwrap();
    from.eval();
    to.eval();
    let x = Tensor::ones([1, 1, 4, 4], Dtype::F32);
    assert_eq!(from.forward(&x).to_vec::<f32>(), to.forward(&x).to_vec::<f32>());
    from.double();
    assert_eq!(from.forward(&x.to_dtype(Dtype::F64)).dtype(), Dtype::F64);
    assert_eq!(from.named_parameters()[0].0, "0.bias");
}
