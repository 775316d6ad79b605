//! What modules compute and how they behave in training, against PyTorch's numbers and names.

use super::{assert_close, statistics};
use torchrs::nn::functional as F;
use torchrs::nn::init;
use torchrs::nn::utils::{fuse_conv_bn_eval, fuse_linear_bn_eval};
use torchrs::nn::*;
use torchrs::ops::{
    Conv2dOptions, ConvTransposeOptions, CrossEntropyOptions, PadMode, Pool2dOptions, UnfoldOptions,
};
use torchrs::{Dtype, Dtype::F32, Tensor, catch};

#[test]
fn extra_keys_cost_no_random_numbers_when_there_are_none() {
    torchrs::fork_rng(|| {
        let draws = |add_bias_kv| {
            torchrs::manual_seed(1);
            let options = MultiheadAttentionOptions { add_bias_kv, ..Default::default() };
            let attention = MultiheadAttention::new(4, 2, options);
            (attention.out_proj.weight.to_vec::<f32>(), Tensor::rand([1], F32).item())
        };
        let (plain, with_extra) = (draws(false), draws(true));
        // What PyTorch's order of construction makes of it: the extra ones are the last.
        assert_ne!(plain.1, with_extra.1);
        torchrs::manual_seed(1);
        let linear = Linear::new(4, 4);
        let projection = Tensor::empty([12, 4], F32);
        init::xavier_uniform_(&projection, 1.0);
        assert_eq!(plain, (linear.weight.to_vec::<f32>(), Tensor::rand([1], F32).item()));
    })
}

#[test]
fn same_padding_is_for_stride_1_and_gives_way_to_other_padding() {
    for build in [
        || Conv2d::new(1, 1, 3).stride(2).same_padding().padding_mode(PadMode::Reflect),
        || Conv2d::new(1, 1, 3).padding_mode(PadMode::Reflect).same_padding().stride(2),
    ] {
        let error = catch(|| build().repr()).unwrap_err().to_string();
        assert!(error.contains("Conv2d") && error.contains("[2, 2]"), "{error}");
    }
    let x = Tensor::ones([1, 1, 6, 6], F32);
    assert_eq!(Conv2d::new(1, 1, 3).same_padding().forward(&x).shape(), &[1, 1, 6, 6]);
    assert_eq!(Conv2d::new(1, 1, 3).same_padding().padding(0).forward(&x).shape(), &[1, 1, 4, 4]);
}

#[test]
fn dropout_of_channels_drops_whole_ones() {
    torchrs::fork_rng(|| {
        torchrs::manual_seed(8);
        let x = Tensor::ones([40, 50, 2, 3], F32);
        let planes: Vec<(Box<dyn Forward>, Tensor)> = vec![
            (Box::new(Dropout1d::new(0.3)), x.flatten(2, 3)),
            (Box::new(Dropout2d::new(0.3)), x.clone()),
            (Box::new(Dropout3d::new(0.3)), x.unsqueeze(4)),
            (Box::new(FeatureAlphaDropout::new(0.3)), x.clone()),
        ];
        for (module, x) in planes {
            let y = module.forward(&x).reshape([2000, 6]).to_vec::<f32>();
            assert!(
                y.chunks(6).all(|plane| plane.iter().all(|v| *v == plane[0])),
                "{}",
                module.repr()
            );
            let lowest = y.iter().copied().fold(f32::INFINITY, f32::min);
            let dropped = y.chunks(6).filter(|plane| plane[0] == lowest).count();
            assert!((500..700).contains(&dropped), "{} {dropped}", module.repr());
            module.eval();
            assert!(module.forward(&x).equal(&x));
        }
        // Mean 0 and variance 1 stay.
        let y = AlphaDropout::new(0.4).forward(&Tensor::randn([20_000], F32));
        let [_, _, mean, std] = statistics(&y);
        assert!(mean.abs() < 0.05 && (std - 1.0).abs() < 0.05, "{mean} {std}");
        let slopes = RReLU::new(0.25, 0.5);
        let y = slopes.forward(&-Tensor::ones([10_000], F32));
        let [min, max, mean, _] = statistics(&y);
        assert!(min > -0.5 && max < -0.25 && (mean + 0.375).abs() < 0.01, "{min} {max} {mean}");
        slopes.eval();
        assert_eq!(slopes.forward(&-Tensor::ones([1], F32)).item(), -0.375);
    })
}

#[test]
fn gumbel_softmax_draws_by_the_logits() {
    torchrs::fork_rng(|| {
        torchrs::manual_seed(9);
        let logits = Tensor::from([0.1f64, 0.3, 0.6]).log().expand(&[6000, 3]).contiguous();
        let logits = logits.requires_grad_(true);
        let hard = F::gumbel_softmax(&logits, 1.0, true, -1);
        assert!(hard.max_dim(1, false).0.to_vec::<f64>().iter().all(|v| (v - 1.0).abs() < 1e-12));
        assert_close(&hard.mean_dim(&[0], false), &[0.1, 0.3, 0.6], 0.02);
        hard.select(1, 0).sum().backward();
        assert!(logits.grad().unwrap().abs().sum().item() > 0.0);
        assert_close(
            &F::gumbel_softmax(&logits, 0.5, false, 1).sum_dim(&[1], false),
            &[1.0; 6000],
            1e-9,
        );
    })
}

#[test]
fn rows_that_are_too_long_are_shortened_when_they_are_looked_up() {
    let rows = Tensor::from([[3f64, 4.], [0.3, 0.4], [6., 8.]]);
    let table = Embedding::from_pretrained(rows.clone_contiguous(), false).max_norm(1.0, 2.0);
    let got = table.forward(&Tensor::from([0i64, 1, 0]));
    // PyTorch divides by the norm plus 1e-7.
    let (a, b) = (3.0 / (5.0 + 1e-7), 4.0 / (5.0 + 1e-7));
    assert_close(&got, &[a, b, 0.3, 0.4, a, b], 1e-12);
    assert_close(&table.weight, &[a, b, 0.3, 0.4, 6.0, 8.0], 1e-12);
    got.sum().backward();
    assert_close(&table.weight.grad().unwrap(), &[2., 2., 1., 1., 0., 0.], 0.0);
    assert!(!EmbeddingBag::from_pretrained(rows, true).weight.requires_grad());
}

#[test]
fn reverses_give_back_what_they_can() {
    let x = Tensor::arange(0.0, 32.0, 1.0, F32).reshape([1, 2, 4, 4]);
    let windows = UnfoldOptions { stride: [2, 2], ..UnfoldOptions::new([2, 2]) };
    assert!(Fold::new(4, windows).forward(&Unfold::new(windows).forward(&x)).equal(&x));
    let back = PixelShuffle::new(2).forward(&PixelUnshuffle::new(2).forward(&x));
    assert!(back.equal(&x));
    let x = x.reshape([1, 4, 8, 1]);
    let mixed = ChannelShuffle::new(2).forward(&x);
    assert!(mixed.select(1, 1).equal(&x.select(1, 2)));
    let x = Tensor::from([[[[1f32, 2.], [4., 3.]]]]);
    let (most, at) = MaxPool2d::new(2).forward_with_indices(&x);
    let unpooled = MaxUnpool2d::new(2).forward(&most, &at, None);
    assert_eq!(unpooled.to_vec::<f32>(), [0., 0., 4., 0.]);
    assert_eq!(MaxUnpool2d::new(2).forward(&most, &at, Some([3, 2])).shape(), &[1, 1, 3, 2]);
}

#[test]
fn an_adaptive_softmax_is_a_distribution() {
    torchrs::fork_rng(|| {
        torchrs::manual_seed(10);
        let options = AdaptiveLogSoftmaxOptions { head_bias: true, ..Default::default() };
        let mut softmax = AdaptiveLogSoftmaxWithLoss::new(16, 12, &[3, 7], options);
        softmax.double();
        let x = Tensor::randn([5, 16], Dtype::F64);
        let all = softmax.log_prob(&x);
        assert_close(&all.exp().sum_dim(&[1], false), &[1.0; 5], 1e-12);
        let classes = [2i64, 3, 11, 6, 7];
        let (own, loss) = softmax.forward(&x, &Tensor::from(classes));
        let want = all.gather(1, &Tensor::from(classes).unsqueeze(1)).to_vec::<f64>();
        assert_close(&own, &want, 1e-12);
        assert_close(&loss, &[-want.iter().sum::<f64>() / 5.0], 1e-12);
        let (one, _) = softmax.forward(&x.select(0, 2), &Tensor::full([], 11.0, Dtype::I64));
        assert_close(&one, &want[2..3], 1e-12);
        assert!(softmax.predict(&x).equal(&all.argmax_dim(1, false)));
        let names: Vec<String> = softmax.named_parameters().into_iter().map(|(n, _)| n).collect();
        let want =
            ["head.weight", "head.bias", "tail.0.0.weight", "tail.0.1.weight", "tail.1.0.weight"];
        assert_eq!(names[..5], want);
        assert_eq!(softmax.tail[1].get(0).unwrap().parameters()[0].shape(), &[1, 16]);
        let error = catch(|| softmax.forward(&x, &Tensor::from([0i64, 1, 2, 3, 12]))).unwrap_err();
        assert!(error.to_string().contains("12"), "{error}");
    })
}

#[test]
fn a_triplet_loss_takes_any_distance() {
    let points = [[0f64, 0.], [1., 1.], [0., 3.]].map(|p| Tensor::from([p]));
    let [a, p, n] = &points;
    let usual = TripletMarginWithDistanceLoss::new(Default::default());
    let want = TripletMarginLoss::new().forward(a, p, n);
    assert_close(&usual.forward(a, p, n), &[want.item()], 1e-12);
    let streets = usual.distance(|a, b| (a - b).abs().sum_dim(&[-1], false));
    // 2 - 3 + 1
    assert_eq!(streets.forward(a, p, n).item(), 0.0);
}

#[test]
fn a_batch_norm_is_fused_into_the_layer_before_it() {
    torchrs::fork_rng(|| {
        torchrs::manual_seed(12);
        fn trained<N: Module>(mut norm: N) -> N {
            norm.double();
            for (_, t) in norm.state_dict().iter().filter(|(_, t)| t.dtype() == Dtype::F64) {
                t.uniform_(0.5, 2.0);
            }
            norm.eval();
            norm
        }
        fn check<L: Forward>(
            mut layer: L,
            norm: &impl Forward,
            fuse: impl Fn(&L) -> L,
            x: &Tensor,
        ) {
            layer.double();
            let want = norm.forward(&layer.forward(x));
            let got = fuse(&layer).forward(x);
            assert!((got - want).abs().max().item() < 1e-12, "{}", layer.repr());
        }
        let x = Tensor::randn([3, 4, 5, 6], Dtype::F64);
        let norm = trained(BatchNorm2d::new(6));
        check(Conv2d::new(4, 6, 3).groups(2), &norm, |l| fuse_conv_bn_eval(l, &norm), &x);
        check(Conv2d::new(4, 6, 3).no_bias(), &norm, |l| fuse_conv_bn_eval(l, &norm), &x);
        let options = ConvTransposeOptions { groups: 2, ..Default::default() };
        let transposed = ConvTranspose2d::new(4, 6, 3, options);
        check(transposed, &norm, |l| fuse_conv_bn_eval(l, &norm), &x);
        let norm = trained(BatchNorm1d::new(2));
        check(
            Linear::new(6, 2),
            &norm,
            |l| fuse_linear_bn_eval(l, &norm),
            &x.select(0, 0).select(0, 1),
        );
        norm.train();
        let error = catch(|| fuse_linear_bn_eval(&Linear::new(6, 2), &norm).repr()).unwrap_err();
        assert!(error.to_string().contains("eval"), "{error}");
    })
}

#[test]
fn packed_sequences_go_round() {
    let sequences = [3usize, 5, 1].map(|n| Tensor::randn([n, 2], F32));
    let packed = pack_sequence(&sequences, false);
    assert_eq!(packed.batch_sizes, [3, 2, 2, 1, 1]);
    for (a, b) in unpack_sequence(&packed).iter().zip(&sequences) {
        assert!(a.equal(b));
    }
    let padded =
        pad_sequence(&sequences, PadSequenceOptions { batch_first: true, ..Default::default() });
    assert!(unpad_sequence(&padded, &[3, 5, 1], true)[1].equal(&sequences[1]));
    assert!(catch(|| unpad_sequence(&padded, &[3], true).len()).is_err());
}

#[test]
fn state_dicts_have_pytorchs_keys_and_order() {
    let net = Sequential::new()
        .append(Conv2d::new(1, 2, 3))
        .append(BatchNorm2d::new(2))
        .append(ReLU)
        .append(Linear::no_bias(2, 2))
        .append(LayerNorm::new(2))
        .append(Embedding::new(3, 2));
    assert_eq!(
        net.state_dict().keys().collect::<Vec<_>>(),
        [
            "0.weight",
            "0.bias",
            "1.weight",
            "1.bias",
            "1.running_mean",
            "1.running_var",
            "1.num_batches_tracked",
            "3.weight",
            "4.weight",
            "4.bias",
            "5.weight",
        ]
    );
    let loss = CrossEntropyLoss::with_options(CrossEntropyOptions {
        weight: Some(Tensor::ones([3], F32)),
        ..Default::default()
    });
    assert_eq!(loss.state_dict().keys().collect::<Vec<_>>(), ["weight"]);
}

#[test]
fn modules_compute_what_their_functions_do() {
    torchrs::fork_rng(|| {
        torchrs::manual_seed(4);
        let x = Tensor::randn([2, 4, 6, 5], F32);
        let conv = Conv2d::new(4, 6, 3).stride((2, 1)).padding(1).groups(2);
        let options =
            Conv2dOptions { stride: [2, 1], padding: [1, 1], groups: 2, ..Default::default() };
        let want = F::conv2d(&x, &conv.weight, conv.bias.as_deref(), options);
        assert_eq!(conv.forward(&x).to_vec::<f32>(), want.to_vec::<f32>());
        assert_eq!(conv.options(), &options);
        let pool =
            Pool2dOptions { stride: Some([1, 1]), padding: [1, 1], ..Pool2dOptions::new([3, 3]) };
        let pairs: Vec<(Box<dyn Forward>, Tensor)> = vec![
            (Box::new(MaxPool2d::new(3).stride(1).padding(1)), F::max_pool2d(&x, pool)),
            (Box::new(AvgPool2d::new(3).stride(1).padding(1)), F::avg_pool2d(&x, pool)),
            (
                Box::new(AdaptiveAvgPool2d::new((2, 1))),
                F::adaptive_avg_pool2d(&x, [Some(2), Some(1)]),
            ),
            (Box::new(Flatten::new()), x.flatten(1, -1)),
            (Box::new(Flatten::dims(0, 1)), x.flatten(0, 1)),
            (Box::new(ReLU), F::relu(&x)),
            (Box::new(SiLU), F::silu(&x)),
            (Box::new(Tanh), F::tanh(&x)),
            (Box::new(Sigmoid), F::sigmoid(&x)),
            (Box::new(GELU::new()), F::gelu(&x)),
            (Box::new(GELU::tanh()), F::gelu_tanh(&x)),
            (Box::new(LeakyReLU::new(0.2)), F::leaky_relu(&x, 0.2)),
            (Box::new(ELU::new(0.5)), F::elu(&x, 0.5)),
            (Box::new(Softmax::new(1)), F::softmax(&x, 1)),
            (Box::new(LogSoftmax::new(-1)), F::log_softmax(&x, -1)),
            (Box::new(LayerNorm::new([6, 5])), F::layer_norm(&x, &[6, 5], None, None, 1e-5)),
            (Box::new(RMSNorm::new(5).eps(0.1)), F::rms_norm(&x, &[5], None, Some(0.1))),
            (Box::new(Identity), x.clone()),
        ];
        for (module, want) in pairs {
            let got = module.forward(&x);
            assert_eq!(got.shape(), want.shape(), "{}", module.repr());
            assert_eq!(got.to_vec::<f32>(), want.to_vec::<f32>(), "{}", module.repr());
        }
        let table = Embedding::new(5, 2).padding_idx(1);
        let rows = table.forward(&Tensor::from([[1i64, 4]]));
        assert_eq!(rows.select(1, 1).to_vec::<f32>(), table.weight.select(0, 4).to_vec::<f32>());
        rows.sum().backward();
        assert_eq!(table.weight.grad().unwrap().select(0, 1).to_vec::<f32>(), [0.0, 0.0]);
    })
}

#[test]
fn batch_norm_counts_tracks_and_switches() {
    let x = Tensor::from([[1f64, 2.], [3., 5.], [5., 11.]]);
    let mut norm = BatchNorm1d::new(2);
    norm.to(Dtype::F64);
    let y = norm.forward(&x);
    let want = [-1.22474257, -1.06904476, 0.0, -0.26726119, 1.22474257, 1.33630595];
    assert_close(&y, &want, 1e-7);
    assert_close(norm.running_mean.as_ref().unwrap(), &[0.3, 0.6], 1e-12);
    assert_close(norm.running_var.as_ref().unwrap(), &[1.3, 3.0], 1e-12);
    norm.forward(&(&x * 2.0));
    assert_eq!(norm.num_batches_tracked.as_ref().unwrap().item(), 2.0);
    norm.eval();
    let evaluated = norm.forward(&x);
    let (mean, var) = (&norm.running_mean, &norm.running_var);
    let mean = mean.as_ref().unwrap().to_vec::<f64>();
    let var = var.as_ref().unwrap().to_vec::<f64>();
    assert!((mean[0] - 0.87).abs() < 1e-12 && (var[0] - 2.77).abs() < 1e-12, "{mean:?} {var:?}");
    assert_close(
        &evaluated.select(0, 0),
        &[(1.0 - mean[0]) / (var[0] + 1e-5).sqrt(), (2.0 - mean[1]) / (var[1] + 1e-5).sqrt()],
        1e-12,
    );
    assert_eq!(norm.num_batches_tracked.as_ref().unwrap().item(), 2.0);

    let mut cumulative = BatchNorm1d::new(2).momentum(None);
    cumulative.to(Dtype::F64);
    cumulative.forward(&x);
    cumulative.forward(&(&x * 2.0));
    assert_close(cumulative.running_mean.as_ref().unwrap(), &[4.5, 9.0], 1e-12);
    cumulative.reset_running_stats();
    assert_eq!(cumulative.running_var.as_ref().unwrap().to_vec::<f64>(), [1.0, 1.0]);

    let mut untracked = BatchNorm1d::new(2).track_running_stats(false).affine(false);
    untracked.to(Dtype::F64);
    untracked.eval();
    assert_close(&untracked.forward(&x), &want, 1e-7);
    let error = catch(|| BatchNorm2d::new(2).forward(&x)).unwrap_err().to_string();
    assert!(error.contains("BatchNorm2d") && error.contains("[N, C, H, W]"), "{error}");
}

#[test]
fn dropout_drops_in_training_only() {
    torchrs::fork_rng(|| {
        torchrs::manual_seed(5);
        let dropout = Dropout::new(0.25);
        let x = Tensor::ones([10_000], F32);
        let y = dropout.forward(&x).to_vec::<f32>();
        let dropped = y.iter().filter(|v| **v == 0.0).count();
        assert!((2200..2800).contains(&dropped), "{dropped}");
        assert!(y.iter().all(|v| *v == 0.0 || (v - 1.0 / 0.75).abs() < 1e-6));
        dropout.eval();
        assert_eq!(dropout.forward(&x).to_vec::<f32>(), x.to_vec::<f32>());
        assert!(catch(|| Dropout::new(1.5).p()).unwrap_err().to_string().contains("1.5"));
    })
}
