//! The optimizer and the schedule that a recipe in `runs.json` describes.

use serde_json::Value;
use torchrs::Tensor;
use torchrs::nn::{Module, clip_grad_norm_};
use torchrs::optim::lr_scheduler::{
    CosineAnnealingLR, LRScheduler, MultiStepLR, OneCycleLR, StepLR,
};
use torchrs::optim::{
    Adam, AdamOptions, AdamW, AdamWOptions, Optimizer, ParamGroup, SGD, SGDOptions,
};

pub struct Training {
    optimizer: Box<dyn Optimizer>,
    schedule: Option<Box<dyn LRScheduler>>,
    /// Batches per step.
    pub accumulate: u64,
    clip_norm: Option<f64>,
}

impl Training {
    pub fn new(model: &dyn Module, recipe: &Value) -> Self {
        let mut optimizer = optimizer(model, recipe);
        Training {
            schedule: schedule(&mut *optimizer, recipe),
            optimizer,
            accumulate: recipe["accumulate"].as_u64().unwrap_or(1),
            clip_norm: recipe["clip_norm"].as_f64(),
        }
    }

    pub fn lr(&self) -> f64 {
        self.optimizer.lr(0)
    }

    /// Clips, steps and clears; the norm before clipping.
    pub fn step(&mut self, model: &dyn Module) -> Option<f64> {
        let norm = self.clip_norm.map(|most| clip_grad_norm_(&model.parameters(), most).item());
        self.optimizer.step();
        self.optimizer.zero_grad();
        if let Some(schedule) = &mut self.schedule {
            schedule.step(&mut *self.optimizer);
        }
        norm
    }
}

fn optimizer(model: &dyn Module, recipe: &Value) -> Box<dyn Optimizer> {
    let lr = recipe["lr"].as_f64().expect("lr");
    let kwargs = &recipe["kwargs"];
    let float = |name: &str, default: f64| kwargs[name].as_f64().unwrap_or(default);
    let decays_all = recipe["decay_only_2d"] != Value::Bool(true);
    let (first, second): (Vec<Tensor>, Vec<Tensor>) =
        model.parameters().into_iter().partition(|p| decays_all || p.dim() >= 2);
    macro_rules! groups {
        ($Optimizer:ident, $options:expr) => {{
            let options = $options;
            let mut rest = options.clone();
            rest.weight_decay = 0.0;
            let second = (!second.is_empty()).then(|| ParamGroup::new(second, rest));
            let first = ParamGroup::new(first, options);
            Box::new($Optimizer::with_groups(std::iter::once(first).chain(second)))
        }};
    }
    let betas =
        || kwargs["betas"].as_array().map(|b| (b[0].as_f64().unwrap(), b[1].as_f64().unwrap()));
    match recipe["optimizer"].as_str().expect("a name") {
        "SGD" => groups!(
            SGD,
            SGDOptions {
                lr,
                momentum: float("momentum", 0.0),
                dampening: float("dampening", 0.0),
                weight_decay: float("weight_decay", 0.0),
                nesterov: kwargs["nesterov"] == Value::Bool(true),
                ..Default::default()
            }
        ),
        "Adam" => groups!(
            Adam,
            AdamOptions {
                lr,
                betas: betas().unwrap_or((0.9, 0.999)),
                weight_decay: float("weight_decay", 0.0),
                ..Default::default()
            }
        ),
        "AdamW" => groups!(
            AdamW,
            AdamWOptions {
                lr,
                betas: betas().unwrap_or((0.9, 0.999)),
                weight_decay: float("weight_decay", 0.01),
                ..Default::default()
            }
        ),
        other => panic!("unknown optimizer {other}"),
    }
}

fn schedule(optimizer: &mut dyn Optimizer, recipe: &Value) -> Option<Box<dyn LRScheduler>> {
    if let Some(t_max) = recipe["cosine_T_max"].as_u64() {
        return Some(Box::new(CosineAnnealingLR::new(optimizer, t_max, 0.0)));
    }
    if let Some(step) = recipe["step_lr"].as_array() {
        let (size, gamma) = (step[0].as_u64().expect("a size"), step[1].as_f64().expect("gamma"));
        return Some(Box::new(StepLR::new(optimizer, size, gamma)));
    }
    if let Some(milestones) = recipe["milestones"].as_array() {
        let at = milestones[0].as_array().expect("a list").iter().map(|m| m.as_u64().unwrap());
        let gamma = milestones[1].as_f64().expect("gamma");
        return Some(Box::new(MultiStepLR::new(optimizer, at, gamma)));
    }
    if let Some(cycle) = recipe["onecycle"].as_object() {
        let max_lr = cycle["max_lr"].as_f64().expect("max_lr");
        let steps = cycle["total_steps"].as_u64().expect("total_steps");
        return Some(Box::new(OneCycleLR::new(optimizer, &[max_lr], steps, Default::default())));
    }
    None
}
