//! Trains a model of `torchrs::models` for a moment on made-up images, on a GPU where there is one, saves
//! it, and loads it again as weights from elsewhere would be loaded.
//!
//! ```text
//! cargo run --release --example image_models resnet18
//! ```

use std::time::Instant;

use torchrs::checkpoint::{TensorMap, load_file, save_file};
use torchrs::distributed::WorkerEnv;
use torchrs::models;
use torchrs::nn::init;
use torchrs::optim::{SGD, SGDOptions};
use torchrs::prelude::*;

const CLASSES: usize = 4;
const SIDE: usize = 64;
const STEPS: usize = 20;

/// Models that are done in a minute; the large ones are made in the same way.
fn make(name: &str) -> Result<Box<dyn Forward>> {
    Ok(match name {
        "alexnet" => Box::new(models::alexnet(CLASSES)),
        "resnet18" => Box::new(models::resnet18(CLASSES)),
        "resnet50" => Box::new(models::resnet50(CLASSES)),
        "mobilenet_v2" => Box::new(models::mobilenet_v2(CLASSES)),
        _ => {
            let known = "alexnet, resnet18, resnet50 or mobilenet_v2";
            return Err(Error::config("model", format!("`{name}`; must be {known}")));
        }
    })
}

/// Noise that is brighter in the quarter of the image that the class names.
fn batch(n: usize, device: Device) -> (Tensor, Tensor) {
    let images = Tensor::randn([n, 3, SIDE, SIDE], Dtype::F32);
    let classes: Vec<i64> = (0..n).map(|i| (i % CLASSES) as i64).collect();
    for (i, class) in classes.iter().enumerate() {
        let (row, column) = ((class / 2) as usize, (class % 2) as usize);
        let half = SIDE / 2;
        let image = images.select(0, i as i64);
        image.narrow(1, row * half, half).narrow(2, column * half, half).add_(1.0);
    }
    (images.to_device(device), Tensor::from_slice(&classes, [n]).to_device(device))
}

fn main() -> Result<()> {
    let name = std::env::args().nth(1).unwrap_or_else(|| "resnet18".into());
    torchrs::manual_seed(0);
    let device = WorkerEnv::from_env()?.device();
    device.check()?;
    let mut model = make(&name)?;
    model.to_device(device);
    println!("{name}: {} parameters on {device}", model.num_parameters());

    let options = SGDOptions { lr: 0.01, momentum: 0.9, ..Default::default() };
    let mut optimizer = SGD::new(model.parameters(), options);
    for step in 1..=STEPS {
        let start = Instant::now();
        let (images, classes) = batch(16, device);
        optimizer.zero_grad();
        let loss = F::cross_entropy(&model.forward(&images), &classes);
        loss.backward();
        optimizer.step();
        if step % 5 == 0 {
            println!("step {step:>2}: loss {:.4}, {:.0?}", loss.item(), start.elapsed());
        }
    }

    let path = std::env::temp_dir().join(format!("{name}-{}.safetensors", std::process::id()));
    let weights: TensorMap = model.state_dict().into_iter().collect();
    save_file(&weights, &Default::default(), &path)?;
    let mut loaded = init::skip_init(|| make(&name))?;
    loaded.to_device(device);
    loaded.load_state_dict(&load_file(&path)?, true)?;
    std::fs::remove_file(&path).ok();

    model.eval();
    loaded.eval();
    let (images, classes) = batch(32, device);
    let (scores, same) = no_grad(|| (model.forward(&images), loaded.forward(&images)));
    assert!(scores.equal(&same), "a loaded model computes as the saved one");
    let correct = scores.argmax_dim(-1, false).eq(&classes).sum().item();
    println!("{correct} of 32 new images are classified correctly");
    Ok(())
}
