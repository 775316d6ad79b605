//! `train::metrics` against numbers that torchmetrics and scikit-learn gave (`tools/golden/metrics.py`), and what
//! they refuse.

use std::panic::AssertUnwindSafe;

use serde_json::Value;
use torchrs::train::metrics::{
    Accuracy, Auroc, Average, AveragePrecision, Bleu, ConfusionMatrix, F1, Jaccard, Mean,
    MeanAbsoluteError, MeanSquaredError, Metric, Perplexity, Precision, R2Score, Recall, TopK,
    WordErrorRate,
};
use torchrs::{Dtype, Tensor, catch};

struct Recorded(Value);

impl Recorded {
    fn read() -> Self {
        Recorded(serde_json::from_str(include_str!("../fixtures/metrics.json")).unwrap())
    }

    fn input(&self, name: &str) -> Tensor {
        let input = &self.0["inputs"][name];
        let shape: Vec<usize> = serde_json::from_value(input["shape"].clone()).unwrap();
        let data = input["data"].as_array().unwrap();
        if data.iter().all(Value::is_i64) {
            let data: Vec<i64> = data.iter().map(|v| v.as_i64().unwrap()).collect();
            return Tensor::from_slice(&data, shape);
        }
        let data: Vec<f64> = data.iter().map(|v| v.as_f64().unwrap()).collect();
        Tensor::from_slice(&data, shape)
    }

    /// A metric in two batches of unequal size has the recorded value.
    #[track_caller]
    fn check<M: Metric<Value = f64>>(
        &self,
        value: &str,
        [preds, target]: [&str; 2],
        mut metric: M,
        update: fn(&mut M, &Tensor, &Tensor),
    ) {
        let (preds, target) = (self.input(preds), self.input(target));
        let n = target.shape()[0];
        let first = n.div_ceil(3);
        for (start, length) in [(0, first), (first, n - first)] {
            update(&mut metric, &preds.narrow(0, start, length), &target.narrow(0, start, length));
        }
        self.near(value, metric.compute_local().unwrap());
    }

    #[track_caller]
    fn near(&self, value: &str, got: f64) {
        let want = match value.split_once('.') {
            Some((name, place)) => &self.0["values"][name][place.parse::<usize>().unwrap()],
            None => &self.0["values"][value],
        };
        let want = want.as_f64().unwrap_or_else(|| panic!("no value `{value}`"));
        // torchmetrics computes in f32.
        assert!((got - want).abs() <= 3e-6 * (1.0 + want.abs()), "{value}: {got}, expected {want}");
    }
}

#[test]
fn classes_are_as_torchmetrics_has_them() {
    let recorded = Recorded::read();
    let accuracy = Accuracy::update;
    recorded.check("accuracy", ["scores", "classes"], Accuracy::new(), accuracy);
    let ignoring = Accuracy::new().ignore_index(-100);
    recorded.check("accuracy_ignored", ["scores", "ignored"], ignoring, accuracy);
    recorded.check("accuracy_images", ["image_scores", "image_classes"], Accuracy::new(), accuracy);
    recorded.check("top2", ["top2_scores", "classes"], TopK::new(2), TopK::update);
    let mut matrix = ConfusionMatrix::new(4);
    matrix.update(&recorded.input("scores"), &recorded.input("classes"));
    let counts = matrix.compute_local().unwrap();
    let want: Vec<Vec<i64>> =
        serde_json::from_value(recorded.0["values"]["confusion"].clone()).unwrap();
    assert_eq!(counts.matrix().to_vec::<i64>(), want.concat());
    recorded.near("accuracy", counts.accuracy());
    for (class, f1) in counts.f1_per_class().into_iter().enumerate() {
        recorded.near(&format!("f1_per_class.{class}"), f1);
    }
    let names = ["scores", "classes"];
    for (i, average) in [Average::Micro, Average::Macro, Average::Weighted].into_iter().enumerate()
    {
        let name = |metric: &str| format!("{metric}.{i}");
        recorded.check(&name("f1"), names, F1::new(4, average), F1::update);
        recorded.check(&name("precision"), names, Precision::new(4, average), Precision::update);
        recorded.check(&name("recall"), names, Recall::new(4, average), Recall::update);
        recorded.check(&name("jaccard"), names, Jaccard::new(4, average), Jaccard::update);
    }
}

#[test]
fn areas_are_as_torchmetrics_and_scikit_learn_have_them() {
    let recorded = Recorded::read();
    for value in ["auroc", "auroc_sklearn"] {
        recorded.check(value, ["binary", "yes"], Auroc::new(), Auroc::update);
    }
    let multiclass = Auroc::multiclass(4);
    recorded.check("auroc_multiclass", ["softmax", "every"], multiclass, Auroc::update);
    for value in ["average_precision", "average_precision_sklearn"] {
        let metric = AveragePrecision::new();
        recorded.check(value, ["binary", "yes"], metric, AveragePrecision::update);
    }
}

#[test]
fn numbers_and_texts_are_as_torchmetrics_has_them() {
    let recorded = Recorded::read();
    let names = ["numbers", "right"];
    recorded.check("r2_score", names, R2Score::new(), R2Score::update);
    let (squared, absolute) = (MeanSquaredError::new(), MeanAbsoluteError::new());
    recorded.check("mean_squared_error", names, squared, MeanSquaredError::update);
    recorded.check("mean_absolute_error", names, absolute, MeanAbsoluteError::update);
    let perplexity = Perplexity::new().ignore_index(-100);
    recorded.check("perplexity", ["logits", "tokens"], perplexity, Perplexity::update);
    let texts: Vec<String> = serde_json::from_value(recorded.0["texts"].clone()).unwrap();
    let references: Vec<Vec<String>> =
        serde_json::from_value(recorded.0["references"].clone()).unwrap();
    for smooth in [false, true] {
        let mut bleu = Bleu::new().smooth(smooth);
        bleu.update(&texts[..1], &references[..1]);
        bleu.update(&texts[1..], &references[1..]);
        recorded.near(if smooth { "bleu_smooth" } else { "bleu" }, bleu.compute_local().unwrap());
    }
    let firsts: Vec<&String> = references.iter().map(|all| &all[0]).collect();
    let mut errors = WordErrorRate::new();
    errors.update(&texts, &firsts);
    recorded.near("word_error_rate", errors.compute_local().unwrap());
}

#[test]
fn a_metric_of_nothing_is_an_error_that_says_so() {
    #[track_caller]
    fn nothing<M: Metric>(name: &str, metric: M) {
        let error = metric.compute_local().err().expect("an error").to_string();
        assert!(error.starts_with(name) && error.contains("nothing was seen"), "{error}");
    }
    nothing("Mean::compute", Mean::new());
    nothing("Accuracy::compute", Accuracy::new());
    nothing("TopK::compute", TopK::new(5));
    nothing("ConfusionMatrix::compute", ConfusionMatrix::new(2));
    nothing("ConfusionMatrix::compute", F1::new(2, Average::Macro));
    nothing("Auroc::compute", Auroc::new());
    nothing("AveragePrecision::compute", AveragePrecision::multiclass(3));
    nothing("Perplexity::compute", Perplexity::new());
    nothing("Bleu::compute", Bleu::new());
    nothing("WordErrorRate::compute", WordErrorRate::new());
    nothing("MeanSquaredError::compute", MeanSquaredError::new());
    nothing("R2Score::compute", R2Score::new());
    // All samples are left out; a weight of 0.
    let mut accuracy = Accuracy::new().ignore_index(0);
    accuracy.update(&Tensor::from([1i64]), &Tensor::from([0i64]));
    nothing("Accuracy::compute", accuracy);
    let mut mean = Mean::new();
    mean.update(f64::NAN, 0.0);
    nothing("Mean::compute", mean);
}

#[test]
fn what_would_be_a_wrong_number_is_refused() {
    #[track_caller]
    fn refused(parts: &[&str], f: impl FnOnce()) {
        let error = catch(AssertUnwindSafe(f)).unwrap_err().to_string();
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    }
    let empty = Tensor::zeros([0], Dtype::I64);
    refused(&["Accuracy::update", "at least one sample"], || {
        Accuracy::new().update(&empty, &empty);
    });
    refused(&["Accuracy::update", "gt(0.5)"], || {
        Accuracy::new().update(&Tensor::from([0.2f32, 0.7]), &Tensor::from([0i64, 1]));
    });
    refused(&["`preds` is [2, 2, 2]", "`target` [2]"], || {
        let scores = Tensor::zeros([2, 2, 2], Dtype::F32);
        Accuracy::new().update(&scores, &Tensor::from([0i64, 1]));
    });
    refused(&["NaN"], || {
        let scores = Tensor::from([[0f32, 1.], [f32::NAN, 1.]]);
        Accuracy::new().update(&scores, &Tensor::from([0i64, 1]));
    });
    refused(&["class -100 of 2 classes", "ignore_index"], || {
        let scores = Tensor::from([[0f32, 1.], [0., 1.]]);
        Accuracy::new().update(&scores, &Tensor::from([0i64, -100]));
    });
    refused(&["TopK::update", "3 of only 2 classes"], || {
        let scores = Tensor::from([[0f32, 1.], [0., 1.]]);
        TopK::new(3).update(&scores, &Tensor::from([0i64, 1]));
    });
    refused(&["class 2 of 2 classes"], || {
        ConfusionMatrix::new(2).update(&Tensor::from([0i64, 2]), &Tensor::from([0i64, 1]));
    });
    refused(&["must be of one shape"], || {
        let (preds, target) = (Tensor::zeros([2, 1], Dtype::F32), Tensor::zeros([2], Dtype::F32));
        MeanSquaredError::new().update(&preds, &target);
    });
    refused(&["2 texts", "for 1"], || {
        WordErrorRate::new().update(&["a", "b"], &["a"]);
    });
    refused(&["weight"], || Mean::new().update(1.0, -1.0));
    // Samples of one class only have no curve.
    let mut auroc = Auroc::new();
    auroc.update(&Tensor::from([0.5f32, 0.7]), &Tensor::from([1i64, 1]));
    let error = auroc.compute_local().unwrap_err().to_string();
    assert!(error.contains("class 1 has 2 of 2 samples"), "{error}");
    let mut r2 = R2Score::new();
    r2.update(&Tensor::from([0.5f32, 0.7]), &Tensor::from([1f32, 1.]));
    assert!(r2.compute_local().unwrap_err().to_string().contains("no variance"));
}
