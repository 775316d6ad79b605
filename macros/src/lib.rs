//! Procedural macros of torchrs: `#[torchrs::main]` and `#[derive(Module)]`.
