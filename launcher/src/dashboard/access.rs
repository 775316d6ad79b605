//! Who may see the page: whoever has the token, which the launcher prints. A page of another site cannot use a
//! browser that has it: the cookie stays with this host, names that lead here by a trick are refused, and a button
//! wants to be pressed on this page.

use std::net::IpAddr;

use subtle::ConstantTimeEq;

use super::request::Request;

/// Decides on requests.
#[derive(Debug)]
pub struct Access {
    token: String,
    cookie: String,
    /// Whether only this host can reach the page.
    loopback: bool,
    host: String,
}

/// How a request shows that it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proof {
    /// By a header that no page of another site can set.
    Bearer,
    /// By the address.
    Query,
    /// By the cookie, which a browser sends by itself.
    Cookie,
}

impl Access {
    /// `job`: the random name of the job, for browsers that look at several; `host`: this host's name.
    pub fn new(token: String, job: &str, loopback: bool, host: String) -> Self {
        let cookie = format!("torchrs_{}", &job[..job.len().min(8)]);
        Access { token, cookie, loopback, host }
    }

    /// The header that gives a browser its cookie.
    pub fn cookie(&self) -> String {
        format!("{}={}; Path=/; HttpOnly; SameSite=Strict", self.cookie, self.token)
    }

    fn is_token(&self, given: &str) -> bool {
        given.as_bytes().ct_eq(self.token.as_bytes()).into()
    }

    /// Whether a request has the token, and how.
    pub fn proof(&self, request: &Request) -> Option<Proof> {
        let bearer = request.header("authorization").and_then(|value| {
            let (scheme, token) = value.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
        });
        if bearer.is_some_and(|token| self.is_token(token)) {
            return Some(Proof::Bearer);
        }
        if request.query("token").is_some_and(|token| self.is_token(token)) {
            return Some(Proof::Query);
        }
        let cookies = request.header("cookie").unwrap_or_default().split(';');
        let mut own = cookies.filter_map(|cookie| {
            let (name, value) = cookie.trim().split_once('=')?;
            (name == self.cookie).then_some(value)
        });
        own.any(|token| self.is_token(token)).then_some(Proof::Cookie)
    }

    /// Whether the name by which the client has come is this host's: one that a foreign site has made lead here is
    /// not. Tunnels come by other ports, and by `localhost`.
    pub fn knows_host(&self, request: &Request) -> bool {
        let Some(host) = request.header("host") else { return false };
        let name = name_of(host);
        let literal = name.trim_matches(['[', ']']).parse::<IpAddr>().ok();
        if name.eq_ignore_ascii_case("localhost") || literal.is_some_and(|ip| ip.is_loopback()) {
            return true;
        }
        let own = self.host.split('.').next().unwrap_or_default();
        let first = name.split('.').next().unwrap_or_default();
        !self.loopback && (literal.is_some() || !own.is_empty() && first.eq_ignore_ascii_case(own))
    }

    /// Whether a button was pressed on this page, or by a program that has the token.
    pub fn may_act(&self, request: &Request, proof: Proof) -> bool {
        if proof == Proof::Bearer {
            return true;
        }
        let origin = request.header("origin").and_then(|origin| origin.split_once("://"));
        let host = request.header("host");
        origin.zip(host).is_some_and(|((_, origin), host)| origin.eq_ignore_ascii_case(host))
    }
}

/// Without the port.
fn name_of(host: &str) -> &str {
    match host.rfind(':') {
        // The colons of an address in brackets are its own.
        Some(at) if !host[at..].contains(']') => &host[..at],
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(head: &str) -> Request {
        Request::parse(format!("GET /a?token=abc HTTP/1.1\r\n{head}\r\n").as_bytes()).unwrap()
    }

    fn access(token: &str, loopback: bool) -> Access {
        Access::new(token.into(), "0123456789abcdef", loopback, "node7.cluster".into())
    }

    #[test]
    fn the_token_is_taken_from_three_places() {
        let secret = access("s3cret", true);
        for (head, proof) in [
            ("Authorization: Bearer s3cret\r\n", Some(Proof::Bearer)),
            ("authorization: bearer s3cret\r\n", Some(Proof::Bearer)),
            ("Authorization: Basic s3cret\r\n", None),
            ("Cookie: a=b; torchrs_01234567=s3cret\r\n", Some(Proof::Cookie)),
            ("Cookie: torchrs_01234567=s3cre\r\n", None),
            ("Cookie: torchrs_76543210=s3cret\r\n", None),
            ("", None),
        ] {
            assert_eq!(secret.proof(&request(head)), proof, "{head}");
        }
        assert_eq!(access("abc", true).proof(&request("")), Some(Proof::Query));
    }

    #[test]
    fn names_that_lead_here_by_a_trick_are_not_known() {
        let known = |host: &str, loopback| {
            access("x", loopback).knows_host(&request(&format!("Host: {host}\r\n")))
        };
        for host in ["localhost", "localhost:9000", "127.0.0.1:1", "[::1]:80", "LOCALHOST"] {
            assert!(known(host, true) && known(host, false), "{host}");
        }
        for host in ["10.0.0.7:80", "node7:80", "node7.cluster", "[2001:db8::1]"] {
            assert!(!known(host, true) && known(host, false), "{host}");
        }
        for host in ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example", ""] {
            assert!(!known(host, true) && !known(host, false), "{host}");
        }
        assert!(!access("x", true).knows_host(&request("")));
    }

    #[test]
    fn a_button_is_pressed_on_this_page() {
        let may = |head: &str, proof| access("x", true).may_act(&request(head), proof);
        assert!(may("Host: localhost:8\r\nOrigin: http://localhost:8\r\n", Proof::Cookie));
        assert!(may("Host: localhost:8\r\n", Proof::Bearer));
        for head in [
            "Host: localhost:8\r\n",
            "Host: localhost:8\r\nOrigin: http://localhost:9\r\n",
            "Host: localhost:8\r\nOrigin: null\r\n",
            "Host: localhost:8\r\nOrigin: http://evil.example\r\n",
        ] {
            assert!(!may(head, Proof::Cookie) && !may(head, Proof::Query), "{head}");
        }
    }
}
