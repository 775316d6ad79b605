//! Values that are no tensors between ranks: bytes of any length, and objects of any type that serde knows
//! (`torch.distributed.all_gather_object` and its like), which travel as bytes. The ranks compare the names of
//! their types first. Types have to say themselves what they are (postcard's format does not): untagged
//! enumerations, flattened fields and `serde_json::Value` are refused when they are read.

use std::any::type_name;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::ProcessGroup;
use super::ranks::list_ranks;
use crate::error::{Error, Result};
use crate::tensor::{Dtype, Tensor};

impl ProcessGroup {
    /// Every rank's bytes, in rank order. Lengths may differ. Collective; for small messages
    /// (names, options), not for bulk data.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/distributed/two_ranks.rs"));
    /// # fn main() -> torchrs::Result<()> {
    /// # two_ranks(|group| {
    /// let name = ["left", "right"][group.rank()];
    /// assert_eq!(group.all_gather_bytes(name.as_bytes())?, [&b"left"[..], b"right"]);
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`all_gather`](Self::all_gather).
    #[track_caller]
    pub fn all_gather_bytes(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        let (padded, lengths) = self.pad_alike(bytes)?;
        let gathered = self.all_gather(&padded)?;
        Ok(gathered.iter().zip(lengths).map(|(t, len)| t.narrow(0, 0, len).to_vec()).collect())
    }

    /// Rank `root`'s bytes, on every rank; the others' `bytes` are ignored. Collective.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/distributed/two_ranks.rs"));
    /// # fn main() -> torchrs::Result<()> {
    /// # two_ranks(|group| {
    /// let name = ["left", "right"][group.rank()];
    /// assert_eq!(group.broadcast_bytes(name.as_bytes(), 1)?, b"right");
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`broadcast`](Self::broadcast).
    #[track_caller]
    pub fn broadcast_bytes(&self, bytes: &[u8], root: usize) -> Result<Vec<u8>> {
        let length = Tensor::from_slice(&[bytes.len() as i64], [1]);
        self.broadcast(&length, root)?;
        let length = length.item_i64() as usize;
        let data = if self.rank() == root {
            Tensor::from_slice(bytes, [length])
        } else {
            Tensor::zeros([length], Dtype::U8.on_host())
        };
        self.broadcast(&data, root)?;
        Ok(data.to_vec())
    }

    /// Every rank's `object`, in rank order (`torch.distributed.all_gather_object`). Collective.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/distributed/two_ranks.rs"));
    /// # fn main() -> torchrs::Result<()> {
    /// # two_ranks(|group| {
    /// let rank = group.rank();
    /// let all = group.all_gather_object(&vec![rank; rank + 1])?;
    /// assert_eq!(all, [vec![0], vec![1, 1]]);
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Mismatch`] on all ranks where their types differ; [`Error::Argument`] for an object that cannot
    /// be serialised, or read back; otherwise as [`all_gather`](Self::all_gather).
    #[track_caller]
    pub fn all_gather_object<T: Serialize + DeserializeOwned>(&self, object: &T) -> Result<Vec<T>> {
        const CALL: &str = "all_gather_object";
        self.check_member(CALL)?;
        let bytes = encode(CALL, object)?;
        self.agree_on_type::<T>(CALL)?;
        let all = self.all_gather_bytes(&bytes)?;
        all.iter().enumerate().map(|(rank, bytes)| decode(CALL, rank, bytes)).collect()
    }

    /// Rank `root`'s object, on every rank. The root gives one; what the others give is ignored. Collective.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/distributed/two_ranks.rs"));
    /// # fn main() -> torchrs::Result<()> {
    /// # two_ranks(|group| {
    /// let name = (group.rank() == 1).then(|| "run-7".to_owned());
    /// assert_eq!(group.broadcast_object(name.as_ref(), 1)?, "run-7");
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`] where the root gives none; otherwise as
    /// [`all_gather_object`](Self::all_gather_object).
    #[track_caller]
    pub fn broadcast_object<T>(&self, object: Option<&T>, root: usize) -> Result<T>
    where
        T: Serialize + DeserializeOwned,
    {
        const CALL: &str = "broadcast_object";
        let is_root = self.check_root(CALL, root)?;
        let bytes = match object.filter(|_| is_root) {
            Some(object) => encode(CALL, object)?,
            None if !is_root => Vec::new(),
            None => return Err(missing_at_root(CALL, "object", root)),
        };
        self.agree_on_type::<T>(CALL)?;
        decode(CALL, root, &self.broadcast_bytes(&bytes, root)?)
    }

    /// Replaces the `objects` of all ranks by those of rank `root`
    /// (`torch.distributed.broadcast_object_list`). Collective.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/distributed/two_ranks.rs"));
    /// # fn main() -> torchrs::Result<()> {
    /// # two_ranks(|group| {
    /// let mut names = vec![format!("a{}", group.rank()), format!("b{}", group.rank())];
    /// group.broadcast_object_list(&mut names, 0)?;
    /// assert_eq!(names, ["a0", "b0"]);
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Mismatch`] where lists differ in length; otherwise as
    /// [`all_gather_object`](Self::all_gather_object).
    #[track_caller]
    pub fn broadcast_object_list<T>(&self, objects: &mut [T], root: usize) -> Result<()>
    where
        T: Serialize + DeserializeOwned,
    {
        const CALL: &str = "broadcast_object_list";
        let is_root = self.check_root(CALL, root)?;
        let bytes = if is_root { encode(CALL, &*objects)? } else { Vec::new() };
        self.agree_on(CALL, &format!("{} of `{}`", objects.len(), type_name::<T>()))?;
        let bytes = self.broadcast_bytes(&bytes, root)?;
        if !is_root {
            let given: Vec<T> = decode(CALL, root, &bytes)?;
            objects.iter_mut().zip(given).for_each(|(object, given)| *object = given);
        }
        Ok(())
    }

    /// On rank `root`, the `object`s of all ranks, by rank; `None` on the others
    /// (`torch.distributed.gather_object`). Collective.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/distributed/two_ranks.rs"));
    /// # fn main() -> torchrs::Result<()> {
    /// # two_ranks(|group| {
    /// let all = group.gather_object(&format!("rank {}", group.rank()), 0)?;
    /// assert_eq!(all.is_some(), group.rank() == 0);
    /// assert!(all.is_none_or(|all| all == ["rank 0", "rank 1"]));
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`all_gather_object`](Self::all_gather_object).
    #[track_caller]
    pub fn gather_object<T>(&self, object: &T, root: usize) -> Result<Option<Vec<T>>>
    where
        T: Serialize + DeserializeOwned,
    {
        const CALL: &str = "gather_object";
        self.check_root(CALL, root)?;
        let bytes = encode(CALL, object)?;
        self.agree_on_type::<T>(CALL)?;
        let (padded, lengths) = self.pad_alike(&bytes)?;
        let Some(all) = self.gather(&padded, root)? else { return Ok(None) };
        let bytes = |(t, length): (&Tensor, usize)| t.narrow(0, 0, length).to_vec::<u8>();
        let all = all.iter().zip(lengths).map(bytes).enumerate();
        all.map(|(rank, bytes)| decode(CALL, rank, &bytes)).collect::<Result<_>>().map(Some)
    }

    /// Gives rank `r` object `r` of rank `root`'s list (`torch.distributed.scatter_object_list`). `objects` is
    /// `Some` on the root only. Collective.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/distributed/two_ranks.rs"));
    /// # fn main() -> torchrs::Result<()> {
    /// # two_ranks(|group| {
    /// let shards = ["left".to_owned(), "right".to_owned()];
    /// let mine = group.scatter_object_list((group.rank() == 0).then_some(&shards[..]), 0)?;
    /// assert_eq!(mine, shards[group.rank()]);
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`] unless the root, and only it, gives one object per rank; otherwise as
    /// [`all_gather_object`](Self::all_gather_object).
    #[track_caller]
    pub fn scatter_object_list<T>(&self, objects: Option<&[T]>, root: usize) -> Result<T>
    where
        T: Serialize + DeserializeOwned,
    {
        const CALL: &str = "scatter_object_list";
        let is_root = self.check_root(CALL, root)?;
        let world = self.world_size();
        let parts: Vec<Vec<u8>> = match objects {
            Some(objects) if is_root && objects.len() == world => {
                objects.iter().map(|object| encode(CALL, object)).collect::<Result<_>>()?
            }
            Some(objects) if is_root => {
                let what = format!("{} objects for {world} ranks", objects.len());
                return Err(Error::argument(CALL, "objects", what));
            }
            None if !is_root => Vec::new(),
            _ => return Err(missing_at_root(CALL, "objects", root)),
        };
        self.agree_on_type::<T>(CALL)?;
        let lengths: Vec<i64> = match is_root {
            true => parts.iter().map(|part| part.len() as i64).collect(),
            false => vec![0; world],
        };
        let lengths = Tensor::from_slice(&lengths, [world]);
        self.broadcast(&lengths, root)?;
        let lengths: Vec<usize> = lengths.to_vec::<i64>().iter().map(|&n| n as usize).collect();
        let longest = lengths.iter().copied().max().unwrap_or(0);
        let padded = |part: &Vec<u8>| {
            let mut part = part.clone();
            part.resize(longest, 0);
            Tensor::from_slice(&part, [longest])
        };
        let parts: Vec<Tensor> = parts.iter().map(padded).collect();
        let mine = Tensor::zeros([longest], Dtype::U8.on_host());
        self.scatter(&mine, is_root.then_some(&parts[..]), root)?;
        decode(CALL, root, &mine.narrow(0, 0, lengths[self.rank()]).to_vec::<u8>())
    }

    /// Sends an object to rank `dst` of the group, which calls [`recv_object`](Self::recv_object)
    /// (`torch.distributed.send_object_list`). Tags and order are those of [`send`](Self::send).
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/distributed/two_ranks.rs"));
    /// # fn main() -> torchrs::Result<()> {
    /// # two_ranks(|group| {
    /// match group.rank() {
    ///     0 => group.send_object(&vec![1.5f32, 2.5], 1, 0)?,
    ///     _ => assert_eq!(group.recv_object::<Vec<f32>>(0, 0)?, [1.5, 2.5]),
    /// }
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`] for an object that cannot be serialised; otherwise as [`send`](Self::send).
    #[track_caller]
    pub fn send_object<T: Serialize>(&self, object: &T, dst: usize, tag: u32) -> Result<()> {
        let bytes = encode("send_object", object)?;
        let name = type_name::<T>().as_bytes();
        let bytes = [name, &bytes[..]].concat();
        self.send(&Tensor::from_slice(&[name.len() as i64, bytes.len() as i64], [2]), dst, tag)?;
        self.send(&Tensor::from_slice(&bytes, [bytes.len()]), dst, tag)
    }

    /// What rank `src` of the group sends by [`send_object`](Self::send_object)
    /// (`torch.distributed.recv_object_list`).
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/distributed/two_ranks.rs"));
    /// # fn main() -> torchrs::Result<()> {
    /// # two_ranks(|group| {
    /// match group.rank() {
    ///     0 => group.send_object(&"done".to_owned(), 1, 0)?,
    ///     _ => assert_eq!(group.recv_object::<String>(0, 0)?, "done"),
    /// }
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Mismatch`] where another type was sent; otherwise as [`recv`](Self::recv).
    #[track_caller]
    pub fn recv_object<T: DeserializeOwned>(&self, src: usize, tag: u32) -> Result<T> {
        const CALL: &str = "recv_object";
        let lengths = Tensor::zeros([2], Dtype::I64.on_host());
        self.recv(&lengths, src, tag)?;
        let lengths: Vec<usize> = lengths.to_vec::<i64>().iter().map(|&n| n as usize).collect();
        let bytes = Tensor::zeros([lengths[1]], Dtype::U8.on_host());
        self.recv(&bytes, src, tag)?;
        let bytes: Vec<u8> = bytes.to_vec();
        let (name, bytes) = bytes.split_at(lengths[0].min(bytes.len()));
        if name != type_name::<T>().as_bytes() {
            let (me, theirs) = (self.rank(), String::from_utf8_lossy(name));
            return Err(Error::Mismatch(format!(
                "{CALL}: rank {src} sent a `{theirs}`, rank {me} takes a `{}`",
                type_name::<T>()
            )));
        }
        decode(CALL, src, bytes)
    }

    #[track_caller]
    fn agree_on_type<T>(&self, call: &str) -> Result<()> {
        self.agree_on(call, &format!("`{}`", type_name::<T>()))
    }

    /// Compares what all ranks are about to exchange.
    #[track_caller]
    fn agree_on(&self, call: &str, mine: &str) -> Result<()> {
        let all = self.all_gather_bytes(mine.as_bytes())?;
        let Some(other) = all.iter().find(|theirs| **theirs != all[0]) else { return Ok(()) };
        let side = |side: &Vec<u8>| {
            let ranks: Vec<usize> = (0..all.len()).filter(|&rank| all[rank] == *side).collect();
            let ranks: Vec<usize> = ranks.iter().map(|&rank| self.ranks()[rank]).collect();
            format!("{} a {}", list_ranks(&ranks), String::from_utf8_lossy(side))
        };
        let (one, other) = (side(&all[0]), side(other));
        Err(Error::Mismatch(format!("{call}: types differ: {one}, {other}")))
    }

    /// These bytes with zeros behind them, as many on all ranks, and the lengths without these.
    #[track_caller]
    fn pad_alike(&self, bytes: &[u8]) -> Result<(Tensor, Vec<usize>)> {
        let lengths = self.all_gather(&Tensor::from_slice(&[bytes.len() as i64], [1]))?;
        let lengths: Vec<usize> = lengths.iter().map(|t| t.item_i64() as usize).collect();
        let longest = lengths.iter().copied().max().unwrap_or(0);
        let mut padded = bytes.to_vec();
        padded.resize(longest, 0);
        Ok((Tensor::from_slice(&padded, [longest]), lengths))
    }
}

fn missing_at_root(call: &str, argument: &str, root: usize) -> Error {
    let what = format!("has to be given on rank {root}, the root, and only there");
    Error::argument(call, argument, what)
}

fn encode<T: Serialize + ?Sized>(call: &str, object: &T) -> Result<Vec<u8>> {
    postcard::to_allocvec(object).map_err(|why| {
        let what = format!("a `{}` cannot be serialised: {why}", type_name::<T>());
        Error::argument(call, "object", what)
    })
}

fn decode<T: DeserializeOwned>(call: &str, rank: usize, bytes: &[u8]) -> Result<T> {
    let why = match postcard::take_from_bytes(bytes) {
        Ok((object, [])) => return Ok(object),
        Ok((_, rest)) => format!("{} bytes are left over", rest.len()),
        Err(why) => why.to_string(),
    };
    let what = format!("the `{}` of rank {rank} cannot be read: {why}", type_name::<T>());
    Err(Error::argument(call, "object", what))
}
