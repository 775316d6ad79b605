//! Saving and loading of training state.
