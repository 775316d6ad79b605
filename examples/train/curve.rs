//! The lines of `metrics.jsonl`, and the curve of the loss that is drawn from them.

use std::fs;
use std::path::Path;

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
        /// Of a language model.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tokens_per_s: Option<f64>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mfu: Option<f64>,
        /// The most bytes that a rank has.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        memory: Option<u64>,
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

/// Draws the training loss of every step and the validation loss of every epoch of a run: `loss.svg`.
pub fn draw_curve(run: &Path, title: &str) -> Result<()> {
    let file = run.join("metrics.jsonl");
    let text = fs::read_to_string(&file).context(|| format!("read {}", file.display()))?;
    let lines: Vec<Line> = text.lines().map_while(|line| serde_json::from_str(line).ok()).collect();
    let path = run.join("loss.svg");
    draw(&lines, title, &path).map_err(|e| Error::Other(format!("draw {}: {e}", path.display())))
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
