//! Cases of learning-rate schedules: the rates (and momenta) of two groups, step by step.

use serde_json::{Map, Value, json};
use torchrs::optim::Optimizer;
use torchrs::optim::lr_scheduler::{
    ChainedScheduler, ConstantLR, CosineAnnealingLR, CosineAnnealingWarmRestarts, CyclicLR,
    ExponentialLR, LRScheduler, LambdaLR, LinearLR, MultiStepLR, MultiplicativeLR, OneCycleLR,
    PolynomialLR, ReduceLROnPlateau, SequentialLR, StepLR,
};
use torchrs::{Dtype, Tensor};

use crate::case::Case;
use crate::compare::Tolerance;
use crate::formula;
use crate::optimizers::{Stop, conclude, make, object, options, reloaded};
use crate::report::Outcome;

pub fn run(case: &Case) -> Outcome {
    conclude(schedule(case))
}

/// A schedule by how it is stepped.
enum Stepped {
    Plain(Box<dyn LRScheduler>),
    ByEpoch(CosineAnnealingWarmRestarts),
    ByMetric(ReduceLROnPlateau),
}

impl Stepped {
    /// The state as a checkpoint stores it.
    fn save(&self) -> Value {
        let state = match self {
            Stepped::Plain(scheduler) => scheduler.state_dict(),
            Stepped::ByEpoch(scheduler) => scheduler.state_dict(),
            Stepped::ByMetric(scheduler) => scheduler.state_dict(),
        };
        serde_json::from_str(&state.to_string()).expect("JSON values are JSON")
    }

    fn load(&mut self, state: &Value) -> torchrs::Result<()> {
        match self {
            Stepped::Plain(scheduler) => scheduler.load_state_dict(state),
            Stepped::ByEpoch(scheduler) => scheduler.load_state_dict(state),
            Stepped::ByMetric(scheduler) => scheduler.load_state_dict(state),
        }
    }
}

fn schedule(case: &Case) -> Result<(), Stop> {
    let json = case.json;
    let op = json["optimizer"]["op"].as_str().expect("a name");
    let rates: Vec<f64> = numbers(&json["optimizer"]["group_lr"]);
    let group = |lr: &f64| {
        let parameter = Tensor::zeros([2], Dtype::F64).requires_grad_(true);
        let mut given = object(&json!({ "lr": lr }));
        if op == "optim.SGD" {
            given.insert("momentum".into(), json!(0.9));
        }
        (vec![parameter], given)
    };
    let fresh = || make(op, rates.iter().map(group).collect());
    let mut optimizer = fresh()?.map_err(|e| format!("error: {e}"))?;
    let by_argument = json["step_argument"].is_array();
    let mut scheduler = construct(&json["scheduler"], by_argument, &mut *optimizer)?;
    let tol = Tolerance::of(&json["tol"]);
    let check = |t: usize, optimizer: &dyn Optimizer| {
        for group in 0..optimizer.num_groups() {
            near(&format!("lr[{t}][{group}]"), optimizer.lr(group), &json["lr"][t][group], tol)?;
            if json["momentum"].is_array() {
                let got = optimizer.momentum(group).unwrap_or(f64::NAN);
                near(&format!("momentum[{t}][{group}]"), got, &json["momentum"][t][group], tol)?;
            }
        }
        Ok::<(), Stop>(())
    };
    check(0, &*optimizer)?;
    let steps = json["steps"].as_u64().expect("a count") as usize;
    for t in 1..=steps {
        // Half-way a new optimizer and a new scheduler go on from what was saved.
        if t == steps / 2 + 1 {
            let (mut next, state) =
                (fresh()?.map_err(|e| format!("error: {e}"))?, scheduler.save());
            scheduler = construct(&json["scheduler"], by_argument, &mut *next)?;
            optimizer = reloaded(&*optimizer, Ok(next))?;
            scheduler.load(&state).map_err(|e| Stop::Wrong(format!("reload: {e}")))?;
        }
        let optimizer = &mut *optimizer;
        optimizer.step();
        let argument = json["step_argument"][t - 1].as_f64();
        match (&mut scheduler, argument) {
            (Stepped::Plain(scheduler), None) => scheduler.step(optimizer),
            (Stepped::ByEpoch(scheduler), None) => scheduler.step(optimizer),
            (Stepped::ByEpoch(scheduler), Some(epoch)) => scheduler.step_to(optimizer, epoch),
            (Stepped::ByMetric(scheduler), Some(metric)) => scheduler.step(optimizer, metric),
            (_, argument) => return Err(Stop::Lacks(format!("a step with {argument:?}"))),
        }
        check(t, optimizer)?;
    }
    Ok(())
}

fn near(what: &str, got: f64, want: &Value, tol: Tolerance) -> Result<(), Stop> {
    let want = want.as_f64().expect("a number");
    match tol.near(got, want) {
        true => Ok(()),
        false => Err(Stop::Wrong(format!("{what} is {got}, expected {want}"))),
    }
}

/// A list of numbers, or one.
fn numbers(value: &Value) -> Vec<f64> {
    match value {
        Value::Array(list) => list.iter().filter_map(Value::as_f64).collect(),
        _ => value.as_f64().into_iter().collect(),
    }
}

/// The arguments of a schedule. What nobody takes is not supported.
struct Arguments(Map<String, Value>);

impl Arguments {
    fn take(&mut self, name: &str) -> Option<Value> {
        self.0.remove(name).filter(|value| !value.is_null())
    }
    fn float(&mut self, name: &str, default: f64) -> f64 {
        self.take(name).and_then(|v| v.as_f64()).unwrap_or(default)
    }
    fn count(&mut self, name: &str, default: u64) -> u64 {
        self.take(name).and_then(|v| v.as_u64()).unwrap_or(default)
    }
    fn list(&mut self, name: &str) -> Vec<f64> {
        self.take(name).map_or(Vec::new(), |v| numbers(&v))
    }
    /// All that is left, as options.
    fn rest<O: Default + serde::Serialize + serde::de::DeserializeOwned>(
        &mut self,
    ) -> Result<O, Stop> {
        options(&std::mem::take(&mut self.0))
    }
}

fn construct(
    scheduler: &Value,
    by_argument: bool,
    optimizer: &mut dyn Optimizer,
) -> Result<Stepped, Stop> {
    let op = scheduler["op"].as_str().expect("a name");
    let mut a = Arguments(object(&scheduler["kwargs"]));
    if op == "lr_scheduler.ReduceLROnPlateau" {
        if let Some(lr) = a.0.remove("min_lr") {
            a.0.insert("min_lrs".into(), json!(numbers(&lr)));
        }
        return Ok(Stepped::ByMetric(ReduceLROnPlateau::new(optimizer, a.rest()?)));
    }
    if op == "lr_scheduler.CosineAnnealingWarmRestarts" && by_argument {
        let made = warm_restarts(&mut a, optimizer);
        return spent(&a).map(|()| Stepped::ByEpoch(made));
    }
    plain(scheduler, op, a, optimizer).map(Stepped::Plain)
}

fn warm_restarts(a: &mut Arguments, optimizer: &mut dyn Optimizer) -> CosineAnnealingWarmRestarts {
    let (t_0, t_mult, eta_min) = (a.count("T_0", 0), a.count("T_mult", 1), a.float("eta_min", 0.0));
    CosineAnnealingWarmRestarts::new(optimizer, t_0, t_mult, eta_min)
}

fn plain(
    scheduler: &Value,
    op: &str,
    mut a: Arguments,
    optimizer: &mut dyn Optimizer,
) -> Result<Box<dyn LRScheduler>, Stop> {
    let nested = |optimizer: &mut dyn Optimizer| {
        let list = scheduler["schedulers"].as_array().into_iter().flatten();
        list.map(|inner| {
            let name = inner["op"].as_str().expect("a name");
            plain(inner, name, Arguments(object(&inner["kwargs"])), optimizer)
        })
        .collect::<Result<Vec<_>, Stop>>()
    };
    let made: Box<dyn LRScheduler> = match op.trim_start_matches("lr_scheduler.") {
        "StepLR" => {
            Box::new(StepLR::new(optimizer, a.count("step_size", 0), a.float("gamma", 0.1)))
        }
        "MultiStepLR" => {
            let milestones: Vec<u64> = a.list("milestones").iter().map(|&m| m as u64).collect();
            Box::new(MultiStepLR::new(optimizer, milestones, a.float("gamma", 0.1)))
        }
        "ExponentialLR" => Box::new(ExponentialLR::new(optimizer, a.float("gamma", f64::NAN))),
        "CosineAnnealingLR" => Box::new(CosineAnnealingLR::new(
            optimizer,
            a.count("T_max", 0),
            a.float("eta_min", 0.0),
        )),
        "CosineAnnealingWarmRestarts" => Box::new(warm_restarts(&mut a, optimizer)),
        "LinearLR" => Box::new(LinearLR::new(
            optimizer,
            a.float("start_factor", 1.0 / 3.0),
            a.float("end_factor", 1.0),
            a.count("total_iters", 5),
        )),
        "ConstantLR" => {
            let factor = a.float("factor", 1.0 / 3.0);
            Box::new(ConstantLR::new(optimizer, factor, a.count("total_iters", 5)))
        }
        "PolynomialLR" => {
            let total = a.count("total_iters", 5);
            Box::new(PolynomialLR::new(optimizer, total, a.float("power", 1.0)))
        }
        "LambdaLR" => Box::new(LambdaLR::new(optimizer, formula(&mut a)?)),
        "MultiplicativeLR" => Box::new(MultiplicativeLR::new(optimizer, formula(&mut a)?)),
        "OneCycleLR" => {
            let max_lr = a.list("max_lr");
            let product = a.count("epochs", 0) * a.count("steps_per_epoch", 0);
            let total = a.count("total_steps", product);
            Box::new(OneCycleLR::new(optimizer, &max_lr, total, a.rest()?))
        }
        "CyclicLR" => {
            let (base_lr, max_lr) = (a.list("base_lr"), a.list("max_lr"));
            Box::new(CyclicLR::new(optimizer, &base_lr, &max_lr, a.rest()?))
        }
        "SequentialLR" => {
            let milestones = a.list("milestones").iter().map(|&m| m as u64).collect();
            let schedulers = nested(optimizer)?;
            Box::new(SequentialLR::new(optimizer, schedulers, milestones))
        }
        "ChainedScheduler" => Box::new(ChainedScheduler::new(nested(optimizer)?)),
        _ => return Err(Stop::Lacks(format!("no {op}"))),
    };
    spent(&a).map(|()| made)
}

fn spent(a: &Arguments) -> Result<(), Stop> {
    match a.0.keys().next() {
        None => Ok(()),
        Some(name) => Err(Stop::Lacks(format!("argument {name}"))),
    }
}

/// What `lr_lambda` says.
fn formula(a: &mut Arguments) -> Result<Box<dyn Fn(i64) -> f64 + Send>, Stop> {
    let text = a.take("lr_lambda");
    let text = text.as_ref().and_then(Value::as_str).unwrap_or("").to_string();
    let text = text.strip_prefix("lambda epoch:").unwrap_or(&text).to_string();
    formula::value(&text, 0).map_err(Stop::Lacks)?;
    Ok(Box::new(move |epoch| formula::value(&text, epoch).expect("understood before")))
}
