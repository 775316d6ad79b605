//! Modules' texts are PyTorch's.

use torchrs::nn::*;
use torchrs::ops::{
    BagMode, ConvTransposeOptions, InterpolateMode, InterpolateOptions, PadMode, Pool1dOptions,
    Pool2dOptions, UnfoldOptions,
};

#[test]
fn modules_print_as_in_pytorch() {
    let cases: Vec<(Box<dyn Module>, &str)> = vec![
        (Box::new(Linear::new(2, 3)), "Linear(in_features=2, out_features=3, bias=True)"),
        (Box::new(Linear::no_bias(2, 3)), "Linear(in_features=2, out_features=3, bias=False)"),
        (Box::new(Conv2d::new(1, 4, 3)), "Conv2d(1, 4, kernel_size=(3, 3), stride=(1, 1))"),
        (
            Box::new(
                Conv2d::new(4, 8, (3, 5)).stride(2).padding(1).dilation(2).groups(2).no_bias(),
            ),
            "Conv2d(4, 8, kernel_size=(3, 5), stride=(2, 2), padding=(1, 1), dilation=(2, 2), \
             groups=2, bias=False)",
        ),
        (
            Box::new(Conv1d::new(4, 8, 3).padding(1)),
            "Conv1d(4, 8, kernel_size=(3,), stride=(1,), padding=(1,))",
        ),
        (
            Box::new(BatchNorm2d::new(3)),
            "BatchNorm2d(3, eps=1e-05, momentum=0.1, affine=True, bias=True, \
             track_running_stats=True)",
        ),
        (
            Box::new(BatchNorm1d::new(3).momentum(None).affine(false).track_running_stats(false)),
            "BatchNorm1d(3, eps=1e-05, momentum=None, affine=False, bias=False, \
             track_running_stats=False)",
        ),
        (
            Box::new(LayerNorm::new(5)),
            "LayerNorm((5,), eps=1e-05, elementwise_affine=True, bias=True)",
        ),
        (
            Box::new(LayerNorm::new([2, 5]).no_affine().eps(0.1)),
            "LayerNorm((2, 5), eps=0.1, elementwise_affine=False, bias=False)",
        ),
        (Box::new(RMSNorm::new(5)), "RMSNorm((5,), eps=None, elementwise_affine=True)"),
        (Box::new(Embedding::new(6, 3)), "Embedding(6, 3)"),
        (Box::new(Embedding::new(6, 3).padding_idx(-4)), "Embedding(6, 3, padding_idx=2)"),
        (Box::new(Dropout::new(0.5)), "Dropout(p=0.5, inplace=False)"),
        (Box::new(ReLU), "ReLU()"),
        (Box::new(LeakyReLU::new(0.01)), "LeakyReLU(negative_slope=0.01)"),
        (Box::new(ELU::new(1.0)), "ELU(alpha=1.0)"),
        (Box::new(CELU::new(0.5)), "CELU(alpha=0.5)"),
        (Box::new(Softplus::new(1.0, 20.0)), "Softplus(beta=1.0, threshold=20.0)"),
        (Box::new(Threshold::new(0.1, 20.0)), "Threshold(threshold=0.1, value=20.0)"),
        (Box::new(Hardtanh::new(-1.0, 1.0)), "Hardtanh(min_val=-1.0, max_val=1.0)"),
        (Box::new(Hardshrink::new(0.5)), "Hardshrink(0.5)"),
        (Box::new(Softshrink::new(0.5)), "Softshrink(0.5)"),
        (Box::new(GELU::new()), "GELU(approximate='none')"),
        (Box::new(GELU::tanh()), "GELU(approximate='tanh')"),
        (Box::new(Softmax::new(-1)), "Softmax(dim=-1)"),
        (Box::new(LogSoftmax::new(1)), "LogSoftmax(dim=1)"),
        (Box::new(Flatten::new()), "Flatten(start_dim=1, end_dim=-1)"),
        (
            Box::new(MaxPool2d::new((3, 2)).stride(2).padding(1)),
            "MaxPool2d(kernel_size=(3, 2), stride=2, padding=1, dilation=1, ceil_mode=False)",
        ),
        (Box::new(AvgPool2d::new(2)), "AvgPool2d(kernel_size=2, stride=2, padding=0)"),
        (Box::new(AdaptiveAvgPool2d::new(1)), "AdaptiveAvgPool2d(output_size=1)"),
        (Box::new(AdaptiveAvgPool2d::new([1, 2])), "AdaptiveAvgPool2d(output_size=(1, 2))"),
        (Box::new(CrossEntropyLoss::new()), "CrossEntropyLoss()"),
        (Box::new(HuberLoss::new()), "HuberLoss()"),
        (Box::new(Identity), "Identity()"),
    ];
    for (module, text) in cases {
        assert_eq!(module.repr(), text);
    }
}

#[test]
fn settings_that_differ_from_the_defaults_print_as_in_pytorch() {
    let transposed = ConvTransposeOptions {
        stride: [2, 2],
        padding: [1, 1],
        output_padding: [1, 1],
        groups: 2,
        dilation: [2, 2],
    };
    let windows =
        UnfoldOptions { kernel_size: [2, 3], dilation: [1, 1], padding: [2, 2], stride: [2, 1] };
    let all = RNNOptions {
        num_layers: 2,
        bias: false,
        batch_first: true,
        dropout: 0.25,
        bidirectional: true,
        proj_size: 1,
    };
    let bilinear = InterpolateOptions::size([3, 4], InterpolateMode::Bilinear);
    let powers = Pool2dOptions { stride: Some([2, 1]), ..Pool2dOptions::new([3, 3]) };
    let cases: Vec<(Box<dyn Module>, &str)> = vec![
        (
            Box::new(Conv2d::new(4, 8, 3).same_padding().padding_mode(PadMode::Reflect)),
            "Conv2d(4, 8, kernel_size=(3, 3), stride=(1, 1), padding=same, padding_mode=reflect)",
        ),
        (
            Box::new(Conv1d::new(4, 8, 3).padding(1).padding_mode(PadMode::Circular)),
            "Conv1d(4, 8, kernel_size=(3,), stride=(1,), padding=(1,), padding_mode=circular)",
        ),
        (
            Box::new(ConvTranspose2d::new(2, 4, 3, transposed).no_bias()),
            "ConvTranspose2d(2, 4, kernel_size=(3, 3), stride=(2, 2), padding=(1, 1), \
             dilation=(2, 2), output_padding=(1, 1), groups=2, bias=False)",
        ),
        (
            Box::new(ConvTranspose1d::new(2, 4, 3, Default::default())),
            "ConvTranspose1d(2, 4, kernel_size=(3,), stride=(1,))",
        ),
        (
            Box::new(Upsample::new(InterpolateOptions::scale(2.0, InterpolateMode::Nearest))),
            "Upsample(scale_factor=2.0, mode='nearest')",
        ),
        (Box::new(Upsample::new(bilinear)), "Upsample(size=(3, 4), mode='bilinear')"),
        (Box::new(PixelShuffle::new(3)), "PixelShuffle(upscale_factor=3)"),
        (Box::new(PixelUnshuffle::new(3)), "PixelUnshuffle(downscale_factor=3)"),
        (Box::new(ChannelShuffle::new(2)), "ChannelShuffle(groups=2)"),
        (
            Box::new(Unfold::new(windows)),
            "Unfold(kernel_size=(2, 3), dilation=1, padding=2, stride=(2, 1))",
        ),
        (
            Box::new(Fold::new((4, 5), UnfoldOptions::new([2, 2]))),
            "Fold(output_size=(4, 5), kernel_size=2, dilation=1, padding=0, stride=1)",
        ),
        (Box::new(Unflatten::new(1, [2, 3])), "Unflatten(dim=1, unflattened_size=(2, 3))"),
        (
            Box::new(LocalResponseNorm::new(2, 1e-4, 0.75, 1.0)),
            "LocalResponseNorm(2, alpha=0.0001, beta=0.75, k=1.0)",
        ),
        (
            Box::new(GroupNorm::new(2, 4).no_bias()),
            "GroupNorm(2, 4, eps=1e-05, affine=True, bias=False)",
        ),
        (
            Box::new(Bilinear::new(2, 3, 4)),
            "Bilinear(in1_features=2, in2_features=3, out_features=4, bias=True)",
        ),
        (
            Box::new(LPPool2d::new(1.5, powers)),
            "LPPool2d(norm_type=1.5, kernel_size=3, stride=(2, 1), ceil_mode=False)",
        ),
        (
            Box::new(LPPool1d::new(1.5, Pool1dOptions::new([3]))),
            "LPPool1d(norm_type=1.5, kernel_size=3, stride=None, ceil_mode=False)",
        ),
        (Box::new(ConstantPad1d::new(2, 3.5)), "ConstantPad1d(padding=(2, 2), value=3.5)"),
        (Box::new(ZeroPad2d::new([1, 2, 3, 4])), "ZeroPad2d((1, 2, 3, 4))"),
        (
            Box::new(AvgPool1d::new(3).stride(2).padding(1)),
            "AvgPool1d(kernel_size=(3,), stride=(2,), padding=(1,))",
        ),
        (
            Box::new(MaxUnpool2d::new(2)),
            "MaxUnpool2d(kernel_size=(2, 2), stride=(2, 2), padding=(0, 0))",
        ),
        (Box::new(RNNCell::new(2, 3)), "RNNCell(2, 3)"),
        (
            Box::new(RNNCell::new(2, 3).no_bias().nonlinearity(RNNNonlinearity::Relu)),
            "RNNCell(2, 3, bias=False, nonlinearity=relu)",
        ),
        (Box::new(LSTMCell::new(2, 3).no_bias()), "LSTMCell(2, 3, bias=False)"),
        (
            Box::new(LSTM::new(2, 3, all)),
            "LSTM(2, 3, proj_size=1, num_layers=2, bias=False, batch_first=True, dropout=0.25, \
             bidirectional=True)",
        ),
        (Box::new(Dropout2d::new(0.2)), "Dropout2d(p=0.2, inplace=False)"),
        (Box::new(FeatureAlphaDropout::new(0.5)), "FeatureAlphaDropout(p=0.5, inplace=False)"),
        (Box::new(RReLU::new(0.1, 0.3)), "RReLU(lower=0.1, upper=0.3)"),
        (Box::new(EmbeddingBag::new(5, 3)), "EmbeddingBag(5, 3, mode='mean')"),
        (
            Box::new(EmbeddingBag::new(5, 3).mode(BagMode::Sum).padding_idx(1).max_norm(2.0, 2.0)),
            "EmbeddingBag(5, 3, max_norm=2.0, mode='sum', padding_idx=1)",
        ),
    ];
    for (module, text) in cases {
        assert_eq!(module.repr(), text);
    }
}

#[test]
fn a_transformer_layer_prints_its_parts_in_pytorchs_order() {
    let options = TransformerOptions { dim_feedforward: 8, ..Default::default() };
    let layer = TransformerDecoderLayer::new(4, 2, options);
    let names: Vec<String> = layer.named_children().into_iter().map(|(name, _)| name).collect();
    let parts = "self_attn multihead_attn linear1 dropout linear2 norm1 norm2 norm3 dropout1 dropout2 \
                 dropout3";
    assert_eq!(names.join(" "), parts);
    let names = TransformerEncoderLayer::new(4, 2, options).repr();
    assert!(names.contains("  (dropout2): Dropout(p=0.1, inplace=False)\n)"), "{names}");
}
