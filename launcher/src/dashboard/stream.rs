//! The page's stream of server-sent events: all at first, then what is new each second.

use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};

use super::feed::{Feed, Frame};
use super::response::{EVENTS, head};
use super::rows::Sent;
use crate::status::snapshot::{JobState, RankState};

/// A browser that has lost the stream tries again after so many milliseconds.
const RETRY: u32 = 2000;
/// Without anything to say, a sign of life: a client that is gone is noticed by that.
const SILENCE: Duration = Duration::from_secs(5);
/// Hosts that are listed at most.
const HOSTS: usize = 200;

/// Sends the stream until the job is over, or the client takes no more.
pub fn send(mut socket: &TcpStream, feed: &Feed) -> std::io::Result<()> {
    let mut begin = head(200, EVENTS, &[]);
    begin.extend(format!("\r\nretry: {RETRY}\n\n").into_bytes());
    socket.write_all(&begin)?;
    let mut sent = Sent::default();
    let (mut number, mut told) = (0, 0);
    loop {
        let Some(frame) = feed.newer_than(number, SILENCE) else {
            socket.write_all(b": still here\n\n")?;
            continue;
        };
        // Points that a slow client has missed come with all others.
        let is_whole = frame.number != number + 1 || number == 0;
        let mut message = message(&frame, &mut sent, told);
        if is_whole {
            message["history"] = feed.history();
        }
        told = frame.look.snapshot.events.last().map_or(told, |event| event.number);
        number = frame.number;
        let name = if is_whole { "all" } else { "news" };
        // Values of JSON in one line: serde_json writes no line's end.
        let text = format!("event: {name}\nid: {number}\ndata: {message}\n\n");
        socket.write_all(text.as_bytes())?;
        if frame.look.snapshot.job.state == JobState::Ended {
            return socket.write_all(b"event: end\ndata: {}\n\n");
        }
    }
}

fn message(frame: &Frame, sent: &mut Sent, told: u64) -> Value {
    let snapshot = &frame.look.snapshot;
    let of = |state| snapshot.ranks.iter().filter(|line| line.state == state).count();
    let states = [RankState::Started, RankState::Running, RankState::Done, RankState::Failed];
    let slow = snapshot.ranks.iter().filter(|line| line.slow).count();
    let events: Vec<_> = snapshot.events.iter().filter(|event| event.number > told).collect();
    let ranks = snapshot.ranks.len();
    let (rows, devices) = sent.news(snapshot);
    json!({
        "at_ms": snapshot.at_ms,
        "job": snapshot.job,
        "hosts": &snapshot.hosts[..snapshot.hosts.len().min(HOSTS)],
        "ranks": ranks,
        "states": states.map(of),
        "slow": slow,
        "rows": rows,
        "devices": devices,
        "scalars": snapshot.scalars,
        "speed": snapshot.speed,
        "time": snapshot.time,
        "checkpoint": snapshot.checkpoint,
        "events": events,
        "points": frame.points,
    })
}
