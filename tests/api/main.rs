//! What users call, on the CPU and in one process: autograd, modules, models, optimizers, mixed precision.

mod amp;
mod autograd;
mod flops;
mod metrics;
mod models;
mod module;
mod nn;
mod onnx;
mod optim;
mod optim_reference;
mod races;
mod silent_misuse;
mod tensorboard;
