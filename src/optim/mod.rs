//! Optimizers, learning-rate schedulers, gradient clipping.
