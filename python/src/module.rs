//! Models that are written in Rust.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use torchrs::checkpoint::{Checkpoint, load_file, save_file};
use torchrs::models::{self, GPT2Config, GPT2LMHeadModel};
use torchrs::nn::{Forward, LoadReport, Module, NamedTensors, StateDict};
use torchrs::{Error, Result, Tensor};

use crate::call::{attempt, run};
use crate::tensor::PyTensor;

/// Adds the class's constructors to the module.
pub fn add(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(image_model, m)?)?;
    m.add_function(wrap_pyfunction!(image_models, m)?)?;
    m.add_function(wrap_pyfunction!(gpt2, m)?)
}

enum Model {
    Image(Box<dyn Forward>),
    Gpt2(Box<GPT2LMHeadModel>),
}

impl Model {
    fn forward(&self) -> &dyn Forward {
        match self {
            Model::Image(model) => &**model,
            Model::Gpt2(model) => &**model,
        }
    }

    fn load(&self, weights: &dyn NamedTensors, strict: bool) -> Result<LoadReport> {
        match self {
            Model::Image(model) => model.load_state_dict(weights, strict),
            // With the names under which weights are published, too.
            Model::Gpt2(model) if strict => model.load_pretrained(weights),
            Model::Gpt2(model) => model.load_state_dict(weights, false),
        }
    }
}

/// A model of torchrs.
#[pyclass(name = "Model", module = "torchrs", frozen)]
pub struct PyModel(Model);

macro_rules! image_models {
    ($($name:ident),* $(,)?) => {
        const IMAGE_MODELS: &[&str] = &[$(stringify!($name)),*];

        fn named(name: &str, classes: usize) -> Option<Box<dyn Forward>> {
            match name {
                $(stringify!($name) => Some(Box::new(models::$name(classes))),)*
                _ => None,
            }
        }
    };
}
image_models!(
    alexnet,
    vgg11,
    vgg13,
    vgg16,
    vgg19,
    vgg11_bn,
    vgg13_bn,
    vgg16_bn,
    vgg19_bn,
    resnet18,
    resnet34,
    resnet50,
    resnet101,
    resnet152,
    mobilenet_v2,
);

#[pyfunction]
fn image_models() -> Vec<&'static str> {
    IMAGE_MODELS.to_vec()
}

#[pyfunction]
fn image_model(py: Python<'_>, name: &str, num_classes: usize) -> PyResult<PyModel> {
    let made = attempt(py, || {
        named(name, num_classes).ok_or_else(|| {
            let known = IMAGE_MODELS.join(", ");
            Error::Argument {
                op: "image_model".to_owned(),
                argument: "name".to_owned(),
                message: format!("{name:?} is none of {known}"),
            }
        })
    })?;
    Ok(PyModel(Model::Image(made)))
}

/// GPT-2 with the settings in a JSON text. One of the `named` that the model does not have is an error.
#[pyfunction]
fn gpt2(py: Python<'_>, config: &str, named: Vec<String>) -> PyResult<PyModel> {
    let wrong = |error: &dyn std::fmt::Display| PyValueError::new_err(format!("gpt2: {error}"));
    let parsed: GPT2Config = serde_json::from_str(config).map_err(|error| wrong(&error))?;
    let known = serde_json::to_value(parsed).map_err(|error| wrong(&error))?;
    let known: Vec<&str> =
        known.as_object().into_iter().flatten().map(|(name, _)| name.as_str()).collect();
    if let Some(name) = named.iter().find(|name| !known.contains(&name.as_str())) {
        return Err(wrong(&format!("{name:?} is no setting; {} are", known.join(", "))));
    }
    let model = run(py, || GPT2LMHeadModel::new(parsed))?;
    Ok(PyModel(Model::Gpt2(Box::new(model))))
}

/// The tensors of a safetensors file, or of a group of a checkpoint folder.
fn read(path: &Path, group: &str) -> Result<BTreeMap<String, Tensor>> {
    let tensors = match path.is_dir() {
        true => Checkpoint::load(path)?.tensors(group)?.clone(),
        false => load_file(path)?,
    };
    Ok(tensors.into_iter().collect())
}

#[pymethods]
impl PyModel {
    /// The model's output.
    fn __call__(&self, py: Python<'_>, input: &Bound<'_, PyAny>) -> PyResult<PyTensor> {
        let Ok(input) = input.cast::<PyTensor>() else {
            return Err(PyTypeError::new_err(format!(
                "forward: {} is no torchrs.Tensor; give `torchrs.from_dlpack(...)`, or use \
                 `torchrs.torch.Module` for a model in PyTorch",
                input.get_type()
            )));
        };
        let x = input.get().0.clone();
        run(py, || self.0.forward().forward(&x)).map(PyTensor)
    }

    fn train(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf.get().0.forward().train();
        slf
    }

    fn eval(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf.get().0.forward().eval();
        slf
    }

    /// Parameters with their names; tied ones once.
    fn named_parameters(&self) -> Vec<(String, PyTensor)> {
        let named = self.0.forward().named_parameters();
        named.into_iter().map(|(name, tensor)| (name, PyTensor(tensor))).collect()
    }

    /// Parameters and persistent buffers by name, without history. They share the model's memory.
    fn state_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for (name, tensor) in self.0.forward().state_dict().iter() {
            dict.set_item(name, PyTensor(tensor.clone()))?;
        }
        Ok(dict)
    }

    /// Copies tensors into those of the same names. Gives the names that are missing and those that are too many.
    #[pyo3(signature = (state, strict=true))]
    fn load_state_dict(
        &self,
        py: Python<'_>,
        state: &Bound<'_, PyAny>,
        strict: bool,
    ) -> PyResult<(Vec<String>, Vec<String>)> {
        let pairs = match state.cast::<PyDict>() {
            Ok(dict) => dict.items().into_any(),
            Err(_) => state.clone(),
        };
        let state: Vec<(String, PyRef<'_, PyTensor>)> = pairs.extract()?;
        let mut all = StateDict::new();
        for (name, tensor) in state {
            all.insert(name, tensor.0.clone());
        }
        let report = attempt(py, || self.0.load(&all, strict))?;
        Ok((report.missing_keys, report.unexpected_keys))
    }

    /// Loads a safetensors file, or a group of tensors of a checkpoint folder.
    #[pyo3(signature = (path, *, group="model", strict=true))]
    fn load(
        &self,
        py: Python<'_>,
        path: PathBuf,
        group: &str,
        strict: bool,
    ) -> PyResult<(Vec<String>, Vec<String>)> {
        let report = attempt(py, || {
            let mut all = StateDict::new();
            for (name, tensor) in read(&path, group)? {
                all.insert(name, tensor);
            }
            self.0.load(&all, strict)
        })?;
        Ok((report.missing_keys, report.unexpected_keys))
    }

    /// Saves parameters and persistent buffers as a safetensors file.
    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        attempt(py, || {
            let state = self.0.forward().state_dict();
            let tensors = state.iter().map(|(name, t)| (name.to_owned(), t.clone())).collect();
            save_file(&tensors, &[("format".to_owned(), "pt".to_owned())].into(), &path)
        })
    }

    fn __repr__(&self) -> String {
        self.0.forward().repr()
    }
}
