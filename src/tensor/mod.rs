//! The tensor handle: dtype, device, layout, creation, indexing, printing.
