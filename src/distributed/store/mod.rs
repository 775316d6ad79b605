//! The rendezvous store: a small key-value service through which the workers of a job find each
//! other and pass on file descriptors. It lives in the launcher behind inherited sockets, so no
//! port is opened on one host.
//!
//! ```
//! use std::time::Duration;
//! use torchrs::distributed::store::{Store, StoreServer};
//!
//! let server = StoreServer::start()?;
//! let [one, two] = [Store::connect_fd(server.connect()?)?, Store::connect_fd(server.connect()?)?];
//! one.set("address", b"node0")?;
//! assert_eq!(two.get("address", Duration::from_secs(60))?, b"node0");
//! # Ok::<(), torchrs::Error>(())
//! ```

mod client;

pub use client::Store;
#[doc(inline)]
pub use torchrs_job::store::StoreServer;
pub(super) use torchrs_job::store::packet;
pub(super) use torchrs_job::store::server::ended_key;
use torchrs_job::store::{server, wire};

#[cfg(test)]
mod tests;
