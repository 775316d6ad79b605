//! What a run leaves behind and shows: `metrics.jsonl`, the loss curve as an SVG, the progress bar.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, IsTerminal, Write};
use std::path::{Path, PathBuf};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use plotters::prelude::*;
use serde::{Deserialize, Serialize};
use torchrs::error::Context;
use torchrs::{Error, Result};

/// One line of `metrics.jsonl`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Line {
    Epoch {
        step: u64,
        epoch: u64,
        train_loss: f64,
        val_loss: f64,
        val_accuracy: f64,
        samples_per_s: f64,
        /// On simulated GPUs, whose speed says nothing.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        simulated: bool,
    },
    Step {
        step: u64,
        epoch: u64,
        loss: f64,
        lr: f64,
    },
}

impl Line {
    fn step(&self) -> u64 {
        match self {
            Line::Step { step, .. } | Line::Epoch { step, .. } => *step,
        }
    }
}

/// The growing `metrics.jsonl`; on all ranks but 0 it takes lines and writes nothing.
pub struct Metrics {
    file: Option<File>,
    path: PathBuf,
    lines: Vec<Line>,
}

impl Metrics {
    /// Opens the file of a run that goes on after `step`: later lines, of a run that was killed
    /// before its next checkpoint, are dropped.
    pub fn open(run_dir: &Path, step: u64, write: bool) -> Result<Self> {
        let path = run_dir.join("metrics.jsonl");
        let mut lines = Vec::new();
        if !write {
            return Ok(Metrics { file: None, path, lines });
        }
        if let Ok(file) = File::open(&path) {
            let parsed =
                BufReader::new(file).lines().map_while(|l| serde_json::from_str(&l.ok()?).ok());
            lines = parsed.filter(|l: &Line| l.step() <= step).collect();
        }
        let text: String =
            lines.iter().map(|l| serde_json::to_string(l).expect("plain data") + "\n").collect();
        fs::write(&path, text).context(|| format!("write {}", path.display()))?;
        let file = OpenOptions::new()
            .append(true)
            .open(&path)
            .context(|| format!("open {}", path.display()))?;
        Ok(Metrics { file: Some(file), path, lines })
    }

    pub fn push(&mut self, line: Line) -> Result<()> {
        if let Some(file) = &mut self.file {
            let text = serde_json::to_string(&line).expect("plain data") + "\n";
            file.write_all(text.as_bytes()).context(|| format!("write {}", self.path.display()))?;
            self.lines.push(line);
        }
        Ok(())
    }

    /// Draws the training loss of every step and the validation loss of every epoch.
    pub fn draw(&self, title: &str) -> Result<()> {
        let path = self.path.with_file_name("loss.svg");
        draw(&self.lines, title, &path)
            .map_err(|e| Error::Other(format!("draw {}: {e}", path.display())))
    }
}

fn draw(lines: &[Line], title: &str, path: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let mut steps: Vec<(f64, f64)> = Vec::new();
    let mut validation: Vec<(f64, f64)> = Vec::new();
    for line in lines {
        match line {
            Line::Step { step, loss, .. } => steps.push((*step as f64, *loss)),
            Line::Epoch { step, val_loss, .. } => validation.push((*step as f64, *val_loss)),
        }
    }
    let finite = |v: &&(f64, f64)| v.1.is_finite();
    let all = || steps.iter().chain(&validation).filter(finite);
    let right = all().map(|v| v.0).fold(1.0, f64::max);
    let top = all().map(|v| v.1).fold(0.0, f64::max).max(1e-6) * 1.05;
    let root = SVGBackend::new(path, (900, 500)).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption(title, ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(56)
        .build_cartesian_2d(0.0..right, 0.0..top)?;
    chart.configure_mesh().x_desc("step").y_desc("loss").light_line_style(WHITE).draw()?;
    let blue = RGBColor(31, 119, 180);
    let orange = RGBColor(230, 110, 20);
    let training = steps.into_iter().filter(|v| v.1.is_finite());
    chart
        .draw_series(LineSeries::new(training, blue.stroke_width(1)))?
        .label("training")
        .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], blue));
    chart
        .draw_series(
            LineSeries::new(validation.iter().copied(), orange.stroke_width(2)).point_size(3),
        )?
        .label("validation")
        .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], orange));
    chart.configure_series_labels().border_style(BLACK.mix(0.3)).background_style(WHITE).draw()?;
    root.present()?;
    Ok(())
}

/// The progress bar of rank 0: on a terminal it moves; elsewhere it is silent and the lines per
/// epoch say how far the run is.
pub struct Progress(ProgressBar);

impl Progress {
    pub fn new(rank: usize, steps: u64, done: u64) -> Self {
        // Under the launcher stderr is a pipe; the launcher says whether a terminal is behind it.
        let behind_pipe =
            || std::env::var("TORCHRS_TERMINAL").is_ok_and(|s| s.split(',').any(|s| s == "stderr"));
        let target = match rank {
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
        Progress(bar)
    }

    pub fn epoch(&self, epoch: u64, epochs: u64) {
        self.0.set_prefix(format!("epoch {}/{epochs}", epoch + 1));
    }

    pub fn step(&self, loss: f64) {
        self.0.set_message(format!("loss {loss:.4}"));
        self.0.inc(1);
    }

    /// Prints a line to stdout without tearing the bar.
    pub fn line(&self, text: &str) {
        self.0.suspend(|| println!("{text}"));
    }

    pub fn finish(&self) {
        self.0.finish_and_clear();
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
