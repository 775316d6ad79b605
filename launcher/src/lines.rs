//! Turns one worker's stream of bytes into whole, prefixed lines. On a terminal a carriage return
//! ends a line too, so that a worker's progress bar is redrawn in place and other output pushes
//! it away cleanly; elsewhere every byte but the prefix is the worker's own.

/// A line that grows beyond this is written in pieces rather than collected.
pub const LONGEST_WHOLE_LINE: usize = 64 << 10;

/// Clears the line that the cursor stands at the beginning of.
const ERASE_LINE: &[u8] = b"\x1b[K";

/// What the writers to one terminal or file have to know of each other.
#[derive(Debug, Default)]
pub struct Screen {
    /// Whether a person is looking.
    pub is_terminal: bool,
    /// The writer whose line ended in a carriage return and is still on show.
    pub transient: Option<usize>,
}

/// The lines of one stream.
#[derive(Debug)]
pub struct Lines {
    /// Tells writers to one screen apart.
    id: usize,
    prefix: Vec<u8>,
    /// The beginning of a line whose end has not come yet.
    pending: Vec<u8>,
    /// Whether a piece of the present line is out; then `pending` is empty.
    open: bool,
}

impl Lines {
    pub fn new(id: usize, prefix: Vec<u8>) -> Self {
        Lines { id, prefix, pending: Vec::new(), open: false }
    }

    /// Whether nobody else may write now without tearing this stream's line.
    pub fn is_mid_line(&self) -> bool {
        self.open
    }

    /// Takes `input` and appends to `out` what can be written.
    pub fn push(&mut self, input: &[u8], screen: &mut Screen, out: &mut Vec<u8>) {
        let mut searched = self.pending.len();
        self.pending.extend_from_slice(input);
        let pending = std::mem::take(&mut self.pending);
        let mut start = 0;
        while let Some(found) = line_end(&pending[searched..], screen.is_terminal) {
            let end = searched + found;
            let next = match &pending[end..] {
                [b'\r', b'\n', ..] => end + 2,
                _ => end + 1,
            };
            self.line(&pending[start..end], &pending[end..next], screen, out);
            (start, searched) = (next, next);
        }
        let rest = &pending[start..];
        if self.open || rest.len() >= LONGEST_WHOLE_LINE {
            self.begin(screen, out);
            out.extend_from_slice(rest);
        } else {
            self.pending = rest.to_vec();
        }
    }

    /// Ends a line that is half out, because somebody else has to write or the stream has ended.
    /// What follows begins anew, with a prefix.
    pub fn break_line(&mut self, out: &mut Vec<u8>) {
        if self.open {
            out.push(b'\n');
            self.open = false;
        }
    }

    /// The stream has ended: what is left becomes a line.
    pub fn finish(&mut self, screen: &mut Screen, out: &mut Vec<u8>) {
        let rest = std::mem::take(&mut self.pending);
        if !rest.is_empty() {
            self.begin(screen, out);
            out.extend_from_slice(&rest);
        } else if screen.transient == Some(self.id) {
            out.push(b'\n');
            screen.transient = None;
        }
        self.break_line(out);
    }

    fn line(&mut self, text: &[u8], end: &[u8], screen: &mut Screen, out: &mut Vec<u8>) {
        let redrawn = end == b"\r";
        if text.is_empty() && !self.open {
            if redrawn {
                // A bar that begins with the carriage return: there is nothing to draw yet.
                return;
            }
            if screen.transient == Some(self.id) {
                // The bar is complete: its line stays.
                out.push(b'\n');
                screen.transient = None;
                return;
            }
        }
        self.begin(screen, out);
        out.extend_from_slice(text);
        out.extend_from_slice(end);
        self.open = false;
        screen.transient = redrawn.then_some(self.id);
    }

    /// Makes sure that the line's prefix is out.
    fn begin(&mut self, screen: &mut Screen, out: &mut Vec<u8>) {
        if !self.open {
            clear(screen, out);
            out.extend_from_slice(&self.prefix);
            self.open = true;
        }
    }
}

/// What stands before each line of a worker among several.
pub fn prefix(rank: usize) -> String {
    format!("[rank{rank}]: ")
}

/// Wipes a progress bar away before something else is written in its place.
pub fn clear(screen: &mut Screen, out: &mut Vec<u8>) {
    if screen.transient.take().is_some() {
        out.extend_from_slice(ERASE_LINE);
    }
}

fn line_end(bytes: &[u8], on_terminal: bool) -> Option<usize> {
    bytes.iter().position(|&b| b == b'\n' || (b == b'\r' && on_terminal))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What two streams look like on a screen, for (stream, bytes) pushed in this order.
    fn shown(is_terminal: bool, pushes: &[(usize, &str)]) -> String {
        let mut screen = Screen { is_terminal, transient: None };
        let mut streams = [0, 1].map(|id| Lines::new(id, format!("[{id}]").into_bytes()));
        let mut out = Vec::new();
        for (id, bytes) in pushes {
            streams[*id].push(bytes.as_bytes(), &mut screen, &mut out);
        }
        for lines in &mut streams {
            lines.finish(&mut screen, &mut out);
        }
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn pieces_become_whole_lines() {
        let pushes = [(0, "a"), (1, "x\ny"), (0, "b\n\nc"), (1, "z\n")];
        assert_eq!(shown(false, &pushes), "[1]x\n[0]ab\n[0]\n[1]yz\n[0]c\n");
    }

    #[test]
    fn away_from_a_terminal_carriage_returns_are_plain_bytes() {
        assert_eq!(shown(false, &[(0, "\r10%\r20%\r\n")]), "[0]\r10%\r20%\r\n");
    }

    #[test]
    fn on_a_terminal_a_bar_is_redrawn_and_pushed_away() {
        let bar = [(0, "10%\r"), (0, "20%\r"), (1, "hello\n"), (0, "30%\r"), (0, "\n")];
        assert_eq!(shown(true, &bar), "[0]10%\r\x1b[K[0]20%\r\x1b[K[1]hello\n[0]30%\r\n");
        // The other habit: carriage return first. The last state is shown when it is known.
        assert_eq!(shown(true, &[(0, "\r10%"), (0, "\r20%")]), "[0]10%\r\x1b[K[0]20%\n");
        assert_eq!(shown(true, &[(0, "dos\r\n"), (0, "10%\r")]), "[0]dos\r\n[0]10%\r\n");
    }

    #[test]
    fn a_long_line_goes_out_in_pieces_with_one_prefix() {
        let long = "x".repeat(LONGEST_WHOLE_LINE);
        let out = shown(false, &[(0, &long), (0, "yy"), (0, "z\nnext\n")]);
        assert_eq!(out, format!("[0]{long}yyz\n[0]next\n"));
    }

    #[test]
    fn a_broken_line_goes_on_with_a_new_prefix() {
        let mut screen = Screen::default();
        let mut lines = Lines::new(0, b"[0]".to_vec());
        let mut out = Vec::new();
        lines.push(&vec![b'x'; LONGEST_WHOLE_LINE], &mut screen, &mut out);
        assert!(lines.is_mid_line());
        out.clear();
        lines.break_line(&mut out);
        lines.push(b"y\n", &mut screen, &mut out);
        assert_eq!(out, b"\n[0]y\n");
    }
}
