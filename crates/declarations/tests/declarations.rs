//! Functions, structures and constants of CUDA's libraries, as torchrs declares them, against NVIDIA's headers of two
//! generations. A wrong type would be found by no other test without a GPU: the simulated GPU is ours, too.

mod declared;

use declared::constants::ROWS;
use declared::headers::{self, Headers};
use declared::ours;
use declared::types::{Shape, offsets};

/// Old and new versions, as cudarc names them.
const VERSIONS: [&[&str]; 2] =
    [&["cuda-12000", "cudnn-09010", "nccl-02022"], &["cuda-13040", "cudnn-09021", "nccl-02030"]];

/// Functions that later headers give another symbol; drivers keep the old one for programs that were built before.
const RENAMED: [(&str, &str); 1] = [("cuEventElapsedTime", "cuEventElapsedTime_v2")];

/// The headers of all versions.
fn all() -> Vec<(&'static str, Headers)> {
    let folder = headers::folder();
    VERSIONS.iter().map(|versions| (versions[0], Headers::of(&folder, versions))).collect()
}

#[test]
fn functions_have_the_headers_types() {
    let (functions, names) = (ours::functions(), ours::names());
    assert!(functions.len() > 100, "only {} functions were found", functions.len());
    let mut wrong = Vec::new();
    for (version, headers) in all() {
        for (name, (kinds, result)) in &functions {
            let known = |name: &str| headers.functions.get(name);
            let renamed = RENAMED.iter().find(|(old, _)| old == name);
            let found = known(name).or_else(|| known(renamed?.1));
            let Some((theirs, their_result)) = found else {
                wrong.push(format!("{version}: no {name}"));
                continue;
            };
            if kinds.len() != theirs.len() {
                wrong.push(format!("{version}: {name} has {} parameters", theirs.len()));
                continue;
            }
            let pairs = kinds.iter().zip(theirs).chain([(result, their_result)]);
            for (place, (ours, theirs)) in pairs.enumerate() {
                let (a, b) = (names.shape(ours), headers.names.shape(theirs));
                if !b.accepts(&a) {
                    wrong.push(format!(
                        "{version}: {name}, {place}: {ours} for {theirs} ({a:?}, {b:?})"
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn structures_lie_as_in_the_headers() {
    let names = ours::names();
    let all_names = [
        ("Choice", "cublasLtMatmulHeuristicResult_t"),
        // A longer one is told by its size how much of it there is.
        ("Config", "ncclConfig_t"),
    ];
    for (version, headers) in all() {
        for (name, theirs) in all_names {
            let (ours, theirs) = (names.shape(name), headers.names.shape(theirs));
            let (Shape::Struct(_, own), Shape::Struct(_, fields)) = (&ours, &theirs) else {
                panic!("{version}: {ours:?}, {theirs:?}")
            };
            let of = |fields: &[(String, Shape)]| -> Vec<(usize, usize)> {
                offsets(fields).into_iter().map(|(_, at, size)| (at, size)).collect()
            };
            assert_eq!(of(own), of(fields)[..own.len()], "{version}: {name}");
            assert!(own.iter().zip(fields).all(|(a, b)| b.1.accepts(&a.1)), "{version}: {name}");
            assert!(name == "Config" || ours.size() == theirs.size(), "{version}: {name}");
        }
        for (name, bytes) in [
            ("CUipcMemHandle", 64),
            ("CUipcEventHandle", 64),
            ("CUuuid", 16),
            ("ncclUniqueId", 128),
        ] {
            assert_eq!(headers.names.shape(name).size(), bytes, "{version}: {name}");
        }
    }
}

#[test]
fn constants_are_the_headers() {
    let all = all();
    let mut wrong = Vec::new();
    for (file, texts, constants) in ROWS {
        let source = ours::text(file);
        for text in texts.split('|').filter(|text| !source.contains(text.trim())) {
            wrong.push(format!("{file} has no `{text}`: bring this table in line with it"));
        }
        for (number, name) in *constants {
            let found: Vec<_> = all
                .iter()
                .filter_map(|(version, headers)| Some((version, headers.constants.get(*name)?)))
                .collect();
            if found.is_empty() {
                wrong.push(format!("no header has {name}"));
            }
            let others = found.iter().filter(|(_, theirs)| *theirs != number);
            wrong.extend(
                others.map(|(version, theirs)| {
                    format!("{version}: {name} is {theirs}, not {number}")
                }),
            );
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// What is added to the code has to be added to the table above.
#[test]
fn attributes_of_cudnn_are_all_compared() {
    for file in ["attention.rs", "convolution.rs", "kept.rs", "mod.rs", "operations.rs", "plan.rs"]
    {
        let source = ours::text(&format!("libraries/cudnn/{file}"));
        let known = ROWS.iter().filter(|row| row.0.ends_with(file)).flat_map(|row| row.2);
        let known: Vec<i64> = known.map(|constant| constant.0).collect();
        for call in [".set(", ".get(", ".set::<Mode>(", ".get::<Object>("] {
            for place in source.split(call).skip(1) {
                let digits: String = place.chars().take_while(char::is_ascii_digit).collect();
                let number = digits.parse().unwrap_or(known.first().copied().unwrap_or_default());
                assert!(digits.is_empty() || known.contains(&number), "{file}: {call}{digits}");
            }
        }
    }
}

/// The comparison itself finds what is wrong.
#[test]
fn wrong_types_are_not_accepted() {
    let (names, (_, headers)) = (ours::names(), all().remove(1));
    for (ours, theirs, fits) in [
        ("usize", "usize", true),
        ("c_uint", "usize", false),
        ("c_int", "CUdevice", true),
        ("c_uint", "CUdevice", false),
        ("c_int", "CUpointer_attribute", true),
        ("usize", "CUpointer_attribute", false),
        ("StreamHandle", "CUstream", true),
        ("DevicePointer", "CUstream", false),
        ("*mut usize", "*mut usize", true),
        ("*mut c_int", "*mut usize", false),
        ("*mut StreamHandle", "*mut CUstream", true),
        ("*mut c_int", "*mut CUstream", false),
        ("IpcHandle", "CUipcMemHandle", true),
        ("UniqueId", "CUipcMemHandle", false),
        ("f32", "f64", false),
        ("Status", "", false),
    ] {
        let (a, b) = (names.shape(ours), headers.names.shape(theirs));
        assert_eq!(b.accepts(&a), fits, "{ours} for {theirs}");
    }
}
