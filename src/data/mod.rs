//! Datasets, samplers and the `DataLoader` with its worker processes.
