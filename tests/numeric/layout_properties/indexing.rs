//! `x.i(...)` and `x.set_i(...)` against the rules of indexing written out.

use proptest::prelude::*;
use torchrs::ops::views::Index;
use torchrs::{Dtype, Error, Tensor, catch};

use super::model::{Model, base, broadcast_from, chain, flat, places, seeds, shapes};
use crate::draw::Draw;

/// A list of coordinates along one dimension, with the shape that it broadcasts from.
#[derive(Clone, Debug)]
struct List {
    shape: Vec<usize>,
    at: Vec<usize>,
}

/// Random index parts for the dimensions of `shape`, and what they take: for each dimension of the
/// part, before index tensors count, what it takes of the tensor's dimensions.
struct Parts {
    index: Vec<Index>,
    /// For each remaining dimension: the entries taken, of which dimension (none for a new one), and the
    /// index tensor if there is one.
    dims: Vec<(Vec<usize>, Option<usize>, Option<List>)>,
    /// The entries of the dimensions that a number takes.
    fixed: Vec<Option<usize>>,
}

fn random_parts(draw: &mut Draw, shape: &[usize]) -> Parts {
    let n = shape.len();
    let mut parts = Parts { index: Vec::new(), dims: Vec::new(), fixed: vec![None; n] };
    let rest_at = if draw.below(3) == 0 { draw.below(n + 1) } else { n + 1 };
    // All index tensors broadcast to this.
    let common: Vec<usize> = (0..draw.below(2) + 1).map(|_| draw.below(3) + 1).collect();
    let mut d = 0;
    let mut rested = false;
    while d < n {
        if draw.below(8) == 0 {
            parts.index.push(Index::New);
            parts.dims.push((vec![0], None, None));
        }
        if draw.below(12) == 0 {
            // A mask of no dimensions: an index tensor with the one place of a new dimension.
            parts.index.push(Index::Truth(true));
            let list = List { shape: vec![1], at: vec![0] };
            parts.dims.push((vec![0], None, Some(list)));
        }
        let size = shape[d];
        if d == rest_at && !rested {
            rested = true;
            let skipped = draw.below(n - d + 1);
            parts.index.push(Index::Rest);
            for (k, &size) in shape.iter().enumerate().skip(d).take(skipped) {
                parts.dims.push(((0..size).collect(), Some(k), None));
            }
            d += skipped;
            continue;
        }
        let negative = |draw: &mut Draw, i: usize| {
            if draw.coin() { i as i64 } else { i as i64 - size as i64 }
        };
        match draw.below(6) {
            0 if size > 0 => {
                let i = draw.below(size);
                let number = negative(draw, i);
                // A 0-dim tensor counts as a number.
                parts.index.push(match draw.coin() {
                    true => Index::At(number),
                    false => Index::Of(Tensor::scalar(number)),
                });
                parts.fixed[d] = Some(i);
            }
            1 => {
                let reach = size as i64 + 2;
                let (start, end) = (draw.within(-reach, reach), draw.within(-reach, reach));
                let step = draw.below(3) + 1;
                let clamp =
                    |v: i64| (if v < 0 { v + size as i64 } else { v }).clamp(0, size as i64);
                let taken = (clamp(start)..clamp(end)).step_by(step).map(|i| i as usize);
                parts.dims.push((taken.collect(), Some(d), None));
                parts.index.push(match step {
                    1 if draw.coin() => Index::Span(start, end),
                    _ => Index::Strided(start, end, step),
                });
            }
            2 | 3 if size > 0 => {
                let shape: Vec<usize> =
                    common.iter().map(|&n| if draw.below(3) == 0 { 1 } else { n }).collect();
                let count: usize = shape.iter().product();
                let at: Vec<usize> = (0..count).map(|_| draw.below(size)).collect();
                let numbers: Vec<i64> = at.iter().map(|&i| negative(draw, i)).collect();
                parts.index.push(Index::Of(Tensor::from_slice(&numbers, &shape)));
                parts.dims.push(((0..size).collect(), Some(d), Some(List { shape, at })));
            }
            _ => {
                parts.index.push(Index::All);
                parts.dims.push(((0..size).collect(), Some(d), None));
            }
        }
        d += 1;
    }
    // Python's rule: dimensions that nobody names are taken whole. Cut some off; with `...` the
    // parts behind it would name others.
    if !rested && draw.coin() {
        while matches!(parts.index.last(), Some(Index::All)) {
            parts.index.pop();
        }
    }
    parts
}

/// The broadcast shape of the lists.
fn common_shape(lists: &[&List]) -> Vec<usize> {
    let n = lists.iter().map(|list| list.shape.len()).max().unwrap_or(0);
    let size =
        |list: &&List, d: usize| (d + list.shape.len()).checked_sub(n).map(|d| list.shape[d]);
    (0..n).map(|d| lists.iter().filter_map(|l| size(l, d)).max().unwrap_or(1)).collect()
}

/// The part of the model that the index takes.
fn taken(m: &Model, parts: &Parts) -> Model {
    let lists: Vec<&List> = parts.dims.iter().filter_map(|(_, _, list)| list.as_ref()).collect();
    let common = common_shape(&lists);
    let listed: Vec<usize> = (0..parts.dims.len()).filter(|&k| parts.dims[k].2.is_some()).collect();
    let adjacent = listed.windows(2).all(|pair| pair[1] == pair[0] + 1);
    // The index tensors' common dimensions stand in their place, or in front.
    let front = if adjacent { listed.first().copied().unwrap_or(0) } else { 0 };
    let plain: Vec<usize> = (0..parts.dims.len()).filter(|k| !listed.contains(k)).collect();
    let mut shape: Vec<usize> = plain.iter().map(|&k| parts.dims[k].0.len()).collect();
    if !lists.is_empty() {
        shape.splice(front..front, common.iter().copied());
    }
    let of = |place: &[usize]| {
        let mut from: Vec<usize> = parts.fixed.iter().map(|i| i.unwrap_or(0)).collect();
        let (mut own, mut shared) = (place.to_vec(), Vec::new());
        if !lists.is_empty() {
            shared = own.splice(front..front + common.len(), []).collect();
        }
        for (&k, &i) in plain.iter().zip(&own) {
            if let (entries, Some(d), _) = &parts.dims[k] {
                from[*d] = entries[i];
            }
        }
        for &k in &listed {
            if let (entries, Some(d), Some(list)) = &parts.dims[k] {
                from[*d] = entries[list.at[broadcast_from(&list.shape, &shared)]];
            }
        }
        from
    };
    m.remap(shape, of)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn parts_of_random_views(shape in shapes(), seeds in seeds(), seed in any::<u64>()) {
        let (x, m) = chain(&base(&shape), &Model::new(&shape), &seeds, false);
        let parts = random_parts(&mut Draw(seed), &m.shape);
        let want = taken(&m, &parts);
        let got = x.i(parts.index.clone());
        prop_assert_eq!(got.shape(), &want.shape[..], "{:?} of {:?}", parts.index, m.shape);
        let elements: Vec<i64> = want.map.iter().map(|&i| i as i64).collect();
        prop_assert_eq!(got.to_vec::<i64>(), elements, "{:?} of {:?}", parts.index, m.shape);
    }

    #[test]
    fn parts_are_overwritten(shape in shapes(), seeds in seeds(), seed in any::<u64>()) {
        let x = base(&shape);
        let (view, m) = chain(&x, &Model::new(&shape), &seeds, true);
        if m.repeats() {
            return Ok(());
        }
        let parts = random_parts(&mut Draw(seed), &m.shape);
        let part = taken(&m, &parts);
        let mut want: Vec<i64> = (0..x.numel() as i64).collect();
        if part.repeats() || seed % 3 == 0 {
            part.map.iter().for_each(|&at| want[at] = -7);
            view.set_i(parts.index.clone(), -7);
        } else {
            let new: Vec<i64> = (0..part.map.len() as i64).map(|i| 1000 + i).collect();
            part.map.iter().zip(&new).for_each(|(&at, &v)| want[at] = v);
            view.set_i(parts.index.clone(), &Tensor::from_slice(&new, &part.shape));
        }
        prop_assert_eq!(x.to_vec::<i64>(), want, "{:?} of {:?}", parts.index, m.shape);
    }

    #[test]
    fn gradients_of_parts(shape in shapes(), seed in any::<u64>()) {
        let x = base(&shape).to_dtype(Dtype::F64).requires_grad_(true);
        let parts = random_parts(&mut Draw(seed), &shape);
        let part = taken(&Model::new(&shape), &parts);
        let weights: Vec<f64> = (0..part.map.len()).map(|i| i as f64 + 1.0).collect();
        let y = x.i(parts.index.clone());
        (&y * &Tensor::from_slice(&weights, &part.shape)).sum().backward();
        let mut want = vec![0.0; x.numel()];
        part.map.iter().zip(&weights).for_each(|(&at, w)| want[at] += w);
        prop_assert_eq!(x.grad().unwrap().to_vec::<f64>(), want);
    }

    #[test]
    fn masks_take_and_fill(shape in shapes(), seeds in seeds(), seed in any::<u64>()) {
        let (x, m) = chain(&base(&shape), &Model::new(&shape), &seeds, false);
        let draw = &mut Draw(seed);
        // A mask of the first dimensions.
        let covered = &m.shape[..draw.below(m.shape.len() + 1)];
        let chosen: Vec<bool> = (0..covered.iter().product()).map(|_| draw.coin()).collect();
        let mask = Tensor::from_slice(&chosen, covered);
        let within = |place: &[usize]| chosen[flat(covered, &place[..covered.len()])];
        let kept: Vec<usize> = (0..m.map.len()).filter(|&i| within(&places(&m.shape)[i])).collect();
        let picked: Vec<i64> = kept.iter().map(|&i| m.map[i] as i64).collect();
        let part = x.i(vec![Index::Of(mask.clone())]);
        let mut shape = vec![chosen.iter().filter(|c| **c).count()];
        shape.extend(&m.shape[covered.len()..]);
        prop_assert_eq!(part.shape(), &shape[..]);
        prop_assert_eq!(part.to_vec::<i64>(), picked.clone());
        let own = x.clone_contiguous();
        own.set_i(vec![Index::Of(mask.clone())], -3);
        let mut want: Vec<i64> = m.map.iter().map(|&i| i as i64).collect();
        kept.iter().for_each(|&i| want[i] = -3);
        prop_assert_eq!(own.to_vec::<i64>(), want.clone());
        if covered.len() == m.shape.len() {
            prop_assert_eq!(x.masked_select(&mask).to_vec::<i64>(), picked);
            prop_assert_eq!(x.masked_fill(&mask, -3).to_vec::<i64>(), want);
        }
    }

    #[test]
    fn what_is_out_of_range_is_refused(size in 0usize..5, beyond in 0i64..4, negative in any::<bool>()) {
        let x = base(&[2, size]);
        let place = if negative { -(size as i64) - 1 - beyond } else { size as i64 + beyond };
        let list = Tensor::from([place]);
        for index in [Index::At(place), Index::Of(list), Index::Of(Tensor::scalar(place))] {
            let error = catch(|| x.i(vec![Index::All, index])).unwrap_err();
            prop_assert!(!matches!(error, Error::Other(_)), "{}", error);
        }
        let error = catch(|| x.i((0, .., .., ..))).unwrap_err();
        prop_assert!(!matches!(error, Error::Other(_)), "{}", error);
    }
}
