//! What is where.

use std::sync::Arc;

use serde_json::json;

use super::access::{Access, Proof};
use super::feed::Feed;
use super::metrics::metrics;
use super::page::{page, refusal};
use super::request::Request;
use super::response::{JSON, METRICS, Response};
use crate::status::Status;
use crate::status::snapshot::{JobState, RankState};

/// All that requests are answered from.
pub struct Site {
    pub access: Access,
    pub status: Arc<Status>,
    pub feed: Arc<Feed>,
}

/// What becomes of a request.
pub enum Answer {
    Whole(Response),
    /// The stream of events.
    Stream,
}

impl Site {
    /// Answers a request.
    pub fn answer(&self, request: &Request) -> Answer {
        Answer::Whole(match (&*request.method, &*request.path) {
            ("GET" | "HEAD", "/healthz") => Response::text(200, "ok"),
            ("GET" | "HEAD", "/readyz") => self.ready(),
            _ if !self.access.knows_host(request) => Response::text(
                421,
                "this host is not known by that name: use its address, its own name, or localhost",
            ),
            (method, path) => {
                let Some(proof) = self.access.proof(request) else {
                    return Answer::Whole(refusal());
                };
                match (method, path) {
                    ("GET", "/events") => return Answer::Stream,
                    ("GET" | "HEAD", path) => self.get(path, proof),
                    ("POST", "/stop" | "/save") if !self.access.may_act(request, proof) => {
                        Response::text(
                            403,
                            "a button is pressed on the page itself, or with `Authorization: Bearer TOKEN`",
                        )
                    }
                    ("POST", "/stop" | "/save") if self.is_over() => {
                        Response::text(409, "the job is over")
                    }
                    ("POST", "/stop") => {
                        self.status.stop();
                        Response::text(202, "the workers were asked to end")
                    }
                    ("POST", "/save") => self.save(),
                    (_, "/stop" | "/save") => Response::text(405, "use POST").with("Allow", "POST"),
                    _ => Response::text(405, "use GET").with("Allow", "GET, HEAD"),
                }
            }
        })
    }

    fn get(&self, path: &str, proof: Proof) -> Response {
        match path {
            // The token goes out of the address, which is shown and remembered.
            "/" if proof == Proof::Query => Response::text(303, "the page is at /")
                .with("Location", "/")
                .with("Set-Cookie", &self.access.cookie()),
            "/" => page(),
            "/metrics" => Response::new(200, METRICS, metrics(&self.status.look().snapshot)),
            "/snapshot.json" => Response::new(200, JSON, to_json(&self.status.look().snapshot)),
            "/stop" | "/save" => Response::text(405, "use POST").with("Allow", "POST"),
            "/events" => Response::text(405, "use GET").with("Allow", "GET"),
            path => match path.strip_prefix("/rank/").and_then(|rank| rank.parse().ok()) {
                Some(rank) => self.rank(rank),
                None => Response::text(404, "there is nothing here"),
            },
        }
    }

    /// A rank in full, with the end of its output.
    fn rank(&self, rank: usize) -> Response {
        let look = self.status.look();
        let Some(line) = look.snapshot.ranks.iter().find(|line| line.rank == rank) else {
            return Response::text(404, format!("there is no rank {rank}"));
        };
        let output = self.status.output_of(rank);
        let log = output.map(|bytes| plain(&bytes));
        let host = look.snapshot.hosts.get(line.host).map(|host| &host.name);
        Response::new(200, JSON, to_json(&json!({ "line": line, "host": host, "log": log })))
    }

    fn is_over(&self) -> bool {
        self.status.look().snapshot.job.state == JobState::Ended
    }

    fn save(&self) -> Response {
        if !self.status.look().snapshot.job.can_save {
            return Response::text(
                409,
                "no worker handles SIGUSR1, which would end it: the program needs `GracefulStop`",
            );
        }
        self.status.save_and_stop();
        Response::text(202, "the workers were asked to save and end")
    }

    /// Whether all workers of this host run.
    fn ready(&self) -> Response {
        let look = self.status.look();
        let runs = |state| matches!(state, RankState::Started | RankState::Running);
        let ranks = &look.snapshot.ranks;
        let all = !ranks.is_empty() && ranks.iter().all(|line| runs(line.state));
        match look.snapshot.job.state {
            JobState::Running if all => Response::text(200, "all workers run"),
            JobState::Running => Response::text(503, "not all workers run"),
            JobState::Starting => Response::text(503, "the workers are about to start"),
            JobState::Stopping | JobState::Failing => Response::text(503, "the workers end"),
            JobState::Ended => Response::text(503, "the job is over"),
        }
    }
}

fn to_json(value: &impl serde::Serialize) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}

/// Output as text: without a terminal's commands, and of a line that was redrawn only what was left of it.
fn plain(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut plain = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let line = match line.trim_end_matches(['\r', '\n']).rsplit_once('\r') {
            Some((_, last)) => format!("{last}\n"),
            None => line.to_owned(),
        };
        let mut letters = line.chars().peekable();
        while let Some(letter) = letters.next() {
            if letter == '\u{1b}' {
                if letters.next_if_eq(&'[').is_some() {
                    while letters.next_if(|c| !('@'..='~').contains(c)).is_some() {}
                    letters.next();
                }
            } else if !letter.is_control() || letter == '\n' || letter == '\t' {
                plain.push(letter);
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_becomes_text() {
        assert_eq!(
            plain(b"10%\r20%\r\nred \x1b[1;31merror\x1b[0m\n\x07x\xff"),
            "20%\nred error\nx\u{fffd}"
        );
    }
}
