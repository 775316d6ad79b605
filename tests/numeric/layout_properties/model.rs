//! The model of a view: for each of its elements in row-major order, the element of the base that it
//! is. And random views of it and of a tensor alike.

use proptest::prelude::*;
use torchrs::Tensor;

use crate::draw::Draw;

/// A shape of few small dimensions; sizes of 0 and 1 are among them.
pub fn shapes() -> impl Strategy<Value = Vec<usize>> {
    let size = prop_oneof![1 => Just(0usize), 3 => Just(1usize), 12 => 2usize..5];
    proptest::collection::vec(size, 0..4)
}

/// What the steps of a chain are drawn from.
pub fn seeds() -> impl Strategy<Value = Vec<u64>> {
    proptest::collection::vec(any::<u64>(), 0..7)
}

impl Draw {
    /// From `low` to `high`, both included.
    pub fn within(&mut self, low: i64, high: i64) -> i64 {
        low + self.below((high - low + 1) as usize) as i64
    }
}

/// All places of a shape in row-major order.
pub fn places(shape: &[usize]) -> Vec<Vec<usize>> {
    let n: usize = shape.iter().product();
    let place = |mut flat: usize| {
        let mut place = vec![0; shape.len()];
        for d in (0..shape.len()).rev() {
            place[d] = flat % shape[d];
            flat /= shape[d];
        }
        place
    };
    (0..n).map(place).collect()
}

/// The number of a place in row-major order.
pub fn flat(shape: &[usize], place: &[usize]) -> usize {
    shape.iter().zip(place).fold(0, |flat, (n, i)| flat * n + i)
}

/// The number of the element of a tensor of that shape that stands at a place of what it broadcasts to.
pub fn broadcast_from(shape: &[usize], place: &[usize]) -> usize {
    let own = place[place.len() - shape.len()..].iter().zip(shape);
    let own: Vec<usize> = own.map(|(&i, &n)| if n == 1 { 0 } else { i }).collect();
    flat(shape, &own)
}

#[derive(Clone, Debug)]
pub struct Model {
    pub shape: Vec<usize>,
    /// Of each element, the number of the base's.
    pub map: Vec<usize>,
}

impl Model {
    pub fn new(shape: &[usize]) -> Self {
        Model { shape: shape.into(), map: (0..shape.iter().product()).collect() }
    }

    /// The model in which the element at a place is this model's at `of(place)`.
    pub fn remap(&self, shape: Vec<usize>, of: impl Fn(&[usize]) -> Vec<usize>) -> Model {
        let at = |place: &Vec<usize>| self.map[flat(&self.shape, &of(place))];
        let map = places(&shape).iter().map(at).collect();
        Model { shape, map }
    }

    /// Whether two elements are the same of the base.
    pub fn repeats(&self) -> bool {
        let mut sorted = self.map.clone();
        sorted.sort_unstable();
        sorted.windows(2).any(|pair| pair[0] == pair[1])
    }
}

/// The base: its elements are their own numbers.
pub fn base(shape: &[usize]) -> Tensor {
    let sizes: Vec<i64> = shape.iter().map(|&n| n as i64).collect();
    Tensor::range(shape.iter().product()).view(sizes)
}

/// `dim` as itself or counted from the end.
fn named(draw: &mut Draw, dim: usize, n: usize) -> i64 {
    if draw.coin() { dim as i64 } else { dim as i64 - n as i64 }
}

fn without(shape: &[usize], d: usize) -> Vec<usize> {
    let mut shape = shape.to_vec();
    shape.remove(d);
    shape
}

fn with<T: Clone>(list: &[T], d: usize, value: T) -> Vec<T> {
    let mut list = list.to_vec();
    list[d] = value;
    list
}

/// No tensor has more elements.
const MOST: usize = 300;

/// One random step of a chain on a tensor and on its model. With `shared` only steps that give views of
/// the same memory.
pub fn step(x: &Tensor, m: &Model, seed: u64, shared: bool) -> (Tensor, Model) {
    let draw = &mut Draw(seed);
    let n = m.shape.len();
    if n == 0 {
        return match draw.below(3) {
            0 => (x.unsqueeze(-1), m.remap(vec![1], |_| vec![])),
            1 => (x.expand(&[2, 3]), m.remap(vec![2, 3], |_| vec![])),
            _ => (x.squeeze(), m.clone()),
        };
    }
    let d = draw.below(n);
    let size = m.shape[d];
    let dim = named(draw, d, n);
    match draw.below(if shared { 13 } else { 17 }) {
        0 => {
            let e = draw.below(n);
            let mut shape = m.shape.clone();
            shape.swap(d, e);
            let of = |p: &[usize]| {
                let mut p = p.to_vec();
                p.swap(d, e);
                p
            };
            (x.transpose(dim, named(draw, e, n)), m.remap(shape, of))
        }
        1 => {
            let order = draw.permutation(n);
            let dims: Vec<i64> = order.iter().map(|&d| named(draw, d, n)).collect();
            let shape = order.iter().map(|&d| m.shape[d]).collect();
            let of = |p: &[usize]| {
                let mut from = vec![0; n];
                order.iter().zip(p).for_each(|(&d, &i)| from[d] = i);
                from
            };
            (x.permute(&dims), m.remap(shape, of))
        }
        2 => {
            let reach = size as i64 + 2;
            let (start, end) = (draw.within(-reach, reach), draw.within(-reach, reach));
            let step = draw.below(3) + 1;
            let clamp = |v: i64| (if v < 0 { v + size as i64 } else { v }).clamp(0, size as i64);
            let taken: Vec<usize> =
                (clamp(start) as usize..clamp(end) as usize).step_by(step).collect();
            let shape = with(&m.shape, d, taken.len());
            (x.slice(dim, start, end, step), m.remap(shape, |p| with(p, d, taken[p[d]])))
        }
        3 if size > 0 => {
            let i = draw.below(size);
            let of = |p: &[usize]| {
                let mut p = p.to_vec();
                p.insert(d, i);
                p
            };
            (x.select(dim, named(draw, i, size)), m.remap(without(&m.shape, d), of))
        }
        4 => {
            let mut front = vec![draw.below(2) + 1; draw.below(2)];
            let added = front.len();
            front.extend(m.shape.iter().map(|&n| if n == 1 { draw.below(4) } else { n }));
            if front.iter().product::<usize>() > MOST {
                return (x.clone(), m.clone());
            }
            let of = |p: &[usize]| {
                let pairs = p[added..].iter().zip(&m.shape);
                pairs.map(|(&i, &n)| if n == 1 { 0 } else { i }).collect()
            };
            (x.expand(&front), m.remap(front.clone(), of))
        }
        5 => {
            let place = draw.below(n + 1);
            let mut shape = m.shape.clone();
            shape.insert(place, 1);
            (x.unsqueeze(named(draw, place, n + 1)), m.remap(shape, |p| without(p, place)))
        }
        6 => {
            let kept: Vec<usize> = (0..n).filter(|&d| m.shape[d] != 1).collect();
            let of = |p: &[usize]| {
                let mut from = vec![0; n];
                kept.iter().zip(p).for_each(|(&d, &i)| from[d] = i);
                from
            };
            (x.squeeze(), m.remap(kept.iter().map(|&d| m.shape[d]).collect(), of))
        }
        7 if size == 1 => {
            let of = |p: &[usize]| {
                let mut p = p.to_vec();
                p.insert(d, 0);
                p
            };
            (x.squeeze_dim(dim), m.remap(without(&m.shape, d), of))
        }
        7 => (x.squeeze_dim(dim), m.clone()),
        8 if size > 0 => {
            let (window, step) = (draw.below(size) + 1, draw.below(3) + 1);
            let mut shape = with(&m.shape, d, (size - window) / step + 1);
            shape.push(window);
            if shape.iter().product::<usize>() > MOST {
                return (x.clone(), m.clone());
            }
            let of = |p: &[usize]| with(&p[..n], d, p[d] * step + p[n]);
            (x.unfold(dim, window, step), m.remap(shape, of))
        }
        9 if n > 1 => {
            let e = (d + 1 + draw.below(n - 1)) % n;
            let offset = draw.within(-4, 4);
            let (up, down) = (offset.max(0) as usize, (-offset).max(0) as usize);
            let length = size.saturating_sub(down).min(m.shape[e].saturating_sub(up));
            let kept: Vec<usize> = (0..n).filter(|&k| k != d && k != e).collect();
            let mut shape: Vec<usize> = kept.iter().map(|&k| m.shape[k]).collect();
            shape.push(length);
            let of = |p: &[usize]| {
                let mut from = vec![0; n];
                kept.iter().zip(p).for_each(|(&k, &i)| from[k] = i);
                let i = p[kept.len()];
                (from[d], from[e]) = (i + down, i + up);
                from
            };
            (x.diagonal(offset, dim, named(draw, e, n)), m.remap(shape, of))
        }
        10 => {
            let to = draw.below(n);
            let mut order: Vec<usize> = (0..n).filter(|&k| k != d).collect();
            order.insert(to, d);
            let shape = order.iter().map(|&k| m.shape[k]).collect();
            let of = |p: &[usize]| {
                let mut from = vec![0; n];
                order.iter().zip(p).for_each(|(&k, &i)| from[k] = i);
                from
            };
            (x.movedim(dim, named(draw, to, n)), m.remap(shape, of))
        }
        11 => {
            let start = draw.below(size + 1);
            let length = draw.below(size - start + 1);
            let shape = with(&m.shape, d, length);
            let of = |p: &[usize]| with(p, d, p[d] + start);
            // From the end there is no name for the place behind the last entry.
            let start = if start < size { named(draw, start, size) } else { start as i64 };
            (x.narrow(dim, start, length), m.remap(shape, of))
        }
        13 => {
            let shape = regrouped(draw, &m.map);
            let sizes: Vec<i64> = shape.iter().map(|&n| n as i64).collect();
            (x.reshape(sizes), Model { shape, map: m.map.clone() })
        }
        14 => {
            let shape = regrouped(draw, &m.map);
            let sizes: Vec<i64> = shape.iter().map(|&n| n as i64).collect();
            (x.contiguous().view(sizes), Model { shape, map: m.map.clone() })
        }
        15 => {
            let flipped: Vec<usize> = (0..n).filter(|_| draw.coin()).collect();
            let dims: Vec<i64> = flipped.iter().map(|&d| named(draw, d, n)).collect();
            let of = |p: &[usize]| {
                let mut p = p.to_vec();
                flipped.iter().for_each(|&d| p[d] = m.shape[d] - 1 - p[d]);
                p
            };
            (x.flip(&dims), m.remap(m.shape.clone(), of))
        }
        16 if !m.map.is_empty() => {
            // Of the elements in row-major order.
            let (mut shape, mut strides) = (Vec::new(), Vec::new());
            let offset = draw.below(m.map.len());
            let mut reach = m.map.len() - 1 - offset;
            for _ in 0..draw.below(4) {
                let stride = draw.below(4);
                let most = reach.checked_div(stride).map_or(3, |most| most.min(3) + 1);
                let size = draw.below(most + 1);
                reach -= stride * size.saturating_sub(1);
                shape.push(size);
                strides.push(stride as isize);
            }
            let list = Model { shape: vec![m.map.len()], map: m.map.clone() };
            let of = |p: &[usize]| {
                vec![offset + p.iter().zip(&strides).map(|(&i, &s)| i * s as usize).sum::<usize>()]
            };
            (x.contiguous().as_strided(&shape, &strides, offset), list.remap(shape.clone(), of))
        }
        _ => (x.clone(), m.clone()),
    }
}

/// Another shape of as many elements.
fn regrouped(draw: &mut Draw, map: &[usize]) -> Vec<usize> {
    let mut shape = Vec::new();
    let mut left = map.len();
    if left == 0 {
        return vec![draw.below(3) + 1, 0];
    }
    for factor in [2, 3, 5] {
        if left.is_multiple_of(factor) && draw.coin() {
            left /= factor;
            shape.push(factor);
        }
    }
    shape.insert(draw.below(shape.len() + 1), left);
    if draw.coin() {
        shape.insert(draw.below(shape.len() + 1), 1);
    }
    shape
}

/// A random chain of steps from `x`, which has the model's shape.
pub fn chain(x: &Tensor, m: &Model, seeds: &[u64], shared: bool) -> (Tensor, Model) {
    let start = (x.clone(), m.clone());
    seeds.iter().fold(start, |(x, m), &seed| step(&x, &m, seed, shared))
}
