//! An error names the user's line and the module's place in the model.

use std::fs;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use torchrs::nn::utils::parametrizations::weight_norm;
use torchrs::nn::{self, Forward, Loss, Module, Sequential};
use torchrs::{Dtype::F32, Error, Tensor, catch};

/// The error that `f` throws, and the file and line of its panic.
fn thrown(f: impl FnOnce() -> Tensor) -> (Error, String, u32) {
    static TURN: Mutex<()> = Mutex::new(());
    static PLACE: Mutex<Option<(std::thread::ThreadId, String, u32)>> = Mutex::new(None);
    let _turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
    // The library installs its own hook at the first error; from then on this one is the outer one.
    _ = catch(|| Tensor::from([0f32]).reshape([7]));
    let previous = panic::take_hook();
    panic::set_hook(Box::new(|info| {
        let at = info.location().unwrap();
        let here = (std::thread::current().id(), at.file().to_owned(), at.line());
        *PLACE.lock().unwrap() = Some(here);
    }));
    let result = panic::catch_unwind(AssertUnwindSafe(f));
    panic::set_hook(previous);
    let error = *result.expect_err("nothing was thrown").downcast::<Error>().unwrap();
    let (_, file, line) = PLACE.lock().unwrap().take().unwrap();
    (error, file, line)
}

#[derive(Module)]
struct Head {
    proj: nn::Linear,
}

impl Forward for Head {
    fn forward(&self, x: &Tensor) -> Tensor {
        self.proj.forward(x) // the line to blame
    }
}

#[derive(Module)]
struct Net {
    body: Sequential,
    head: Head,
}

impl Forward for Net {
    fn forward(&self, x: &Tensor) -> Tensor {
        self.head.forward(&self.body.forward(x)) // the line of the body
    }
}

fn net() -> Net {
    let inner = Sequential::new().append(nn::ReLU).append(nn::LayerNorm::new(32));
    let body = Sequential::new().append(nn::Linear::new(8, 32)).append_named("inner", inner);
    Net { body, head: Head { proj: nn::Linear::new(64, 10) } }
}

/// The number of the line of this file that ends with this comment.
fn line_of(comment: &str) -> u32 {
    let source = include_str!("blame.rs");
    let found = source.lines().position(|line| line.ends_with(&format!("// {comment}")));
    found.unwrap() as u32 + 1
}

#[test]
fn an_error_inside_a_users_forward_names_its_line_and_the_modules_path() {
    let net = net();
    _ = net.parameters();
    let (error, file, line) = thrown(|| net.forward(&Tensor::ones([4, 8], F32)));
    assert!(file.ends_with("blame.rs") && line == line_of("the line to blame"), "{file}:{line}");
    let place = "\n  in head.proj: Linear(in_features=64, out_features=10, bias=True)";
    assert!(matches!(error, Error::Shape { .. }) && error.to_string().ends_with(place), "{error}");

    // Named as a part of a part, a parameter keeps its whole name.
    _ = net.head.parameters();
    let error = catch(|| net.forward(&Tensor::ones([4, 8], F32))).unwrap_err().to_string();
    assert!(error.contains("in head.proj: "), "{error}");
    // What works after an error says nothing of it.
    let alone = catch(|| Tensor::ones([2, 3], F32).mm(&Tensor::ones([2, 3], F32))).unwrap_err();
    assert!(!alone.to_string().contains("\n  in "), "{alone}");
}

#[test]
fn an_error_behind_a_trait_object_names_the_users_line() {
    let net = net();
    let (error, file, line) = thrown(|| net.forward(&Tensor::ones([4, 5], F32)));
    let error = error.to_string();
    let called = format!("\n  called at {}:{}:", file!(), line_of("the line of the body"));
    assert!(!file.ends_with("blame.rs"), "{file}:{line} needs no help");
    assert!(error.contains(&called), "{error} lacks {called}");
    // Without names of parameters: by the modules around it.
    assert!(error.contains("\n  in Sequential.0: Linear(in_features=8, "), "{error}");

    _ = net.state_dict();
    _ = net.parameters();
    let error = catch(|| net.forward(&Tensor::ones([4, 5], F32))).unwrap_err().to_string();
    assert!(error.contains("\n  in body.0: Linear("), "{error}");
}

/// A module's name, and a call that it refuses.
type Refusal = (&'static str, Box<dyn Fn() -> Tensor>);

fn refusals() -> Vec<Refusal> {
    let flat = || Tensor::ones([3], F32);
    let table = || Tensor::ones([3, 4], F32);
    macro_rules! refuse {
        ($($module:expr => $input:expr;)*) => {
            vec![$((stringify!($module), {
                let (module, input) = ($module, $input);
                Box::new(move || module.forward(&input)) as Box<dyn Fn() -> Tensor>
            }),)*]
        };
    }
    let mut all = refuse! {
        nn::Linear::new(5, 2) => table();
        nn::Conv1d::new(2, 3, 3) => table();
        nn::Conv2d::new(2, 3, 3) => table();
        nn::Conv3d::new(2, 3, 3) => table();
        nn::ConvTranspose1d::new(2, 3, 3, Default::default()) => table();
        nn::ConvTranspose2d::new(2, 3, 3, Default::default()) => table();
        nn::BatchNorm1d::new(5) => table();
        nn::BatchNorm2d::new(5) => table();
        nn::InstanceNorm1d::new(5) => flat();
        nn::LayerNorm::new(5) => table();
        nn::RMSNorm::new(5) => table();
        nn::GroupNorm::new(2, 6) => table();
        nn::MaxPool2d::new(2) => flat();
        nn::AvgPool2d::new(2) => flat();
        nn::AdaptiveAvgPool2d::new(2) => flat();
        nn::Embedding::new(3, 4) => table();
        nn::PixelShuffle::new(2) => flat();
        nn::PReLU::new(7, 0.25) => table();
        nn::Unflatten::new(0, [7, 7]) => table();
        weight_norm(nn::Linear::new(5, 2), "weight", Some(0)) => table();
        Sequential::new().append(Sequential::new().append(nn::Linear::new(5, 2))) => table();
        Box::new(nn::Linear::new(5, 2)) as Box<dyn Forward> => table();
    };
    all.push((
        "CrossEntropyLoss",
        Box::new(move || nn::CrossEntropyLoss::new().forward(&table(), &Tensor::from([9i64, 9]))),
    ));
    all
}

#[test]
fn no_error_of_a_module_blames_the_library() {
    for (module, refuse) in refusals() {
        let result = panic::catch_unwind(AssertUnwindSafe(|| thrown(refuse)));
        let Ok((error, file, line)) = result else { panic!("{module} refused nothing") };
        let named = error.to_string().contains(&format!("called at {}:", file!()));
        assert!(file.ends_with("blame.rs") || named, "{module}: at {file}:{line}: {error}");
    }
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => sources(&path, found),
            false => found.push(path),
        }
    }
}

/// A public function that says that it panics has to blame its caller.
#[test]
fn public_functions_that_panic_track_their_caller() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&source, &mut files);
    let mut lacking = Vec::new();
    // Loops under the ops, whose callers are not the user.
    files.retain(|file| !file.starts_with(source.join("cpu")));
    for file in files.iter().filter(|file| file.extension().is_some_and(|e| e == "rs")) {
        let text = fs::read_to_string(file).unwrap();
        let (mut panics, mut tracked) = (false, false);
        let mut lines = text.lines().map(str::trim).enumerate().peekable();
        while let Some((number, line)) = lines.next() {
            if line == "/// # Panics" {
                // Who throws later is somebody else.
                panics = lines.peek().is_some_and(|(_, next)| !next.contains("Backward throws"));
            } else if line.starts_with("#[track_caller]") {
                tracked = true;
            } else if line.starts_with("pub fn ") {
                if panics && !tracked {
                    lacking.push(format!("{}:{}: {line}", file.display(), number + 1));
                }
                (panics, tracked) = (false, false);
            } else if !line.starts_with("//") && !line.starts_with("#[") {
                (panics, tracked) = (false, false);
            }
        }
    }
    assert!(lacking.is_empty(), "#[track_caller] is missing:\n{}", lacking.join("\n"));
}
