//! The server: a thread that accepts connections, and one for each of them, up to a limit. A client that is slow, or
//! says nothing, is dropped.

use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::access::Access;
use super::feed::Feed;
use super::request::{Request, Unread};
use super::response::Response;
use super::routes::{Answer, Site};
use super::stream;
use crate::failure::Failure;
use crate::plan::Plan;
use crate::status::Status;

/// Connections at once.
const CONNECTIONS: usize = 64;
/// Streams among them, so that others get an answer, too.
const STREAMS: usize = 32;
/// A client that takes nothing for so long is dropped.
const WRITE_PATIENCE: Duration = Duration::from_secs(5);
/// What a thread of a connection needs.
const STACK: usize = 512 << 10;
/// How long the end of the job may take to reach those who watch.
const FAREWELL: Duration = Duration::from_millis(1500);

/// The page, as the user wants it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DashboardPlan {
    pub address: SocketAddr,
    /// 128 random bits, in hexadecimal.
    pub token: String,
}

/// A page that is served.
pub struct Dashboard {
    streams: Arc<AtomicUsize>,
    address: SocketAddr,
    token: String,
}

/// One of so many.
struct Place(Arc<AtomicUsize>);

impl Place {
    fn among(count: &Arc<AtomicUsize>, most: usize) -> Option<Self> {
        let place = Place(count.clone());
        (count.fetch_add(1, Ordering::AcqRel) < most).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Dashboard {
    /// Serves the page from now on.
    ///
    /// # Errors
    /// Where nobody can listen at the address: it is another program's, or not this host's.
    pub fn start(plan: &DashboardPlan, status: &Arc<Status>) -> Result<Self, Failure> {
        let failed = |what: &str, why: std::io::Error| {
            Failure::new(format!("--dashboard: cannot {what} {}: {why}", plan.address))
        };
        let listener = TcpListener::bind(plan.address).map_err(|why| failed("listen at", why))?;
        let address = listener.local_addr().map_err(|why| failed("listen at", why))?;
        let feed = Feed::start(status.clone()).map_err(|why| failed("serve", why))?;
        let loopback = address.ip().is_loopback();
        let access =
            Access::new(plan.token.clone(), status.job_id(), loopback, status.host().to_owned());
        let site = Arc::new(Site { access, status: status.clone(), feed });
        let streams = Arc::new(AtomicUsize::new(0));
        let (own, count) = (streams.clone(), Arc::new(AtomicUsize::new(0)));
        thread::Builder::new()
            .name("status-page".into())
            .stack_size(STACK)
            .spawn(move || accept(&listener, &site, &count, &own))
            .map_err(|why| failed("serve", why))?;
        Ok(Dashboard { streams, address, token: plan.token.clone() })
    }

    /// Where the page is and whom it shows what, for the user's eyes.
    pub fn notice(&self, plan: &Plan, status: &Status) -> String {
        let (port, host) = (self.address.port(), status.host());
        let place = match self.address {
            any if any.ip().is_unspecified() => format!("{host}:{port}"),
            own => own.to_string(),
        };
        let token = &self.token;
        let mut notice = format!("torchrs-launch: status page: http://{place}/?token={token}\n");
        if !self.address.ip().is_loopback() {
            notice += &format!(
                "torchrs-launch: warning: the status page listens at {}, which other hosts may reach: whoever has its \
                 address with the token sees the job's command line and output and can stop it, and nothing is encrypted\n",
                self.address
            );
        } else if plan.under_launcher {
            notice += &format!(
                "torchrs-launch: it is on {host}; here after `ssh -N -L {port}:127.0.0.1:{port} {host}`\n"
            );
        }
        notice
    }

    /// Waits until those who watch know how the job ended, for a moment at most.
    pub fn finish(self) {
        let until = Instant::now() + FAREWELL;
        while self.streams.load(Ordering::Acquire) > 0 && Instant::now() < until {
            thread::sleep(Duration::from_millis(5));
        }
    }
}

fn accept(
    listener: &TcpListener,
    site: &Arc<Site>,
    count: &Arc<AtomicUsize>,
    streams: &Arc<AtomicUsize>,
) {
    loop {
        let mut socket = match listener.accept() {
            Ok((socket, _)) => socket,
            Err(_) => {
                // No descriptors are left, say.
                thread::sleep(Duration::from_millis(100));
                continue;
            }
        };
        if socket.set_write_timeout(Some(WRITE_PATIENCE)).is_err() {
            continue;
        }
        let _ = socket.set_nodelay(true);
        let Some(place) = Place::among(count, CONNECTIONS) else {
            let _ = socket.set_write_timeout(Some(Duration::from_millis(10)));
            let _ = Response::text(503, "too many connections").send(&mut socket, true);
            continue;
        };
        let (site, streams) = (site.clone(), streams.clone());
        let serve = move || {
            serve(socket, &site, &streams);
            drop(place);
        };
        // Without a thread the client is dropped.
        let _ = thread::Builder::new().name("status-client".into()).stack_size(STACK).spawn(serve);
    }
}

fn serve(mut socket: TcpStream, site: &Site, streams: &Arc<AtomicUsize>) {
    let (response, body) = match Request::read(&mut socket) {
        Err(Unread::Gone) => return,
        Err(Unread::Refused(status, why)) => (Response::text(status, why), true),
        Ok(request) => match site.answer(&request) {
            Answer::Whole(response) => (response, request.method != "HEAD"),
            Answer::Stream => match Place::among(streams, STREAMS) {
                Some(place) => {
                    let _ = stream::send(&socket, &site.feed);
                    let _ = socket.shutdown(std::net::Shutdown::Both);
                    return drop(place);
                }
                None => (Response::text(503, "too many watch already"), true),
            },
        },
    };
    if response.send(&mut socket, body).is_ok() {
        let _ = socket.flush();
        // What the client still sends must not take the answer with it.
        let _ = socket.shutdown(std::net::Shutdown::Write);
        let _ = socket.set_read_timeout(Some(Duration::from_millis(200)));
        let _ = std::io::Read::read(&mut socket, &mut [0; 1024]);
    }
}
