//! Nodes that change the size or order of images.

use super::graph::{Attribute, Dim, Graph, Value};
use super::layers::{ints, pads};
use super::shapes::windows;
use crate::error::{Error, Result};
use crate::ops::{InterpolateMode, InterpolateOptions, OneOrEach, PadMode, UnfoldOptions};
use crate::tensor::{Dtype, Tensor};

/// Images, channels first.
fn image(op: &str, x: &Value) -> Result<()> {
    match x.dim() {
        4 => Ok(()),
        _ => Err(Error::shape(op, format!("{} must be [N, C, H, W]", x.text()))),
    }
}

/// One number for each of `n` dimensions.
fn each<T: Copy>(numbers: &OneOrEach<T>, n: usize) -> Result<Vec<T>> {
    match numbers {
        OneOrEach::All(number) => Ok(vec![*number; n]),
        OneOrEach::Each(list) if list.len() == n => Ok(list.clone()),
        OneOrEach::Each(list) => {
            let message = format!("{} sizes or factors for {n} dimensions", list.len());
            Err(Error::argument("onnx interpolate", "size", message))
        }
    }
}

impl Graph {
    /// `[N, C, ..]` at another size, as [`Tensor::interpolate`](crate::Tensor::interpolate).
    ///
    /// # Errors
    /// [`Error::Shape`] for dimensions that the mode has not, [`Error::Argument`] for options that exclude each other.
    pub fn resize(&mut self, x: &Value, options: &InterpolateOptions) -> Result<Value> {
        use InterpolateMode::*;
        let op = "onnx interpolate";
        let n = x.dim().saturating_sub(2);
        let fits = match options.mode {
            Linear => n == 1,
            Bilinear | Bicubic => n == 2,
            Trilinear => n == 3,
            _ => (1..=3).contains(&n),
        };
        if !fits {
            let message = format!("{} has other dimensions than {:?}", x.text(), options.mode);
            return Err(Error::shape(op, message));
        }
        let factors = options.scale_factor.as_ref().map(|factors| each(factors, n)).transpose()?;
        let sizes = options.size.as_ref().map(|sizes| each(sizes, n)).transpose()?;
        let (sizes, factors) = match (sizes, factors) {
            (Some(sizes), None) => (sizes.into_iter().map(Dim::Fixed).collect(), None),
            (None, Some(factors)) => {
                let size = |(d, factor): (usize, &f64)| match &x.shape[d + 2] {
                    Dim::Fixed(size) => Dim::Fixed((*size as f64 * factor).floor() as usize),
                    Dim::Named(name) => Dim::Named(format!("floor({name} * {factor})")),
                };
                let sizes: Vec<Dim> = factors.iter().enumerate().map(size).collect();
                (sizes, Some(factors).filter(|_| !options.recompute_scale_factor))
            }
            _ => return Err(Error::argument(op, "size", "give either size or scale_factor")),
        };
        let fixed = |(i, size): (usize, &Dim)| match size {
            Dim::Fixed(size) => Ok(*size),
            Dim::Named(_) => x.fixed(op, i + 2),
        };
        if options.mode == Area {
            let sizes = sizes.iter().enumerate().map(fixed).collect::<Result<Vec<_>>>()?;
            let sizes = sizes.into_iter().map(Some).collect::<Vec<_>>();
            return match sizes[..] {
                [a] => self.adaptive_pool("AveragePool", x, [a]),
                [a, b] => self.adaptive_pool("AveragePool", x, [a, b]),
                _ => self.adaptive_pool("AveragePool", x, [sizes[0], sizes[1], sizes[2]]),
            };
        }
        // onnxruntime knows no lines of their own: they are rows of an image.
        if n == 1 {
            let row = self.unsqueeze(x, &[2]);
            let size = match factors {
                None => Some(OneOrEach::Each(vec![1, fixed((0, &sizes[0]))?])),
                Some(_) => None,
            };
            let row_options = InterpolateOptions {
                size,
                scale_factor: factors.map(|factors| OneOrEach::Each(vec![1.0, factors[0]])),
                mode: if options.mode == Linear { Bilinear } else { options.mode },
                recompute_scale_factor: false,
                ..options.clone()
            };
            let y = self.resize(&row, &row_options)?;
            return self.squeeze(&y, 2);
        }
        // Of other factors than powers of two onnxruntime rounds places otherwise.
        let exact = factors
            .as_ref()
            .is_some_and(|factors| factors.iter().all(|&f| f >= 1.0 && f.log2().fract() == 0.0));
        match options.mode {
            Nearest if exact => {}
            Nearest => return self.nearest(x, &sizes, factors.as_deref(), 0.0),
            NearestExact => return self.nearest(x, &sizes, factors.as_deref(), 0.5),
            _ if options.antialias => return self.smoothed(x, options),
            _ => {}
        }
        let corners = options.align_corners.unwrap_or(false);
        let (mode, places) = match options.mode {
            Nearest => ("nearest", "asymmetric"),
            Bicubic => ("cubic", if corners { "align_corners" } else { "half_pixel" }),
            _ => ("linear", if corners { "align_corners" } else { "half_pixel" }),
        };
        let text = |text: &str| Attribute::Text(text.to_owned());
        let mut attributes =
            vec![("mode", text(mode)), ("coordinate_transformation_mode", text(places))];
        match options.mode {
            Nearest => attributes.push(("nearest_mode", text("floor"))),
            _ => attributes.push(("cubic_coeff_a", Attribute::Float(-0.75))),
        }
        let whole = factors.is_none();
        let numbers = match factors {
            Some(factors) => {
                let factors: Vec<f32> =
                    [1.0; 2].into_iter().chain(factors).map(|f| f as f32).collect();
                self.fresh("constant", Tensor::from_slice(&factors, [n + 2]))
            }
            None => {
                attributes.push(("axes", ints(2..n + 2)));
                let sizes = sizes.iter().enumerate().map(fixed).collect::<Result<Vec<_>>>()?;
                self.numbers(&sizes.into_iter().map(|size| size as i64).collect::<Vec<_>>())
            }
        };
        let none = Value::absent();
        let inputs = match whole {
            false => vec![x, &none, &numbers],
            true => vec![x, &none, &none, &numbers],
        };
        let shape = x.shape[..2].iter().cloned().chain(sizes).collect::<Vec<_>>();
        Ok(self.node("Resize", &inputs, &attributes, x.dtype, shape))
    }

    /// The nearest elements: those at the places floor((i + shift) scale), computed in f32 as `Tensor::interpolate` does.
    fn nearest(
        &mut self,
        x: &Value,
        sizes: &[Dim],
        factors: Option<&[f64]>,
        shift: f32,
    ) -> Result<Value> {
        let mut y = x.clone();
        for (i, out) in sizes.iter().enumerate() {
            let d = i + 2;
            let scale = |size: usize, out: usize| match factors {
                Some(factors) => (1.0 / factors[i]) as f32,
                None => size as f32 / out as f32,
            };
            if let (&Dim::Fixed(size), &Dim::Fixed(out)) = (&x.shape[d], out) {
                let scale = scale(size, out);
                let place =
                    |i: usize| (((i as f32 + shift) * scale).floor() as usize).min(size - 1);
                y = self.picked(&y, d, &(0..out).map(|i| place(i) as i64).collect::<Vec<_>>());
                continue;
            }
            let Some(factors) = factors else {
                return Err(x.fixed("onnx interpolate", d).expect_err("a name"));
            };
            // floor(size factor) places, in f64.
            let one = [Dim::Fixed(1)];
            let ends = [("start", Attribute::Int(d as i64)), ("end", Attribute::Int(d as i64 + 1))];
            let size = self.node("Shape", &[x], &ends, Dtype::I64, one);
            let size = self.squeeze(&size, 0)?;
            let count = self.cast(&size, Dtype::F64)?;
            let factor = self.number(factors[i], Dtype::F64);
            let count = self.binary("Mul", &count, &factor)?;
            let count = self.cast(&count, Dtype::I64)?;
            let [zero, step] = [0.0, 1.0].map(|number| self.number(number, Dtype::I64));
            let range = self.node("Range", &[&zero, &count, &step], &[], Dtype::I64, [out.clone()]);
            let range = self.cast(&range, Dtype::F32)?;
            let [shift, scale] =
                [shift, scale(1, 1)].map(|number| self.number(f64::from(number), Dtype::F32));
            let places = self.binary("Add", &range, &shift)?;
            let places = self.binary("Mul", &places, &scale)?;
            let places = self.unary("Floor", &places);
            let places = self.cast(&places, Dtype::I64)?;
            let last = self.binary("Sub", &size, &step)?;
            let places = self.binary("Min", &places, &last)?;
            let mut shape = y.shape.clone();
            shape[d] = out.clone();
            let axis = [("axis", Attribute::Int(d as i64))];
            y = self.node("Gather", &[&y, &places], &axis, x.dtype, shape);
        }
        Ok(y)
    }

    /// An image of a fixed size whose rows and columns are weighted means: what an image of a single one of them becomes
    /// says by which weights.
    fn smoothed(&mut self, x: &Value, options: &InterpolateOptions) -> Result<Value> {
        let mut y = x.clone();
        for d in 0..2 {
            let size = x.fixed("onnx interpolate", d + 2)?;
            let along = InterpolateOptions {
                size: match &options.size {
                    Some(sizes) => Some(vec![each(sizes, 2)?[d], size].into()),
                    None => None,
                },
                scale_factor: match &options.scale_factor {
                    Some(factors) => Some(vec![each(factors, 2)?[d], 1.0].into()),
                    None => None,
                },
                ..options.clone()
            };
            let weights = Tensor::eye(size, x.dtype).reshape([1, 1, size as i64, size as i64]);
            let weights = weights.interpolate(along).squeeze_dim(0).squeeze_dim(0);
            let weights = self.fresh("constant", weights);
            y = match d {
                0 => self.matmul(&weights, &y)?,
                _ => self.affine(&y, &weights, None)?,
            };
        }
        Ok(y)
    }

    /// Channels into pixels, as [`Tensor::pixel_shuffle`](crate::Tensor::pixel_shuffle).
    ///
    /// # Errors
    /// [`Error::Shape`] for what is no image, or has channels that the factor's square does not divide.
    pub fn pixel_shuffle(&mut self, x: &Value, factor: usize) -> Result<Value> {
        let op = "onnx pixel_shuffle";
        image(op, x)?;
        let channels = x.fixed(op, 1)?;
        if factor == 0 || !channels.is_multiple_of(factor * factor) {
            let message = format!("{} by {factor}", x.text());
            return Err(Error::shape(op, message));
        }
        let mut shape = x.shape.clone();
        shape[1] = Dim::Fixed(channels / (factor * factor));
        for size in &mut shape[2..] {
            *size = match size {
                Dim::Fixed(size) => Dim::Fixed(*size * factor),
                Dim::Named(name) => Dim::Named(format!("{name} * {factor}")),
            };
        }
        let mode = ("mode", Attribute::Text("CRD".to_owned()));
        let size = ("blocksize", Attribute::Int(factor as i64));
        Ok(self.node("DepthToSpace", &[x], &[mode, size], x.dtype, shape))
    }

    /// Pixels into channels, as [`Tensor::pixel_unshuffle`](crate::Tensor::pixel_unshuffle).
    ///
    /// # Errors
    /// [`Error::Shape`] for what is no image, or has sizes that the factor does not divide.
    pub fn pixel_unshuffle(&mut self, x: &Value, factor: usize) -> Result<Value> {
        let op = "onnx pixel_unshuffle";
        image(op, x)?;
        let channels = x.fixed(op, 1)?;
        let mut shape = x.shape.clone();
        for size in &mut shape[2..] {
            *size = match size {
                Dim::Fixed(size) if factor > 0 && size.is_multiple_of(factor) => {
                    Dim::Fixed(*size / factor)
                }
                Dim::Fixed(_) => return Err(Error::shape(op, format!("{} by {factor}", x.text()))),
                Dim::Named(name) => Dim::Named(format!("{name} / {factor}")),
            };
        }
        let squares = factor * factor;
        shape[1] = Dim::Fixed(channels * squares);
        let size = [("blocksize", Attribute::Int(factor as i64))];
        let y = self.node("SpaceToDepth", &[x], &size, x.dtype, shape);
        // ONNX has the places of a block before the channels.
        let places =
            (0..channels).flat_map(|c| (0..squares).map(move |s| (s * channels + c) as i64));
        Ok(self.picked(&y, 1, &places.collect::<Vec<_>>()))
    }

    /// Channels of all groups in turn, as [`Tensor::channel_shuffle`](crate::Tensor::channel_shuffle).
    ///
    /// # Errors
    /// [`Error::Shape`] where the groups do not divide the channels.
    pub fn channel_shuffle(&mut self, x: &Value, groups: usize) -> Result<Value> {
        let op = "onnx channel_shuffle";
        let channels = x.fixed(op, 1)?;
        if groups == 0 || !channels.is_multiple_of(groups) {
            return Err(Error::shape(op, format!("{} of {groups} groups", x.text())));
        }
        let each = channels / groups;
        let places = (0..each).flat_map(|c| (0..groups).map(move |g| (g * each + c) as i64));
        Ok(self.picked(x, 1, &places.collect::<Vec<_>>()))
    }

    /// Sliding windows as columns, as [`Tensor::unfold2d`](crate::Tensor::unfold2d).
    ///
    /// # Errors
    /// [`Error::Shape`] for what is no image of a fixed size, or smaller than a window.
    pub fn unfold(&mut self, x: &Value, options: &UnfoldOptions) -> Result<Value> {
        let op = "onnx unfold";
        image(op, x)?;
        let o = options;
        let channels = x.fixed(op, 1)?;
        let size = [x.fixed(op, 2)?, x.fixed(op, 3)?];
        let mut counts = [0; 2];
        for d in 0..2 {
            let window = [o.kernel_size[d], o.stride[d], o.padding[d], o.dilation[d]];
            if let Dim::Fixed(count) = windows(op, &Dim::Fixed(size[d]), window, false)? {
                counts[d] = count;
            }
        }
        let [down, across] = o.padding.map(|n| n as i64);
        let zeros = PadMode::Constant(0i64.into());
        let x = match o.padding {
            [0, 0] => x.clone(),
            _ => self.pad(x, &[across, across, down, down], zeros)?,
        };
        let width = size[1] + 2 * o.padding[1];
        let mut places = Vec::new();
        for (i, j) in pairs(o.kernel_size) {
            for (y, x) in pairs(counts) {
                let row = y * o.stride[0] + i * o.dilation[0];
                places.push((row * width + x * o.stride[1] + j * o.dilation[1]) as i64);
            }
        }
        let rows = self.flatten(&x, 2, 3)?;
        let columns = self.picked(&rows, 2, &places);
        let elements = channels * o.kernel_size[0] * o.kernel_size[1];
        let shape =
            vec![x.shape[0].clone(), Dim::Fixed(elements), Dim::Fixed(counts[0] * counts[1])];
        self.reshape(&columns, shape)
    }

    /// Columns added up at the places of their windows, as [`Tensor::fold`](crate::Tensor::fold).
    ///
    /// # Errors
    /// [`Error::Shape`] for columns that are not those of the windows.
    pub fn fold(
        &mut self,
        x: &Value,
        output_size: [usize; 2],
        options: &UnfoldOptions,
    ) -> Result<Value> {
        let op = "onnx fold";
        let o = options;
        let mut count = 1;
        for d in 0..2 {
            let window = [o.kernel_size[d], o.stride[d], o.padding[d], o.dilation[d]];
            if let Dim::Fixed(n) = windows(op, &Dim::Fixed(output_size[d]), window, false)? {
                count *= n;
            }
        }
        let elements = o.kernel_size[0] * o.kernel_size[1];
        let fits =
            x.dim() == 3 && x.fixed(op, 1)?.is_multiple_of(elements) && x.fixed(op, 2)? == count;
        if !fits {
            let message = format!("{} must be [N, a multiple of {elements}, {count}]", x.text());
            return Err(Error::shape(op, message));
        }
        let attributes = [
            ("dilations", ints(o.dilation)),
            ("pads", pads(&o.padding)),
            ("strides", ints(o.stride)),
        ];
        let [image, block] = [output_size, o.kernel_size].map(|n| n.map(|n| n as i64));
        let (image, block) = (self.numbers(&image), self.numbers(&block));
        let channels = x.fixed(op, 1)? / elements;
        let shape = [
            x.shape[0].clone(),
            Dim::Fixed(channels),
            Dim::Fixed(output_size[0]),
            Dim::Fixed(output_size[1]),
        ];
        Ok(self.node("Col2Im", &[x, &image, &block], &attributes, x.dtype, shape))
    }
}

/// All places of a grid, row by row.
fn pairs([rows, columns]: [usize; 2]) -> impl Iterator<Item = (usize, usize)> {
    (0..rows).flat_map(move |i| (0..columns).map(move |j| (i, j)))
}
