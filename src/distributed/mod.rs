//! Store, process groups and data-parallel training.
