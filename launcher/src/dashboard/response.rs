//! Answers: what stands at the head of each of them.

use std::io::{self, Write};
use std::net::TcpStream;

/// The kinds of answers that there are.
pub const TEXT: &str = "text/plain; charset=utf-8";
pub const HTML: &str = "text/html; charset=utf-8";
pub const JSON: &str = "application/json";
pub const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";
pub const EVENTS: &str = "text/event-stream";

/// An answer.
#[derive(Debug)]
pub struct Response {
    pub status: u16,
    pub kind: &'static str,
    pub body: Vec<u8>,
    /// Whole lines of the head, beside those that every answer has.
    pub headers: Vec<String>,
}

impl Response {
    pub fn new(status: u16, kind: &'static str, body: impl Into<Vec<u8>>) -> Self {
        Response { status, kind, body: body.into(), headers: Vec::new() }
    }

    /// A line of text for a person.
    pub fn text(status: u16, line: impl Into<String>) -> Self {
        Self::new(status, TEXT, line.into() + "\n")
    }

    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.push(format!("{name}: {value}"));
        self
    }

    /// Sends it; `body`: or only its head.
    pub fn send(&self, socket: &mut TcpStream, body: bool) -> io::Result<()> {
        let mut bytes = head(self.status, self.kind, &self.headers);
        bytes.extend(format!("Content-Length: {}\r\n\r\n", self.body.len()).into_bytes());
        if body {
            bytes.extend_from_slice(&self.body);
        }
        socket.write_all(&bytes)
    }
}

/// The head of an answer, without its last line.
pub fn head(status: u16, kind: &str, headers: &[String]) -> Vec<u8> {
    let mut head = format!(
        "HTTP/1.1 {status} {}\r\nContent-Type: {kind}\r\nCache-Control: no-store\r\nConnection: close\r\n\
         X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n\
         Cross-Origin-Resource-Policy: same-origin\r\n",
        reason(status)
    );
    if !headers.iter().any(|line| line.starts_with("Content-Security-Policy:")) {
        head += "Content-Security-Policy: default-src 'none'; frame-ancestors 'none'\r\n";
    }
    for line in headers {
        head += line;
        head += "\r\n";
    }
    head.into_bytes()
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        202 => "Accepted",
        204 => "No Content",
        303 => "See Other",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        409 => "Conflict",
        411 => "Length Required",
        413 => "Content Too Large",
        421 => "Misdirected Request",
        431 => "Request Header Fields Too Large",
        503 => "Service Unavailable",
        _ => "",
    }
}
