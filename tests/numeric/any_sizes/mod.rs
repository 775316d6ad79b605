//! Operators at random sizes, layouts and types against their definitions, which are written out here in f64 with
//! gradients: fast paths are chosen by size and layout, and a wrong choice shows at sizes that nobody thought of.

mod attention;
mod laid;
mod matmul;
mod pooling;
mod recurrent;
mod rows;
