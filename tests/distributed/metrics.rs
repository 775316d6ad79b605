//! Metrics over ranks with unequal numbers of samples are those of all samples in one process.

use torchrs::train::metrics::{
    Accuracy, Auroc, Average, AveragePrecision, Bleu, ConfusionMatrix, F1, Mean, Metric,
    Perplexity, R2Score, TopK,
};
use torchrs::{Dtype, Tensor, multiprocessing};

use super::job::Job;

/// Samples of each of three ranks; the last has none.
const SHARES: [usize; 3] = [13, 4, 0];

/// The metric of a rank's share and of all samples, over ranks and in one process.
#[track_caller]
fn same<M: Metric<Value = f64> + Clone>(
    group: &torchrs::distributed::ProcessGroup,
    new: M,
    update: impl Fn(&mut M, usize, usize),
) {
    let (rank, mut mine, mut whole) = (group.rank(), new.clone(), new);
    update(&mut whole, 0, SHARES.iter().sum());
    if SHARES[rank] > 0 {
        update(&mut mine, SHARES[..rank].iter().sum(), SHARES[rank]);
    }
    let (got, want) = (mine.compute(group).unwrap(), whole.compute_local().unwrap());
    assert!((got - want).abs() <= 1e-12 * (1.0 + want.abs()), "{got}, not {want}");
    // It has collected, and not changed, what is this rank's.
    assert_eq!(mine.compute(group).unwrap(), got);
    if SHARES[rank] > 0 && rank > 0 {
        assert!((mine.compute_local().unwrap() - want).abs() > 1e-9, "shares do not differ");
    }
}

fn uneven(rank: usize, job: Job) {
    let group = job.join(rank);
    torchrs::manual_seed(3);
    let n: usize = SHARES.iter().sum();
    let scores = Tensor::randn([n, 3], Dtype::F64);
    let classes = Tensor::randint(0, 3, [n], Dtype::I64);
    let yes = classes.eq(&Tensor::scalar(0i64)).to_dtype(Dtype::I64);
    let numbers = scores.select(1, 0);
    let part = |t: &Tensor, start: usize, length: usize| t.narrow(0, start, length);
    let cut = |start, length| (part(&scores, start, length), part(&classes, start, length));
    same(&group, Mean::new(), |mean, start, length| {
        (start..start + length).for_each(|i| mean.update(1.0 / (1.0 + i as f64), 1.0 + i as f64));
    });
    same(&group, Accuracy::new(), |metric, start, length| {
        let (scores, classes) = cut(start, length);
        metric.update(&scores, &classes);
    });
    same(&group, TopK::new(2), |metric, start, length| {
        let (scores, classes) = cut(start, length);
        metric.update(&scores, &classes);
    });
    same(&group, F1::new(3, Average::Macro), |metric, start, length| {
        let (scores, classes) = cut(start, length);
        metric.update(&scores, &classes);
    });
    same(&group, Perplexity::new(), |metric, start, length| {
        let (scores, classes) = cut(start, length);
        metric.update(&scores, &classes);
    });
    same(&group, Auroc::new(), |metric, start, length| {
        metric.update(&part(&numbers, start, length), &part(&yes, start, length));
    });
    same(&group, AveragePrecision::new(), |metric, start, length| {
        metric.update(&part(&numbers, start, length), &part(&yes, start, length));
    });
    same(&group, R2Score::new(), |metric, start, length| {
        metric.update(&part(&numbers, start, length), &part(&scores.select(1, 1), start, length));
    });
    same(&group, Bleu::new(), |bleu, start, length| {
        let text = |i: usize| format!("one two three four {i} six seven eight nine {}", i % 4);
        let preds: Vec<String> = (start..start + length).map(text).collect();
        let references: Vec<[String; 1]> = (start..start + length).map(|i| [text(i / 2)]).collect();
        bleu.update(&preds, &references);
    });

    // Nothing on any rank is the same error on all; other classes on a rank are one too.
    let error = Accuracy::new().compute(&group).unwrap_err().to_string();
    assert!(error.contains("nothing was seen on any rank"), "{error}");
    let classes = if rank == 1 { 4 } else { 3 };
    let error = ConfusionMatrix::new(classes).compute(&group).unwrap_err().to_string();
    assert!(error.contains("mismatch"), "{error}");
}

#[test]
fn uneven_shares_give_the_metric_of_all_samples() {
    let folder = tempfile::tempdir().unwrap();
    let job = Job::new(3, folder.path().to_owned());
    multiprocessing::spawn(uneven, job, 3).unwrap();
}
