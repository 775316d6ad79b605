//! A request's head, read with patience that has an end.

use std::io::{ErrorKind, Read};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Bytes of a head at most.
const HEAD: usize = 16 << 10;
/// Headers at most.
const HEADERS: usize = 64;
/// Bytes of a body, which no request here needs, at most.
const BODY: usize = 1 << 10;
/// A client has so long for all of its request.
const PATIENCE: Duration = Duration::from_secs(5);

/// A request without its body.
#[derive(Debug, PartialEq, Eq)]
pub struct Request {
    pub method: String,
    pub path: String,
    query: String,
    headers: Vec<(String, String)>,
}

/// Why there is none.
#[derive(Debug, PartialEq, Eq)]
pub enum Unread {
    /// What came is none, and the status to answer with.
    Refused(u16, &'static str),
    /// Nobody is there to answer.
    Gone,
}

impl Request {
    /// Reads a request from a client.
    pub fn read(socket: &mut TcpStream) -> Result<Self, Unread> {
        let until = Instant::now() + PATIENCE;
        let (mut bytes, mut buffer) = (Vec::new(), [0; 4096]);
        let end = loop {
            if let Some(end) = end_of_head(&bytes) {
                break end;
            }
            if bytes.len() >= HEAD {
                return Err(Unread::Refused(431, "the request's head is too long"));
            }
            let count = read_within(socket, &mut buffer, until)?;
            bytes.extend_from_slice(&buffer[..count]);
        };
        if end > HEAD {
            return Err(Unread::Refused(431, "the request's head is too long"));
        }
        let request = Self::parse(&bytes[..end])?;
        if request.header("transfer-encoding").is_some() {
            return Err(Unread::Refused(411, "no request here has a body"));
        }
        let length = match request.header("content-length").map(str::parse::<usize>) {
            None => 0,
            Some(Ok(length)) if length <= BODY => length,
            Some(_) => return Err(Unread::Refused(413, "no request here has a body")),
        };
        // Read to its end: a socket that is closed over unread bytes takes the answer with it.
        let mut left = (end + length).saturating_sub(bytes.len());
        while left > 0 {
            left = left.saturating_sub(read_within(socket, &mut buffer, until)?);
        }
        Ok(request)
    }

    /// Of a whole head.
    pub fn parse(head: &[u8]) -> Result<Self, Unread> {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS];
        let mut parsed = httparse::Request::new(&mut headers);
        match parsed.parse(head) {
            Ok(httparse::Status::Complete(_)) => {}
            Err(httparse::Error::TooManyHeaders) => {
                return Err(Unread::Refused(431, "the request has too many headers"));
            }
            _ => return Err(Unread::Refused(400, "this is no request of HTTP/1.1")),
        }
        let (method, target) = (parsed.method.unwrap_or_default(), parsed.path.unwrap_or_default());
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let text = |header: &httparse::Header<'_>| {
            let value = String::from_utf8_lossy(header.value).trim().to_owned();
            (header.name.to_ascii_lowercase(), value)
        };
        let headers: Vec<(String, String)> = parsed.headers.iter().map(text).collect();
        // Two answers to one question are a trick.
        let twice = |name: &str| headers.iter().filter(|(other, _)| other == name).count() > 1;
        if ["host", "origin", "authorization", "content-length"].into_iter().any(twice) {
            return Err(Unread::Refused(400, "a header is there twice"));
        }
        Ok(Request {
            method: method.to_owned(),
            path: path.to_owned(),
            query: query.to_owned(),
            headers,
        })
    }

    /// A header's value, by its name in small letters.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(other, _)| other == name);
        found.map(|(_, value)| &**value)
    }

    /// A value of the address's query.
    pub fn query(&self, name: &str) -> Option<&str> {
        let mut pairs = self.query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.find(|(other, _)| *other == name).map(|(_, value)| value)
    }
}

/// Bytes up to the empty line.
fn end_of_head(bytes: &[u8]) -> Option<usize> {
    bytes.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4)
}

fn read_within(socket: &mut TcpStream, buffer: &mut [u8], until: Instant) -> Result<usize, Unread> {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Unread::Refused(408, "the request did not come in time"));
        }
        if socket.set_read_timeout(Some(left)).is_err() {
            return Err(Unread::Gone);
        }
        match socket.read(buffer) {
            Ok(0) => return Err(Unread::Gone),
            Ok(count) => return Ok(count),
            Err(error) => match error.kind() {
                ErrorKind::Interrupted => {}
                ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                    return Err(Unread::Refused(408, "the request did not come in time"));
                }
                _ => return Err(Unread::Gone),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_taken_apart() {
        let head =
            b"GET /rank/3?token=a%20b&x=1 HTTP/1.1\r\nHost:  localhost \r\nCookie: a=b\r\n\r\n";
        let request = Request::parse(head).unwrap();
        assert_eq!((&*request.method, &*request.path), ("GET", "/rank/3"));
        assert_eq!((request.query("x"), request.query("token")), (Some("1"), Some("a%20b")));
        assert_eq!((request.header("host"), request.header("origin")), (Some("localhost"), None));
    }

    #[test]
    fn what_is_no_head_is_refused() {
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(HEADERS + 1));
        for (head, status) in [
            (&b"\x16\x03\x01\r\n\r\n"[..], 400),
            (b"GET /\r\n\r\n", 400),
            (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
            (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400),
            (many.as_bytes(), 431),
        ] {
            match Request::parse(head) {
                Err(Unread::Refused(is, _)) => assert_eq!(is, status),
                other => panic!("{other:?}"),
            }
        }
    }
}
