//! The first checks of a GPU that has never run this code: each is about one thing that no simulator can tell, takes
//! seconds, and names what is wrong with it.

mod capture;
mod host;
mod ops;
mod processes;
mod ring;

use std::collections::BTreeMap;

use torchrs::profiler::{ProfilerOptions, Traffic, profile_with};
use torchrs::{Error, Result, Tensor};

/// A check, by the name on the command line.
type Check = fn() -> Result<()>;

/// In the order of `scripts/gpu-check`.
const CHECKS: [(&str, Check); 7] = [
    ("libraries", ops::libraries),
    ("attention", ops::attention),
    ("linear", ops::linear),
    ("processes", processes::check),
    ("capture", capture::check),
    ("ring", ring::check),
    ("host", host::check),
];

/// Runs one check, whose last line says what it found.
pub fn check(name: &str) -> Result<()> {
    let known = || CHECKS.map(|(name, _)| name).join(", ");
    match CHECKS.iter().find(|(known, _)| *known == name) {
        Some((_, check)) => check(),
        None => {
            Err(Error::config("gpu_check first", format!("there is no check {name}: {}", known())))
        }
    }
}

/// What `f` gives, and what it asked of the GPU.
fn asked<R>(f: impl FnOnce() -> R) -> (R, BTreeMap<String, Traffic>) {
    let options = ProfilerOptions { with_traffic: true, ..Default::default() };
    let (result, profile) = profile_with(options, f);
    (result, profile.device_calls().clone())
}

/// How far `found` is from `want`, over the largest of `want`; an error beyond `most`, or where one is no number.
fn apart(what: &str, found: &Tensor, want: &Tensor, most: f64) -> Result<f64> {
    let [found, want] = [found, want].map(|t| t.detach().cpu().to_vec::<f64>());
    let scale = want.iter().fold(1e-9, |most: f64, x| most.max(x.abs()));
    let distance = |(a, b): (&f64, &f64)| if a == b { 0.0 } else { (a - b).abs() / scale };
    let found_apart =
        found.iter().zip(&want).map(distance).fold(0.0, |most: f64, x| {
            if x.is_nan() || most.is_nan() { f64::NAN } else { most.max(x) }
        });
    let in_bounds = found_apart <= most && found.len() == want.len();
    if !in_bounds {
        let place = found
            .iter()
            .zip(&want)
            .position(|pair| distance(pair) > most || distance(pair).is_nan())
            .unwrap_or(0);
        return Err(Error::Other(format!(
            "{what}: {found_apart:.1e} apart, at most {most:.0e} was expected; element {place} is {:?}, not {:?}",
            found.get(place),
            want.get(place)
        )));
    }
    Ok(found_apart)
}
