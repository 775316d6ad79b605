//! Image transforms, as `tools/bench/peer_images.py transforms` measures torchvision's on u8 tensors of 3 x 375 x 500.
//! `cargo bench --bench transforms [-- part-of-a-row-name] [--budget seconds]`

#[path = "common/bench.rs"]
mod bench;

use bench::Bench;
use torchrs::data::datasets::decode_image;
use torchrs::data::transforms::functional::{self as F, InterpolationMode};
use torchrs::{Dtype, Tensor};

fn main() {
    let folder = std::env::var_os("TORCHRS_BENCH_IMAGES").map(std::path::PathBuf::from);
    let folder = folder.unwrap_or_else(|| std::env::temp_dir().join("torchrs-bench-images"));
    let bytes = std::fs::read(folder.join("jpeg/class0/00000.jpg"));
    let bytes = bytes.expect("tools/bench/peer_images.py --make has written the files");
    let image = decode_image(&bytes).expect("an image");
    let small = F::resize(&image, &[224, 224], InterpolationMode::Bilinear, None, true).unwrap();
    let floats = F::to_dtype(&small, Dtype::F32, true).unwrap();
    let (mean, std) = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]);
    Bench::main(|bench| {
        let row = |name: &str, call: &dyn Fn() -> torchrs::Result<Tensor>| {
            bench.row(&format!("transform_{name}"), "us", 0.0, || call().unwrap());
        };
        let linear = InterpolationMode::Bilinear;
        row("decode_jpeg", &|| decode_image(&bytes));
        row("resize_256", &|| F::resize(&image, &[256], linear, None, true));
        row("resize_bicubic_256", &|| {
            F::resize(&image, &[256], InterpolationMode::Bicubic, None, true)
        });
        row("resized_crop_224", &|| {
            F::resized_crop(&image, 40, 60, 280, 300, &[224, 224], linear, true)
        });
        row("resize_f32_128", &|| F::resize(&floats, &[128], linear, None, true));
        row("center_crop_224", &|| F::center_crop(&image, [224, 224]));
        row("horizontal_flip", &|| F::horizontal_flip(&small));
        row("pad_4", &|| F::pad(&small, [4; 4], F::PaddingMode::Constant(0.0)));
        row("brightness", &|| F::adjust_brightness(&small, 1.2));
        row("contrast", &|| F::adjust_contrast(&small, 1.2));
        row("saturation", &|| F::adjust_saturation(&small, 1.2));
        row("hue", &|| F::adjust_hue(&small, 0.1));
        row("grayscale", &|| F::rgb_to_grayscale(&small, 3));
        row("blur_5", &|| F::gaussian_blur(&small, [5, 5], [1.0, 1.0]));
        row("rotate_30", &|| {
            F::rotate(&small, 30.0, InterpolationMode::Nearest, false, None, None)
        });
        row("equalize", &|| F::equalize(&small));
        row("autocontrast", &|| F::autocontrast(&small));
        row("posterize", &|| F::posterize(&small, 4));
        row("to_float", &|| F::to_dtype(&small, Dtype::F32, true));
        row("normalize", &|| F::normalize(&floats, &mean, &std));
    });
}
