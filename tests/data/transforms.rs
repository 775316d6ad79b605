//! Transforms of images against what torchvision gave (`tests/fixtures/transforms_v2`), and the random ones' rules.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::Value;
use torchrs::checkpoint::{TensorMap, load_file};
use torchrs::data::transforms::functional::{self as F, InterpolationMode, PaddingMode};
use torchrs::data::transforms::{
    CenterCrop, ColorJitter, Compose, CutMix, GaussianBlur, Grayscale, MixUp, Normalize, Pad,
    RandAugment, RandomCrop, RandomErasing, RandomHorizontalFlip, RandomResizedCrop,
    RandomRotation, RandomVerticalFlip, Resize, ToDtype, Transform,
};
use torchrs::{Dtype, Result, Tensor, manual_seed};

fn folder() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/transforms_v2"))
}

/// A case's arguments by name.
struct Args<'a>(&'a Value);

impl Args<'_> {
    fn number(&self, name: &str) -> f64 {
        self.0[name].as_f64().unwrap_or_else(|| panic!("{name} in {}", self.0))
    }
    fn size(&self, name: &str) -> usize {
        self.number(name) as usize
    }
    fn list(&self, name: &str) -> Vec<f64> {
        let list = self.0[name].as_array().unwrap_or_else(|| panic!("{name} in {}", self.0));
        list.iter().map(|value| value.as_f64().unwrap()).collect()
    }
    fn sizes(&self, name: &str) -> Vec<usize> {
        self.list(name).into_iter().map(|value| value as usize).collect()
    }
    fn pair(&self, name: &str) -> [f64; 2] {
        self.list(name).try_into().unwrap()
    }
    fn size_pair(&self, name: &str) -> [usize; 2] {
        self.sizes(name).try_into().unwrap()
    }
    fn points(&self, name: &str) -> [[f64; 2]; 4] {
        let point = |i: usize| [0, 1].map(|k| self.0[name][i][k].as_f64().unwrap());
        [0, 1, 2, 3].map(point)
    }
    fn has(&self, name: &str) -> bool {
        !self.0[name].is_null()
    }
    fn floats(&self, name: &str) -> Vec<f32> {
        self.list(name).into_iter().map(|value| value as f32).collect()
    }
    fn interpolation(&self) -> InterpolationMode {
        match self.0["interpolation"].as_str().unwrap() {
            "nearest" => InterpolationMode::Nearest,
            "nearest-exact" => InterpolationMode::NearestExact,
            "bilinear" => InterpolationMode::Bilinear,
            "bicubic" => InterpolationMode::Bicubic,
            other => panic!("{other}"),
        }
    }
    fn flag(&self, name: &str) -> bool {
        self.0[name].as_bool().unwrap_or(false)
    }
}

/// The results of a case on an image.
fn results(op: &str, image: &Tensor, args: &Args<'_>) -> Result<Vec<Tensor>> {
    let fill = args.has("fill").then(|| match args.0["fill"].as_f64() {
        Some(value) => vec![value as f32],
        None => args.floats("fill"),
    });
    let fill = fill.as_deref();
    let center = args.has("center").then(|| args.pair("center"));
    let one = match op {
        "resize" => {
            let max = args.has("max_size").then(|| args.size("max_size"));
            let antialias = args.flag("antialias");
            F::resize(image, &args.sizes("size"), args.interpolation(), max, antialias)?
        }
        "resized_crop" => {
            let [top, left] = ["top", "left"].map(|name| args.number(name) as i64);
            let [height, width] = ["height", "width"].map(|name| args.size(name));
            let (size, mode) = (args.sizes("size"), args.interpolation());
            F::resized_crop(image, top, left, height, width, &size, mode, args.flag("antialias"))?
        }
        "center_crop" => F::center_crop(image, args.size_pair("output_size"))?,
        "horizontal_flip" => F::horizontal_flip(image)?,
        "vertical_flip" => F::vertical_flip(image)?,
        "invert" => F::invert(image)?,
        "equalize" => F::equalize(image)?,
        "autocontrast" => F::autocontrast(image)?,
        "posterize" => F::posterize(image, args.number("bits") as u32)?,
        "solarize" => F::solarize(image, args.number("threshold"))?,
        "gaussian_blur" => {
            F::gaussian_blur(image, args.size_pair("kernel_size"), args.pair("sigma"))?
        }
        "pad" => {
            let mode = match args.0["padding_mode"].as_str().unwrap() {
                "constant" => PaddingMode::Constant(args.number("fill") as f32),
                "reflect" => PaddingMode::Reflect,
                "edge" => PaddingMode::Edge,
                _ => PaddingMode::Symmetric,
            };
            F::pad(image, args.sizes("padding").try_into().unwrap(), mode)?
        }
        "adjust_brightness" => F::adjust_brightness(image, args.number("brightness_factor"))?,
        "adjust_contrast" => F::adjust_contrast(image, args.number("contrast_factor"))?,
        "adjust_saturation" => F::adjust_saturation(image, args.number("saturation_factor"))?,
        "adjust_sharpness" => F::adjust_sharpness(image, args.number("sharpness_factor"))?,
        "adjust_gamma" => F::adjust_gamma(image, args.number("gamma"), args.number("gain"))?,
        "adjust_hue" => F::adjust_hue(image, args.number("hue_factor"))?,
        "rgb_to_grayscale" => F::rgb_to_grayscale(image, args.size("num_output_channels"))?,
        "color_jitter" => {
            let mut image = image.clone();
            for step in args.sizes("order") {
                image = match step {
                    0 => F::adjust_brightness(&image, args.number("brightness"))?,
                    1 => F::adjust_contrast(&image, args.number("contrast"))?,
                    2 => F::adjust_saturation(&image, args.number("saturation"))?,
                    _ => F::adjust_hue(&image, args.number("hue"))?,
                };
            }
            image
        }
        "rotate" => {
            let (angle, expand) = (args.number("angle"), args.flag("expand"));
            F::rotate(image, angle, args.interpolation(), expand, center, fill)?
        }
        "affine" => {
            let (angle, scale) = (args.number("angle"), args.number("scale"));
            let (translate, shear) = (args.pair("translate"), args.pair("shear"));
            F::affine(image, angle, translate, scale, shear, args.interpolation(), fill, center)?
        }
        "perspective" => {
            let (starts, ends) = (args.points("startpoints"), args.points("endpoints"));
            F::perspective(image, starts, ends, args.interpolation(), fill)?
        }
        "normalize" => F::normalize(image, &args.floats("mean"), &args.floats("std"))?,
        "to_float32_scaled" => F::to_dtype(image, Dtype::F32, true)?,
        "to_uint8_scaled" => F::to_dtype(image, Dtype::U8, true)?,
        "erase" => {
            let [top, left, height, width] =
                ["top", "left", "height", "width"].map(|name| args.size(name));
            F::erase(image, top, left, height, width, &[args.number("value") as f32])?
        }
        "five_crop" => return Ok(F::five_crop(image, args.size_pair("size"))?.into()),
        "ten_crop" => return Ok(F::ten_crop(image, args.size_pair("size"), false)?.into()),
        other => panic!("no case of {other} is known"),
    };
    Ok(vec![one])
}

fn batch_results(case: &Value, tensors: &TensorMap) -> Result<Vec<Tensor>> {
    let named = |name: &str| &tensors[case[name].as_str().unwrap()];
    let (images, labels) = (named("batch"), named("labels"));
    let images = match case["dtype"].as_str().unwrap() {
        "uint8" => images.clone(),
        _ => images.to_dtype(Dtype::F32) / 255.0,
    };
    let (args, classes) = (Args(&case["args"]), case["num_classes"].as_u64().unwrap() as usize);
    let (images, labels) = match case["op"].as_str().unwrap() {
        "mixup" => MixUp::new(1.0, classes)?.mix(&images, labels, args.number("lam"))?,
        _ => {
            let b = args.sizes("box");
            CutMix::new(1.0, classes)?.mix(&images, labels, [b[0], b[1]], [b[2], b[3]])?
        }
    };
    Ok(vec![images, labels])
}

/// The largest difference of two tensors, and the share of values that differ.
fn difference(a: &Tensor, b: &Tensor) -> (f64, f64) {
    let [a, b] = [a, b].map(|t| t.to_dtype(Dtype::F64).to_vec::<f64>());
    let differences = a.iter().zip(&b).map(|(a, b)| (a - b).abs());
    let (most, count) =
        differences.fold((0f64, 0), |(most, count), d| (most.max(d), count + usize::from(d > 0.0)));
    (most, count as f64 / a.len() as f64)
}

#[test]
fn results_are_those_of_torchvision() {
    let manifest = fs::read(folder().join("manifest.json")).unwrap();
    let manifest: Value = serde_json::from_slice(&manifest).unwrap();
    let tensors = load_file(folder().join("transforms_v2.safetensors")).unwrap();
    let (mut faults, mut cases) = (Vec::new(), BTreeMap::new());
    for case in manifest["cases"].as_array().unwrap() {
        let (id, op) = (case["id"].as_str().unwrap(), case["op"].as_str().unwrap());
        let made = if case["batch"].is_null() {
            let image = &tensors[&format!("image.{}", case["image"].as_str().unwrap())];
            let image = match case["dtype"].as_str().unwrap() {
                "uint8" => image.clone(),
                _ => image.to_dtype(Dtype::F32) / 255.0,
            };
            results(op, &image, &Args(&case["args"]))
        } else {
            batch_results(case, &tensors)
        };
        let made = made.unwrap_or_else(|error| panic!("{id}: {error}"));
        let expected = case["results"].as_array().unwrap();
        assert_eq!(made.len(), expected.len(), "{id}");
        for (made, expected) in made.iter().zip(expected) {
            let expected = &tensors[expected["key"].as_str().unwrap()];
            let form = |t: &Tensor| (t.shape().to_vec(), t.dtype());
            assert_eq!(form(made), form(expected), "{id}");
            let (most, share) = difference(made, expected);
            if most > case["atol"].as_f64().unwrap() {
                faults.push(format!("{id} {}: {most} in {share:.4}", case["args"]));
            }
            let entry: &mut (u32, f64) = cases.entry(op.to_owned()).or_default();
            *entry = (entry.0 + 1, entry.1.max(most));
        }
    }
    for (op, (count, most)) in &cases {
        println!("{op}: {count} results, at most {most:.2e} off");
    }
    assert!(faults.is_empty(), "{} cases differ:\n{}", faults.len(), faults.join("\n"));
    assert_eq!(cases.len(), 31);
}

fn image(dtype: Dtype) -> Tensor {
    let values = Tensor::arange(0i64, 3 * 20 * 30, 1i64, Dtype::I64);
    let bytes = (values * 53i64).remainder(256i64).to_dtype(Dtype::U8).view([3, 20, 30]);
    if dtype == Dtype::U8 { bytes } else { bytes.to_dtype(Dtype::F32) / 255.0 }
}

#[test]
fn a_batch_is_transformed_as_its_images_are() {
    let one = image(Dtype::U8);
    let other = F::invert(&one).unwrap();
    let both = Tensor::stack(&[&one, &other], 0);
    let all: [fn(&Tensor) -> Result<Tensor>; 7] = [
        |x| F::resize(x, &[9, 11], InterpolationMode::Bicubic, None, true),
        |x| F::adjust_contrast(x, 1.4),
        |x| F::adjust_saturation(x, 0.3),
        |x| F::adjust_hue(x, 0.2),
        |x| F::equalize(x),
        |x| F::rotate(x, 20.0, InterpolationMode::Bilinear, true, None, Some(&[1.0, 2.0, 3.0])),
        |x| F::gaussian_blur(x, [5, 3], [1.0, 2.0]),
    ];
    for (number, transform) in all.iter().enumerate() {
        let whole = transform(&both).unwrap();
        for (i, image) in [&one, &other].into_iter().enumerate() {
            assert!(whole.select(0, i as i64).equal(&transform(image).unwrap()), "{number}");
        }
    }
}

#[test]
fn random_transforms_are_reproducible_serialisable_and_do_something() {
    torchrs::fork_rng(|| {
        let shifts = Compose::new([RandomRotation::new([-30.0, 30.0]).unwrap().into()]);
        let all: Vec<(&str, Compose)> = vec![
            ("flip", Compose::new([RandomHorizontalFlip::new(0.5).unwrap().into()])),
            ("vertical", Compose::new([RandomVerticalFlip::new(0.5).unwrap().into()])),
            ("crop", Compose::new([RandomCrop::new([20, 30]).padding([4; 4]).into()])),
            ("resized", Compose::new([RandomResizedCrop::new([12, 14]).unwrap().into()])),
            ("rotation", shifts),
            ("jitter", Compose::new([ColorJitter::new(0.5, 0.5, 0.5, 0.3).unwrap().into()])),
            ("augment", Compose::new([RandAugment::new(2, 9).unwrap().into()])),
            ("blur", Compose::new([GaussianBlur::new([3, 3], [0.1, 2.0]).unwrap().into()])),
            ("erasing", Compose::new([RandomErasing::new(0.9).unwrap().value(None).into()])),
        ];
        for dtype in [Dtype::U8, Dtype::F32] {
            let image = image(dtype);
            for (name, transform) in &all {
                let json = serde_json::to_string(transform).unwrap();
                let back: Compose = serde_json::from_str(&json).unwrap();
                let draw = |transform: &Compose, seed| {
                    manual_seed(seed);
                    (0..6).map(|_| transform.forward(&image).unwrap()).collect::<Vec<_>>()
                };
                let (a, b, c) = (draw(transform, 1), draw(&back, 1), draw(transform, 2));
                assert!(a.iter().zip(&b).all(|(a, b)| a.equal(b)), "{name}");
                assert!(a.iter().zip(&c).any(|(a, c)| !a.equal(c)), "{name}");
                assert!(a.iter().all(|x| x.dtype() == dtype), "{name}");
            }
        }
    });
}

#[test]
fn flips_and_crops_have_their_probabilities() {
    torchrs::fork_rng(|| {
        manual_seed(0);
        let image =
            Tensor::arange(0i64, 16i64, 1i64, Dtype::I64).to_dtype(Dtype::U8).view([1, 4, 4]);
        let flip = RandomHorizontalFlip::new(0.25).unwrap();
        let flipped =
            (0..2000).filter(|_| flip.forward(&image).unwrap().to_vec::<u8>()[0] == 3).count();
        assert!((420..580).contains(&flipped), "{flipped} of 2000");
        let crop = RandomCrop::new([2, 2]);
        let mut places = BTreeMap::new();
        for _ in 0..1800 {
            *places.entry(crop.forward(&image).unwrap().to_vec::<u8>()[0]).or_insert(0) += 1;
        }
        assert_eq!(places.keys().copied().collect::<Vec<u8>>(), [0, 1, 2, 4, 5, 6, 8, 9, 10]);
        assert!(places.values().all(|count| (130..270).contains(count)), "{places:?}");
        // A share of a beta distribution with parameter 0.2 is mostly near 0 or 1.
        let labels = Tensor::from([0i64, 1]);
        let batch = Tensor::zeros([2, 1, 4, 4], Dtype::F32);
        let mut shares = Vec::new();
        for _ in 0..500 {
            let (_, mixed) = MixUp::new(0.2, 2).unwrap().forward(&batch, &labels).unwrap();
            shares.push(mixed.to_vec::<f32>()[0]);
        }
        let mean = shares.iter().sum::<f32>() / 500.0;
        let outside = shares.iter().filter(|s| !(0.1..0.9).contains(*s)).count();
        assert!((0.42..0.58).contains(&mean) && outside > 280, "{mean} {outside}");
    });
}

#[test]
fn what_is_no_image_is_refused() {
    let fails = |result: Result<Tensor>, expected: &str| {
        let error = result.expect_err(expected).to_string();
        assert!(error.contains(expected), "{error}");
    };
    let (bytes, floats) = (image(Dtype::U8), image(Dtype::F32));
    let linear = InterpolationMode::Bilinear;
    fails(F::invert(&Tensor::zeros([3, 4, 4], Dtype::F64)), "is u8 or f32, this tensor f64");
    fails(
        F::invert(&Tensor::zeros([4, 4], Dtype::U8)),
        "has shape [.., C, H, W], this tensor [4, 4]",
    );
    fails(F::invert(&Tensor::zeros([3, 0, 4], Dtype::U8)), "has no pixels");
    fails(F::resize(&bytes, &[0, 3], linear, None, true), "has a side of 0");
    fails(F::resize(&bytes, &[4, 3], linear, Some(9), true), "beside two sizes");
    fails(F::resize(&bytes, &[4], linear, Some(4), true), "must be above size 4");
    fails(F::normalize(&bytes, &[0.5], &[0.5]), "takes f32 images");
    fails(F::normalize(&floats, &[0.5, 0.5], &[0.5]), "2 values for 3 channels");
    fails(F::adjust_hue(&bytes, 0.6), "from -0.5 to 0.5");
    fails(F::adjust_contrast(&Tensor::zeros([2, 4, 4], Dtype::U8), 1.0), "2 channels");
    fails(F::adjust_contrast(&bytes, -1.0), "at least 0");
    fails(F::pad(&bytes, [0, 20, 0, 0], PaddingMode::Reflect), "to mirror");
    fails(F::gaussian_blur(&bytes, [4, 3], [1.0, 1.0]), "even size");
    fails(F::erase(&bytes, 15, 0, 6, 1, &[0.0]), "not inside");
    fails(
        F::rotate(&bytes, 3.0, InterpolationMode::Bicubic, false, None, None),
        "Nearest or Bilinear",
    );
    fails(F::rotate(&bytes, f64::NAN, linear, false, None, None), "NaN is not finite");
    fails(F::perspective(&bytes, [[0.0; 2]; 4], [[1.0; 2]; 4], linear, None), "corners");
    fails(RandomCrop::new([50, 5]).forward(&bytes), "50 x 5 is larger");
    fails(CenterCrop::new([0, 5]).forward(&bytes), "0 x 5 pixels are none");
    fails(Grayscale::new(2).forward(&bytes), "must be 1 or 3");
    assert!(Normalize::new(&[0.5], &[0.0]).is_err() && Resize::new(0).is_err());
    let chain = Compose::new([ToDtype::new(Dtype::F32, true).into(), Pad::new([1; 4]).into()]);
    assert_eq!(chain.forward(&bytes).unwrap().shape(), [3, 22, 32]);
    let labels = Tensor::from([0i64, 5]);
    let batch = Tensor::zeros([2, 1, 4, 4], Dtype::F32);
    let error = MixUp::new(1.0, 3).unwrap().forward(&batch, &labels).unwrap_err().to_string();
    assert!(error.contains("label 1 is 5, must be below num_classes 3"), "{error}");
}
