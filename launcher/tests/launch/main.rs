//! The launcher against real faults: workers that die, hang, leave children behind, flood or
//! tear their output; launchers that are killed; options that cannot be. Test names carry the row
//! of the table of faults that they show. Workers are shell scripts, but for those that need a
//! Rust panic: this same binary, run for its one test `worker`.

mod apart;
mod check;
mod dashboard;
mod documents;
mod elastic;
mod ends;
mod groups;
mod hosts;
mod inherited;
mod job;
mod networks;
mod options;
mod output;
mod programs;
mod signals;
mod ssh;
mod ssh_apart;
mod strangers;
mod survivors;
mod tools;
mod worker;
