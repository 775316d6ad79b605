//! A formula as text.

/// A formula as written, from which other devices' code is made.
#[derive(Clone, Copy, Debug)]
pub struct Text {
    /// The inputs' names.
    pub inputs: &'static [&'static str],
    /// The parameters' names.
    pub params: &'static [&'static str],
    /// Names given to numbers that several results need, each before its first use.
    pub locals: &'static [&'static str],
    /// The inputs that are also results, in the order of the kernel's outputs. Else there is one result.
    pub written: &'static [&'static str],
    /// Assignments, each ended by a semicolon, where there are `written` ones; else the result.
    pub body: &'static str,
}
