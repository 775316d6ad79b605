//! How long an all-reduce of f32 sums takes between processes.
//!
//! `cargo run --release -p torchrs-links --example all_reduce` starts two processes on this machine's loopback.
//! Between hosts, each process is started with `--place K --places N --at ADDRESS --folder DIR`, where DIR is one that
//! all see. `--streams S`, `--encrypt`, `--direct BYTES` set options.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use torchrs_job::deadline::Deadline;
use torchrs_links::{Addresses, Call, Encryption, Links, Listener, Options};
use torchrs_rendezvous::token::JobToken;

/// Bytes, and how often.
const SIZES: [(usize, usize); 5] =
    [(4 << 10, 200), (64 << 10, 200), (256 << 10, 200), (4 << 20, 30), (100 << 20, 7)];
const LIMIT: Duration = Duration::from_secs(100);

fn add(into: &mut [u8], from: &[u8]) {
    // SAFETY: any bytes are an f32.
    let ((_, into, rest), (_, from, _)) =
        unsafe { (into.align_to_mut::<f32>(), from.align_to::<f32>()) };
    assert!(rest.is_empty() && into.len() == from.len(), "whole and aligned elements");
    into.iter_mut().zip(from).for_each(|(a, b)| *a += b);
}

/// Of this process, so far.
fn cpu_seconds() -> f64 {
    let usage = getrusage(UsageWho::RUSAGE_SELF).expect("own usage");
    let times = [usage.user_time(), usage.system_time()];
    times.iter().map(|t| t.tv_sec() as f64 + t.tv_usec() as f64 / 1e6).sum()
}

fn addresses(folder: &Path, place: usize) -> Addresses {
    let deadline = Deadline::after(LIMIT);
    loop {
        if let Ok(bytes) = std::fs::read(folder.join(place.to_string())) {
            return Addresses::decode(&bytes).expect("addresses");
        }
        assert!(!deadline.has_passed(), "place {place} has not come");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn run(place: usize, places: usize, at: IpAddr, folder: &Path, options: &Options) {
    let key = JobToken::of_loopback().key("links");
    let listener = Listener::bind(&[(at, 0).into()], &[], key).expect("listen");
    let name = folder.join(format!("{place}.new"));
    std::fs::write(&name, listener.addresses().encode()).expect("write");
    std::fs::rename(&name, folder.join(place.to_string())).expect("rename");
    let members: Vec<Addresses> = (0..places).map(|place| addresses(folder, place)).collect();
    let start = Instant::now();
    let deadline = Deadline::after(LIMIT);
    let links = Links::connect(&listener, "bench", &members, place, options, &deadline, &|| None);
    let mut links = links.expect("connect");
    if place == 0 {
        println!("connected in {:.2} ms", start.elapsed().as_secs_f64() * 1e3);
        println!(
            "{:>10} {:>10} {:>10} {:>10} {:>8}",
            "bytes", "median ms", "best ms", "CPU ms", "GB/s"
        );
    }
    let mut number = 0;
    for (bytes, count) in SIZES {
        let mut elements = vec![1f32; bytes / 4];
        // SAFETY: an f32 is four bytes.
        let (_, data, _) = unsafe { elements.align_to_mut::<u8>() };
        let (mut times, mut cpu) = (Vec::new(), 0.0);
        for _ in 0..count + 2 {
            number += 1;
            let deadline = Deadline::after(LIMIT);
            let call = Call { number, fingerprint: b"all_reduce", deadline, watch: &|| None };
            links.barrier(&call).expect("barrier");
            let (start, before) = (Instant::now(), cpu_seconds());
            links.all_reduce(&call, data, &add).expect("all-reduce");
            times.push(start.elapsed().as_secs_f64());
            cpu += cpu_seconds() - before;
        }
        let mut times = times.split_off(2);
        times.sort_by(f64::total_cmp);
        if place == 0 {
            let (median, best) = (times[times.len() / 2], times[0]);
            let rate = bytes as f64 / median / 1e9;
            let cpu = cpu / (count + 2) as f64;
            let (median, best, cpu) = (median * 1e3, best * 1e3, cpu * 1e3);
            println!("{bytes:>10} {median:>10.3} {best:>10.3} {cpu:>10.3} {rate:>8.2}");
        }
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let value = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1).cloned()
    };
    let mut options = Options::default();
    if let Some(streams) = value("--streams") {
        options.streams = streams.parse().expect("--streams: a number");
    }
    if let Some(direct) = value("--direct") {
        options.direct = direct.parse().expect("--direct: bytes");
    }
    if arguments.iter().any(|argument| argument == "--encrypt") {
        options.encryption = Encryption::On;
    }
    let places = value("--places").map_or(2, |n| n.parse().expect("--places: a number"));
    let at: IpAddr =
        value("--at").map_or([127, 0, 0, 1].into(), |a| a.parse().expect("--at: an address"));
    if let Some(place) = value("--place") {
        let folder = PathBuf::from(value("--folder").expect("--folder"));
        return run(place.parse().expect("--place: a number"), places, at, &folder, &options);
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().to_str().expect("UTF-8");
    let own = std::env::current_exe().expect("own path");
    let start = |place: usize| {
        let mut command = std::process::Command::new(&own);
        command.args(&arguments).args(["--place", &place.to_string(), "--folder", path]);
        command.spawn().expect("start")
    };
    let mut children: Vec<_> = (0..places).map(start).collect();
    for child in &mut children {
        assert!(child.wait().expect("wait").success());
    }
}
