//! Tests of where CUDA's libraries are searched.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs;

use super::*;
use crate::simulated_test::on_gpu_with;

/// An environment of a few variables.
fn environment<'a>(pairs: &'a [(&str, PathBuf)]) -> impl Fn(&str) -> Option<OsString> + 'a {
    let map: HashMap<_, _> = pairs.iter().map(|(k, v)| (k.to_string(), v.clone())).collect();
    move |name| map.get(name).map(|v| v.clone().into_os_string())
}

fn touch(path: &Path) -> PathBuf {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, "").unwrap();
    path.to_owned()
}

/// Looks with a loader that opens any file and no bare name; the paths it was asked for, in order.
fn find_files(kind: Kind, driver: Option<u32>, places: &Places) -> (Result<PathBuf>, Vec<PathBuf>) {
    let asked = RefCell::new(Vec::new());
    let found = find_real(kind, driver, places, |path| {
        asked.borrow_mut().push(path.to_owned());
        if path.is_absolute() { Ok(path.to_owned()) } else { Err("not found".into()) }
    });
    (found, asked.into_inner())
}

#[test]
fn the_named_folder_comes_first_then_the_loader_then_toolkit_then_wheels() {
    let root = tempfile::tempdir().unwrap();
    let at = |path: &str| root.path().join(path);
    let wheel = touch(&at("venv/lib/python3.12/site-packages/nvidia/cu13/lib/libnvrtc.so.13"));
    let variables =
        [("VIRTUAL_ENV", at("venv")), ("CUDA_HOME", at("toolkit")), (CUDA_PATH, at("mine"))];
    let places = || Places::of(environment(&variables), root.path());
    assert_eq!(find_files(Kind::Nvrtc, None, &places()).0.unwrap(), wheel);

    let toolkit = touch(&at("toolkit/lib64/libnvrtc.so.13"));
    let (found, asked) = find_files(Kind::Nvrtc, None, &places());
    assert_eq!(found.unwrap(), toolkit);
    assert_eq!(asked, [PathBuf::from("libnvrtc.so.13"), toolkit]);

    let mine = touch(&at("mine/libnvrtc.so.12"));
    let (found, asked) = find_files(Kind::Nvrtc, None, &places());
    assert_eq!(found.unwrap(), mine);
    assert_eq!(asked, [mine]);
}

#[test]
fn a_library_fits_the_drivers_major_version() {
    let root = tempfile::tempdir().unwrap();
    let at = |path: &str| root.path().join(path);
    let new = touch(&at("a/lib64/libcublasLt.so.13"));
    let old = touch(&at("b/lib64/libcublasLt.so.12"));
    let variables = [("CUDA_HOME", at("a")), ("CUDA_PATH", at("b"))];
    let places = Places::of(environment(&variables), root.path());
    assert_eq!(find_files(Kind::CublasLt, Some(13), &places).0.unwrap(), new);
    assert_eq!(find_files(Kind::CublasLt, Some(12), &places).0.unwrap(), old);
    // Where nothing fits, the newer one is tried: it may work by CUDA's compatibility package.
    fs::remove_file(&old).unwrap();
    assert_eq!(find_files(Kind::CublasLt, Some(12), &places).0.unwrap(), new);
}

#[test]
fn builtins_are_opened_before_nvrtc() {
    let root = tempfile::tempdir().unwrap();
    let at = |path: &str| root.path().join(path);
    let nvrtc = touch(&at("libnvrtc.so.13"));
    let builtins = touch(&at("libnvrtc-builtins.so.13.0"));
    touch(&at("libnvrtc-builtins.alt.so.13.0"));
    touch(&at("libnvrtc-builtins.so.12.8"));
    let places = Places::of(environment(&[(CUDA_PATH, root.path().into())]), root.path());
    assert_eq!(find_files(Kind::Nvrtc, None, &places).1, [builtins, nvrtc]);
}

#[test]
fn python_beside_the_path_and_in_the_home_folder_is_searched() {
    let root = tempfile::tempdir().unwrap();
    let at = |path: &str| root.path().join(path);
    touch(&at("opt/bin/python3"));
    let nccl = touch(&at("opt/lib/python3.11/site-packages/nvidia/nccl/lib/libnccl.so.2"));
    let cudnn = touch(&at("me/.local/lib/python3.11/site-packages/nvidia/cudnn/lib/libcudnn.so.9"));
    let variables = [("PATH", at("opt/bin")), ("HOME", at("me"))];
    let places = Places::of(environment(&variables), root.path());
    assert_eq!(find_files(Kind::Nccl, None, &places).0.unwrap(), nccl);
    assert_eq!(find_files(Kind::Cudnn, None, &places).0.unwrap(), cudnn);
}

#[test]
fn what_is_missing_names_the_package() {
    let empty = Places::default();
    let message = |kind, driver| find_files(kind, driver, &empty).0.unwrap_err().to_string();
    let driver = message(Kind::Driver, None);
    assert!(driver.contains("libcuda.so.1") && driver.contains("NVIDIA driver"), "{driver}");
    let nvrtc = message(Kind::Nvrtc, Some(13));
    assert!(nvrtc.contains("libnvrtc.so.13 or libnvrtc.so.12"), "{nvrtc}");
    assert!(nvrtc.contains("pip install nvidia-cuda-nvrtc==13.*"), "{nvrtc}");
    assert!(message(Kind::Nvrtc, Some(12)).contains("nvidia-cuda-nvrtc-cu12"));
    assert!(message(Kind::CublasLt, None).contains("nvidia-cublas"));
    assert!(message(Kind::Cudnn, Some(12)).contains("nvidia-cudnn-cu12"));
    assert!(message(Kind::Nccl, Some(13)).contains("nvidia-nccl-cu13"));
}

#[test]
fn a_library_that_cannot_be_loaded_says_why() {
    let root = tempfile::tempdir().unwrap();
    let path = touch(&root.path().join("libnccl.so.2"));
    let places = Places { explicit: vec![root.path().into()], folders: vec![] };
    let error = find_real(Kind::Nccl, None, &places, Library::open).err().unwrap().to_string();
    assert!(error.contains("cannot be loaded"), "{error}");
    assert!(error.contains(&path.display().to_string()), "{error}");
}

#[test]
fn the_number_of_simulated_gpus() {
    let parse = |text: &str| parse_count(Some(text.into()));
    assert_eq!(parse_count(None).unwrap(), None);
    assert_eq!(parse("").unwrap(), None);
    assert_eq!(parse("0").unwrap(), None);
    assert_eq!(parse("8").unwrap(), Some(8));
    let error = parse("all").unwrap_err().to_string();
    assert_eq!(error, "TORCHRS_SIMULATE_GPUS: `all` is not a number of GPUs");
}

#[test]
fn the_simulated_gpu_is_looked_for_around_the_executable() {
    let around = simulated_candidates(Path::new("/t/debug/deps/test-1"));
    let folders: Vec<_> = around.iter().map(|p| p.parent().unwrap().to_str().unwrap()).collect();
    assert_eq!(folders, ["/t/debug/deps", "/t/debug/deps/deps", "/t/debug", "/t/debug/deps"]);
}

#[test]
fn a_library_of_a_later_cuda_than_the_drivers_is_named() {
    let [library, driver] = ["/w/libcudnn.so.9", "/d/libcuda.so.1"].map(Path::new);
    let fits = |own, runs| fits(Kind::Cudnn, (library, own), (driver, runs));
    fits(12090, 13000).unwrap();
    fits(13020, 13000).unwrap();
    let error = fits(13000, 12080).unwrap_err().to_string();
    for part in [
        "cuDNN at /w/libcudnn.so.9",
        "CUDA 13.0",
        "/d/libcuda.so.1 runs CUDA 12.8",
        "nvidia-cudnn-cu12",
    ] {
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn our_own_kernels_stand_in_for_a_cudnn_that_the_driver_cannot_run() {
    let test =
        "loading::library::tests::our_own_kernels_stand_in_for_a_cudnn_that_the_driver_cannot_run";
    on_gpu_with(test, &[("TORCHRS_SIMULATED_FAULT", "new-cudnn")], || {
        assert!(!crate::libraries::cudnn::is_available());
        let found = describe().into_iter().find(|finding| finding.kind == Kind::Cudnn).unwrap();
        assert!(found.to_string().contains("for CUDA 14.0"), "{found}");
    });
}

#[test]
fn words_turn_a_library_off_too() {
    assert!(["0", "false", "Off", " no "].into_iter().all(is_no));
    assert!(!["", "1", "true", "00"].into_iter().any(is_no));
}
