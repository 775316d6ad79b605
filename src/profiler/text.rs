//! Tables of text: columns as wide as their widest cell.

use std::fmt;

/// Where a column's cells stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// Rows under a head.
pub(crate) struct Table {
    head: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new<S: Into<String>>(head: impl IntoIterator<Item = (S, Align)>) -> Self {
        let head = head.into_iter().map(|(name, align)| (name.into(), align)).collect();
        Table { head, rows: Vec::new() }
    }

    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }
}

/// PyTorch's form: rules of dashes above and below the head and under the rows.
impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let length = |text: &str| text.chars().count();
        let widths: Vec<usize> = (0..self.head.len())
            .map(|i| {
                let cells = self.rows.iter().map(|row| length(&row[i]));
                cells.chain([length(&self.head[i].0)]).max().unwrap_or(0)
            })
            .collect();
        let rule: Vec<String> = widths.iter().map(|&width| "-".repeat(width)).collect();
        let rule = rule.join("  ");
        let line = |f: &mut fmt::Formatter<'_>, cells: &[&str]| {
            let mut text = String::new();
            for ((cell, width), (_, align)) in cells.iter().zip(&widths).zip(&self.head) {
                let pad = " ".repeat(width - length(cell));
                match align {
                    Align::Left => text.extend([*cell, &pad]),
                    Align::Right => text.extend([&*pad, cell]),
                }
                text.push_str("  ");
            }
            writeln!(f, "{}", text.trim_end())
        };
        let head: Vec<&str> = self.head.iter().map(|(name, _)| name.as_str()).collect();
        writeln!(f, "{rule}")?;
        line(f, &head)?;
        writeln!(f, "{rule}")?;
        for row in &self.rows {
            line(f, &row.iter().map(String::as_str).collect::<Vec<_>>())?;
        }
        writeln!(f, "{rule}")
    }
}

/// A number with commas between thousands.
pub(crate) fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
