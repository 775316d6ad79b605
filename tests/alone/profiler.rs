//! What a profile holds: spans of ops, backward, collectives, optimizers and loaders, on the threads that
//! they ran on; averages; the trace file.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU32, Ordering};

use torchrs::data::{DataLoader, datasets::Synthetic};
use torchrs::distributed::{DDPOptions, DistributedDataParallel, init_process_group};
use torchrs::multiprocessing::Process;
use torchrs::nn::{self, Forward, Module, functional as F};
use torchrs::ops::Pool2dOptions;
use torchrs::optim::{Optimizer, SGD, SGDOptions};
use torchrs::profiler::{
    self, Category, Event, GroupBy, PartKind, Profile, Profiler, ProfilerOptions, SortBy,
    record_function,
};
use torchrs::{Device, Dtype, Result, Tensor, catch, set_num_threads};

use super::alone;

/// This thread's spans, as `category name` at their depths.
fn lines(profile: &Profile) -> Vec<String> {
    let tid = nix::unistd::gettid().as_raw();
    let here = |e: &&Event| profile.threads()[e.thread].tid == tid;
    let line = |e: &Event| format!("{}{} {}", "  ".repeat(e.depth), e.category, e.name);
    profile.events().iter().filter(here).map(line).collect()
}

#[test]
fn spans_nest_and_self_time_is_what_inner_spans_leave() {
    let _alone = alone();
    let pause = || std::thread::sleep(std::time::Duration::from_millis(2));
    let ((), profile) = profiler::profile(|| {
        let _outer = record_function("outer");
        pause();
        for _ in 0..2 {
            let _inner = record_function("inner");
            pause();
        }
    });
    assert_eq!(lines(&profile), ["user outer", "  user inner", "  user inner"]);
    let [outer, first, second] = profile.events() else { panic!("three spans") };
    assert_eq!(outer.self_ns, outer.duration_ns - first.duration_ns - second.duration_ns);
    assert!(outer.self_ns >= 2_000_000 && first.duration_ns >= 2_000_000);
    assert!(first.end_ns() <= second.start_ns && second.end_ns() <= outer.end_ns());
    let averages = profile.key_averages();
    let inner = averages.rows().iter().find(|row| row.name == "inner").unwrap();
    assert_eq!((inner.calls, inner.total_ns), (2, first.duration_ns + second.duration_ns));
}

#[test]
fn a_name_inside_itself_counts_its_time_once() {
    let _alone = alone();
    let ((), profile) = profiler::profile(|| {
        let _outer = record_function("again");
        let _other = record_function("other");
        let _inner = record_function("again");
    });
    let averages = profile.key_averages();
    let again = averages.rows().iter().find(|row| row.name == "again").unwrap();
    assert_eq!((again.calls, again.total_ns), (2, profile.events()[0].duration_ns));
}

#[test]
fn forward_and_backward_show_ops_by_their_names() {
    let _alone = alone();
    let w = Tensor::randn([4, 3], Dtype::F32).requires_grad_(true);
    let x = Tensor::randn([2, 4], Dtype::F32);
    let ((), profile) = profiler::profile(|| x.mm(&w).exp().sum().backward());
    let lines = lines(&profile);
    let outer: Vec<&String> = lines.iter().filter(|line| !line.starts_with(' ')).collect();
    assert_eq!(outer[..3], ["op mm", "op exp", "op sum"], "{lines:#?}");
    let nodes: Vec<&str> =
        lines.iter().filter_map(|line| line.strip_prefix("  backward ")).collect();
    assert_eq!(nodes, ["sum", "exp", "mm", "accumulate_grad"], "{lines:#?}");
    assert_eq!(outer.last().unwrap(), &"backward backward", "{lines:#?}");
    let averages = profile.key_averages();
    assert_eq!((averages.calls("mm"), averages.calls("exp")), (Some(1), Some(1)), "{averages}");
}

#[test]
fn ops_of_every_kind_have_a_span() {
    let _alone = alone();
    let x = Tensor::randn([2, 4, 8, 8], Dtype::F32);
    let (w, indices) = (Tensor::randn([4, 4, 3, 3], Dtype::F32), Tensor::from([1i64, 0]));
    let (_, profile) = profiler::profile(|| {
        let y =
            x.conv2d(&w, None, Default::default()).relu().max_pool2d(Pool2dOptions::new([2, 2]));
        let y = nn::BatchNorm2d::new(4).forward(&y).flatten(1, -1).softmax(1);
        let table = y.index_select(0, &indices).layer_norm(&[36], None, None, 1e-5);
        table.fill_(2.0);
        Tensor::cat(&[&table, &y], 0).mean().add_(1.0).item()
    });
    let averages = profile.key_averages();
    let ops =
        "conv2d relu max_pool2d batch_norm softmax index_select layer_norm fill cat mean add copy";
    for op in ops.split(' ') {
        assert!(averages.calls(op).is_some(), "{op} is missing:\n{averages}");
    }
}

#[test]
fn a_training_step_shows_loader_and_optimizer() {
    let _alone = alone();
    let loader = DataLoader::builder(Synthetic::new(8)).batch_size(4).build().unwrap();
    let model = nn::Linear::new(784, 1);
    let mut optimizer = SGD::new(model.parameters(), SGDOptions::default());
    let ((), profile) = profiler::profile(|| {
        for batch in &loader {
            optimizer.zero_grad();
            model.forward(&batch.unwrap().0.flatten(1, -1)).sum().backward();
            optimizer.step();
        }
    });
    let averages = profile.key_averages();
    let of = |name| averages.rows().iter().find(|row| row.name == name).unwrap();
    let step = of("SGD");
    assert_eq!((step.category, step.calls), (Category::Optimizer, 2));
    // The last one finds that there are no more.
    assert_eq!((of("DataLoader").category, of("DataLoader").calls), (Category::Data, 3));
}

#[test]
fn a_panic_ends_its_span_and_those_inside() {
    let _alone = alone();
    let ((), profile) = profiler::profile(|| {
        let failed = std::panic::catch_unwind(AssertUnwindSafe(|| {
            let _outer = record_function("outer");
            let _inner = record_function("inner");
            Tensor::zeros([2], Dtype::F32).add(&Tensor::zeros([3], Dtype::F32));
        }));
        assert!(failed.is_err());
        drop(record_function("after"));
    });
    let lines = lines(&profile);
    let expected = ["user outer", "  user inner", "    op add", "user after"];
    assert!(expected.iter().all(|line| lines.contains(&(*line).to_owned())), "{lines:#?}");
}

#[test]
fn a_panic_in_what_is_profiled_ends_the_recording() {
    let _alone = alone();
    assert!(catch(|| profiler::profile(|| panic!("inside"))).is_err());
    assert!(Profiler::start().stop().events().is_empty());
}

#[test]
fn nothing_is_recorded_outside_of_a_recording() {
    let _alone = alone();
    let before = record_function("before");
    Tensor::from([1f32]).exp();
    let profiler = Profiler::start();
    drop(before);
    let open = record_function("open");
    let profile = profiler.stop();
    drop(open);
    Tensor::from([1f32]).exp();
    assert!(lines(&profile).is_empty(), "{:?}", lines(&profile));
    let (_, profile) = profiler::profile(|| drop(record_function("next")));
    assert_eq!(lines(&profile), ["user next"]);
}

#[test]
fn a_guard_that_outlives_the_one_around_it_ends_with_that() {
    let _alone = alone();
    let ((), profile) = profiler::profile(|| {
        let outer = record_function("outer");
        let inner = record_function("inner");
        drop(outer);
        drop(record_function("next"));
        drop(inner);
    });
    assert_eq!(lines(&profile), ["user outer", "  user inner", "user next"]);
}

#[test]
fn threads_have_tracks_of_their_own() {
    let _alone = alone();
    let work = |i: usize| {
        let _span = record_function(format!("work {i}"));
        Tensor::from([i as f32]).sin();
    };
    let ((), profile) = profiler::profile(|| {
        let threads: Vec<_> = (0..3)
            .map(|i| {
                let named = std::thread::Builder::new().name(format!("worker {i}"));
                named.spawn(move || work(i)).unwrap()
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
    for i in 0..3 {
        let span = profile.events().iter().find(|e| e.name == format!("work {i}")).unwrap();
        assert_eq!(profile.threads()[span.thread].name, format!("worker {i}"));
        let sin = |e: &&Event| e.thread == span.thread && e.name == "sin" && e.depth == 1;
        assert_eq!(profile.events().iter().filter(sin).count(), 1);
    }
}

#[test]
fn memory_is_sampled_as_it_changes() {
    let _alone = alone();
    let (kept, profile) = profiler::profile(|| Tensor::ones([1 << 20], Dtype::F32) + 1.0);
    let most = profile.memory().iter().map(|sample| sample.bytes).max().unwrap();
    assert!(most >= 4 * kept.numel());
}

#[test]
fn the_trace_reads_back_as_what_was_recorded() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.json");
    let x = Tensor::from([1f32]).requires_grad_(true);
    let ((), profile) = profiler::profile(|| {
        let _step = record_function("a \"step\"\n");
        x.exp().backward();
    });
    profile.export_chrome_trace(&path).unwrap();
    let trace: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let all = trace["traceEvents"].as_array().unwrap();
    let spans: Vec<_> = all.iter().filter(|e| e["ph"] == "X").collect();
    assert_eq!(spans.len(), profile.events().len());
    for (span, event) in spans.iter().zip(profile.events()) {
        assert_eq!(span["name"], *event.name);
        assert_eq!(span["cat"], event.category.to_string());
        assert_eq!(span["pid"], std::process::id());
        assert_eq!(span["tid"], profile.threads()[event.thread].tid);
        let ns = |key: &str| (span[key].as_f64().unwrap() * 1e3).round() as u64;
        assert_eq!((ns("ts"), ns("dur")), (event.start_ns, event.duration_ns));
    }
    let about = |what: &str| all.iter().find(|e| e["ph"] == "M" && e["name"] == what).unwrap();
    let program = about("process_name")["args"]["name"].as_str().unwrap();
    assert!(program.starts_with("alone"), "{program}");
    assert_eq!(about("thread_name")["args"]["name"], profile.threads()[0].name);
    let counted = all.iter().filter(|e| e["ph"] == "C").count();
    assert_eq!(counted, profile.memory().len());
}

#[test]
fn traces_are_merged_and_a_file_that_is_none_is_named() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for name in ["a.json", "b.json"] {
        let ((), profile) = profiler::profile(|| drop(record_function(name)));
        profile.export_chrome_trace(at(name)).unwrap();
    }
    profiler::merge_chrome_traces(&[at("a.json"), at("b.json")], at("all.json")).unwrap();
    let text = std::fs::read_to_string(at("all.json")).unwrap();
    assert!(text.contains("a.json") && text.contains("b.json"));
    std::fs::write(at("list.json"), "[1]").unwrap();
    let error = profiler::merge_chrome_traces(&[at("list.json")], at("all.json")).unwrap_err();
    assert!(error.to_string().contains("list.json: is not a trace"), "{error}");
    let error = profiler::merge_chrome_traces(&[at("none.json")], at("all.json")).unwrap_err();
    assert!(error.to_string().contains("none.json"), "{error}");
}

#[test]
fn a_second_recording_is_refused() {
    let _alone = alone();
    let first = Profiler::start();
    let error = catch(|| Profiler::start().stop()).unwrap_err();
    assert!(error.to_string().contains("stop that one first"), "{error}");
    drop(first);
    Profiler::start().stop();
}

/// Backward passes that are recorded.
const PASSES: usize = 50;

/// Steps of four layers in four buckets on one rank of two.
fn train(folder: std::path::PathBuf) -> Result<()> {
    set_num_threads(1);
    let group = init_process_group(Default::default())?;
    let layers = (0..4).map(|_| nn::Linear::new(256, 256));
    let model =
        layers.fold(nn::Sequential::new(), |model, layer| model.append(layer).append(nn::ReLU));
    let options =
        DDPOptions { first_bucket_mb: 0.2515, bucket_cap_mb: 0.2515, ..Default::default() };
    let model = DistributedDataParallel::with_options(model, &group, options)?;
    let (x, y) = (Tensor::randn([64, 256], Dtype::F32), Tensor::randn([64, 256], Dtype::F32));
    let step = || F::mse_loss(&model.forward(&x), &y).backward();
    step();
    let ((), profile) = profiler::profile(|| (0..PASSES).for_each(|_| step()));
    let passes = profile.communication_overlap();
    assert_eq!(passes.len(), PASSES);
    for pass in &passes {
        assert_eq!(pass.buckets, 4, "{pass:?}");
        assert!(pass.hidden_ns <= pass.communication_ns, "{pass:?}");
        assert!(pass.waiting_ns > 0 && pass.waiting_ns <= pass.communication_ns, "{pass:?}");
        assert!(pass.early_buckets <= 3, "{pass:?}");
    }
    // How many of them depends on how far behind the other rank is: on a busy machine not all but the last, and
    // for a while none.
    let early = passes.iter().any(|pass| pass.early_buckets > 0 && pass.hidden_ns > 0);
    assert!(early, "{passes:?}");
    let of = |name: &'static str| profile.events().iter().filter(move |e| e.name == name);
    // The last bucket of a pass has nothing to hide behind: backward's own thread reduces it.
    let thread = |e: &Event| &*profile.threads()[e.thread].name;
    let background = of("all_reduce_bucket").filter(|e| thread(e).starts_with("torchrs-comm"));
    assert_eq!(background.count(), 3 * PASSES);
    assert!(of("all_reduce_bucket").all(|e| e.bytes.is_some_and(|bytes| bytes >= 256 * 256 * 4)));
    assert_eq!(
        (of("all_reduce_bucket").count(), of("wait_for_peers").count() > 0),
        (4 * PASSES, true)
    );
    let path = folder.join(format!("{}.json", group.rank()));
    profile.export_chrome_trace(&path)?;
    // Rank 1 is late.
    let mut optimizer = SGD::new(model.parameters(), SGDOptions::default());
    group.barrier()?;
    let ((), profile) = profiler::profile(|| {
        for _ in 0..3 {
            if group.rank() == 1 {
                std::thread::sleep(std::time::Duration::from_millis(60));
            }
            step();
            optimizer.step();
        }
    });
    let own = profile.bottleneck();
    assert_eq!((own.rank, own.steps), (Some(group.rank()), 3), "{own}");
    let job = own.gather(&group)?;
    let text = job.to_string();
    let waited: u64 =
        job.ranks[0].waited_for.iter().filter(|(rank, _)| *rank == 1).map(|w| w.1).sum();
    assert!(waited > 100_000_000 && job.ranks[0].share(PartKind::Waiting) > 0.2, "{text}");
    // It sleeps; how long its ops take depends on the machine's load.
    let host = job.ranks[1].parts.iter().find(|part| part.kind == PartKind::Host).unwrap().ns;
    assert!(host >= 180_000_000, "{text}");
    assert_eq!(job.straggler(), Some(1), "{text}");
    assert!(text.contains("The others waited for rank 1"), "{text}");
    group.barrier()
}

#[test]
fn the_ranks_traces_show_buckets_that_are_reduced_during_backward() {
    torchrs::init();
    let folder = tempfile::tempdir().unwrap();
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let job = format!("profile-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let start = |rank: u32| {
        Process::builder()
            .env("RANK", rank.to_string())
            .env("WORLD_SIZE", "2")
            .env("MASTER_ADDR", &job)
            .env("MASTER_PORT", "1")
            .spawn(train, folder.path().to_owned())
            .unwrap()
    };
    let ranks = [start(0), start(1)];
    ranks.iter().for_each(|rank| rank.join().unwrap());
    let paths = ["0.json", "1.json"].map(|name| folder.path().join(name));
    let all = folder.path().join("all.json");
    profiler::merge_chrome_traces(&paths, &all).unwrap();
    let trace: serde_json::Value = serde_json::from_slice(&std::fs::read(all).unwrap()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let names = |e: &&serde_json::Value| e["name"] == "process_name";
    let processes: Vec<&str> =
        events.iter().filter(names).map(|e| e["args"]["name"].as_str().unwrap()).collect();
    assert!(processes[0].starts_with("rank 0 (") && processes[1].starts_with("rank 1 ("));
    // One clock: both ranks' first all-reduces end at the same time, to within one of them.
    let first = |pid: &serde_json::Value| {
        let bucket = |e: &&serde_json::Value| e["name"] == "all_reduce_bucket" && e["pid"] == *pid;
        let e = events.iter().find(bucket).unwrap();
        let at = |key: &str| e[key].as_f64().unwrap();
        at("ts")..at("ts") + at("dur")
    };
    let pids: Vec<_> = events.iter().filter(names).map(|e| &e["pid"]).collect();
    let (a, b) = (first(pids[0]), first(pids[1]));
    assert!(a.start < b.end && b.start < a.end, "{a:?} and {b:?} do not overlap");
}

#[test]
fn a_table_has_pytorchs_columns_and_those_that_were_asked_for() {
    let _alone = alone();
    let layer = nn::Linear::new(8, 8);
    let x = Tensor::ones([4, 8], Dtype::F32);
    let train = || layer.forward(&x).sum().backward();
    let ((), plain) = profiler::profile(train);
    let head = |table: &str| {
        table
            .lines()
            .nth(1)
            .unwrap()
            .split("  ")
            .filter(|c| !c.is_empty())
            .map(|c| c.trim().to_owned())
            .collect::<Vec<_>>()
    };
    let columns = [
        "Name",
        "Self CPU %",
        "Self CPU",
        "CPU total %",
        "CPU total",
        "CPU time avg",
        "# of Calls",
    ];
    assert_eq!(head(&plain.key_averages().to_string()), columns);
    let ((), profile) = profiler::profile_with(ProfilerOptions::all(), train);
    let by = GroupBy { input_shape: true, stack: true, module: true };
    let averages = profile.key_averages_by(by);
    let table = averages.table(SortBy::Flops, 3);
    let more = [
        "CPU Mem",
        "Self CPU Mem",
        "# of Calls",
        "Input Shapes",
        "Source Location",
        "Module",
        "Total FLOPs",
    ];
    assert_eq!(head(&table)[6..], more);
    let linear = averages
        .rows()
        .iter()
        .find(|row| row.name == "linear" && row.category == Category::Op)
        .unwrap();
    assert_eq!(linear.shapes, Some(vec![vec![4, 8], vec![8, 8], vec![8]]));
    assert_eq!((linear.flops, linear.module.as_deref()), (2 * 4 * 8 * 8, Some("Linear")));
    assert!(linear.at.as_ref().unwrap().starts_with("tests/alone/profiler.rs:"), "{table}");
    assert_eq!(linear.memory, 4 * 8 * 4);
    // Backward goes back into the module, and its operations are those of its products.
    let backward = averages
        .rows()
        .iter()
        .find(|row| row.name == "linear" && row.category == Category::Backward);
    let backward = backward.unwrap();
    assert_eq!((backward.flops, backward.module.as_deref()), (2 * 4 * 8 * 8, Some("Linear")));
    assert!(table.contains("512") && table.contains("linear (backward)"), "{table}");
    assert!(table.contains("Self CPU time total: "));
}

#[test]
fn the_memory_at_the_peak_is_told_by_op_module_and_line() {
    let _alone = alone();
    let kept = Tensor::ones([1 << 20], Dtype::F32);
    let layer = nn::Linear::no_bias(1024, 1024);
    let x = Tensor::ones([2048, 1024], Dtype::F32);
    let options =
        ProfilerOptions { profile_memory: true, with_modules: true, ..Default::default() };
    let ((), profile) = profiler::profile_with(options, || {
        let y = layer.forward(&x);
        drop(y.exp() + 1.0);
        drop(kept);
        drop(x.sin());
    });
    let timeline = profile.memory_timeline(Device::Cpu).unwrap();
    let peak = &timeline.peak;
    let of = |list: &[(String, usize)], name: &str| {
        list.iter().find(|(n, _)| n.contains(name)).map(|l| l.1)
    };
    let y = 2048 * 1024 * 4;
    assert_eq!(["linear", "exp", "add"].map(|op| of(&peak.by_op, op)), [Some(y); 3], "{timeline}");
    assert!(of(&peak.by_op, "made before").unwrap() >= 3 * (4 << 20), "{timeline}");
    assert_eq!(of(&peak.by_op, "sin"), None);
    assert_eq!(of(&peak.by_module, "Linear"), Some(y), "{timeline}");
    assert!(of(&peak.by_line, "tests/alone/profiler.rs:").unwrap() >= y, "{timeline}");
    let sum: usize = peak.by_op.iter().map(|(_, n)| n).sum();
    assert_eq!(sum, peak.bytes);
    let least = timeline.samples.iter().map(|s| s.1).min().unwrap();
    assert!(least + (4 << 20) <= timeline.samples[0].1, "what was there before is freed too");
    let folder = tempfile::tempdir().unwrap();
    for name in ["memory.html", "memory.svg"] {
        profile.export_memory_timeline(folder.path().join(name)).unwrap();
        let text = std::fs::read_to_string(folder.path().join(name)).unwrap();
        assert_eq!((text.matches("<svg").count(), text.matches("</svg>").count()), (1, 1));
    }
    let error = profile.export_memory_timeline(folder.path().join("memory.png")).unwrap_err();
    assert!(error.to_string().contains(".html nor .svg"), "{error}");
    let ((), without) = profiler::profile(|| ());
    let error = without.memory_timeline(Device::Cpu).unwrap_err();
    assert!(error.to_string().contains("profile_memory"), "{error}");
}

#[test]
fn a_report_names_data_and_the_program_and_gives_advice() {
    let _alone = alone();
    let pause = |ms| std::thread::sleep(std::time::Duration::from_millis(ms));
    #[derive(serde::Serialize, serde::Deserialize)]
    struct Slow;
    impl torchrs::data::Dataset for Slow {
        type Sample = Tensor;
        fn len(&self) -> usize {
            4
        }
        fn get(&self, _: usize) -> Result<Tensor> {
            std::thread::sleep(std::time::Duration::from_millis(15));
            Ok(Tensor::ones([8], Dtype::F32))
        }
    }
    let loader = DataLoader::builder(Slow).batch_size(1).build().unwrap();
    let layer = nn::Linear::new(8, 1);
    let mut optimizer = SGD::new(layer.parameters(), SGDOptions::default());
    let ((), profile) = profiler::profile(|| {
        for batch in &loader {
            layer.forward(&batch.unwrap()).sum().backward();
            optimizer.step();
            pause(5);
        }
    });
    let report = profile.bottleneck();
    let text = report.to_string();
    assert_eq!(
        (report.parts[0].kind, report.parts[1].kind, report.steps),
        (PartKind::Data, PartKind::Host, 4)
    );
    assert!(report.share(PartKind::Data) > 0.5, "{text}");
    assert_eq!(report.parts.iter().map(|part| part.ns).sum::<u64>(), report.wall_ns);
    assert!(text.contains("- waiting for data (") && text.contains("`workers`"), "{text}");
}

/// Set in the process that is to record itself.
const RECORDS: &str = "TORCHRS_TEST_RECORDS";

#[test]
fn a_folder_in_the_environment_is_enough() {
    if let Ok(steps) = std::env::var(RECORDS) {
        let layer = nn::Linear::new(8, 1);
        let mut optimizer = SGD::new(layer.parameters(), SGDOptions::default());
        let mut other = SGD::new(layer.parameters()[1..].to_vec(), SGDOptions::default());
        for _ in 0..steps.parse().unwrap() {
            layer.forward(&Tensor::ones([2, 8], Dtype::F32)).sum().backward();
            optimizer.step();
            other.step();
        }
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let run = |steps: &str, range: &str| {
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "profiler::a_folder_in_the_environment_is_enough", "--nocapture"])
            .env(RECORDS, steps)
            .env("RANK", "3")
            .env("TORCHRS_PROFILE", folder.path())
            .env("TORCHRS_PROFILE_STEPS", range)
            .output();
        String::from_utf8_lossy(&output.unwrap().stderr).into_owned()
    };
    let report = folder.path().join("report-rank3.txt");
    let read = || std::fs::read_to_string(&report).unwrap();
    let said = run("8", "2..5");
    assert!(said.contains("report-rank3.txt"), "{said}");
    let text = read();
    assert!(text.starts_with("Optimizer steps 2 to 5\n") && text.contains("on rank 3, "), "{text}");
    assert!(text.contains("Self CPU time total") && text.contains("linear (backward)"), "{text}");
    assert!(folder.path().join("trace-rank3.json").exists());
    // It ends before the last of them, before the first, and with steps that are none.
    run("4", "2..50");
    assert!(read().starts_with("Optimizer steps 2 to 4\n"), "{}", read());
    let said = run("4", "20..30");
    assert!(said.contains("ended after 4 optimizer steps, before step 20"), "{said}");
    let said = run("4", "7");
    assert!(said.contains("TORCHRS_PROFILE_STEPS: is `7`: must be two steps"), "{said}");
}
