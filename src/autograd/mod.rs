//! Define-by-run automatic differentiation: graph nodes, the engine, hooks, gradient modes.
