//! Results of PyTorch 2.15 on small inputs, ties, zeros, infinities and NaN: the corners that the
//! generic check cannot know. And what misuse says.

use torchrs::ops::{
    CrossEntropyOptions, Interpolation, NLLLossOptions, Pool1dOptions, Reduction, ScatterReduce,
    SearchOptions,
};
use torchrs::{Dtype, Tensor, autograd, catch};

use Dtype::{BF16, Bool, F16, F32, F64, I32, I64, U8};

const INF: f64 = f64::INFINITY;
const NAN: f64 = f64::NAN;

fn x() -> Tensor {
    Tensor::from([[0.5f64, -1.25, 2.0, 0.0], [1.5, 3.0, -0.5, -2.0], [0.25, 0.75, -3.0, 1.0]])
}

#[track_caller]
fn assert_close(got: &Tensor, want: &[f64]) {
    let got = got.to_vec::<f64>();
    let same = |g: &f64, w: &f64| {
        g == w || g.is_nan() && w.is_nan() || (g - w).abs() <= 1e-12 * (1.0 + w.abs())
    };
    assert!(
        got.len() == want.len() && got.iter().zip(want).all(|(g, w)| same(g, w)),
        "{got:?}, expected {want:?}"
    );
}

/// Gradient of `sum_i (i + 1) f(x)_i`.
fn gradient(x: &Tensor, f: impl Fn(&Tensor) -> Tensor) -> Tensor {
    let x = x.detach().requires_grad_(true);
    let y = f(&x);
    let w = Tensor::arange(1i64, y.numel() as i64 + 1, 1i64, F64).reshape_as(&y);
    autograd::grad(&[&y], &[&x], &[Some(&w)], autograd::GraphMode::Free)[0]
        .clone()
        .expect("a gradient")
}

#[test]
fn moments_and_norms() {
    let x = x();
    assert_close(&x.var_dim(&[], 1, false), &[2.8650568181818183]);
    assert_close(&x.var_dim(&[1], 0, false), &[1.35546875, 3.625, 2.59375]);
    assert_close(
        &x.std_dim(&[0], 1, false),
        &[0.6614378277661477, 2.1262251370288454, 2.5, 1.5275252316519468],
    );
    assert_close(&x.std_dim(&[0], 3, false), &[INF; 4]);
    assert_close(&Tensor::ones([1], F64).std_dim(&[], 1, false), &[NAN]);
    assert_close(&Tensor::zeros([2, 0], F64).var_dim(&[1], 1, false), &[NAN, NAN]);
    assert_close(
        &x.norm_dim(3, &[1], false),
        &[2.160030649427922, 3.37665670834691, 3.052322874366985],
    );
    assert_close(
        &x.norm_dim(0.5, &[0], false),
        &[5.913902460147013, 13.809475019311126, 14.848469228349536, 5.82842712474619],
    );
    assert_close(&x.norm_dim(-INF, &[], false), &[0.0]);
    assert_close(&x.norm_dim(0, &[1], false), &[3.0, 4.0, 4.0]);
    assert_close(&Tensor::zeros([2, 0], F64).norm_dim(2, &[1], false), &[0.0, 0.0]);
    assert_close(&gradient(&Tensor::zeros([2, 3], F64), |x| x.std_dim(&[1], 1, false)), &[0.0; 6]);
    assert_close(&gradient(&Tensor::zeros([3], F64), |x| x.norm()), &[0.0; 3]);
}

#[test]
fn infinities_and_nan() {
    let e = Tensor::from([[INF, 0.0], [-INF, -INF], [NAN, 1.0], [-INF, 2.0]]);
    assert_close(
        &x().logsumexp(&[1], false),
        &[2.3344986126036624, 3.231163696255373, 1.819552041102219],
    );
    assert_close(&e.logsumexp(&[1], false), &[INF, -INF, NAN, 2.0]);
    assert_close(&e.softmax(1), &[NAN, NAN, NAN, NAN, NAN, NAN, 0.0, 1.0]);
    assert_close(&e.t().softmax(0).t(), &[NAN, NAN, NAN, NAN, NAN, NAN, 0.0, 1.0]);
    assert_close(&e.log_softmax(1), &[NAN, NAN, NAN, NAN, NAN, NAN, -INF, 0.0]);
    assert_close(
        &e.t().contiguous().log_softmax(0).t(),
        &[NAN, NAN, NAN, NAN, NAN, NAN, -INF, 0.0],
    );
    assert_close(&e.amax(&[1], false), &[INF, -INF, NAN, 2.0]);
    assert_eq!(e.argmax_dim(1, false).to_vec::<i64>(), [0, 0, 0, 1]);
    assert_close(&e.amin(&[0], false), &[NAN, -INF]);
    assert_eq!(e.argmin_dim(0, false).to_vec::<i64>(), [2, 1]);
    let s = Tensor::from([3.0f32, f32::NAN, -0.0, 0.0, f32::NEG_INFINITY, f32::INFINITY, 1.0]);
    for s in [s.clone(), s.to_dtype(F64), s.to_dtype(F16)] {
        assert_eq!(s.argsort(0, false).to_vec::<i64>(), [4, 2, 3, 6, 0, 5, 1]);
        assert_eq!(s.sort(0, true).1.to_vec::<i64>(), [1, 5, 0, 6, 2, 3, 4]);
        assert_eq!(s.topk(3, 0, true).1.to_vec::<i64>(), [1, 5, 0]);
        assert_close(&s.topk(3, 0, false).0, &[-INF, -0.0, 0.0]);
    }
    assert_eq!(
        Tensor::from([[0.6, 0.0, 0.0], [0.0, 0.4, NAN]]).nonzero().to_vec::<i64>(),
        [0, 0, 1, 1, 1, 2]
    );
}

#[test]
fn equal_extremes_share_the_gradient_and_selected_ones_do_not() {
    let t = Tensor::from([[1f64, 3., 3.], [2., 2., 2.]]);
    let third = 2.0 / 3.0;
    assert_close(&gradient(&t, |x| x.amax(&[1], false)), &[0.0, 0.5, 0.5, third, third, third]);
    assert_close(&gradient(&t, |x| x.max()), &[0.0, 0.5, 0.5, 0.0, 0.0, 0.0]);
    assert_close(&gradient(&t, |x| x.max_dim(1, false).0), &[0.0, 1.0, 0.0, 2.0, 0.0, 0.0]);
    let norm = |x: &Tensor| x.norm_dim(INF, &[1], false);
    assert_close(&gradient(&t, norm), &[0.0, 0.5, 0.5, third, third, third]);
}

#[test]
fn products_with_zeros() {
    let z = Tensor::from([[1.5f64, 0., -2.], [0., 3., 0.], [2., -1., 4.]]);
    let want = [0.0, -3.0, 0.0, 0.0, 0.0, 0.0, -12.0, 24.0, -6.0];
    assert_close(&gradient(&z, |x| x.prod_dim(1, false)), &want);
    let want = [1.0, -6.0, 0.0, 19.0, 0.0, 0.0, -37.0, 88.0, -18.0];
    assert_close(&gradient(&z, |x| x.cumprod(1)), &want);
    assert_close(&Tensor::zeros([2, 0], F64).prod_dim(1, false), &[1.0, 1.0]);
}

#[test]
fn cross_entropy_with_weights_smoothing_and_ignored_rows() {
    let weight = Some(Tensor::from([0.5f64, 2., 1., 0.25]));
    let target = Tensor::from([2i64, -100, 1]);
    let loss = |reduction, label_smoothing| {
        let options = CrossEntropyOptions {
            weight: weight.clone(),
            reduction,
            label_smoothing,
            ..Default::default()
        };
        let target = target.clone();
        move |x: &Tensor| x.cross_entropy_with(&target, options.clone())
    };
    let hard = [
        0.15969355003210825,
        0.02775057793268041,
        -0.28430316221761565,
        0.09685903425282705,
        0.0,
        0.0,
        0.0,
        0.0,
        0.4162767978492688,
        -1.3136755888869731,
        0.016140803075331275,
        0.8812579879623731,
    ];
    let smooth = [
        0.11919929596900622,
        -0.12276974540355734,
        -0.0727224779260353,
        0.07629292736058654,
        0.0,
        0.0,
        0.0,
        0.0,
        0.3124326831920416,
        -0.9730585419081116,
        -0.06143163741479964,
        0.7220574961308699,
    ];
    for (smoothing, each, mean, sum, grad) in [
        (
            0.0,
            [0.33449861260366254, 0.0, 2.139104082204438],
            0.8245342316027001,
            2.4736026948081005,
            hard,
        ),
        (
            0.3,
            [0.9094767636173436, 0.0, 2.0934968691031055],
            1.0009912109068164,
            3.0029736327204493,
            smooth,
        ),
    ] {
        assert_close(&loss(Reduction::None, smoothing)(&x()), &each);
        assert_close(&loss(Reduction::Mean, smoothing)(&x()), &[mean]);
        assert_close(&loss(Reduction::Sum, smoothing)(&x()), &[sum]);
        assert_close(&gradient(&x(), loss(Reduction::Sum, smoothing)), &grad);
        // The weights of the two targets that count are 1 and 2.
        let thirds: Vec<f64> = grad.iter().map(|g| g / 3.0).collect();
        assert_close(&gradient(&x(), loss(Reduction::Mean, smoothing)), &thirds);
        let by_row: Vec<f64> = (0..12).map(|i| grad[i] * [1.0, 2.0, 3.0][i / 4]).collect();
        assert_close(&gradient(&x(), loss(Reduction::None, smoothing)), &by_row);
    }
    let nll = NLLLossOptions { weight: weight.clone(), ..Default::default() };
    assert_close(&x().log_softmax(1).nll_loss_with(&target, nll.clone()), &[0.8245342316027001]);
    let options = CrossEntropyOptions { weight, label_smoothing: 0.2, ..Default::default() };
    let probabilities = x().softmax(1).flip(&[0]);
    assert_close(&x().cross_entropy_with(&probabilities, options.clone()), &[2.303690429536394]);
    let images = x().reshape([1, 3, 4]);
    assert_close(&images.cross_entropy(&Tensor::from([[0i64, 2, 1, 2]])), &[1.7001416244404381]);
    assert_close(&Tensor::zeros([0, 3], F32).cross_entropy(&Tensor::zeros([0], I64)), &[NAN]);
    assert_close(&Tensor::zeros([1, 3], F32).cross_entropy(&Tensor::from([-100i64])), &[NAN]);
}

#[test]
fn indexing_by_tensors() {
    let q = Tensor::arange(0i64, 12i64, 1i64, F32).view([3, 4]);
    let (i, j) = (Tensor::from([0i64, -1]), Tensor::from([1i64, 2]));
    q.index_put_(&[Some(&i), Some(&j)], &Tensor::from([-5f32, -6.]), false);
    assert_close(&q, &[0.0, -5.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, -6.0, 11.0]);
    let x = Tensor::range(24).view([2, 3, 4]);
    let apart =
        x.index(&[Some(&Tensor::from([0i64, 1, 1])), None, Some(&Tensor::from([3i64, 0, 2]))]);
    assert_eq!(apart.shape(), &[3, 3]);
    assert_eq!(apart.to_vec::<i64>(), [3, 7, 11, 12, 16, 20, 14, 18, 22]);
    let together = x.index(&[None, Some(&Tensor::from([[0i64, 2]])), Some(&Tensor::from([1i64]))]);
    assert_eq!(together.shape(), &[2, 1, 2]);
    assert_eq!(together.to_vec::<i64>(), [1, 9, 13, 21]);
    let index = Tensor::from([[0i64, 1, 2, 0, 0], [2, 0, 0, 1, 2]]);
    let source = Tensor::arange(1i64, 11i64, 1i64, F32).view([2, 5]);
    assert_close(
        &Tensor::zeros([3, 5], F32).scatter(0, &index, &source),
        &[1.0, 7.0, 8.0, 4.0, 5.0, 0.0, 2.0, 0.0, 9.0, 0.0, 6.0, 0.0, 3.0, 0.0, 10.0],
    );
    let t = Tensor::from([[10i64, 30, 20], [60, 40, 50]]);
    assert_eq!(t.take_along_dim(&Tensor::from([[0i64], [2]]), 1).to_vec::<i64>(), [10, 50]);
}

#[test]
fn rearrangements() {
    let x = Tensor::range(8).view([4, 2]);
    assert_eq!(x.roll(&[2, 1], &[0, 1]).to_vec::<i64>(), [5, 4, 7, 6, 1, 0, 3, 2]);
    let twice = Tensor::from([1i64, 2, 3]).repeat(&[4, 2]);
    assert_eq!(twice.shape(), &[4, 6]);
    assert_eq!(twice.i(3).to_vec::<i64>(), [1, 2, 3, 1, 2, 3]);
    let pairs = Tensor::from([[1i64, 2], [3, 4]]).repeat_interleave(2, 1);
    assert_eq!(pairs.to_vec::<i64>(), [1, 1, 2, 2, 3, 3, 4, 4]);
    let lower = Tensor::ones([3, 4], I64).tril(1);
    assert_eq!(lower.to_vec::<i64>(), [1, 1, 0, 0, 1, 1, 1, 0, 1, 1, 1, 1]);
    assert_eq!(Tensor::cat(&[Tensor::from([1u8]), Tensor::from([2i8])], 0).dtype(), Dtype::I16);
}

#[test]
fn types_of_results() {
    for (dtype, sum, extreme, truth) in [
        (F16, F16, F16, Bool),
        (BF16, BF16, BF16, Bool),
        (F32, F32, F32, Bool),
        (I64, I64, I64, Bool),
        (I32, I64, I32, Bool),
        (U8, I64, U8, U8),
        (Bool, I64, Bool, Bool),
    ] {
        let a = Tensor::from([1i64, 0, 1]).to_dtype(dtype);
        assert_eq!([a.sum(), a.prod(), a.cumsum(0)].map(|t| t.dtype()), [sum; 3], "{dtype}");
        assert_eq!([a.amax(&[], false), a.min_dim(0, false).0].map(|t| t.dtype()), [extreme; 2]);
        assert_eq!([a.any(), a.all()].map(|t| t.dtype()), [truth; 2], "{dtype}");
        assert_eq!(a.argmax().dtype(), I64);
        let float = if dtype.is_floating_point() { dtype } else { F32 };
        assert_eq!(a.logsumexp(&[], false).dtype(), float);
        if !dtype.is_floating_point() {
            for refused in [catch(|| a.mean()), catch(|| a.norm()), catch(|| a.softmax(0))] {
                let message = refused.unwrap_err().to_string();
                assert!(message.contains(dtype.name()), "{message}");
            }
        }
    }
    // Added up in f32 and rounded once.
    let b = Tensor::full([1000], 1.01, BF16);
    assert_eq!((b.sum().item(), b.mean().item()), (1008.0, 1.0078125));
    let h = Tensor::ones([70_000], F16);
    assert_eq!((h.sum().item(), h.mean().item()), (INF, 1.0));
}

#[test]
fn misuse_is_named() {
    let message = |f: &dyn Fn() -> Tensor| catch(f).unwrap_err().to_string();
    let expect = |f: &dyn Fn() -> Tensor, words: &[&str]| {
        let text = message(f);
        assert!(words.iter().all(|w| text.contains(w)), "{text}");
    };
    let scores = Tensor::zeros([2, 3], F32);
    expect(
        &|| scores.cross_entropy(&Tensor::from([0i64, 3])),
        &["target", "class 3 at position 1", "3 classes"],
    );
    expect(&|| scores.cross_entropy(&Tensor::from([0i32, 1])), &["i32", "i64"]);
    expect(&|| scores.cross_entropy(&Tensor::from([0i64])), &["[2, 3]", "[1]"]);
    expect(&|| Tensor::zeros([2, 3], I64).cross_entropy(&Tensor::from([0i64, 1])), &["i64"]);
    expect(&|| Tensor::zeros([0], F32).max(), &["max", "[0]", "no elements"]);
    expect(&|| Tensor::zeros([2, 0], F32).argmin_dim(1, false), &["argmin", "dimension 1"]);
    expect(&|| scores.sum_dim(&[2], false), &["sum", "2 is out of range"]);
    expect(&|| scores.sum_dim(&[1, -1], false), &["sum", "twice"]);
    expect(&|| scores.sum_to_size(&[2, 2]), &["[2, 2]", "[2, 3]"]);
    expect(&|| scores.index_select(1, &Tensor::from([3i64])), &["3 at position 0", "size of 3"]);
    expect(&|| scores.gather(0, &Tensor::from([[0i64; 4]])), &["gather", "[1, 4]", "[2, 3]"]);
    expect(&|| Tensor::cat(&[&scores, &Tensor::zeros([2], F32)], 0), &["cat", "[2]", "[2, 3]"]);
    expect(&|| scores.topk(4, 1, true).0, &["topk", "4 elements of a dimension of 3"]);
    expect(&|| scores.masked_select(&scores), &["mask", "f32"]);
    expect(&|| scores.index(&[Some(&Tensor::from([5i64]))]), &["5 is out of range", "[2, 3]"]);
    expect(&|| scores.dropout(1.5, true), &["1.5", "between 0 and 1"]);
}

fn small() -> Tensor {
    Tensor::from([[1f64, 2., 3.], [4., 5., 6.]])
}

#[test]
fn numbers_stand_for_tensors() {
    let index = Tensor::from([[0i64, 0], [2, 1]]);
    let scattered = |how| small().scatter_reduce(1, &index, 3.0, how, true);
    assert_close(&scattered(ScatterReduce::Prod), &[9.0, 2.0, 3.0, 4.0, 15.0, 18.0]);
    assert_close(&scattered(ScatterReduce::Sum), &[7.0, 2.0, 3.0, 4.0, 8.0, 9.0]);
    let added =
        small().index_add_scaled(0, &Tensor::from([1i64, 1]), &Tensor::ones([2, 3], F64), -2);
    assert_close(&added, &[1.0, 2.0, 3.0, 0.0, 1.0, 2.0]);
    // And the other way round: a tensor for a number, which gets the gradient of all.
    let value = Tensor::full([], 2.0, F64).requires_grad_(true);
    let filled = small().requires_grad_(true) * 1.0;
    filled.fill_(&value).sum().backward();
    assert_eq!(value.grad().unwrap().item(), 6.0);
    assert!(catch(|| small().fill_(&small()).numel()).unwrap_err().to_string().contains("[2, 3]"));
    let x = small();
    x.set_i((.., 1), 7);
    assert_close(&x, &[1.0, 7.0, 3.0, 4.0, 7.0, 6.0]);
}

#[test]
fn a_dimension_may_be_missing() {
    let places = Tensor::from([[5i64, 0], [1, 2]]);
    assert_close(&small().take_along_dim(&places, None), &[6.0, 1.0, 2.0, 3.0]);
    let q = small().quantile(&Tensor::from([0.25f64, 0.5]));
    assert_eq!((q.shape(), q.to_vec::<f64>()), (&[2][..], vec![2.25, 3.5]));
    let q = small().ravel().quantile_dim(0.3, 0, true, Interpolation::Nearest);
    assert_eq!((q.shape(), q.item()), (&[1][..], 3.0));
    assert_eq!(Tensor::range(3).repeat_interleave(2, None).to_vec::<i64>(), [0, 0, 1, 1, 2, 2]);
    let each = Tensor::from([[1i64, 2], [3, 4]])
        .repeat_interleave_each(&Tensor::from([1i64, 0, 2, 1]), None);
    assert_eq!(each.to_vec::<i64>(), [1, 3, 3, 4]);
    let one_hot = Tensor::from([0i64, 2]).one_hot(None);
    assert_eq!(one_hot.to_vec::<i64>(), [1, 0, 0, 0, 0, 1]);
    assert_close(&Tensor::from([2f64, 3.]).vander(None), &[1.0, 2.0, 1.0, 3.0]);
    let (a, b) = (Tensor::from([[1f64, 0., 0.]]), Tensor::from([[0f64, 1., 0.]]));
    assert_close(&a.cross(&b, None), &[0.0, 0.0, 1.0]);
    assert!(catch(|| Tensor::range(2).cross(&Tensor::range(2), None)).is_err());
}

#[test]
fn pieces_by_tensors_and_places_by_lists() {
    let pieces = |by: Tensor| -> Vec<usize> {
        Tensor::range(7).tensor_split_by(&by, 0).iter().map(Tensor::numel).collect()
    };
    assert_eq!(pieces(Tensor::scalar(3i64)), [3, 2, 2]);
    assert_eq!(pieces(Tensor::from([2i64, -1])), [2, 4, 1]);
    assert!(catch(|| pieces(Tensor::scalar(0i64))).is_err());
    let lists = Tensor::from([[0i64, 3], [5, 0]]).nonzero_lists();
    assert_eq!([lists[0].to_vec::<i64>(), lists[1].to_vec::<i64>()], [[0, 1], [1, 0]]);
    assert_eq!(Tensor::scalar(4i64).nonzero_lists()[0].to_vec::<i64>(), [0]);
    assert_eq!(Tensor::range(5).narrow(0, -2, 2).to_vec::<i64>(), [3, 4]);
    assert!(catch(|| Tensor::range(5).narrow(0, -2, 3)).is_err());
    assert_eq!(small().reversed_dims().to_vec::<f64>(), small().t().to_vec::<f64>());
    let expanded = Tensor::range(3).unsqueeze(1).expand_sizes(&[2, -1, 2]);
    assert_eq!(expanded.to_vec::<i64>(), [0, 0, 1, 1, 2, 2, 0, 0, 1, 1, 2, 2]);
    assert!(catch(|| Tensor::range(3).expand_sizes(&[-1, 3])).is_err());
}

#[test]
fn sorted_sequences_are_searched_by_an_order_too() {
    let (x, order) = (Tensor::from([5f64, 1., 3.]), Tensor::from([1i64, 2, 0]));
    let options = SearchOptions { sorter: Some(&order), out_int32: true, right: true };
    let places = x.searchsorted(&Tensor::from([3f64, 0., 9.]), options);
    assert_eq!((places.dtype(), places.to_vec::<i32>()), (I32, vec![2, 0, 3]));
    assert_eq!(Tensor::from([1i64, 3]).searchsorted(3, false).item_i64(), 1);
    let other = Tensor::from([0i64]);
    let short = SearchOptions { sorter: Some(&other), ..Default::default() };
    assert!(catch(|| x.searchsorted(1.0, short)).is_err());
}

#[test]
fn unpooling_takes_sizes_that_were_pooled() {
    let options = Pool1dOptions::new([2]);
    let (y, places) = Tensor::from([[[1f64, 3., 2., 5., 4.]]]).max_pool1d_with_indices(options);
    assert_close(&y.max_unpool_of(&places, options, None), &[0.0, 3.0, 0.0, 5.0]);
    let five = y.max_unpool_of(&places, options, Some([5]));
    assert_close(&five, &[0.0, 3.0, 0.0, 5.0, 0.0]);
    for size in [6, 2] {
        let error = catch(|| y.max_unpool_of(&places, options, Some([size]))).unwrap_err();
        assert!(error.to_string().contains("output_size"), "{error}");
    }
}

#[test]
fn in_place_forms() {
    let x = Tensor::from([4i64, 6, 0]);
    x.lcm_(&Tensor::from([6i64, 4, 3]));
    assert_eq!(x.to_vec::<i64>(), [12, 12, 0]);
    let x = Tensor::from([0.25f64, 0.9, 1.5]);
    x.logit_(Some(0.2));
    assert_close(&x, &[-1.0986122886681098, 1.3862943611198908, 1.3862943611198908]);
    assert!(catch(|| Tensor::from([1i64]).logit_(None).numel()).is_err());
}

#[test]
fn named_dimensions_of_more_than_64_are_refused() {
    let x = Tensor::ones([1; 65], F64);
    assert_eq!(x.sum().item(), 1.0);
    let error = catch(|| x.sum_dim(&[-1], false)).unwrap_err();
    assert!(error.to_string().contains("64 dimensions"), "{error}");
}

/// What an op does with its operand's memory, also where it changes nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Memory {
    View,
    Copy,
}

#[test]
fn results_are_views_or_copies_as_in_pytorch() {
    use Memory::*;
    type Op = fn(&Tensor) -> Tensor;
    // Each is called so that its result has all of the operand's elements as they are.
    let table: Vec<(&str, Memory, Op)> = vec![
        ("view", View, |x| x.view([3, 2])),
        ("reshape", View, |x| x.reshape([6])),
        ("flatten", View, |x| x.flatten(0, -1)),
        ("ravel", View, |x| x.ravel()),
        ("contiguous", View, |x| x.contiguous()),
        ("to_dtype", View, |x| x.to_dtype(F32)),
        ("to_device", View, |x| x.to_device(x.device())),
        ("transpose", View, |x| x.transpose(0, 1)),
        ("permute", View, |x| x.permute(&[1, 0])),
        ("movedim", View, |x| x.movedim(0, 1)),
        ("unsqueeze", View, |x| x.unsqueeze(0)),
        ("squeeze", View, |x| x.squeeze()),
        ("expand", View, |x| x.expand(&[2, 3])),
        ("broadcast_to", View, |x| x.broadcast_to(&[2, 3])),
        ("narrow", View, |x| x.narrow(0, 0, 2)),
        ("split", View, |x| x.split(2, 0).remove(0)),
        ("chunk", View, |x| x.chunk(1, 0).remove(0)),
        ("unfold", View, |x| x.unfold(0, 2, 1)),
        ("detach", View, |x| x.detach()),
        ("positive", View, |x| x.positive()),
        ("dropout in evaluation", View, |x| torchrs::nn::functional::dropout(x, 0.5, false)),
        ("clone_contiguous", Copy, |x| x.clone_contiguous()),
        ("einsum", View, |x| Tensor::einsum("ij->ji", &[x])),
        ("einsum, a sum of size 1", Copy, |x| Tensor::einsum("kij->ij", &[&x.unsqueeze(0)])),
        ("sum_to_size of the same shape", Copy, |x| x.sum_to_size(&[2, 3])),
        ("sum_to_size, a leading 1", Copy, |x| x.unsqueeze(0).sum_to_size(&[2, 3])),
        ("matrix_power 1", Copy, |x| x.narrow(1, 0, 2).matrix_power(1)),
        ("sum of size 1", Copy, |x| x.unsqueeze(0).sum_dim(&[0], false)),
        ("mean of size 1", Copy, |x| x.unsqueeze(0).mean_dim(&[0], false)),
        ("amax of size 1", Copy, |x| x.unsqueeze(0).amax(&[0], false)),
        ("cumsum of size 1", Copy, |x| x.unsqueeze(0).cumsum(0)),
        ("cat of one", Copy, |x| Tensor::cat(&[x], 0)),
        ("stack of one", Copy, |x| Tensor::stack(&[x], 0)),
        ("roll by nothing", Copy, |x| x.roll(&[0], &[0])),
        ("flip of nothing", Copy, |x| x.flip(&[])),
        ("repeat once", Copy, |x| x.repeat(&[1, 1])),
        ("tile once", Copy, |x| x.tile(&[1])),
        ("repeat_interleave once", Copy, |x| x.repeat_interleave(1, 0)),
        ("pad by nothing", Copy, |x| x.constant_pad_nd(&[0, 0], 0.0)),
        ("tril of all", Copy, |x| x.tril(9)),
        ("triu of all", Copy, |x| x.triu(-9)),
        ("index_select of all", Copy, |x| x.index_select(0, &Tensor::from([0i64, 1]))),
        ("gather of all", Copy, |x| x.gather(1, &Tensor::from([[0i64, 1, 2], [0, 1, 2]]))),
        ("masked_fill of none", Copy, |x| x.masked_fill(&x.lt(-9.0), 0.0)),
        ("where of all", Copy, |x| x.gt(-9.0).where_(x, 0.0)),
        ("clamp", Copy, |x| x.clamp(-9.0, 9.0)),
        ("add 0", Copy, |x| x + 0.0),
        ("mul 1", Copy, |x| x * 1.0),
        ("pow 1", Copy, |x| x.pow(1.0)),
        ("nan_to_num", Copy, |x| x.nan_to_num(0.0, None, None)),
        ("round", Copy, |x| x.round()),
        ("abs", Copy, |x| x.abs()),
        ("diagonal_scatter", Copy, |x| x.diagonal_scatter(&x.diagonal(0, 0, 1), 0, 0, 1)),
        ("relu", Copy, |x| x.relu()),
        ("softmax", Copy, |x| x.softmax(0)),
        ("sort", Copy, |x| x.sort(0, false).0),
    ];
    let x = Tensor::from([[1f32, 2., 3.], [4., 5., 6.]]);
    for (name, want, op) in &table {
        let shared = op(&x).storage().ptr_eq(x.storage());
        assert_eq!(if shared { View } else { Copy }, *want, "{name}");
    }
    // Rounding, and what has no parts to leave out, copies integers as well.
    let n = Tensor::from([[1i64, 2], [3, 4]]);
    let of_integers: [(&str, Op); 5] = [
        ("floor", |x| x.floor()),
        ("ceil", |x| x.ceil()),
        ("round", |x| x.round()),
        ("trunc", |x| x.trunc()),
        ("nan_to_num", |x| x.nan_to_num(0.0, None, None)),
    ];
    for (name, op) in of_integers {
        assert!(!op(&n).storage().ptr_eq(n.storage()), "{name} of integers");
    }
}

#[test]
fn ranges_count_large_integers_and_refuse_what_is_not_finite() {
    let large = (1i64 << 60) + 1;
    let range = Tensor::arange(large, large + 3, 2, torchrs::Dtype::I64);
    assert_eq!(range.to_vec::<i64>(), [large, large + 2]);
    for (start, end) in [(0.0, f64::NAN), (f64::NAN, 1.0), (0.0, f64::INFINITY)] {
        assert!(catch(|| Tensor::arange(start, end, 1.0, F32)).is_err(), "{start} to {end}");
    }
}
