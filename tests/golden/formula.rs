//! Formulas of schedules, as Python writes them: numbers, `epoch`, arithmetic, comparisons, `a if b else c`,
//! `min`, `max`, `abs` and `math.*`.

/// The value of `text` for an epoch; an error names what is not understood.
pub fn value(text: &str, epoch: i64) -> Result<f64, String> {
    let mut parser = Parser { rest: text, epoch: epoch as f64 };
    let value = parser.choice()?;
    match parser.rest.trim_start() {
        "" => Ok(value),
        rest => Err(format!("`{rest}` in the formula `{text}`")),
    }
}

struct Parser<'a> {
    rest: &'a str,
    epoch: f64,
}

type Value = Result<f64, String>;

impl Parser<'_> {
    /// Takes one of these off, the first that is there.
    fn take(&mut self, words: &[&'static str]) -> Option<&'static str> {
        let rest = self.rest.trim_start();
        let letter = |c: char| c.is_alphanumeric() || c == '_';
        let word = words.iter().find(|word| {
            let whole = !word.starts_with(letter)
                || !rest[word.len().min(rest.len())..].starts_with(letter);
            rest.starts_with(**word) && whole
        })?;
        self.rest = &rest[word.len()..];
        Some(word)
    }

    fn expect(&mut self, word: &'static str) -> Result<(), String> {
        self.take(&[word]).map(|_| ()).ok_or_else(|| format!("no `{word}` before `{}`", self.rest))
    }

    fn choice(&mut self) -> Value {
        let first = self.comparison()?;
        if self.take(&["if"]).is_none() {
            return Ok(first);
        }
        let holds = self.comparison()?;
        self.expect("else")?;
        let other = self.choice()?;
        Ok(if holds != 0.0 { first } else { other })
    }

    fn comparison(&mut self) -> Value {
        let a = self.sum()?;
        let Some(operator) = self.take(&["==", "!=", "<=", ">=", "<", ">"]) else { return Ok(a) };
        let b = self.sum()?;
        let holds = match operator {
            "==" => a == b,
            "!=" => a != b,
            "<=" => a <= b,
            ">=" => a >= b,
            "<" => a < b,
            _ => a > b,
        };
        Ok(f64::from(holds))
    }

    fn sum(&mut self) -> Value {
        let mut value = self.product()?;
        while let Some(operator) = self.take(&["+", "-"]) {
            let next = self.product()?;
            value = if operator == "+" { value + next } else { value - next };
        }
        Ok(value)
    }

    fn product(&mut self) -> Value {
        let mut value = self.sign()?;
        while !self.rest.trim_start().starts_with("**")
            && let Some(operator) = self.take(&["*", "//", "/", "%"])
        {
            let next = self.sign()?;
            value = match operator {
                "*" => value * next,
                "//" => (value / next).floor(),
                "/" => value / next,
                _ => value - next * (value / next).floor(),
            };
        }
        Ok(value)
    }

    fn sign(&mut self) -> Value {
        if self.take(&["-"]).is_some() {
            return Ok(-self.sign()?);
        }
        let base = self.atom()?;
        match self.take(&["**"]) {
            Some(_) => Ok(base.powf(self.sign()?)),
            None => Ok(base),
        }
    }

    fn atom(&mut self) -> Value {
        if self.take(&["("]).is_some() {
            let value = self.choice()?;
            self.expect(")")?;
            return Ok(value);
        }
        if self.take(&["epoch"]).is_some() {
            return Ok(self.epoch);
        }
        if self.take(&["math.pi"]).is_some() {
            return Ok(std::f64::consts::PI);
        }
        let functions =
            ["min", "max", "abs", "math.cos", "math.sin", "math.exp", "math.sqrt", "math.log"];
        if let Some(function) = self.take(&functions) {
            self.expect("(")?;
            let mut arguments = vec![self.choice()?];
            while self.take(&[","]).is_some() {
                arguments.push(self.choice()?);
            }
            self.expect(")")?;
            let first = arguments[0];
            return Ok(match function {
                "min" => arguments.into_iter().fold(f64::INFINITY, f64::min),
                "max" => arguments.into_iter().fold(f64::NEG_INFINITY, f64::max),
                "abs" => first.abs(),
                "math.cos" => first.cos(),
                "math.sin" => first.sin(),
                "math.exp" => first.exp(),
                "math.sqrt" => first.sqrt(),
                _ => first.ln(),
            });
        }
        let rest = self.rest.trim_start();
        let digits = |c: char| c.is_ascii_digit() || c == '.';
        let mut end = rest.find(|c| !digits(c)).unwrap_or(rest.len());
        if end > 0 && rest[end..].starts_with(['e', 'E']) {
            let tail = &rest[end + 1..];
            let sign = usize::from(tail.starts_with(['-', '+']));
            let count =
                tail[sign..].find(|c: char| !c.is_ascii_digit()).unwrap_or(tail.len() - sign);
            end += if count > 0 { 1 + sign + count } else { 0 };
        }
        let value = rest[..end].parse().map_err(|_| format!("`{rest}` is no formula"))?;
        self.rest = &rest[end..];
        Ok(value)
    }
}
