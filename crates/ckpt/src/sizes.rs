//! Bytes and names as people write and read them.

/// Decimal units, as disks and Hugging Face's tools count.
const UNITS: [(&str, u64); 4] =
    [("TB", 1_000_000_000_000), ("GB", 1_000_000_000), ("MB", 1_000_000), ("kB", 1_000)];

/// Bytes with three digits.
pub fn shown(bytes: u64) -> String {
    match UNITS.iter().find(|(_, size)| bytes >= *size) {
        Some((unit, size)) => {
            let number = bytes as f64 / *size as f64;
            let digits = if number < 10.0 { 2 } else { usize::from(number < 100.0) };
            format!("{number:.digits$} {unit}")
        }
        None => format!("{bytes} B"),
    }
}

/// A number and its unit, such as `5GB` or `500 MiB`; a plain number is bytes.
///
/// # Errors
/// What it must be.
pub fn parsed(text: &str) -> Result<u64, String> {
    let wrong = || format!("`{text}` is no size; write one such as 5GB, 500MB or 2GiB");
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = (&text[..end], text[end..].trim().to_ascii_uppercase());
    let unit: u64 = match unit.as_str() {
        "" | "B" => 1,
        "KB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "TB" => 1_000_000_000_000,
        "KIB" => 1 << 10,
        "MIB" => 1 << 20,
        "GIB" => 1 << 30,
        "TIB" => 1 << 40,
        _ => return Err(wrong()),
    };
    let number: f64 = number.parse().map_err(|_| wrong())?;
    let bytes = number * unit as f64;
    match bytes >= 1.0 && bytes < u64::MAX as f64 {
        true => Ok(bytes as u64),
        false => Err(wrong()),
    }
}

/// A name without what would move a terminal's cursor, or begin a new line.
pub fn plain(name: &str) -> String {
    match name.chars().any(char::is_control) {
        true => name.escape_debug().to_string(),
        false => name.to_owned(),
    }
}

/// So many tensors.
pub fn tensors(count: usize) -> String {
    format!("{} tensor{}", grouped(count as u64), if count == 1 { "" } else { "s" })
}

/// A whole number in groups of three digits.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_shown() {
        for (text, bytes) in [
            ("5GB", 5_000_000_000),
            ("500 MB", 500_000_000),
            ("2GiB", 2 << 30),
            ("1.5kb", 1500),
            ("64", 64),
        ] {
            assert_eq!(parsed(text), Ok(bytes), "{text}");
        }
        for text in ["", "GB", "5 GBs", "-1GB", "0", "1e3", "1.2.3MB", "99999999TB"] {
            assert!(parsed(text).is_err(), "{text}");
        }
        let shown: Vec<String> = [999, 1000, 15_250, 2_500_000_000].map(shown).into();
        assert_eq!(shown, ["999 B", "1.00 kB", "15.2 kB", "2.50 GB"]);
        assert_eq!([0, 999, 1000, 1234567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
    }
}
