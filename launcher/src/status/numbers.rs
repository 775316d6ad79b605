//! Numbers as JSON has them, and times.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Milliseconds since 1970.
pub fn unix_ms(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as u64)
}

/// A number that may be none: JSON knows no infinity, so those are words.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Number(pub f64);

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Written<'a> {
    Number(f64),
    Word(std::borrow::Cow<'a, str>),
}

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let word = match self.0 {
            number if number.is_finite() => return serializer.serialize_f64(number),
            number if number.is_nan() => "NaN",
            number if number > 0.0 => "Infinity",
            _ => "-Infinity",
        };
        serializer.serialize_str(word)
    }
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Number(match Written::deserialize(deserializer)? {
            Written::Number(number) => number,
            Written::Word(word) => match &*word {
                "Infinity" => f64::INFINITY,
                "-Infinity" => f64::NEG_INFINITY,
                _ => f64::NAN,
            },
        }))
    }
}

/// A share of 1, or a number that is shown with few digits: the rest of them would only make messages long.
pub fn short(number: f64) -> f64 {
    if !number.is_finite() || number == 0.0 {
        return 0.0;
    }
    let digits = 10f64.powi(3 - number.abs().log10().floor() as i32);
    let short = (number * digits).round() / digits;
    // At the ends of the range there are no such digits.
    if short.is_finite() { short } else { number }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_survive_json() {
        for number in [0.5, -3.0, f64::INFINITY, f64::NEG_INFINITY] {
            let text = serde_json::to_string(&Number(number)).unwrap();
            assert_eq!(serde_json::from_str::<Number>(&text).unwrap(), Number(number), "{text}");
        }
        let nan: Number = serde_json::from_str("\"NaN\"").unwrap();
        assert!(nan.0.is_nan());
        for odd in [f64::MIN_POSITIVE, 5e-324, -1e-310, f64::MAX] {
            assert!(short(odd).is_finite(), "{odd}");
        }
        assert_eq!([short(1234.567), short(0.012_345), short(f64::NAN)], [1235.0, 0.01235, 0.0]);
    }
}
