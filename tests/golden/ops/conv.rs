//! Ops of group `conv`.

use torchrs::Tensor;
use torchrs::ops::{ConvOptions, ConvTransposeOptions, UnfoldOptions};

use super::Table;
use crate::arg::{Arg, Call, Outcome};

/// The input, as `padding='same'` wants it, weight, bias and options.
fn conv<const D: usize>(c: &Call) -> Outcome<(Tensor, &Tensor, Option<&Tensor>, ConvOptions<D>)> {
    let (x, weight) = (c.tensor(0, "input")?, c.tensor(1, "weight")?);
    let bias = c.maybe_tensor(2, "bias")?;
    let by_name = matches!(c.get(4, "padding"), Arg::Str(_));
    let options = ConvOptions {
        stride: c.per_dim(3, "stride", 1)?,
        padding: if by_name { [0; D] } else { c.per_dim(4, "padding", 0)? },
        dilation: c.per_dim(5, "dilation", 1)?,
        groups: c.count(6, "groups", 1)?,
    };
    let same = by_name && c.choice(4, "padding", &[("valid", false), ("same", true)])?;
    let (x, options) = if same { options.same(x, weight) } else { (x.clone(), options) };
    Ok((x, weight, bias, options))
}

fn transposed<const D: usize>(c: &Call) -> Outcome<ConvTransposeOptions<D>> {
    Ok(ConvTransposeOptions {
        stride: c.per_dim(3, "stride", 1)?,
        padding: c.per_dim(4, "padding", 0)?,
        output_padding: c.per_dim(5, "output_padding", 0)?,
        groups: c.count(6, "groups", 1)?,
        dilation: c.per_dim(7, "dilation", 1)?,
    })
}

/// Options of unfold (from argument `i` on) and fold.
fn windows(c: &Call, i: usize) -> Outcome<UnfoldOptions> {
    Ok(UnfoldOptions {
        kernel_size: c.per_dim(i, "kernel_size", 1)?,
        dilation: c.per_dim(i + 1, "dilation", 1)?,
        padding: c.per_dim(i + 2, "padding", 0)?,
        stride: c.per_dim(i + 3, "stride", 1)?,
    })
}

pub fn fill(t: &mut Table) {
    macro_rules! convolutions {
        ($($name:literal $conv:ident, $transposed:literal $conv_transpose:ident;)*) => {$(
            t.op($name, |c| {
                let (x, weight, bias, options) = conv(c)?;
                Ok(x.$conv(weight, bias, options))
            });
            t.op($transposed, |c| {
                let (weight, bias) = (c.tensor(1, "weight")?, c.maybe_tensor(2, "bias")?);
                Ok(c.tensor(0, "input")?.$conv_transpose(weight, bias, transposed(c)?))
            });
        )*};
    }
    convolutions! {
        "nn.functional.conv1d" conv1d, "nn.functional.conv_transpose1d" conv_transpose1d;
        "nn.functional.conv2d" conv2d, "nn.functional.conv_transpose2d" conv_transpose2d;
        "nn.functional.conv3d" conv3d, "nn.functional.conv_transpose3d" conv_transpose3d;
    }
    t.op("nn.functional.unfold", |c| Ok(c.tensor(0, "input")?.unfold2d(windows(c, 1)?)));
    t.op("nn.functional.fold", |c| {
        Ok(c.tensor(0, "input")?.fold(c.per_dim(1, "output_size", 1)?, windows(c, 2)?))
    });
}
