//! Activation functions, by the names of their modules: a row each.

use super::graph::{Attribute, Graph, Value};
use crate::error::{Error, Result};
use crate::tensor::{Dtype, Tensor};

/// Nodes of a function, by the settings of its module in order.
type Rule = fn(&mut Graph, &Value, &[f64]) -> Result<Value>;

const ROWS: &[(&str, Rule)] = &[
    ("CELU", |g, x, s| Ok(g.unary_with("Celu", x, &[float("alpha", s[0])]))),
    ("ELU", |g, x, s| Ok(g.unary_with("Elu", x, &[float("alpha", s[0])]))),
    ("Hardshrink", |g, x, s| Ok(g.unary_with("Shrink", x, &[float("lambd", s[0])]))),
    ("Hardsigmoid", |g, x, _| Ok(g.unary_with("HardSigmoid", x, &[float("alpha", 1.0 / 6.0)]))),
    ("Hardswish", |g, x, _| Ok(g.unary("HardSwish", x))),
    ("Hardtanh", |g, x, s| Ok(g.clip(x, s[0], s[1]))),
    ("LeakyReLU", |g, x, s| Ok(g.unary_with("LeakyRelu", x, &[float("alpha", s[0])]))),
    ("LogSigmoid", |g, x, _| {
        let turned = g.unary("Neg", x);
        let soft = g.unary("Softplus", &turned);
        Ok(g.unary("Neg", &soft))
    }),
    ("Mish", |g, x, _| Ok(g.unary("Mish", x))),
    ("RReLU", |g, x, s| {
        let mean = (s[0] + s[1]) / 2.0;
        Ok(g.unary_with("LeakyRelu", x, &[float("alpha", mean)]))
    }),
    ("ReLU", |g, x, _| Ok(g.unary("Relu", x))),
    ("ReLU6", |g, x, _| Ok(g.clip(x, 0.0, 6.0))),
    ("SELU", |g, x, _| Ok(g.unary("Selu", x))),
    ("SiLU", |g, x, _| g.silu(x)),
    ("Sigmoid", |g, x, _| Ok(g.unary("Sigmoid", x))),
    ("Softmax2d", |g, x, _| match x.dim() {
        3 | 4 => g.softmax("Softmax", x, -3),
        _ => {
            let message = format!("{} must be [N, C, H, W] or [C, H, W]", x.text());
            Err(Error::shape("onnx Softmax2d", message))
        }
    }),
    ("Softplus", softplus),
    ("Softshrink", |g, x, s| {
        Ok(g.unary_with("Shrink", x, &[float("lambd", s[0]), float("bias", s[0])]))
    }),
    ("Softsign", |g, x, _| Ok(g.unary("Softsign", x))),
    ("Tanh", |g, x, _| Ok(g.unary("Tanh", x))),
    ("Tanhshrink", |g, x, _| {
        let y = g.unary("Tanh", x);
        g.binary("Sub", x, &y)
    }),
    ("Threshold", |g, x, s| {
        let [threshold, value] = [s[0], s[1]].map(|number| g.number(number, x.dtype));
        let below = g.compare("LessOrEqual", x, &threshold)?;
        g.choose(&below, &value, x)
    }),
];

fn float(name: &'static str, value: f64) -> (&'static str, Attribute) {
    (name, Attribute::Float(value as f32))
}

/// log(1 + e^(beta x)) / beta, and x itself where beta x exceeds the threshold.
fn softplus(g: &mut Graph, x: &Value, settings: &[f64]) -> Result<Value> {
    let [beta, threshold] = [settings[0], settings[1]].map(|number| g.number(number, x.dtype));
    let scaled = g.binary("Mul", x, &beta)?;
    let soft = g.unary("Softplus", &scaled);
    let soft = g.binary("Div", &soft, &beta)?;
    let above = g.compare("Greater", &scaled, &threshold)?;
    g.choose(&above, x, &soft)
}

impl Graph {
    /// The function of a module of this name, with its settings in order; none where ONNX has no such.
    pub(crate) fn activation(&mut self, name: &str, x: &Value, settings: &[f64]) -> Result<Value> {
        match ROWS.iter().find(|(known, _)| *known == name) {
            Some((_, rule)) => rule(self, x, settings),
            None => {
                let message = format!("`{name}` is not written as ONNX");
                Err(Error::argument("onnx", "module", message))
            }
        }
    }

    /// x, or a slope times x below 0; one slope, or one for each channel (dimension 1).
    ///
    /// # Errors
    /// [`Error::Shape`] where slopes and channels do not fit.
    pub fn prelu(&mut self, x: &Value, slopes: &Tensor) -> Result<Value> {
        super::layers::of_one_type("onnx prelu", x, &[Some(slopes)])?;
        let many = slopes.numel() != 1;
        if many && (x.dim() < 2 || x.fixed("onnx prelu", 1)? != slopes.numel()) {
            let message = format!("{} and {} slopes do not fit", x.text(), slopes.numel());
            return Err(Error::shape("onnx prelu", message));
        }
        let mut slopes = self.constant(slopes);
        if many && x.dim() > 2 {
            slopes = self.unsqueeze(&slopes, &(1..x.dim() - 1).collect::<Vec<_>>());
        }
        Ok(self.node("PRelu", &[x, &slopes], &[], x.dtype, x.shape.clone()))
    }

    /// The first half along a dimension times the logistic function of the second.
    ///
    /// # Errors
    /// [`Error::Shape`] for what has no halves.
    pub fn glu(&mut self, x: &Value, dim: i64) -> Result<Value> {
        let halves = self.split(x, 2, dim)?;
        let gate = self.unary("Sigmoid", &halves[1]);
        self.binary("Mul", &halves[0], &gate)
    }

    /// Where `operator` (`Less`, `Equal`) holds.
    ///
    /// # Errors
    /// As [`binary`](Self::binary).
    pub fn compare(&mut self, operator: &str, a: &Value, b: &Value) -> Result<Value> {
        Ok(Value { dtype: Dtype::Bool, ..self.binary(operator, a, b)? })
    }

    /// `a` where `condition` holds, else `b`; all broadcast.
    ///
    /// # Errors
    /// As [`binary`](Self::binary); [`Error::Dtype`] for a condition that is not bool.
    pub fn choose(&mut self, condition: &Value, a: &Value, b: &Value) -> Result<Value> {
        let op = "onnx where";
        if condition.dtype != Dtype::Bool {
            let message = format!("the condition is {}; must be bool", condition.dtype);
            return Err(Error::dtype(op, message));
        }
        super::layers::alike(op, a, b)?;
        let both = Value { shape: super::shapes::broadcast(op, a, b)?, ..a.clone() };
        let shape = super::shapes::broadcast(op, condition, &both)?;
        Ok(self.node("Where", &[condition, a, b], &[], a.dtype, shape))
    }
}
