//! `torchrs`: tools around a training job. `torchrs check` looks whether hosts are fit for one.

fn main() {
    std::process::exit(torchrs_launcher::torchrs())
}
