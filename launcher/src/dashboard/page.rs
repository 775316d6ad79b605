//! The page itself: one file, made of three at build time. Its style and script are marked with a word that is drawn
//! for each answer; a browser runs no other.

use std::sync::LazyLock;

use super::response::{HTML, Response};
use crate::front::random_id;

const MARK: &str = "@nonce@";

static PAGE: LazyLock<String> = LazyLock::new(|| {
    include_str!("page/page.html").replace("/* @style@ */", include_str!("page/page.css")).replace(
        "/* @script@ */",
        concat!(include_str!("page/charts.js"), include_str!("page/page.js")),
    )
});

/// The page, for whoever has the token.
pub fn page() -> Response {
    let Ok(nonce) = random_id() else {
        return Response::text(503, "this host gives no random numbers");
    };
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; img-src data:; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    Response::new(200, HTML, PAGE.replace(MARK, &nonce)).with("Content-Security-Policy", &policy)
}

/// What those see who have not.
pub fn refusal() -> Response {
    Response::text(
        401,
        "This page needs the job's token: open the address that torchrs-launch has printed, with all that stands \
         after its question mark. Programs send the token as `Authorization: Bearer TOKEN`.",
    )
    .with("WWW-Authenticate", "Bearer")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_whole_and_asks_for_nothing_from_elsewhere() {
        let page = page();
        let text = String::from_utf8(page.body).unwrap();
        for left in ["@nonce@", "@style@", "@script@", "https://", "http://", "@import", "url("] {
            // Names of XML are no addresses to load from.
            let text = text.replace("http://www.w3.org/2000/svg", "");
            assert!(!text.contains(left), "{left}");
        }
        for handler in ["onclick=", "onload=", "style=\"", "innerHTML"] {
            assert!(!text.contains(handler), "{handler}");
        }
        assert!(text.len() < 64 << 10, "{}", text.len());
    }
}
