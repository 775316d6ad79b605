//! The arithmetic of a mesh: which rank is where. Knows no process group.

use crate::error::{Error, Result};

/// A dimension: one of the whole, or several of them as one.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Dim {
    name: String,
    /// Places in [`Grid::whole`], in order.
    of: Vec<usize>,
}

/// Some dimensions of a grid of ranks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Grid {
    /// The sizes of all dimensions of the whole.
    whole: Vec<usize>,
    dims: Vec<Dim>,
}

impl Grid {
    /// The whole: sizes of which one may be -1.
    pub fn new(dims: &[(&str, isize)], world: usize) -> Result<Grid> {
        let wrong = |what: String| Error::argument("DeviceMesh::new", "dims", what);
        let shown = dims.iter().map(|(name, size)| format!("{name}={size}"));
        let shown = shown.collect::<Vec<_>>().join(", ");
        if dims.is_empty() {
            return Err(wrong("is empty: a mesh has at least one dimension".to_owned()));
        }
        for (place, (name, size)) in dims.iter().enumerate() {
            if name.is_empty() {
                return Err(wrong(format!("has a dimension without a name, of size {size}")));
            }
            if dims[..place].iter().any(|(other, _)| other == name) {
                return Err(wrong(format!("({shown}) has two dimensions `{name}`")));
            }
            if *size < 1 && *size != -1 {
                return Err(wrong(format!(
                    "has {name}={size}: a size is positive, or -1 for the rest"
                )));
            }
        }
        let known: usize =
            dims.iter().filter(|(_, size)| *size > 0).map(|d| d.1 as usize).product();
        let open = dims.iter().filter(|(_, size)| *size == -1).count();
        let rest = match open {
            0 if known == world => 1,
            0 => {
                let sum = dims.iter().map(|(_, size)| size.to_string()).collect::<Vec<_>>();
                return Err(wrong(format!(
                    "({shown}) has {} = {known} places, but the group has {world} ranks; -1 for one of the sizes \
                     takes what the others leave",
                    sum.join(" x ")
                )));
            }
            1 if world.is_multiple_of(known) => world / known,
            1 => {
                return Err(wrong(format!(
                    "({shown}): the group has {world} ranks, and the sizes that are given multiply to {known}, which \
                     does not divide that"
                )));
            }
            _ => return Err(wrong(format!("({shown}) has more than one -1"))),
        };
        let whole = dims.iter().map(|&(_, size)| if size == -1 { rest } else { size as usize });
        let dim = |(place, (name, _)): (usize, &(&str, isize))| Dim {
            name: (*name).to_owned(),
            of: vec![place],
        };
        Ok(Grid { whole: whole.collect(), dims: dims.iter().enumerate().map(dim).collect() })
    }

    /// One dimension.
    pub fn line(name: &str, size: usize) -> Grid {
        Grid { whole: vec![size], dims: vec![Dim { name: name.to_owned(), of: vec![0] }] }
    }

    pub fn names(&self) -> Vec<&str> {
        self.dims.iter().map(|dim| &*dim.name).collect()
    }

    pub fn shape(&self) -> Vec<usize> {
        self.dims
            .iter()
            .map(|dim| dim.of.iter().map(|&place| self.whole[place]).product())
            .collect()
    }

    pub fn slice(&self, names: &[&str]) -> Result<Grid> {
        let mut dims: Vec<Dim> = Vec::with_capacity(names.len());
        let mut last = None;
        for name in names {
            let place = self.place("slice", name)?;
            if last.is_some_and(|last| last >= place) {
                let what = format!(
                    "{names:?} is in another order than the mesh's dimensions, {:?}",
                    self.names()
                );
                return Err(Error::argument("slice", "names", what));
            }
            last = Some(place);
            dims.push(self.dims[place].clone());
        }
        if dims.is_empty() {
            return Err(Error::argument("slice", "names", "is empty"));
        }
        Ok(Grid { whole: self.whole.clone(), dims })
    }

    /// All its dimensions as one.
    pub fn flatten(&self, name: &str) -> Result<Grid> {
        if name.is_empty() {
            return Err(Error::argument("flatten", "name", "is empty"));
        }
        let of = self.dims.iter().flat_map(|dim| dim.of.iter().copied()).collect();
        Ok(Grid { whole: self.whole.clone(), dims: vec![Dim { name: name.to_owned(), of }] })
    }

    fn place(&self, call: &str, name: &str) -> Result<usize> {
        self.dims.iter().position(|dim| dim.name == name).ok_or_else(|| {
            let names = self.names().join("`, `");
            Error::argument(
                call,
                "name",
                format!("is `{name}`; the mesh's dimensions are `{names}`"),
            )
        })
    }

    /// The dimensions of the whole that vary in dimension `name`.
    pub fn varies(&self, name: &str) -> Result<&[usize]> {
        Ok(&self.dims[self.place("group", name)?].of)
    }

    /// A rank's place in each dimension of the whole.
    fn places(&self, rank: usize) -> Vec<usize> {
        let mut rest = rank;
        let mut places: Vec<usize> = (self.whole.iter().rev())
            .map(|&size| {
                let place = rest % size;
                rest /= size;
                place
            })
            .collect();
        places.reverse();
        places
    }

    /// A rank's place in each dimension of this grid.
    pub fn coordinates(&self, rank: usize) -> Vec<usize> {
        let places = self.places(rank);
        let of = |dim: &Dim| dim.of.iter().fold(0, |sum, &d| sum * self.whole[d] + places[d]);
        self.dims.iter().map(of).collect()
    }

    /// The ranks `0..world` in rows that differ in the dimensions `varies` of the whole alone.
    pub fn rows(&self, varies: &[usize], world: usize) -> Vec<Vec<usize>> {
        let mut rows: Vec<(Vec<usize>, Vec<usize>)> = Vec::new();
        for rank in 0..world {
            let mut fixed = self.places(rank);
            varies.iter().for_each(|&dim| fixed[dim] = 0);
            match rows.iter_mut().find(|(of, _)| *of == fixed) {
                Some((_, ranks)) => ranks.push(rank),
                None => rows.push((fixed, vec![rank])),
            }
        }
        rows.into_iter().map(|(_, ranks)| ranks).collect()
    }

    /// The names, and a row of ranks for each place in all dimensions but the last; `rank` is among them.
    pub fn picture(&self, rank: usize) -> String {
        let varies: Vec<usize> = self.dims.iter().flat_map(|dim| dim.of.iter().copied()).collect();
        let rows = self.rows(&varies, self.whole.iter().product());
        let mut ranks = rows.into_iter().find(|ranks| ranks.contains(&rank)).unwrap_or_default();
        ranks.sort_by_key(|&rank| self.coordinates(rank));
        let digits = ranks.iter().max().map_or(1, |last| last.to_string().len());
        let shape = self.shape();
        let mut picture = self.names().join(" x ");
        for (place, rank) in ranks.iter().enumerate() {
            // A new row, and an empty line before a new block of rows.
            let inner = |from: usize| shape[from..].iter().product::<usize>();
            if place % inner(shape.len() - 1) == 0 {
                let blocks = (1..shape.len() - 1).any(|from| place > 0 && place % inner(from) == 0);
                picture.push_str(if blocks { "\n\n" } else { "\n" });
            }
            picture.push_str(&format!(" {rank:digits$}"));
        }
        picture
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid(dims: &[(&str, isize)], world: usize) -> Grid {
        Grid::new(dims, world).unwrap()
    }

    fn message(dims: &[(&str, isize)], world: usize) -> String {
        Grid::new(dims, world).unwrap_err().to_string()
    }

    #[test]
    fn neighbours_differ_in_the_last_dimension() {
        let mesh = grid(&[("pp", 2), ("dp", -1), ("tp", 2)], 12);
        assert_eq!(mesh.shape(), [2, 3, 2]);
        assert_eq!(mesh.coordinates(7), [1, 0, 1]);
        assert_eq!(mesh.rows(&[2], 12)[..2], [vec![0, 1], vec![2, 3]]);
        assert_eq!(mesh.rows(&[1], 12)[..2], [vec![0, 2, 4], vec![1, 3, 5]]);
        assert_eq!(mesh.rows(&[0, 1], 12).len(), 2);
        assert_eq!(
            mesh.picture(0),
            "pp x dp x tp\n  0  1\n  2  3\n  4  5\n\n  6  7\n  8  9\n 10 11"
        );
    }

    #[test]
    fn parts_have_the_rank_in_them() {
        let mesh = grid(&[("pp", 2), ("dp", 3), ("tp", 2)], 12);
        let dp = mesh.slice(&["dp"]).unwrap();
        assert_eq!(
            (dp.shape(), dp.coordinates(9), dp.picture(9)),
            (vec![3], vec![1], "dp\n  7  9 11".into())
        );
        let both = mesh.slice(&["pp", "tp"]).unwrap();
        assert_eq!(both.picture(2), "pp x tp\n 2 3\n 8 9");
        let flat = mesh.slice(&["pp", "dp"]).unwrap().flatten("data").unwrap();
        assert_eq!(
            (flat.shape(), flat.coordinates(9), flat.varies("data").unwrap()),
            (vec![6], vec![4], &[0, 1][..])
        );
        assert!(mesh.slice(&["tp", "dp"]).unwrap_err().to_string().contains("another order"));
        let unknown = mesh.slice(&["cp"]).unwrap_err().to_string();
        assert!(
            unknown.contains("is `cp`; the mesh's dimensions are `pp`, `dp`, `tp`"),
            "{unknown}"
        );
    }

    #[test]
    fn wrong_sizes_are_calculated() {
        let product = message(&[("dp", 3), ("tp", 2)], 8);
        assert!(product.contains("3 x 2 = 6 places, but the group has 8 ranks"), "{product}");
        assert!(
            message(&[("dp", -1), ("tp", 3)], 8).contains("multiply to 3, which does not divide")
        );
        assert!(message(&[("dp", -1), ("tp", -1)], 8).contains("more than one -1"));
        assert!(message(&[("dp", 0)], 8).contains("dp=0"));
        assert!(message(&[("a", 2), ("a", 4)], 8).contains("two dimensions `a`"));
        assert!(message(&[], 8).contains("is empty"));
    }
}
