//! Modules of group `transformer`.

use super::{Built, Setup};
use crate::arg::Outcome;

pub fn build(_setup: &Setup) -> Option<Outcome<Built>> {
    None
}
