//! Child processes by re-executing this program, and channels that carry tensors by handle.
