//! The progress bar of a job, and lines beside it.

use std::io::{IsTerminal, Write};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::distributed::ProcessGroup;

/// The progress bar of a job, which rank 0 shows: on a terminal it moves; elsewhere it is silent, and lines say how far
/// the run is.
///
/// ```
/// use torchrs::train::Progress;
/// let group = torchrs::distributed::init_process_group(Default::default())?;
/// let progress = Progress::new(&group, 100, 0);
/// progress.epoch(0, 10);
/// for _ in 0..10 {
///     progress.step("loss 0.5");
/// }
/// progress.line("epoch 1/10: val_loss=0.7"); // by rank 0, on standard output
/// progress.finish();
/// # Ok::<(), torchrs::Error>(())
/// ```
pub struct Progress {
    bar: ProgressBar,
    prints: bool,
}

impl Progress {
    /// Of a job with so many steps, of which some are done.
    pub fn new(group: &ProcessGroup, steps: u64, done: u64) -> Self {
        // Under the launcher stderr is a pipe; the launcher says whether a terminal is behind it.
        let behind_pipe =
            || std::env::var("TORCHRS_TERMINAL").is_ok_and(|s| s.split(',').any(|s| s == "stderr"));
        let target = match group.rank() {
            0 if std::io::stderr().is_terminal() => ProgressDrawTarget::stderr(),
            0 if behind_pipe() => ProgressDrawTarget::term_like(Box::new(PipedTerminal)),
            _ => ProgressDrawTarget::hidden(),
        };
        let style = ProgressStyle::with_template(
            "{prefix} {bar:30} {pos}/{len} steps, {elapsed} + {eta}, {msg}",
        )
        .expect("a constant template");
        let bar = ProgressBar::with_draw_target(Some(steps), target).with_style(style);
        bar.set_position(done);
        Progress { bar, prints: group.rank() == 0 }
    }

    /// Says which epoch it is, from 0.
    pub fn epoch(&self, epoch: u64, epochs: u64) {
        self.bar.set_prefix(format!("epoch {}/{epochs}", epoch + 1));
    }

    /// A step is done.
    pub fn step(&self, message: impl Into<String>) {
        self.bar.set_message(message.into());
        self.bar.inc(1);
    }

    /// Prints a line to standard output, by rank 0 and without tearing the bar.
    pub fn line(&self, text: &str) {
        if self.prints {
            self.bar.suspend(|| println!("{text}"));
        }
    }

    /// Takes the bar away.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// A terminal at the other end of a pipe: one line, rewritten by carriage returns.
#[derive(Debug)]
struct PipedTerminal;

impl indicatif::TermLike for PipedTerminal {
    fn width(&self) -> u16 {
        std::env::var("COLUMNS").ok().and_then(|c| c.parse().ok()).unwrap_or(80)
    }
    fn move_cursor_up(&self, _: usize) -> std::io::Result<()> {
        Ok(())
    }
    fn move_cursor_down(&self, _: usize) -> std::io::Result<()> {
        Ok(())
    }
    fn move_cursor_right(&self, _: usize) -> std::io::Result<()> {
        Ok(())
    }
    fn move_cursor_left(&self, _: usize) -> std::io::Result<()> {
        Ok(())
    }
    fn write_line(&self, text: &str) -> std::io::Result<()> {
        self.write_str(text)
    }
    fn write_str(&self, text: &str) -> std::io::Result<()> {
        let line = text.trim_end();
        if line.is_empty() { Ok(()) } else { write!(std::io::stderr(), "{line}\r") }
    }
    fn clear_line(&self) -> std::io::Result<()> {
        Ok(())
    }
    fn flush(&self) -> std::io::Result<()> {
        std::io::stderr().flush()
    }
}
