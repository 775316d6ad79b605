//! What PyTorch's files hold beside plain tensors: conjugates, numbers and arrays of NumPy, objects.

use torchrs::checkpoint::{PtObject, PtRaw, PtValue, load_pt, save_pt};
use torchrs::{Complex, Dtype, Tensor, no_grad};

use super::{fixture, refused, tensor, text};

fn object<'a>(value: &'a PtValue, name: &str) -> &'a PtObject {
    match value.get(name) {
        Some(PtValue::Object(object)) => object,
        other => panic!("{name}: {other:?}"),
    }
}

fn raw<'a>(value: &'a PtValue, name: &str) -> &'a PtRaw {
    match value.get(name) {
        Some(PtValue::Raw(raw)) => raw,
        other => panic!("{name}: {other:?}"),
    }
}

#[test]
fn conjugates_and_negatives_are_applied() {
    for name in ["marked.pt", "marked_legacy.pt"] {
        let file = load_pt(fixture(name)).unwrap();
        let parts = |name: &str| tensor(&file, name).detach().view_as_real().to_vec::<f32>();
        let conj = [1.0, -2.0, 3.0, 1.0, 0.0, -0.5];
        assert_eq!(parts("conj"), conj, "{name}");
        assert_eq!(parts("parameter"), conj);
        assert!(tensor(&file, "parameter").requires_grad());
        assert_eq!(parts("part"), conj[2..]);
        assert_eq!(parts("expanded"), [1.0, -2.0].repeat(4));
        assert_eq!(tensor(&file, "expanded").strides(), [0]);
        assert_eq!(tensor(&file, "neg").to_vec::<f32>(), [-2.0, 1.0, -0.5]);
        assert_eq!(tensor(&file, "twice").to_vec::<f32>(), [2.0, -1.0, 0.5]);
        assert_eq!(parts("plain"), [1.0, 2.0, 3.0, -1.0, 0.0, 0.5]);
    }
}

#[test]
fn marks_that_are_not_known_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.pt");
    let file = std::fs::read(fixture("marked_legacy.pt")).unwrap();
    let at = file.windows(4).position(|w| w == b"conj").expect("the name of an entry");
    let mark = file[at + 4..].windows(4).position(|w| w == b"conj").unwrap() + at + 4;
    let mut other = file.clone();
    other[mark..mark + 4].copy_from_slice(b"lazy");
    std::fs::write(&path, other).unwrap();
    refused(load_pt(&path), "metadata `lazy`");
}

#[test]
fn numbers_and_arrays_of_numpy_are_values() {
    for name in ["foreign.pt", "foreign5.pt", "foreign_legacy.pt"] {
        let file = load_pt(fixture(name)).unwrap_or_else(|e| panic!("{e}"));
        let shown = |name: &str| text(file.get(name).unwrap());
        for (name, value) in [
            ("float64", "Float(2.5)"),
            ("float16", "Float(0.5)"),
            ("int64", "Int(-3)"),
            ("uint8", "Int(200)"),
            ("bool_", "Bool(true)"),
            ("str_", "Str(\"täst\")"),
            ("bytes_", "Bytes([97, 98])"),
        ] {
            assert_eq!(shown(name), value, "{name}");
        }
        let complex = |name: &str| match file.get(name) {
            Some(PtValue::Complex(z)) => *z,
            other => panic!("{other:?}"),
        };
        assert_eq!(complex("complex"), Complex::new(1.0, -2.0));
        assert_eq!(complex("complex64"), Complex::new(0.0, 1.0));
        assert_eq!(raw(&file, "uint64").bytes, [255; 8]);
        let numbers = |name: &str| tensor(&file, name).to_vec::<f64>();
        let array = tensor(&file, "array");
        assert_eq!((array.shape(), array.dtype()), (&[2, 3][..], Dtype::F64));
        assert_eq!(numbers("array"), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
        assert_eq!(numbers("fortran"), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
        assert_eq!(tensor(&file, "fortran").strides(), [1, 2]);
        assert_eq!(
            (numbers("big"), tensor(&file, "big").dtype()),
            (vec![0.0, 1.0, 2.0], Dtype::I32)
        );
        assert_eq!(tensor(&file, "bools").to_vec::<bool>(), [true, false]);
        assert_eq!(tensor(&file, "empty").shape(), [0, 3]);
        assert_eq!((tensor(&file, "zero_dim").dim(), numbers("zero_dim")), (0, vec![1.5]));
        let words = raw(&file, "uint16").to_tensor().unwrap();
        assert_eq!((words.dtype(), words.to_vec::<i64>()), (Dtype::I32, vec![1, 65535]));
        for name in ["objects", "fields"] {
            assert_eq!(object(&file, name).class, "numpy.ndarray");
        }
        assert!(object(&file, "datetime").class.ends_with("multiarray.scalar"));
    }
}

#[test]
fn one_foreign_object_leaves_the_tensors_beside_it_readable() {
    for name in ["foreign.pt", "foreign5.pt", "foreign_legacy.pt"] {
        let file = load_pt(fixture(name)).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(tensor(&file, "tensor").to_vec::<f32>(), [0.0, 1.0, 2.0]);
        let namespace = object(&file, "namespace");
        assert_eq!(namespace.class, "argparse.Namespace");
        assert_eq!(text(namespace.get("lr").unwrap()), "Float(0.1)");
        assert_eq!(tensor(file.get("namespace").unwrap(), "weight").shape(), [2, 2]);
        let slots = object(&file, "slots");
        assert!(matches!(slots.get("a"), Some(PtValue::Int(1))), "{slots:?}");
        assert!(matches!(slots.get("b"), Some(PtValue::Tensor(_))));
        let listed = object(&file, "listed");
        assert_eq!(
            (listed.items.len(), text(listed.get("note").unwrap())),
            (2, "Str(\"kept\")".into())
        );
        assert_eq!(text(&object(&file, "named").entries[0].1), "Int(3)");
        assert_eq!(object(&file, "path").class, "pathlib.PurePosixPath");
        assert_eq!(
            text(&object(&file, "class").arguments[0]),
            "Str(\"torch.nn.modules.linear.Linear\")"
        );
        let module = object(&file, "module");
        let weight = module.get("_parameters").and_then(|p| p.get("weight"));
        assert!(matches!(weight, Some(PtValue::Tensor(t)) if t.shape() == [1, 2]), "{module:?}");
        assert_eq!(object(&file, "partial").class, "functools.partial");
        assert!(object(&file, "sparse").class.contains("sparse"));
        assert!(object(&file, "quantized").class.contains("qtensor"));
        let error = file.tensors().unwrap_err().to_string();
        assert!(error.contains("argparse.Namespace") && error.contains("`namespace`"), "{error}");
    }
    let file = load_pt(fixture("foreign.pt")).unwrap();
    assert_eq!(raw(&file, "float8").to_tensor().unwrap().to_vec::<f32>(), [1.0, -448.0]);
    let view = raw(&file, "float8_view");
    assert_eq!((&view.shape[..], view.dtype.as_str()), (&[2, 2][..], "float8_e5m2"));
    assert_eq!(view.to_tensor().unwrap().to_vec::<f32>(), [1.0, 4.0, 2.0, 5.0]);
    assert_eq!(tensor(&file, "storage").numel(), 12);
    // A function that a file names is not called: it would print.
    let evil = load_pt(fixture("evil.pt")).unwrap();
    let print = object(&evil, "x");
    assert!(print.class.ends_with(".print"), "{print:?}");
    assert_eq!(text(&print.arguments[0]), "Str(\"run by a file\")");
    let PtValue::Object(module) = load_pt(fixture("module.pt")).unwrap() else {
        panic!("an object")
    };
    assert!(module.class.ends_with("Sequential") && module.get("_modules").is_some());
}

#[test]
fn dtypes_that_are_not_known_keep_their_bytes_and_are_written_as_they_were() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.pt");
    let words = load_pt(fixture("unsigned.pt")).unwrap();
    assert_eq!(
        raw(&words, "x"),
        &PtRaw { dtype: "uint16".into(), shape: vec![2], bytes: vec![1, 0, 1, 0] }
    );
    save_pt(&words, &path).unwrap();
    assert_eq!(raw(&load_pt(&path).unwrap(), "x"), raw(&words, "x"));
    let z = PtValue::List(vec![PtValue::Complex(Complex::new(0.5, -2.0))]);
    save_pt(&z, &path).unwrap();
    assert_eq!(text(&load_pt(&path).unwrap()), text(&z));
}

#[test]
fn what_cannot_be_written_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.pt");
    let fails = |value: PtValue, about: &str| {
        let error = save_pt(&value, &path).unwrap_err().to_string();
        assert!(error.contains(about), "{error}");
        assert!(!path.exists());
    };
    let namespace = PtObject { class: "argparse.Namespace".into(), ..Default::default() };
    fails(PtValue::List(vec![PtValue::Object(Box::new(namespace))]), "argparse.Namespace");
    fails(PtValue::Dict(vec![(PtValue::List(vec![]), PtValue::None)]), "a list as a key");
    let deep = (0..10_000).fold(PtValue::None, |inner, _| PtValue::List(vec![inner]));
    let error = save_pt(&deep, &path).unwrap_err().to_string();
    assert!(error.contains("nested"), "{error}");
    // Its own drop would recurse as deep.
    std::mem::forget(deep);
    let raw = PtRaw { dtype: "uint16".into(), shape: vec![2], bytes: vec![0; 3] };
    fails(PtValue::Raw(Box::new(raw)), "3 bytes");
}

#[test]
fn the_memory_of_a_view_is_shared_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.pt");
    let base = Tensor::arange(0, 6, 1, Dtype::F32);
    // The view first, which begins in the middle of the storage.
    let both = [base.narrow(0, 2, 3), base.clone()].map(PtValue::Tensor);
    save_pt(&PtValue::List(both.into()), &path).unwrap();
    let PtValue::List(items) = load_pt(&path).unwrap() else { panic!("a list") };
    let [PtValue::Tensor(part), PtValue::Tensor(whole)] = &items[..] else { panic!("tensors") };
    no_grad(|| _ = whole.fill_(7.0));
    assert_eq!(part.to_vec::<f32>(), [7.0; 3]);
}
