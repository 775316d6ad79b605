//! Modules of one tensor, a row each: the module, its input's shape, and shapes of inputs.

use std::path::Path;

use torchrs::nn::utils::parametrizations::weight_norm;
use torchrs::nn::*;
use torchrs::ops::{
    ConvTransposeOptions, InterpolateMode as Mode, InterpolateOptions, PadMode, PoolOptions,
    UnfoldOptions,
};
use torchrs::{Dtype, Result};

use super::one;

type Row = (Box<dyn Forward>, &'static str, [&'static [usize]; 2]);

fn row(module: impl Forward + 'static, shape: &'static str, shapes: [&'static [usize]; 2]) -> Row {
    (Box::new(module), shape, shapes)
}

/// Of rows of any length.
fn rows(module: impl Forward + 'static) -> Row {
    row(module, "batch length", [&[3, 17], &[1, 5]])
}

fn line(module: impl Forward + 'static) -> Row {
    row(module, "batch 6 length", [&[3, 6, 17], &[1, 6, 12]])
}

fn image(module: impl Forward + 'static) -> Row {
    row(module, "batch 6 height width", [&[3, 6, 17, 12], &[1, 6, 11, 19]])
}

fn volume(module: impl Forward + 'static) -> Row {
    row(module, "batch 6 depth height width", [&[2, 6, 7, 9, 6], &[1, 6, 6, 5, 8]])
}

/// Where the size must be known.
fn fixed_line(module: impl Forward + 'static) -> Row {
    row(module, "batch 6 15", [&[3, 6, 15], &[1, 6, 15]])
}

fn fixed_image(module: impl Forward + 'static) -> Row {
    row(module, "batch 6 15 9", [&[3, 6, 15, 9], &[1, 6, 15, 9]])
}

fn fixed_volume(module: impl Forward + 'static) -> Row {
    row(module, "batch 6 6 9 4", [&[3, 6, 6, 9, 4], &[1, 6, 6, 9, 4]])
}

pub fn write(folder: &Path) -> Result<()> {
    let all = [activations(), convolutions(), norms(), pools(), paddings(), sizes(), others()];
    for (number, (module, shape, shapes)) in all.into_iter().flatten().enumerate() {
        let name = format!("{number:03}-{}", module.name());
        one(folder, &name, &module, Dtype::F32, shape, &shapes)?;
    }
    let table = Sequential::new().append(Embedding::new(50, 8)).append(Linear::no_bias(8, 3));
    one(folder, "table", &table, Dtype::I64, "batch length", &[&[3, 11], &[1, 2]])
}

fn activations() -> Vec<Row> {
    vec![
        rows(CELU::new(0.7)),
        rows(ELU::new(0.7)),
        rows(GELU::new()),
        rows(GELU::tanh()),
        rows(GLU::new(0)).shapes("6 length", [&[6, 7], &[6, 1]]),
        image(GLU::new(1)),
        rows(Hardshrink::new(0.4)),
        rows(Hardsigmoid),
        rows(Hardswish),
        rows(Hardtanh::new(-0.5, 0.8)),
        rows(LeakyReLU::new(0.1)),
        rows(LogSigmoid),
        rows(LogSoftmax::new(-1)),
        image(LogSoftmax::new(1)),
        rows(Mish),
        rows(PReLU::new(1, 0.3)),
        image(PReLU::new(6, 0.3)),
        rows(RReLU::new(0.1, 0.4)),
        rows(ReLU),
        rows(ReLU6),
        rows(SELU),
        rows(SiLU),
        rows(Sigmoid),
        rows(Softmax::new(0)),
        image(Softmax2d),
        rows(Softmin::new(1)),
        rows(Softplus::new(1.0, 20.0)),
        rows(Softplus::new(3.0, 0.5)),
        rows(Softshrink::new(0.4)),
        rows(Softsign),
        rows(Tanh),
        rows(Tanhshrink),
        rows(Threshold::new(0.2, -7.0)),
        rows(Dropout::new(0.5)),
        line(Dropout1d::new(0.5)),
        image(Dropout2d::new(0.5)),
        volume(Dropout3d::new(0.5)),
        rows(AlphaDropout::new(0.5)),
        line(FeatureAlphaDropout::new(0.5)),
        rows(Identity),
    ]
}

fn convolutions() -> Vec<Row> {
    let turned = ConvTransposeOptions::<2> {
        stride: [3, 2],
        padding: [2, 1],
        output_padding: [1, 0],
        dilation: [1, 2],
        groups: 2,
    };
    let lines = ConvTransposeOptions::<1> { stride: [2], padding: [1], ..Default::default() };
    vec![
        line(Conv1d::new(6, 4, 3).padding(2).stride(2)),
        image(Conv2d::new(6, 4, (3, 2)).dilation((1, 2)).padding((2, 1)).groups(2)),
        volume(Conv3d::new(6, 4, 3).padding(1)),
        image(Conv2d::new(6, 4, (3, 4)).same_padding()),
        image(Conv2d::new(6, 4, (3, 5)).padding((1, 2)).padding_mode(PadMode::Reflect)),
        image(Conv2d::new(6, 4, (4, 5)).same_padding().padding_mode(PadMode::Replicate)),
        line(Conv1d::new(6, 4, 5).padding(2).padding_mode(PadMode::Circular)),
        line(ConvTranspose1d::new(6, 4, 4, lines)),
        image(ConvTranspose2d::new(6, 4, (4, 3), turned)),
        image(ConvTranspose2d::new(6, 4, 3, Default::default()).no_bias()),
        volume(ConvTranspose3d::new(6, 4, [1, 2, 3], Default::default())),
        row(Linear::new(6, 4), "batch length 6", [&[3, 7, 6], &[1, 2, 6]]),
        row(weight_norm(Linear::new(6, 4), "weight", 0), "batch 6", [&[3, 6], &[1, 6]]),
        row(LazyLinear::new(4), "batch 6", [&[3, 6], &[1, 6]]),
    ]
}

fn norms() -> Vec<Row> {
    vec![
        rows(BatchNorm1d::new(6)).shapes("batch 6", [&[4, 6], &[1, 6]]),
        line(BatchNorm1d::new(6).affine(false)),
        image(BatchNorm2d::new(6)),
        volume(BatchNorm3d::new(6)),
        // One behind the other: constants that nobody holds.
        image(
            Sequential::new()
                .append(BatchNorm2d::new(6).affine(false))
                .append(Conv2d::new(6, 5, 1))
                .append(BatchNorm2d::new(5).affine(false)),
        ),
        line(InstanceNorm1d::new(6).affine(true)),
        image(InstanceNorm2d::new(6)),
        volume(InstanceNorm3d::new(6)),
        image(InstanceNorm2d::new(6).affine(true).track_running_stats(true)),
        line(GroupNorm::new(3, 6)),
        image(GroupNorm::new(2, 6).no_affine()),
        volume(GroupNorm::new(6, 6).no_bias()),
        row(GroupNorm::new(2, 6), "batch 6", [&[3, 6], &[1, 6]]),
        fixed_image(LayerNorm::new([15, 9])),
        fixed_line(LayerNorm::new(15).no_affine()),
        fixed_line(LayerNorm::new(15).no_bias()),
        fixed_line(RMSNorm::new(15)),
        fixed_image(RMSNorm::new([15, 9]).eps(0.1).no_affine()),
        line(LocalResponseNorm::new(3, 0.5, 0.75, 1.0)),
        image(LocalResponseNorm::new(4, 0.5, 0.75, 2.0)),
        volume(LocalResponseNorm::new(5, 1.0, 0.5, 1.0)),
    ]
}

/// Windows with all options.
fn windows<const D: usize>(kernel: [usize; D]) -> PoolOptions<D> {
    PoolOptions {
        stride: Some([2; D]),
        padding: [1; D],
        ceil_mode: true,
        ..PoolOptions::new(kernel)
    }
}

fn pools() -> Vec<Row> {
    let dilated = PoolOptions { dilation: [2, 1], ..windows([3, 2]) };
    let inside = PoolOptions { count_include_pad: false, ..windows([3, 3]) };
    let divided = PoolOptions { divisor_override: Some(5), ceil_mode: false, ..windows([3, 2]) };
    let steps = PoolOptions { stride: Some([2, 1]), ..PoolOptions::new([3, 2]) };
    vec![
        line(MaxPool1d::with_options(windows([3]))),
        image(MaxPool2d::with_options(dilated)),
        volume(MaxPool3d::with_options(windows([3, 2, 2]))),
        line(AvgPool1d::with_options(windows([3]))),
        image(AvgPool2d::with_options(windows([3, 2]))),
        image(AvgPool2d::with_options(inside)),
        image(AvgPool2d::with_options(divided)),
        volume(AvgPool3d::with_options(PoolOptions { ceil_mode: false, ..windows([3, 2, 2]) })),
        line(AdaptiveAvgPool1d::new(1)),
        fixed_line(AdaptiveAvgPool1d::new(5)),
        image(AdaptiveAvgPool2d::new(1)),
        fixed_image(AdaptiveAvgPool2d::new((5, 3))),
        fixed_image(AdaptiveAvgPool2d::with_sizes([None, Some(3)])),
        fixed_volume(AdaptiveAvgPool3d::new([3, 3, 2])),
        line(AdaptiveMaxPool1d::new(1)),
        fixed_image(AdaptiveMaxPool2d::new((5, 3))),
        fixed_volume(AdaptiveMaxPool3d::new([3, 3, 2])),
        line(LPPool1d::new(2.0, PoolOptions::new([3]))),
        image(LPPool2d::new(2.0, steps)),
        volume(LPPool3d::new(4.0, PoolOptions::new([2, 1, 3]))),
    ]
}

fn paddings() -> Vec<Row> {
    vec![
        line(ZeroPad1d::new([1, 2])),
        image(ZeroPad2d::new([1, -2, 0, 3])),
        volume(ZeroPad3d::new([1, 2, 0, 1, 3, 0])),
        line(ConstantPad1d::new([-1, 2], 7.0)),
        image(ConstantPad2d::new([1, 2, 3, 4], -0.5)),
        volume(ConstantPad3d::new(1, 0.5)),
        line(ReflectionPad1d::new([3, 5])),
        image(ReflectionPad2d::new([1, 2, 3, 4])),
        volume(ReflectionPad3d::new([1, 2, 3, 4, 0, 2])),
        line(ReplicationPad1d::new([3, 5])),
        image(ReplicationPad2d::new([1, 2, 3, 4])),
        volume(ReplicationPad3d::new([1, 2, 3, 4, 0, 2])),
        line(CircularPad1d::new([3, 5])),
        image(CircularPad2d::new([1, 2, 3, 4])),
        volume(CircularPad3d::new([1, 2, 3, 4, 0, 2])),
    ]
}

fn sizes() -> Vec<Row> {
    let by = |factor: &[f64], mode| Upsample::new(InterpolateOptions::scale(factor.to_vec(), mode));
    let to = |size: &[usize], mode| Upsample::new(InterpolateOptions::size(size.to_vec(), mode));
    let corners = |size: &[usize], mode| {
        let options = InterpolateOptions::size(size.to_vec(), mode);
        Upsample::new(InterpolateOptions { align_corners: Some(true), ..options })
    };
    let again = |factor: &[f64], mode| {
        let options = InterpolateOptions::scale(factor.to_vec(), mode);
        Upsample::new(InterpolateOptions { recompute_scale_factor: true, ..options })
    };
    let smooth = |size: &[usize], mode| {
        let options = InterpolateOptions::size(size.to_vec(), mode);
        Upsample::new(InterpolateOptions { antialias: true, ..options })
    };
    vec![
        line(by(&[2.0], Mode::Nearest)),
        image(by(&[2.0, 3.0], Mode::Nearest)),
        image(by(&[1.7, 0.6], Mode::Nearest)),
        volume(by(&[2.0, 1.0, 3.0], Mode::Nearest)),
        fixed_line(to(&[22], Mode::Nearest)),
        fixed_image(to(&[35, 7], Mode::Nearest)),
        fixed_volume(to(&[9, 7, 11], Mode::Nearest)),
        image(by(&[1.7, 0.6], Mode::NearestExact)),
        fixed_image(to(&[35, 7], Mode::NearestExact)),
        fixed_image(to(&[45, 3], Mode::NearestExact)),
        line(by(&[1.7], Mode::Linear)),
        fixed_line(to(&[22], Mode::Linear)),
        fixed_line(corners(&[22], Mode::Linear)),
        image(by(&[1.7, 0.6], Mode::Bilinear)),
        fixed_image(to(&[35, 7], Mode::Bilinear)),
        fixed_image(to(&[1, 1], Mode::Bilinear)),
        fixed_image(corners(&[35, 7], Mode::Bilinear)),
        fixed_image(corners(&[1, 4], Mode::Bilinear)),
        fixed_image(again(&[1.7, 0.6], Mode::Bilinear)),
        image(by(&[1.7, 0.6], Mode::Bicubic)),
        fixed_image(to(&[35, 7], Mode::Bicubic)),
        fixed_image(corners(&[35, 7], Mode::Bicubic)),
        volume(by(&[1.7, 0.6, 2.0], Mode::Trilinear)),
        fixed_volume(to(&[9, 7, 11], Mode::Trilinear)),
        fixed_volume(corners(&[9, 7, 11], Mode::Trilinear)),
        fixed_image(to(&[5, 3], Mode::Area)),
        fixed_image(smooth(&[7, 4], Mode::Bilinear)),
        fixed_image(smooth(&[20, 4], Mode::Bilinear)),
        fixed_image(smooth(&[7, 4], Mode::Bicubic)),
        row(PixelShuffle::new(2), "batch 8 height width", [&[3, 8, 5, 7], &[1, 8, 2, 3]]),
        row(PixelUnshuffle::new(3), "batch 2 height width", [&[3, 2, 9, 6], &[1, 2, 3, 12]]),
        image(ChannelShuffle::new(3)),
    ]
}

fn others() -> Vec<Row> {
    let options = UnfoldOptions {
        dilation: [1, 2],
        padding: [1, 2],
        stride: [2, 1],
        ..UnfoldOptions::new([3, 2])
    };
    vec![
        fixed_image(Flatten::new()),
        image(Flatten::dims(2, 3)),
        image(Flatten::dims(0, 1)),
        image(Unflatten::new(1, [2, -1])),
        fixed_image(Unflatten::new(2, [5, 3])),
        fixed_image(Unfold::new(options)),
        row(Fold::new([15, 9], options), "batch 36 88", [&[3, 36, 88], &[1, 36, 88]]),
        fixed_image(
            Sequential::new()
                .append(Conv2d::new(6, 8, 3).padding(1).stride(2))
                .append(BatchNorm2d::new(8))
                .append(ReLU6)
                .append(Flatten::new())
                .append(Linear::new(8 * 8 * 5, 16))
                .append(LayerNorm::new(16)),
        ),
    ]
}

/// A row with another shape.
trait Shapes {
    fn shapes(self, shape: &'static str, shapes: [&'static [usize]; 2]) -> Self;
}

impl Shapes for Row {
    fn shapes(self, shape: &'static str, shapes: [&'static [usize]; 2]) -> Self {
        (self.0, shape, shapes)
    }
}
