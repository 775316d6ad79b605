//! Activation functions, by the names of their modules.

use super::graph::{Attribute, Graph, Value};
use crate::error::{Error, Result};

impl Graph {
    /// The function of a module of this name, with its settings in order; none where ONNX has no such.
    pub(crate) fn activation(&mut self, name: &str, x: &Value, settings: &[f64]) -> Result<Value> {
        let alpha = |i: usize| ("alpha", Attribute::Float(settings[i] as f32));
        Ok(match name {
            "ReLU" => self.unary("Relu", x),
            "Sigmoid" => self.unary("Sigmoid", x),
            "Tanh" => self.unary("Tanh", x),
            "Softsign" => self.unary("Softsign", x),
            "Mish" => self.unary("Mish", x),
            "Hardswish" => self.unary("HardSwish", x),
            "Hardsigmoid" => {
                let alpha = ("alpha", Attribute::Float(1.0 / 6.0));
                self.unary_with("HardSigmoid", x, &[alpha])
            }
            "SiLU" => self.silu(x)?,
            "ELU" => self.unary_with("Elu", x, &[alpha(0)]),
            "CELU" => self.unary_with("Celu", x, &[alpha(0)]),
            "SELU" => self.unary("Selu", x),
            "LeakyReLU" => self.unary_with("LeakyRelu", x, &[alpha(0)]),
            "ReLU6" => self.clip(x, 0.0, 6.0),
            "Hardtanh" => self.clip(x, settings[0], settings[1]),
            "LogSigmoid" => {
                let turned = self.unary("Neg", x);
                let soft = self.unary("Softplus", &turned);
                self.unary("Neg", &soft)
            }
            _ => {
                let message = format!("`{name}` is not written as ONNX");
                return Err(Error::argument("onnx", "module", message));
            }
        })
    }
}
