//! The sizes of a convolution, and what its three products read.

use super::geometry::Geometry;
use super::options::Conv2dOptions;
use crate::cpu::convolution::direct::{Sizes, Target};
use crate::cpu::convolution::field::Window;

/// All sizes of one convolution.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub batch: usize,
    /// Channels, height, width.
    pub input: [usize; 3],
    pub output: [usize; 3],
    pub kernel: [usize; 2],
    pub options: Conv2dOptions,
}

impl Shape {
    pub fn new(x: &[usize], w: &[usize], options: Conv2dOptions) -> Self {
        let size = |d: usize| options.count(d, x[d + 2], w[d + 2]).expect("checked");
        Shape {
            batch: x[0],
            input: [x[1], x[2], x[3]],
            output: [w[0], size(0), size(1)],
            kernel: [w[2], w[3]],
            options,
        }
    }

    pub fn x(&self) -> [usize; 4] {
        [self.batch, self.input[0], self.input[1], self.input[2]]
    }

    pub fn y(&self) -> [usize; 4] {
        [self.batch, self.output[0], self.output[1], self.output[2]]
    }

    /// Where the points of the window's grid go in y.
    pub fn target(&self, window: &Window) -> Target {
        let [channels, height, width] = self.output;
        let plane = height * width;
        Target { first: 0, image: channels * plane, channel: plane, row: window.grid[1], column: 1 }
    }

    pub fn weight(&self) -> [usize; 4] {
        let inputs = self.input[0] / self.options.groups;
        [self.output[0], inputs, self.kernel[0], self.kernel[1]]
    }

    pub fn taps(&self) -> usize {
        self.kernel[0] * self.kernel[1]
    }

    /// One input channel per group, and so few output channels that matrix tiles do not pay.
    pub fn is_depthwise(&self) -> bool {
        self.input[0] == self.options.groups && self.output[0] / self.options.groups < 4
    }

    /// A 1x1 filter that turns each point into one point.
    fn is_pointwise(&self) -> bool {
        let o = &self.options;
        self.taps() == 1
            && o.stride == [1, 1]
            && o.padding == [0, 0]
            && self.input[1..] == self.output[1..]
    }

    /// Whether every input point is read by some output, so that its gradient is computed.
    pub fn reaches_all(&self) -> bool {
        self.residues().iter().all(|(window, ..)| !window.taps.is_empty())
    }

    /// What the output points read. A 1x1 filter at stride 1 sees its planes as one long row.
    pub fn window(&self) -> Window {
        let o = &self.options;
        if self.is_pointwise() {
            let points = self.input[1] * self.input[2];
            let (source, grid) = ([1, points], [1, points]);
            return Window { source, grid, step: [1, 1], taps: vec![[0, 0]] };
        }
        let tap = |d: usize, t: usize| (t * o.dilation[d]) as isize - o.padding[d] as isize;
        let taps = (0..self.kernel[0])
            .flat_map(|r| (0..self.kernel[1]).map(move |s| [tap(0, r), tap(1, s)]))
            .collect();
        let (source, grid) = ([self.input[1], self.input[2]], [self.output[1], self.output[2]]);
        Window { source, grid, step: o.stride, taps }
    }

    /// The input points by remainder modulo the stride: what of dy they read, through which taps
    /// of the filter, and where the results go.
    pub fn residues(&self) -> Vec<(Window, Vec<usize>, Target)> {
        let [channels, h, w] = self.input;
        let [_, oh, ow] = self.output;
        let o = &self.options;
        let image = channels * h * w;
        if self.is_pointwise() {
            let target = Target { first: 0, image, channel: h * w, row: h * w, column: 1 };
            return vec![(self.window(), vec![0], target)];
        }
        // The offset in dy of filter row (or column) t for the points with remainder `rest`.
        let offset = |d: usize, t: usize, rest: usize| {
            let at = (rest + o.padding[d]) as isize - (t * o.dilation[d]) as isize;
            (at.rem_euclid(o.stride[d] as isize) == 0).then(|| at.div_euclid(o.stride[d] as isize))
        };
        let mut out = Vec::new();
        for (y, x) in
            (0..o.stride[0].min(h)).flat_map(|y| (0..o.stride[1].min(w)).map(move |x| (y, x)))
        {
            let grid = [(h - y).div_ceil(o.stride[0]), (w - x).div_ceil(o.stride[1])];
            let (mut taps, mut which) = (Vec::new(), Vec::new());
            for t in 0..self.taps() {
                let (r, s) = (t / self.kernel[1], t % self.kernel[1]);
                if let (Some(dy), Some(dx)) = (offset(0, r, y), offset(1, s, x)) {
                    taps.push([dy, dx]);
                    which.push(t);
                }
            }
            let window = Window { source: [oh, ow], grid, step: [1, 1], taps };
            let (row, column) = (o.stride[0] * w, o.stride[1]);
            out.push((
                window,
                which,
                Target { first: y * w + x, image, channel: h * w, row, column },
            ));
        }
        out
    }

    pub fn sizes(&self, grid: [usize; 2]) -> Sizes {
        let groups = self.options.groups;
        let (inputs, outputs) = (self.input[0] / groups, self.output[0] / groups);
        Sizes { batch: self.batch, groups, inputs, outputs, grid }
    }
}

impl From<&Shape> for Geometry {
    fn from(shape: &Shape) -> Geometry {
        let ([channels, h, w], [outputs, oh, ow], o) = (shape.input, shape.output, shape.options);
        Geometry {
            batch: shape.batch,
            channels,
            outputs,
            input: [1, h, w],
            output: [1, oh, ow],
            kernel: [1, shape.kernel[0], shape.kernel[1]],
            stride: [1, o.stride[0], o.stride[1]],
            padding: [0, o.padding[0], o.padding[1]],
            dilation: [1, o.dilation[0], o.dilation[1]],
            groups: o.groups,
        }
    }
}
