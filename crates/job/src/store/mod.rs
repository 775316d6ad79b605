//! The rendezvous store: a small key-value service through which the workers of a job find each
//! other and pass on file descriptors. It lives in the launcher behind inherited sockets, so no
//! port is opened on one host. Its client is the library's `torchrs::distributed::Store`.

#[doc(hidden)]
pub mod hosts;
#[doc(hidden)]
pub mod packet;
#[doc(hidden)]
pub mod server;
mod state;
#[doc(hidden)]
pub mod wire;

pub use hosts::{AWAITS_WELCOME, LEADER, LINKS_ADDRESSES, LINKS_KEY, OF_HOST, Uplink, WELCOME};
pub use server::StoreServer;
