//! Ranks in rows and columns (`torch.distributed.device_mesh`): each dimension has a name, and the ranks that differ in
//! that dimension alone are a process group.

mod grid;

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

use super::ProcessGroup;
use crate::error::{Error, Result};
use grid::Grid;

/// The ranks of a process group as a grid with named dimensions (`torch.distributed.DeviceMesh`).
///
/// The last dimension varies fastest: neighbouring ranks, which mostly share a host, differ in it. The process group of a
/// dimension is made when it is first asked for, and shared by all meshes that were cut from one.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/distributed/two_ranks.rs"));
/// use torchrs::distributed::DeviceMesh;
/// # fn main() -> torchrs::Result<()> {
/// # two_ranks(|group| {
/// let mesh = DeviceMesh::new(&group, [("replicate", 1), ("shard", -1)])?;
/// assert_eq!(mesh.shape(), [1, 2]);
/// assert_eq!(mesh.coordinates()?, [0, group.rank()]);
/// assert_eq!(mesh.group("shard")?.ranks(), [0, 1]);
/// assert_eq!(mesh.to_string(), "replicate x shard\n 0 1");
/// # Ok(())
/// # })
/// # }
/// ```
#[derive(Clone)]
pub struct DeviceMesh {
    all: Arc<All>,
    grid: Grid,
}

/// What the meshes that were cut from one have in common.
struct All {
    group: ProcessGroup,
    /// The groups that were made: the dimensions of the whole that vary in them, and the one that this rank is in.
    made: Mutex<Vec<(Vec<usize>, ProcessGroup)>>,
}

impl DeviceMesh {
    /// A mesh over the ranks of `group`: names of dimensions with their sizes, of which one may be -1 for what the
    /// others leave (`init_device_mesh`). Calls no collective.
    ///
    /// # Errors
    /// [`Error::Argument`] when the sizes do not multiply to the group's number of ranks, and for a name that is empty
    /// or there twice.
    #[track_caller]
    pub fn new<'a>(
        group: &ProcessGroup,
        dims: impl IntoIterator<Item = (&'a str, isize)>,
    ) -> Result<DeviceMesh> {
        let dims: Vec<(&str, isize)> = dims.into_iter().collect();
        let grid = Grid::new(&dims, group.world_size())?;
        let all = All { group: group.clone(), made: Mutex::default() };
        Ok(DeviceMesh { all: Arc::new(all), grid })
    }

    /// The names of its dimensions.
    pub fn names(&self) -> Vec<&str> {
        self.grid.names()
    }

    /// The size of each dimension.
    pub fn shape(&self) -> Vec<usize> {
        self.grid.shape()
    }

    /// How many ranks are in it: those with this rank, of one that was cut.
    pub fn size(&self) -> usize {
        self.shape().iter().product()
    }

    /// The group whose ranks the whole is made of.
    pub fn whole(&self) -> &ProcessGroup {
        &self.all.group
    }

    /// This rank's place in each dimension.
    ///
    /// # Errors
    /// [`Error::Argument`] on a rank that is not in the mesh's group.
    pub fn coordinates(&self) -> Result<Vec<usize>> {
        self.check("coordinates")?;
        Ok(self.grid.coordinates(self.all.group.rank()))
    }

    /// The part of the mesh that varies in these dimensions and has this rank in it (`mesh["shard"]`,
    /// `mesh["replicate", "shard"]`). Calls no collective.
    ///
    /// # Errors
    /// [`Error::Argument`] for a name that the mesh does not have, or names in another order than the mesh's.
    #[track_caller]
    pub fn slice(&self, names: &[&str]) -> Result<DeviceMesh> {
        Ok(DeviceMesh { all: self.all.clone(), grid: self.grid.slice(names)? })
    }

    /// These dimensions as one of the given name, in a mesh of that dimension alone (`DeviceMesh._flatten`).
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/distributed/two_ranks.rs"));
    /// use torchrs::distributed::DeviceMesh;
    /// # fn main() -> torchrs::Result<()> {
    /// # two_ranks(|group| {
    /// let mesh = DeviceMesh::new(&group, [("replicate", 2), ("shard", 1), ("tp", 1)])?;
    /// let data = mesh.flatten(&["replicate", "shard"], "dp")?;
    /// assert_eq!((data.names(), data.shape()), (vec!["dp"], vec![2]));
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`slice`](Self::slice).
    #[track_caller]
    pub fn flatten(&self, names: &[&str], name: &str) -> Result<DeviceMesh> {
        Ok(DeviceMesh { all: self.all.clone(), grid: self.grid.slice(names)?.flatten(name)? })
    }

    /// The ranks that differ from this one in dimension `name` alone, as a process group. The first call for a dimension
    /// is a collective of all ranks of the whole.
    ///
    /// # Errors
    /// [`Error::Argument`] for a name that the mesh does not have; otherwise as any collective.
    #[track_caller]
    pub fn group(&self, name: &str) -> Result<ProcessGroup> {
        self.check("group")?;
        let varies = self.grid.varies(name)?;
        if let Some(known) = self.known(varies) {
            return Ok(known);
        }
        let group = &self.all.group;
        let rows = self.grid.rows(varies, group.world_size());
        let made = match &rows[..] {
            // All of them.
            [_] => group.clone(),
            rows => {
                let mut own = None;
                for ranks in rows {
                    let made = group.new_group(ranks)?;
                    if made.is_member() {
                        own = Some(made);
                    }
                }
                own.expect("each rank is in one row")
            }
        };
        self.all.made.lock().push((varies.to_vec(), made.clone()));
        Ok(made)
    }

    fn known(&self, varies: &[usize]) -> Option<ProcessGroup> {
        let made = self.all.made.lock();
        made.iter().find(|(dims, _)| dims == varies).map(|(_, group)| group.clone())
    }

    #[track_caller]
    fn check(&self, call: &str) -> Result<()> {
        match self.all.group.is_member() {
            true => Ok(()),
            false => {
                let what = "is over a process group that this rank is not in";
                Err(Error::argument(call, "mesh", what))
            }
        }
    }
}

/// One dimension, `shard`, over the ranks of a group.
impl From<&ProcessGroup> for DeviceMesh {
    fn from(group: &ProcessGroup) -> DeviceMesh {
        let all = All { group: group.clone(), made: Mutex::default() };
        DeviceMesh { all: Arc::new(all), grid: Grid::line("shard", group.world_size()) }
    }
}

impl From<&DeviceMesh> for DeviceMesh {
    fn from(mesh: &DeviceMesh) -> DeviceMesh {
        mesh.clone()
    }
}

/// A picture of the ranks: the names of the dimensions, and a row for each place in all but the last.
impl fmt::Display for DeviceMesh {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rank = if self.all.group.is_member() { self.all.group.rank() } else { 0 };
        f.write_str(&self.grid.picture(rank))
    }
}

impl fmt::Debug for DeviceMesh {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sizes = self.names().into_iter().map(str::to_owned).zip(self.shape());
        f.debug_tuple("DeviceMesh").field(&sizes.collect::<Vec<_>>()).finish()
    }
}
