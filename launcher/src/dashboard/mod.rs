//! The status page: a job in a browser, `/metrics` for Prometheus, and `/healthz` and `/readyz` for whoever looks after
//! processes. Threads of the supervisor serve it; nothing that a client does, or does not do, reaches the job, but for
//! the buttons that do what a signal to the launcher does.

mod access;
pub mod address;
mod feed;
mod metrics;
mod page;
mod request;
mod response;
mod routes;
mod rows;
mod server;
mod stream;

pub use server::{Dashboard, DashboardPlan};
