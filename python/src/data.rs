//! Datasets that are written in Rust, and the loader with its worker processes.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use torchrs::data::datasets::{Cifar10, Digits, FashionMnist, ImageFolder, Synthetic, TextWindows};
use torchrs::data::{DataLoader, Dataset, Iter, LoaderState, Sample};
use torchrs::{Result, Tensor};

use crate::call::{attempt, run};
use crate::tensor::PyTensor;

/// Adds the datasets' constructors to the module.
pub fn add(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(digits, m)?)?;
    m.add_function(wrap_pyfunction!(synthetic, m)?)?;
    m.add_function(wrap_pyfunction!(fashion_mnist, m)?)?;
    m.add_function(wrap_pyfunction!(cifar10, m)?)?;
    m.add_function(wrap_pyfunction!(image_folder, m)?)?;
    m.add_function(wrap_pyfunction!(text_windows, m)?)
}

/// A dataset of which loaders are made.
trait AnyDataset: Send + Sync {
    fn len(&self) -> usize;
    fn get(&self, index: usize) -> Result<(Tensor, Tensor)>;
    fn loader(&self, options: &Options) -> Result<Box<dyn AnyLoader>>;
}

/// A loader whose batches are two tensors.
trait AnyLoader: Send + Sync {
    fn len(&self) -> usize;
    fn set_epoch(&self, epoch: u64);
    fn state(&self) -> LoaderState;
    fn load_state(&self, state: &LoaderState) -> Result<()>;
    fn batches(&self) -> Box<dyn AnyBatches>;
}

trait AnyBatches: Send {
    fn next(&mut self) -> Option<Result<(Tensor, Tensor)>>;
}

/// The options of a loader.
struct Options {
    batch_size: usize,
    shuffle: bool,
    workers: usize,
    prefetch_factor: usize,
    drop_last: bool,
    seed: Option<u64>,
    timeout: Option<Duration>,
    ranks: Option<(usize, usize)>,
}

/// A dataset that several loaders have.
struct Of<D>(Arc<D>);

impl<D> Of<D> {
    fn boxed(dataset: D) -> PyDataset
    where
        D: Dataset,
        D::Sample: Sample<Batch = (Tensor, Tensor)>,
    {
        PyDataset(Box::new(Of(Arc::new(dataset))))
    }
}

impl<D> Clone for Of<D> {
    fn clone(&self) -> Self {
        Of(self.0.clone())
    }
}

impl<D: Serialize> Serialize for Of<D> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de, D: Deserialize<'de>> Deserialize<'de> for Of<D> {
    fn deserialize<S: Deserializer<'de>>(deserializer: S) -> Result<Self, S::Error> {
        D::deserialize(deserializer).map(|dataset| Of(Arc::new(dataset)))
    }
}

impl<D: Dataset> Dataset for Of<D> {
    type Sample = D::Sample;

    fn len(&self) -> usize {
        self.0.len()
    }

    fn get(&self, index: usize) -> Result<D::Sample> {
        self.0.get(index)
    }
}

impl<D> AnyDataset for Of<D>
where
    D: Dataset,
    D::Sample: Sample<Batch = (Tensor, Tensor)>,
{
    fn len(&self) -> usize {
        self.0.len()
    }

    fn get(&self, index: usize) -> Result<(Tensor, Tensor)> {
        // As a batch of one, so that a sample is tensors, whatever it is in Rust.
        let only = torchrs::data::SubsetSampler::new(vec![index]);
        let loader = DataLoader::builder(self.clone()).sampler(only).build()?;
        match loader.iter().next() {
            Some(batch) => batch.map(|(x, y)| (x.select(0, 0), y.select(0, 0))),
            None => Err(torchrs::Error::Other("the dataset gave no sample".to_owned())),
        }
    }

    fn loader(&self, options: &Options) -> Result<Box<dyn AnyLoader>> {
        let mut builder = DataLoader::builder(self.clone())
            .batch_size(options.batch_size)
            .shuffle(options.shuffle)
            .workers(options.workers)
            .prefetch_factor(options.prefetch_factor)
            .drop_last(options.drop_last);
        if let Some(seed) = options.seed {
            builder = builder.seed(seed);
        }
        if let Some(timeout) = options.timeout {
            builder = builder.timeout(timeout);
        }
        if let Some((replicas, rank)) = options.ranks {
            builder = builder.ranks(replicas, rank);
        }
        Ok(Box::new(LoaderOf(Arc::new(builder.build()?))))
    }
}

struct LoaderOf<D: Dataset>(Arc<DataLoader<D>>);

impl<D> AnyLoader for LoaderOf<D>
where
    D: Dataset,
    D::Sample: Sample<Batch = (Tensor, Tensor)>,
{
    fn len(&self) -> usize {
        self.0.len()
    }

    fn set_epoch(&self, epoch: u64) {
        self.0.set_epoch(epoch);
    }

    fn state(&self) -> LoaderState {
        self.0.state_dict()
    }

    fn load_state(&self, state: &LoaderState) -> Result<()> {
        self.0.load_state_dict(state)
    }

    fn batches(&self) -> Box<dyn AnyBatches> {
        let loader = self.0.clone();
        // SAFETY: the loader stands behind an `Arc` that lies beside the iteration and is dropped after it.
        let iter = unsafe { std::mem::transmute::<Iter<'_, D>, Iter<'static, D>>(loader.iter()) };
        Box::new(BatchesOf { iter, _loader: loader })
    }
}

/// An iteration, and the loader that it is of, in the order in which they are dropped.
struct BatchesOf<D: Dataset> {
    iter: Iter<'static, D>,
    _loader: Arc<DataLoader<D>>,
}

impl<D> AnyBatches for BatchesOf<D>
where
    D: Dataset,
    D::Sample: Sample<Batch = (Tensor, Tensor)>,
{
    fn next(&mut self) -> Option<Result<(Tensor, Tensor)>> {
        self.iter.next()
    }
}

/// A dataset of torchrs.
#[pyclass(name = "Dataset", module = "torchrs.data", frozen)]
pub struct PyDataset(Box<dyn AnyDataset>);

#[pymethods]
impl PyDataset {
    fn __len__(&self) -> usize {
        self.0.len()
    }

    /// A sample, as tensors.
    fn __getitem__(&self, py: Python<'_>, index: isize) -> PyResult<(PyTensor, PyTensor)> {
        let len = self.0.len();
        let at = if index < 0 { index + len as isize } else { index };
        if at < 0 || at as usize >= len {
            let message = format!("index {index} is out of range for {len} samples");
            return Err(pyo3::exceptions::PyIndexError::new_err(message));
        }
        let (x, y) = attempt(py, || self.0.get(at as usize))?;
        Ok((PyTensor(x), PyTensor(y)))
    }
}

/// Batches of a dataset, made by worker processes.
#[pyclass(name = "Loader", module = "torchrs.data", frozen)]
pub struct PyLoader(Box<dyn AnyLoader>);

#[pymethods]
impl PyLoader {
    #[new]
    #[pyo3(signature = (dataset, batch_size=1, shuffle=false, *, num_workers=0, prefetch_factor=2, drop_last=false,
        seed=None, timeout=None, ranks=None))]
    #[allow(clippy::too_many_arguments, reason = "named ones, in Python")]
    fn new(
        py: Python<'_>,
        dataset: PyRef<'_, PyDataset>,
        batch_size: usize,
        shuffle: bool,
        num_workers: usize,
        prefetch_factor: usize,
        drop_last: bool,
        seed: Option<u64>,
        timeout: Option<f64>,
        ranks: Option<(usize, usize)>,
    ) -> PyResult<Self> {
        let timeout = match timeout {
            None => None,
            Some(seconds) => Some(Duration::try_from_secs_f64(seconds).map_err(|error| {
                PyValueError::new_err(format!("DataLoader: timeout {seconds}: {error}"))
            })?),
        };
        let workers = num_workers;
        let options = Options {
            batch_size,
            shuffle,
            workers,
            prefetch_factor,
            drop_last,
            seed,
            timeout,
            ranks,
        };
        let dataset = &dataset.0;
        attempt(py, || dataset.loader(&options)).map(PyLoader)
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    fn __iter__(&self, py: Python<'_>) -> PyResult<PyBatches> {
        let batches = run(py, || self.0.batches())?;
        Ok(PyBatches(std::sync::Mutex::new(batches)))
    }

    fn set_epoch(&self, py: Python<'_>, epoch: u64) -> PyResult<()> {
        run(py, || self.0.set_epoch(epoch))
    }

    /// Where the iteration is, as a text of JSON.
    fn state_json(&self, py: Python<'_>) -> PyResult<String> {
        let state = run(py, || self.0.state())?;
        serde_json::to_string(&state).map_err(|e| PyValueError::new_err(e.to_string()))
    }

    fn load_state_json(&self, py: Python<'_>, state: &str) -> PyResult<()> {
        let state: LoaderState = serde_json::from_str(state)
            .map_err(|e| PyValueError::new_err(format!("load_state_dict: {e}")))?;
        attempt(py, || self.0.load_state(&state))
    }
}

/// The batches of an epoch.
#[pyclass(name = "Batches", module = "torchrs.data", frozen)]
pub struct PyBatches(std::sync::Mutex<Box<dyn AnyBatches>>);

#[pymethods]
impl PyBatches {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<(PyTensor, PyTensor)>> {
        let next = attempt(py, || {
            let mut batches = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            batches.next().transpose()
        })?;
        Ok(next.map(|(x, y)| (PyTensor(x), PyTensor(y))))
    }
}

#[pyfunction]
fn digits(py: Python<'_>, part: &str) -> PyResult<PyDataset> {
    let made = match part {
        "all" => run(py, Digits::all)?,
        "train" => run(py, Digits::train)?,
        "validation" => run(py, Digits::validation)?,
        other => {
            let message = format!("Digits: part {other:?} is none of all, train, validation");
            return Err(PyValueError::new_err(message));
        }
    };
    Ok(Of::boxed(made))
}

#[pyfunction]
#[pyo3(signature = (len, classes, shape, noise, seed))]
fn synthetic(
    py: Python<'_>,
    len: usize,
    classes: usize,
    shape: [usize; 3],
    noise: f32,
    seed: u64,
) -> PyResult<PyDataset> {
    let made = attempt(py, || {
        Ok(Synthetic::new(len).classes(classes)?.shape(shape).noise(noise).seed(seed))
    })?;
    Ok(Of::boxed(made))
}

#[pyfunction]
fn fashion_mnist(
    py: Python<'_>,
    folder: PathBuf,
    train: bool,
    augment: bool,
) -> PyResult<PyDataset> {
    let made = attempt(py, || {
        if train { FashionMnist::train(&folder) } else { FashionMnist::test(&folder) }
    })?;
    Ok(Of::boxed(made.augment(augment)))
}

#[pyfunction]
fn cifar10(py: Python<'_>, folder: PathBuf, train: bool) -> PyResult<PyDataset> {
    let made =
        attempt(py, || if train { Cifar10::train(&folder) } else { Cifar10::test(&folder) })?;
    Ok(Of::boxed(made))
}

#[pyfunction]
fn image_folder(py: Python<'_>, root: PathBuf, size: u32, augment: bool) -> PyResult<PyDataset> {
    let made = attempt(py, || ImageFolder::new(&root, size))?;
    Ok(Of::boxed(made.augment(augment)))
}

#[pyfunction]
fn text_windows(py: Python<'_>, path: PathBuf, length: usize) -> PyResult<PyDataset> {
    let made = attempt(py, || TextWindows::new(&path, length))?;
    Ok(Of::boxed(made))
}
