//! Models of images: numbers, initial values, modes.

use torchrs::models::*;
use torchrs::nn::{Forward, Module, init};
use torchrs::{Dtype, Dtype::F32, Dtype::F64, Error, Tensor, catch, no_grad};

use super::formula::{fill, noise, recorded, same_as_recorded};

#[track_caller]
fn check<M: Forward>(name: &str, dtypes: &[Dtype], make: impl Fn() -> M) {
    let case = recorded(name);
    let shape: Vec<usize> = serde_json::from_value(case["input"].clone()).expect("a shape");
    for &dtype in dtypes {
        let model = fill(init::skip_init(&make), dtype);
        model.set_training(case["train"].as_bool().expect("a mode"));
        let x = noise("input", &shape, dtype).requires_grad_(true);
        let output = model.forward(&x);
        same_as_recorded(&format!("{name} in {dtype}"), &model, &output, &[("input", &x)], &case);
    }
}

fn resnet(block: ResNetBlock, layers: [usize; 4]) -> ResNetOptions {
    ResNetOptions { num_classes: 10, ..ResNetOptions::new(block, layers) }
}

#[test]
fn alexnet_computes_as_the_original() {
    check("alexnet", &[F32], || AlexNet::new(AlexNetOptions { num_classes: 10, dropout: 0.0 }));
}

#[test]
fn vgg_computes_as_the_original() {
    let small = |options: VGGOptions, hidden| {
        VGG::new(VGGOptions { hidden, num_classes: 10, dropout: 0.0, ..options })
    };
    check("vgg19", &[F32], || small(VGGOptions::new([2, 2, 4, 4, 4]), 32));
    let tiny = |batch_norm| {
        let stages = vec![vec![4], vec![8], vec![8, 8], vec![16, 16], vec![16, 16]];
        small(VGGOptions { stages, batch_norm, ..VGGOptions::new([0; 5]) }, 16)
    };
    check("vgg_tiny", &[F64, F32], || tiny(false));
    check("vgg_tiny_bn", &[F64, F32], || tiny(true));
}

#[test]
fn resnet_computes_as_the_original() {
    check("resnet18", &[F64, F32], || resnet18(10));
    check("resnext_dilated", &[F64, F32], || {
        ResNet::new(ResNetOptions {
            groups: 8,
            width_per_group: 4,
            replace_stride_with_dilation: [false, true, true],
            ..resnet(ResNetBlock::Bottleneck, [1, 2, 2, 1])
        })
    });
}

#[test]
fn resnet50_computes_as_the_original() {
    check("resnet50", &[F32], || resnet50(10));
}

#[test]
fn mobilenet_computes_as_the_original() {
    check("mobilenet_v2", &[F64, F32], || {
        MobileNetV2::new(MobileNetV2Options { num_classes: 10, dropout: 0.0, ..Default::default() })
    });
    check("mobilenet_v2_tiny", &[F64, F32], || {
        MobileNetV2::new(MobileNetV2Options {
            num_classes: 10,
            width_mult: 0.35,
            inverted_residual_setting: vec![
                [1, 16, 1, 1],
                [6, 24, 2, 2],
                [4, 40, 2, 2],
                [6, 40, 1, 1],
            ],
            round_nearest: 4,
            dropout: 0.0,
        })
    });
}

fn deviation(x: &Tensor) -> f64 {
    x.std_dim(&[], 0, false).item()
}

#[test]
fn initial_values_are_the_originals() {
    torchrs::fork_rng(|| {
        torchrs::manual_seed(0);
        let near = |x: f64, want: f64| assert!((x / want - 1.0).abs() < 0.1, "{x}, not {want}");

        let options = resnet(ResNetBlock::Bottleneck, [1, 1, 1, 1]);
        let net = ResNet::new(ResNetOptions { zero_init_residual: true, ..options });
        let state = net.state_dict();
        // sqrt(2 / (out_channels * kernel area))
        near(deviation(&state["conv1.weight"]), (2.0f64 / (64.0 * 49.0)).sqrt());
        near(deviation(&state["layer4.0.conv2.weight"]), (2.0f64 / (512.0 * 9.0)).sqrt());
        near(deviation(&state["layer2.0.downsample.0.weight"]), (2.0f64 / 512.0).sqrt());
        // Uniform within 1 / sqrt(in_features).
        near(deviation(&state["fc.weight"]), (1.0f64 / 2048.0 / 3.0).sqrt());
        for (name, p) in
            state.iter().filter(|(name, _)| name.contains("bn") && name.ends_with("weight"))
        {
            let want = if name.ends_with("bn3.weight") { 0.0 } else { 1.0 };
            assert!(p.eq(want).all().item() == 1.0, "{name}");
        }

        let stages = vec![vec![16], vec![16]];
        let net = VGG::new(VGGOptions { stages, hidden: 64, ..VGGOptions::new([0; 5]) });
        let state = net.state_dict();
        near(deviation(&state["features.3.weight"]), (2.0f64 / (16.0 * 9.0)).sqrt());
        near(deviation(&state["classifier.3.weight"]), 0.01);
        assert_eq!(
            deviation(&state["features.3.bias"]) + deviation(&state["classifier.3.bias"]),
            0.0
        );

        let net = MobileNetV2::new(MobileNetV2Options { width_mult: 0.5, ..Default::default() });
        let state = net.state_dict();
        near(deviation(&state["classifier.1.weight"]), 0.01);
        // A filter for each channel alone: the fan is counted over all of them, as PyTorch does.
        near(deviation(&state["features.2.conv.1.0.weight"]), (2.0f64 / (48.0 * 9.0)).sqrt());
        assert_eq!(state["classifier.1.bias"].abs().sum().item(), 0.0);
    })
}

#[test]
fn dropout_acts_in_training_only() {
    torchrs::fork_rng(|| {
        torchrs::manual_seed(0);
        let options = VGGOptions { stages: vec![vec![4]], hidden: 64, ..VGGOptions::new([0; 5]) };
        let net = fill(VGG::new(VGGOptions { num_classes: 3, dropout: 0.5, ..options }), F32);
        let x = noise("input", &[1, 3, 16, 16], F32);
        let twice = || no_grad(|| (net.forward(&x), net.forward(&x)));
        let (a, b) = twice();
        assert!(!a.equal(&b));
        net.eval();
        let (a, b) = twice();
        assert!(a.equal(&b));
    })
}

#[test]
fn impossible_options_are_refused() {
    let options = resnet(ResNetBlock::Basic, [1, 1, 1, 1]);
    let error = catch(|| ResNet::new(ResNetOptions { groups: 2, ..options }).is_training());
    assert!(matches!(error, Err(Error::Argument { argument, .. }) if argument == "block"));
    let none = MobileNetV2Options { inverted_residual_setting: vec![], ..Default::default() };
    let error = catch(|| MobileNetV2::new(none).is_training()).unwrap_err().to_string();
    assert!(error.contains("inverted_residual_setting"), "{error}");
    let error = catch(|| InvertedResidual::new(8, 8, 3, 1).is_training()).unwrap_err().to_string();
    assert!(error.contains("stride"), "{error}");
}
