//! `torchrs-launch`: starts and supervises the worker processes of a training job.

fn main() {
    std::process::exit(torchrs_launcher::launch())
}
