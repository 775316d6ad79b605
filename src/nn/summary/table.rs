//! A summary as torchinfo prints it.

use std::fmt;

use super::{Summary, SummaryRow};
use crate::profiler::text::grouped;

const HEAD: [&str; 5] =
    ["Layer (type (var_name):depth-idx)", "Input Shape", "Output Shape", "Param #", "Mult-Adds"];

fn cells(row: &SummaryRow) -> [String; 5] {
    let tree = match row.depth {
        0 => String::new(),
        1 => "├─".to_owned(),
        depth => format!("{}└─", "│    ".repeat(depth - 1)),
    };
    let layer = match row.depth {
        0 => row.kind.clone(),
        _ => format!("{tree}{} ({}): {}-{}", row.kind, row.field(), row.depth, row.index),
    };
    let params = match (row.params, row.recursive) {
        (0, true) => "(recursive)".to_owned(),
        (0, false) => "--".to_owned(),
        (n, _) if row.trainable == 0 => format!("({})", grouped(n as u64)),
        (n, _) => grouped(n as u64),
    };
    let is_leaf = row.is_leaf || row.depth == 0;
    let mult_adds = if is_leaf && row.flops > 0 { grouped(row.flops / 2) } else { "--".to_owned() };
    [layer, row.input(), row.output(), params, mult_adds]
}

/// A number and the unit that torchinfo picks for it.
fn in_unit(n: u64) -> (&'static str, f64) {
    match n {
        1_000_000_000_000.. => ("T", n as f64 / 1e12),
        1_000_000_000.. => ("G", n as f64 / 1e9),
        1_000_000.. => ("M", n as f64 / 1e6),
        _ => ("K", n as f64 / 1e3),
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows: Vec<[String; 5]> = self.rows.iter().map(cells).collect();
        let length = |text: &str| text.chars().count();
        let widths: [usize; 5] = std::array::from_fn(|i| {
            rows.iter().map(|row| length(&row[i])).chain([length(HEAD[i])]).max().unwrap_or(0)
        });
        let rule = "=".repeat(widths.iter().sum::<usize>() + 2 * (HEAD.len() - 1));
        let line = |f: &mut fmt::Formatter<'_>, cells: [&str; 5]| {
            let mut text = String::new();
            for (cell, width) in cells.iter().zip(widths) {
                text += cell;
                text += &" ".repeat(width + 2 - length(cell));
            }
            writeln!(f, "{}", text.trim_end())
        };
        writeln!(f, "{rule}")?;
        line(f, HEAD)?;
        writeln!(f, "{rule}")?;
        for row in &rows {
            line(f, row.each_ref().map(String::as_str))?;
        }
        writeln!(f, "{rule}")?;
        writeln!(f, "Total params: {}", grouped(self.total_params as u64))?;
        writeln!(f, "Trainable params: {}", grouped(self.trainable_params as u64))?;
        let frozen = self.total_params - self.trainable_params;
        writeln!(f, "Non-trainable params: {}", grouped(frozen as u64))?;
        let (unit, mult_adds) = in_unit(self.total_mult_adds());
        writeln!(f, "Total mult-adds ({unit}): {mult_adds:.2}")?;
        writeln!(f, "{rule}")?;
        let mb = |bytes: usize| bytes as f64 / 1e6;
        writeln!(f, "Input size (MB): {:.2}", mb(self.input_bytes))?;
        writeln!(f, "Forward/backward pass size (MB): {:.2}", mb(self.output_bytes))?;
        writeln!(f, "Params size (MB): {:.2}", mb(self.param_bytes))?;
        let total = self.input_bytes + self.output_bytes + self.param_bytes;
        writeln!(f, "Estimated Total Size (MB): {:.2}", mb(total))?;
        writeln!(f, "{rule}")?;
        if self.rows.iter().any(|row| row.inferred) {
            let note =
                "~ of the first and last module inside: this one's forward lacks #[nn::forward]";
            writeln!(f, "{note}")?;
        }
        Ok(())
    }
}
