//! `examples/train` with `--model llama` under the launcher: however the model is cut, it learns the same; its weights come
//! out as a folder that is read again; options that do not go together are refused.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use torchrs::Tensor;
use torchrs::models::LlamaForCausalLM;
use torchrs::nn::{Forward, Module};

use super::train_program::{metrics, programs, steps_saved};

/// A folder with a text, tokens and settings.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let place = Place(tempfile::tempdir().expect("a folder"));
        let text: String =
            (0..900).map(|i| ["tick ", "tock ", "bim ", "bam "][i * i % 7 % 4]).collect();
        fs::write(place.path("text"), &text).unwrap();
        let tokens: Vec<u8> =
            text.bytes().flat_map(|b| (u16::from(b) + 300).to_le_bytes()).collect();
        fs::write(place.path("tokens"), tokens).unwrap();
        for (name, vocabulary) in [("config.json", 256), ("large.json", 500), ("small.json", 100)] {
            let config = format!(
                r#"{{"model_type": "llama", "vocab_size": {vocabulary}, "hidden_size": 16, "intermediate_size": 24,
                "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "rms_norm_eps": 1e-5,
                "max_position_embeddings": 64}}"#
            );
            fs::write(place.path(name), config).unwrap();
        }
        fs::write(place.path("mistral.json"), r#"{"model_type": "mistral"}"#).unwrap();
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Runs `train` with these options; `@` stands for the folder.
    fn train(&self, workers: usize, run: &str, options: &str) -> Output {
        let (launcher, train) = programs();
        let folder = format!("{}/", self.0.path().display());
        let mut command = Command::new(launcher);
        command.arg("--nproc").arg(workers.to_string()).arg(train);
        command.arg("--run-dir").arg(self.path(run));
        command.args(options.split_whitespace().map(|option| option.replace('@', &folder)));
        command.output().expect("the launcher starts")
    }

    /// A short run on the text, which succeeds: what it says, and its lines.
    fn learns(&self, workers: usize, run: &str, options: &str) -> (String, Vec<Value>) {
        let short = "--data text:@text --model llama --config @config.json --context-length 16 --batch-size 8 \
                     --max-steps 6 --lr 0.01 --seed 5 --device cpu --sample-bytes 20 --log-every 4";
        let output = self.train(workers, run, &format!("{short} {options}"));
        assert!(output.status.success(), "{options}: {}", String::from_utf8_lossy(&output.stderr));
        (String::from_utf8_lossy(&output.stdout).into_owned(), metrics(&self.path(run)))
    }
}

fn losses(lines: &[Value]) -> Vec<f64> {
    lines.iter().filter_map(|line| line.get("loss")?.as_f64()).collect()
}

#[track_caller]
fn same(a: &[f64], b: &[f64], tolerance: f64, what: &str) {
    assert_eq!((a.len(), b.len()), (6, 6), "{what}");
    for (a, b) in a.iter().zip(b) {
        assert!((a - b).abs() <= tolerance, "{what}: {b}, not {a}");
    }
}

fn weights(folder: &Path) -> LlamaForCausalLM {
    LlamaForCausalLM::from_pretrained(folder).expect("what was exported")
}

#[test]
fn a_llama_learns_the_same_however_it_is_cut() {
    let place = Place::new();
    let (said, lines) = place.learns(2, "none", "--export @none-model --peak-tflops 0.001");
    for part in ["step 4: loss=", "tokens_per_s=", " mfu=", " memory=0.", "20 bytes sampled"] {
        assert!(said.contains(part), "{part} is not in: {said}");
    }
    let want = losses(&lines);
    assert!(want[5] < want[0] - 0.5, "{want:?}");
    let epoch = lines.last().unwrap();
    for of_epoch in ["tokens_per_s", "mfu", "memory"] {
        assert!(epoch[of_epoch].as_f64().unwrap() > 0.0, "{epoch}");
    }
    let model = weights(&place.path("none-model"));
    for (workers, options) in [
        (2, "--shard full"),
        (2, "--shard zero2 --async-checkpoints"),
        (2, "--shard zero1"),
        (4, "--shard hybrid --shard-size 2"),
        (1, "--shard full --no-checkpoints"),
        (2, "--shard full --no-checkpoints --activation-checkpointing full --accumulate 2"),
        (2, "--shard full --activation-checkpointing selective"),
        (2, "--activation-checkpointing selective"),
    ] {
        let run = options.replace(' ', "_") + &workers.to_string();
        let (said, lines) =
            place.learns(workers, &run, &format!("{options} --export @{run}-model"));
        // Sums over other parts are rounded otherwise.
        same(&want, &losses(&lines), 2e-5, options);
        assert!(said.contains("20 bytes sampled") && !said.contains("mfu"), "{said}");
        let other = weights(&place.path(&format!("{run}-model")));
        for (name, tensor) in other.state_dict().iter() {
            let far = (tensor - &model.state_dict()[name]).abs().max().item();
            assert!(far < 2e-4, "{options}, {name}: {far}");
        }
        let saved = place.path(&run).join("checkpoints").exists();
        assert_eq!(saved, !options.contains("--no-checkpoints"), "{options}");
    }
    let amp = "--amp bf16 --shard full --no-checkpoints --activation-checkpointing selective";
    let (_, lines) = place.learns(2, "amp", amp);
    same(&want, &losses(&lines), 0.03, "bf16");
}

#[test]
fn a_run_goes_on_in_other_parts() {
    let place = Place::new();
    let want = losses(&place.learns(2, "unbroken", "").1);
    let copied = |from: &str, to: &str| {
        let copied = Command::new("cp").arg("-r").args([place.path(from), place.path(to)]).status();
        assert!(copied.expect("cp runs").success());
    };
    for (begin, goes_on) in [
        ("zero1", [(1, "none"), (2, "full"), (3, "zero1")]),
        ("full", [(4, "hybrid --shard-size 2 --async-checkpoints"), (1, "none"), (3, "full")]),
    ] {
        place.learns(2, begin, &format!("--shard {begin} --save-every 3 --async-checkpoints"));
        // From its step 3.
        fs::remove_dir_all(place.path(begin).join("checkpoints/step-00000006")).unwrap();
        assert_eq!(steps_saved(&place.path(begin)), [3]);
        for (workers, shard) in goes_on {
            let run = format!("{begin}-{workers}");
            copied(begin, &run);
            let batch = if workers == 3 { "--batch-size 6" } else { "" };
            let options =
                format!("--resume --max-steps 6 --shard {shard} --sample-bytes 0 {batch}");
            let output = place.train(workers, &run, &options);
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            let now = shard.split(' ').next().unwrap();
            if now != begin {
                assert!(said.contains(&format!("--shard: {begin} before, {now} now")), "{said}");
            }
            if workers != 3 {
                same(&want, &losses(&metrics(&place.path(&run))), 2e-5, &run);
            }
            assert_eq!(steps_saved(&place.path(&run)), [3, 6]);
        }
    }
    // An option of the optimizer may change too, whoever has its state.
    copied("zero1", "decay");
    let output =
        place.train(2, "decay", "--resume --max-steps 6 --weight-decay 0.5 --sample-bytes 0");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn tokens_of_a_file_are_learned() {
    let place = Place::new();
    let data =
        "--data tokens-u16:@tokens --context-length 16 --batch-size 8 --max-steps 6 --lr 0.01";
    let output = place.train(1, "run", &format!("{data} --config @large.json --export @model"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("llama on tokens-u16") && !said.contains("sampled"), "{said}");
    let losses = losses(&metrics(&place.path("run")));
    assert!(losses[5] < losses[0] - 0.5, "{losses:?}");
    let model = weights(&place.path("model"));
    assert_eq!(model.forward(&Tensor::from([[300i64, 499]])).shape(), &[1, 2, 500]);
    let output = place.train(1, "other", &format!("{data} --config @config.json"));
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(error.contains("a vocabulary of 256 has none such"), "{error}");
}

#[test]
fn options_that_do_not_go_together_are_refused() {
    let place = Place::new();
    for (options, parts) in [
        ("--model llama", ["llama needs --data text:FILE", "tokens-u16"]),
        ("--data tokens-u16:@tokens", ["--config FILE", "how many different ones"]),
        ("--data text:@text --model llama --config @mistral.json", ["model_type", "mistral"]),
        ("--data text:@text --model llama --config @small.json", ["vocab_size of 100", "256"]),
        (
            "--data text:@text --model llama --config @config.json --context-length 65",
            ["--context-length", "max_position_embeddings, 64"],
        ),
        ("--data text:@text --config @config.json", ["--config", "for --model llama, not gpt"]),
        (
            "--data text:@text --activation-checkpointing full",
            ["--activation-checkpointing", "for --model llama, not gpt"],
        ),
        ("--shard zero2 --no-checkpoints", ["--model gpt or llama", "with cnn"]),
        (
            "--data text:@text --model llama --shard full --no-checkpoints --ema 0.9",
            ["--ema", "zero1 or none"],
        ),
        ("--data text:@text --shard full --shard-size 2", ["--shard-size", "for --shard hybrid"]),
        (
            "--data text:@text --shard hybrid --shard-size 3 --no-checkpoints",
            ["--shard-size", "3 does not divide the 2 workers"],
        ),
        ("--no-checkpoints --save-every 3", ["--save-every", "leave out --no-checkpoints"]),
        ("--export @model", ["--export", "for --model llama, not cnn"]),
        ("--peak-tflops 3", ["--peak-tflops", "gpt and llama"]),
    ] {
        let output = place.train(2, "refused", &format!("{options} --batch-size 8 --max-steps 1"));
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{options} is taken");
        assert!(parts.iter().all(|part| error.contains(part)), "{options}: {error}");
        _ = fs::remove_dir_all(place.path("refused"));
    }
}
