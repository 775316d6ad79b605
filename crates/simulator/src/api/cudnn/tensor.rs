//! A tensor's description, and its elements in memory.

use super::{Outcome, Status, refuse};
use crate::code::Result;
use crate::number::{Number, tf32};

/// Where a tensor's elements are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Home {
    /// In device memory.
    Memory,
    /// Between two operations only.
    Nowhere,
    /// With the call: a number of the host.
    Call,
}

/// A tensor's description.
#[derive(Clone, Debug)]
pub struct Layout {
    number: Number,
    home: Home,
    sizes: Vec<i64>,
    strides: Vec<i64>,
    name: i64,
    alignment: i64,
}

impl Layout {
    /// Looks at the attributes of a tensor.
    pub fn new(
        data_type: i32,
        sizes: Vec<i64>,
        strides: Vec<i64>,
        name: i64,
        alignment: i64,
        home: Home,
    ) -> Outcome<Layout> {
        let number = match data_type {
            // Places and truth values.
            4 | 11 if home == Home::Nowhere => Number::F64,
            0 => Number::F32,
            1 => Number::F64,
            2 => Number::F16,
            9 => Number::BF16,
            _ => return refuse(Status::NOT_SUPPORTED, format!("no tensors of type {data_type}")),
        };
        let fits = (4..=5).contains(&sizes.len())
            && sizes.len() == strides.len()
            && sizes.iter().chain(&strides).all(|&n| n > 0)
            && alignment >= number.bytes() as i64;
        if !fits {
            return refuse(
                Status::BAD_PARAM,
                format!("sizes {sizes:?}, strides {strides:?}, alignment {alignment}"),
            );
        }
        Ok(Layout { number, home, sizes, strides, name, alignment })
    }

    /// Sizes of its dimensions.
    pub fn sizes(&self) -> &[i64] {
        &self.sizes
    }

    /// Its name in packs.
    pub fn name(&self) -> i64 {
        self.name
    }

    /// Where its elements are.
    pub fn home(&self) -> Home {
        self.home
    }

    /// The type of its elements.
    pub fn number(&self) -> Number {
        self.number
    }

    /// What an element becomes.
    pub fn rounded(&self, x: f64) -> f64 {
        self.number.rounded(x)
    }

    /// Its address in a pack.
    pub fn address(&self, pack: &[(i64, usize)]) -> Outcome<usize> {
        match pack.iter().find(|(name, _)| *name == self.name) {
            Some(&(_, at)) if self.home == Home::Call || at % self.alignment as usize == 0 => {
                Ok(at)
            }
            Some(_) => refuse(Status(2003), "an address is not aligned as was said"),
            None => refuse(Status::BAD_PARAM, "an address is missing"),
        }
    }

    /// How many elements it has.
    pub fn count(&self) -> usize {
        self.sizes.iter().product::<i64>() as usize
    }

    /// The address of each element, row by row.
    fn places(&self, at: usize) -> impl Iterator<Item = usize> + '_ {
        let bytes = self.number.bytes();
        (0..self.count() as i64).map(move |mut i| {
            let mut offset = 0;
            for (size, stride) in self.sizes.iter().zip(&self.strides).rev() {
                offset += i % size * stride;
                i /= size;
            }
            at + offset as usize * bytes
        })
    }

    /// Whether all of it is in device memory.
    pub fn check(&self, at: usize) -> Result {
        let last: i64 = self.sizes.iter().zip(&self.strides).map(|(n, s)| (n - 1) * s).sum();
        Number::check(at, (last as usize + 1) * self.number.bytes())
    }

    /// All elements, row by row.
    pub fn read(&self, at: usize, rounded: bool) -> Vec<f64> {
        let numbers = self.places(at).map(|place| self.number.read(place));
        if rounded { numbers.map(tf32).collect() } else { numbers.collect() }
    }

    /// Stores all elements, given row by row.
    pub fn store(&self, at: usize, values: &[f64], [alpha, beta]: [f64; 2]) {
        for (place, value) in self.places(at).zip(values) {
            let before = if beta == 0.0 { 0.0 } else { beta * self.number.read(place) };
            self.number.store(place, alpha * value + before);
        }
    }
}
