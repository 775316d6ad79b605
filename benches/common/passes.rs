//! Passes over a loader: their time, and the processor time of this process and its workers.

use std::time::Instant;

/// Folder of the files that `tools/bench/peer_images.py --make` has written, so that both sides read the same.
pub fn folder() -> std::path::PathBuf {
    let folder = std::env::var_os("TORCHRS_BENCH_IMAGES").map(Into::into);
    let folder: std::path::PathBuf =
        folder.unwrap_or_else(|| std::env::temp_dir().join("torchrs-bench-images"));
    assert!(folder.is_dir(), "{} is made by tools/bench/peer_images.py --make", folder.display());
    folder
}

/// Whether a row is asked for.
pub fn wants(name: &str) -> bool {
    let filter = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    filter.is_none_or(|filter| name.contains(&filter))
}

/// Processor seconds of this process and its children, the living and the ended.
fn processor() -> f64 {
    let of = |pid: &str| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
        fields.get(11..15).map_or(0.0, |f| f.iter().map(|n| n.parse::<f64>().unwrap_or(0.0)).sum())
    };
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let children = threads.map(|t| std::fs::read_to_string(t.path().join("children")));
    let children: String = children.map(|c| c.unwrap_or_default() + " ").collect();
    // Of a child that lives, what its own ended children took is not of interest.
    (of("self") + children.split_whitespace().map(of).sum::<f64>()) / 100.0
}

/// Four passes; `start` gives the batches of one. The first batch is left out, with the workers' start. `samples`: in a
/// pass without it.
pub fn row<I: Iterator>(name: &str, samples: usize, mut start: impl FnMut() -> I) {
    if !wants(name) {
        return;
    }
    let (mut wall, mut cpu) = (Vec::new(), Vec::new());
    for _ in 0..4 {
        let mut batches = start();
        drop(batches.next().expect("a batch"));
        let (began, used) = (Instant::now(), processor());
        let count = batches.by_ref().count();
        assert!(count > 0);
        wall.push(began.elapsed().as_secs_f64());
        cpu.push(processor() - used);
    }
    for (name, mut seconds) in [(name.to_owned(), wall), (format!("{name}_cpu"), cpu)] {
        seconds.sort_by(f64::total_cmp);
        let rate = (samples as f64 / seconds[0]).round();
        println!(
            "{}",
            serde_json::json!({
                "name": name, "threads": 1, "median_s": seconds[seconds.len() / 2],
                "min_s": seconds[0], "unit": "sample/s", "rate": rate,
            })
        );
    }
}
