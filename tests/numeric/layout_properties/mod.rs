//! Random layouts against lists of elements: views, indexing, broadcasting, reductions and copies must
//! give what a naive model gives, and gradients of views must go back by the same map.

mod elementwise;
mod indexing;
mod model;
mod views;
