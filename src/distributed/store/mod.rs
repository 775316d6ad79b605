//! The rendezvous store: a small key-value service through which the workers of a job find each
//! other and pass on file descriptors. It lives in the launcher behind inherited sockets, so no
//! port is opened on one host.

mod client;
mod packet;
mod server;
mod state;
mod wire;

pub use client::Store;
pub use server::StoreServer;

#[cfg(test)]
mod tests;
