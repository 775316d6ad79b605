//! How values that own descriptors (tensors, channels, shared memory) are serialised. While a
//! message is encoded, [`export_fd`] puts a descriptor into the message's table and the serialised
//! value is its index there; while it is decoded, [`import_fd`] takes it out again. The descriptors
//! travel beside the bytes, and everywhere else (a JSON file, say) these types refuse.
//!
//! ```
//! use std::{fs::File, os::fd::AsFd};
//! use serde::{Deserialize, Deserializer, Serialize, Serializer};
//! use torchrs::multiprocessing::{channel, handles::{de_error, export_fd, import_fd, ser_error}};
//! struct Log(File);
//! impl Serialize for Log {
//!     fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
//!         export_fd(self.0.as_fd()).map_err(ser_error)?.serialize(serializer)
//!     }
//! }
//! impl<'de> Deserialize<'de> for Log {
//!     fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
//!         let fd = import_fd(u32::deserialize(deserializer)?).map_err(de_error)?;
//!         Ok(Log(fd.into()))
//!     }
//! }
//! # let path = tempfile::NamedTempFile::new().unwrap();
//! # std::fs::write(&path, "line").unwrap();
//! let (tx, rx) = channel()?;
//! tx.send(&Log(File::open(&path).unwrap()))?;
//! let Log(file) = rx.recv()?;
//! assert_eq!(std::io::read_to_string(file).unwrap(), "line");
//! # Ok::<(), torchrs::Error>(())
//! ```

use std::any::type_name;
use std::cell::RefCell;
use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Weak};

use nix::sys::stat::fstat;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::socket::{Handle, Incoming, Outgoing};
use super::weak_map::WeakMap;
use crate::error::{Context, Error, Result};
use crate::storage::SharedMemory;

thread_local! {
    /// The message being encoded or decoded on this thread.
    static TABLE: RefCell<Table> = const { RefCell::new(Table::None) };
}

/// The descriptors of one message.
enum Table {
    /// No message: descriptors have nowhere to go.
    None,
    Encoding {
        handles: Vec<Handle>,
        /// Shared memory that is in the table already: all parameters that live in one storage
        /// cost one descriptor.
        shared: HashMap<FileId, u32>,
        error: Option<Error>,
    },
    Decoding {
        fds: Vec<Option<OwnedFd>>,
        /// Shared memory that has been taken out already.
        shared: HashMap<u32, Arc<SharedMemory>>,
        error: Option<Error>,
    },
}

/// Identity of an open file: device and inode.
pub(super) type FileId = (u64, u64);

pub(super) fn file_id(fd: BorrowedFd) -> Result<FileId> {
    let stat = fstat(fd).context(|| "identify a descriptor")?;
    Ok((stat.st_dev, stat.st_ino))
}

fn no_message() -> Error {
    Error::Other(
        "a tensor, channel or shared memory can only be serialised into a message to another \
         process (multiprocessing), not into a file or a string"
            .to_owned(),
    )
}

/// Puts a duplicate of `fd` into the message that is being encoded and returns its index, to be
/// serialised in its place. For `Serialize` implementations of types that own a descriptor.
///
/// ```
/// # use std::{fs::File, os::fd::AsFd};
/// # use serde::{Deserialize, Deserializer, Serialize, Serializer};
/// # use torchrs::multiprocessing::{channel, handles::{de_error, export_fd, import_fd, ser_error}};
/// struct Log(File);
/// impl Serialize for Log {
///     fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
///         export_fd(self.0.as_fd()).map_err(ser_error)?.serialize(serializer)
///     }
/// }
/// # impl<'de> Deserialize<'de> for Log {
/// #     fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
/// #         let fd = import_fd(u32::deserialize(deserializer)?).map_err(de_error)?;
/// #         Ok(Log(fd.into()))
/// #     }
/// # }
/// # let path = tempfile::NamedTempFile::new().unwrap();
/// # std::fs::write(&path, "line").unwrap();
/// let (tx, rx) = channel()?;
/// tx.send(&Log(File::open(&path).unwrap()))?;
/// let Log(file) = rx.recv()?;
/// assert_eq!(std::io::read_to_string(file).unwrap(), "line");
/// # Ok::<(), torchrs::Error>(())
/// ```
///
/// # Errors
/// When no message is being encoded on this thread, or the limit of open files is reached.
pub fn export_fd(fd: BorrowedFd) -> Result<u32> {
    let fd = fd.try_clone_to_owned().context(|| "duplicate a handle in order to send it")?;
    export(Arc::new(fd))
}

/// As [`export_fd`], for a descriptor that is shared and so needs no duplicate.
pub(super) fn export(handle: Handle) -> Result<u32> {
    TABLE.with_borrow_mut(|table| match table {
        Table::Encoding { handles, .. } => {
            handles.push(handle);
            Ok(handles.len() as u32 - 1)
        }
        _ => Err(no_message()),
    })
}

/// Takes the descriptor to which [`export_fd`] gave this index on the sending side out of the
/// message that is being decoded. For `Deserialize` implementations.
///
/// ```
/// # use std::{fs::File, os::fd::AsFd};
/// # use serde::{Deserialize, Deserializer, Serialize, Serializer};
/// # use torchrs::multiprocessing::{channel, handles::{de_error, export_fd, import_fd, ser_error}};
/// struct Log(File);
/// # impl Serialize for Log {
/// #     fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
/// #         export_fd(self.0.as_fd()).map_err(ser_error)?.serialize(serializer)
/// #     }
/// # }
/// impl<'de> Deserialize<'de> for Log {
///     fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
///         let fd = import_fd(u32::deserialize(deserializer)?).map_err(de_error)?;
///         Ok(Log(fd.into()))
///     }
/// }
/// # let path = tempfile::NamedTempFile::new().unwrap();
/// # std::fs::write(&path, "line").unwrap();
/// let (tx, rx) = channel()?;
/// tx.send(&Log(File::open(&path).unwrap()))?;
/// let Log(file) = rx.recv()?;
/// assert_eq!(std::io::read_to_string(file).unwrap(), "line");
/// # Ok::<(), torchrs::Error>(())
/// ```
///
/// # Errors
/// When no message is being decoded on this thread, or the message has no such descriptor (any
/// more).
pub fn import_fd(index: u32) -> Result<OwnedFd> {
    TABLE.with_borrow_mut(|table| match table {
        Table::Decoding { fds, .. } => {
            let count = fds.len();
            fds.get_mut(index as usize).and_then(Option::take).ok_or_else(|| {
                Error::Other(format!(
                    "a message of {count} handles names handle {index}, which it does not have \
                     or has given out"
                ))
            })
        }
        _ => Err(no_message()),
    })
}

/// Turns an [`Error`] into the serializer's error type in a `Serialize` implementation. The sender
/// gets `error` itself back: postcard's own error type would drop its text.
///
/// ```
/// use serde::{Serialize, Serializer};
/// use torchrs::{Error, multiprocessing::{channel, handles::ser_error}};
/// struct Unsendable;
/// impl Serialize for Unsendable {
///     fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
///         Err(ser_error(Error::Other("stays here".to_owned())))
///     }
/// }
/// let (tx, _rx) = channel()?;
/// assert_eq!(tx.send(&Unsendable).unwrap_err().to_string(), "stays here");
/// # Ok::<(), torchrs::Error>(())
/// ```
pub fn ser_error<E: serde::ser::Error>(error: Error) -> E {
    let converted = E::custom(&error);
    keep(error);
    converted
}

/// Turns an [`Error`] into the deserializer's error type in a `Deserialize` implementation. The
/// receiver gets `error` itself back: postcard's own error type would drop its text.
///
/// ```
/// use serde::{Deserialize, Deserializer};
/// use torchrs::{Error, multiprocessing::{channel, handles::de_error}};
/// #[derive(Debug, serde::Serialize)]
/// struct Even(u32);
/// impl<'de> Deserialize<'de> for Even {
///     fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
///         let n = u32::deserialize(deserializer)?;
///         if n % 2 == 0 { Ok(Even(n)) } else { Err(de_error(Error::Other(format!("{n} is odd")))) }
///     }
/// }
/// let (tx, rx) = channel()?;
/// tx.send(&Even(3))?;
/// assert_eq!(rx.recv().unwrap_err().to_string(), "3 is odd");
/// # Ok::<(), torchrs::Error>(())
/// ```
pub fn de_error<E: serde::de::Error>(error: Error) -> E {
    let converted = E::custom(&error);
    keep(error);
    converted
}

fn keep(raised: Error) {
    TABLE.with_borrow_mut(|table| match table {
        Table::None => {}
        Table::Encoding { error, .. } | Table::Decoding { error, .. } => {
            error.get_or_insert(raised);
        }
    });
}

/// Runs `f` with `table` as the thread's table and gives it back. Nests: a value that sends
/// something itself while it is serialised does not disturb the outer message.
fn scoped<T>(table: Table, f: impl FnOnce() -> T) -> (T, Table) {
    /// Puts the outer table back, also when `f` panics.
    struct Restore(Table);
    impl Drop for Restore {
        fn drop(&mut self) {
            TABLE.set(std::mem::replace(&mut self.0, Table::None));
        }
    }
    let outer = Restore(TABLE.replace(table));
    let value = f();
    let table = TABLE.replace(Table::None);
    drop(outer);
    (value, table)
}

/// Serialises `value` with its descriptors.
pub(super) fn encode<T: Serialize + ?Sized>(value: &T) -> Result<Outgoing> {
    let table = Table::Encoding { handles: Vec::new(), shared: HashMap::new(), error: None };
    let (bytes, table) = scoped(table, || postcard::to_stdvec(value));
    let Table::Encoding { handles, error, .. } = table else { return Err(no_message()) };
    match bytes {
        Ok(bytes) => Ok(Outgoing { bytes, handles }),
        Err(e) => Err(error.unwrap_or_else(|| {
            Error::Other(format!("cannot serialise a message of type {}: {e}", type_name::<T>()))
        })),
    }
}

/// The inverse of [`encode`].
pub(super) fn decode<T: DeserializeOwned>(packet: Incoming) -> Result<T> {
    let fds = packet.fds.into_iter().map(Some).collect();
    let table = Table::Decoding { fds, shared: HashMap::new(), error: None };
    let (value, table) = scoped(table, || postcard::from_bytes(&packet.bytes));
    let Table::Decoding { error, .. } = table else { return Err(no_message()) };
    value.map_err(|e| {
        error.unwrap_or_else(|| {
            Error::Other(format!("cannot deserialise a message of type {}: {e}", type_name::<T>()))
        })
    })
}

/// Mappings of this process by the identity of their memfd, so that memory which arrives twice, or
/// comes back to its creator, is one [`SharedMemory`] and not two.
static MAPPED: WeakMap<FileId, Weak<SharedMemory>> = WeakMap::new();

/// Serialisation of an `Arc<SharedMemory>` field by handle:
/// `#[serde(with = "torchrs::multiprocessing::handles::shared_memory")]`.
///
/// ```
/// use std::sync::Arc;
/// # use serde::{Deserialize, Serialize};
/// use torchrs::{multiprocessing::channel, storage::SharedMemory};
/// #[derive(Serialize, Deserialize)]
/// struct Frame {
///     #[serde(with = "torchrs::multiprocessing::handles::shared_memory")]
///     memory: Arc<SharedMemory>,
/// }
/// let (tx, rx) = channel()?;
/// let frame = Frame { memory: SharedMemory::create("frame", 4096)? };
/// tx.send(&frame)?;
/// assert!(Arc::ptr_eq(&rx.recv()?.memory, &frame.memory));
/// # Ok::<(), torchrs::Error>(())
/// ```
pub mod shared_memory {
    use super::*;
    use serde::{Deserializer, Serializer};

    /// Sends the memory's descriptor; the bytes stay where they are.
    ///
    /// # Errors
    /// Outside a message to another process.
    pub fn serialize<S: Serializer>(
        memory: &Arc<SharedMemory>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        export_shared(memory).map_err(ser_error)?.serialize(serializer)
    }

    /// Maps the memory that the message carries, or finds the mapping that this process has.
    ///
    /// ```
    /// use std::sync::Arc;
    /// # use serde::{Deserialize, Serialize};
    /// use torchrs::{multiprocessing::channel, storage::SharedMemory};
    /// #[derive(Serialize, Deserialize)]
    /// struct Frame {
    ///     #[serde(with = "torchrs::multiprocessing::handles::shared_memory")]
    ///     memory: Arc<SharedMemory>,
    /// }
    /// let (tx, rx) = channel()?;
    /// let memory = SharedMemory::create("frame", 4096)?;
    /// tx.send(&Frame { memory })?;
    /// assert_eq!(rx.recv()?.memory.len(), 4096);
    /// assert!(serde_json::from_str::<Frame>(r#"{"memory": 0}"#).is_err());
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// Outside a message, or when the descriptor cannot be mapped.
    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Arc<SharedMemory>, D::Error> {
        import_shared(u32::deserialize(deserializer)?).map_err(de_error)
    }
}

/// Puts shared memory into the message that is being encoded, once however often it is named.
///
/// ```
/// # use std::sync::Arc;
/// # use serde::{Deserialize, Deserializer, Serialize, Serializer};
/// # use torchrs::multiprocessing::{channel, handles::{de_error, export_shared, import_shared, ser_error}};
/// # use torchrs::storage::SharedMemory;
/// struct Block(Arc<SharedMemory>);
/// impl Serialize for Block {
///     fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
///         export_shared(&self.0).map_err(ser_error)?.serialize(serializer)
///     }
/// }
/// # impl<'de> Deserialize<'de> for Block {
/// #     fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
/// #         import_shared(u32::deserialize(deserializer)?).map(Block).map_err(de_error)
/// #     }
/// # }
/// let (tx, rx) = channel()?;
/// let block = Block(SharedMemory::create("block", 64)?);
/// tx.send(&block)?;
/// assert!(Arc::ptr_eq(&rx.recv()?.0, &block.0));
/// # Ok::<(), torchrs::Error>(())
/// ```
///
/// # Errors
/// As [`export_fd`].
pub fn export_shared(memory: &Arc<SharedMemory>) -> Result<u32> {
    let id = file_id(memory.as_fd())?;
    let index = TABLE.with_borrow_mut(|table| match table {
        Table::Encoding { handles, shared, .. } => Ok(*shared.entry(id).or_insert_with(|| {
            handles.push(memory.clone());
            handles.len() as u32 - 1
        })),
        _ => Err(no_message()),
    })?;
    MAPPED.get_or_insert(id, memory.clone());
    Ok(index)
}

/// The shared memory at an index that [`export_shared`] gave.
///
/// ```
/// # use std::sync::Arc;
/// # use serde::{Deserialize, Deserializer, Serialize, Serializer};
/// # use torchrs::multiprocessing::{channel, handles::{de_error, export_shared, import_shared, ser_error}};
/// # use torchrs::storage::SharedMemory;
/// struct Block(Arc<SharedMemory>);
/// # impl Serialize for Block {
/// #     fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
/// #         export_shared(&self.0).map_err(ser_error)?.serialize(serializer)
/// #     }
/// # }
/// impl<'de> Deserialize<'de> for Block {
///     fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
///         import_shared(u32::deserialize(deserializer)?).map(Block).map_err(de_error)
///     }
/// }
/// let (tx, rx) = channel()?;
/// let block = Block(SharedMemory::create("block", 64)?);
/// tx.send(&block)?;
/// assert!(Arc::ptr_eq(&rx.recv()?.0, &block.0));
/// # Ok::<(), torchrs::Error>(())
/// ```
///
/// # Errors
/// As [`import_fd`]; also when the descriptor is not sealed shared memory or cannot be mapped.
pub fn import_shared(index: u32) -> Result<Arc<SharedMemory>> {
    let taken = TABLE.with_borrow(|table| match table {
        Table::Decoding { shared, .. } => shared.get(&index).cloned(),
        _ => None,
    });
    if let Some(memory) = taken {
        return Ok(memory);
    }
    let fd = import_fd(index)?;
    let id = file_id(fd.as_fd())?;
    let memory = match MAPPED.get(&id) {
        Some(memory) => memory,
        None => MAPPED.get_or_insert(id, SharedMemory::from_fd(fd)?),
    };
    TABLE.with_borrow_mut(|table| {
        if let Table::Decoding { shared, .. } = table {
            shared.insert(index, memory.clone());
        }
    });
    Ok(memory)
}

/// A bare descriptor (a file, a socket, an eventfd) that can be sent in a message.
///
/// ```
/// use std::{fs::File, io::read_to_string};
/// use torchrs::multiprocessing::{Process, handles::Descriptor};
/// # let path = tempfile::NamedTempFile::new().unwrap();
/// std::fs::write(&path, "from outside").unwrap();
/// let check = |file: Descriptor| assert_eq!(read_to_string(File::from(file.0)).unwrap(), "from outside");
/// Process::spawn(check, Descriptor(File::open(&path).unwrap().into()))?.join()?;
/// # Ok::<(), torchrs::Error>(())
/// ```
#[derive(Debug)]
pub struct Descriptor(pub OwnedFd);

impl Serialize for Descriptor {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        export_fd(self.0.as_fd()).map_err(ser_error)?.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Descriptor {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        import_fd(u32::deserialize(deserializer)?).map(Descriptor).map_err(de_error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize, Deserialize)]
    struct Two {
        #[serde(with = "shared_memory")]
        a: Arc<SharedMemory>,
        #[serde(with = "shared_memory")]
        b: Arc<SharedMemory>,
    }

    /// What a packet is on the other side.
    fn arrived(packet: Outgoing) -> Incoming {
        let fds = packet.handles.iter().map(|h| h.as_fd().try_clone_to_owned().unwrap());
        Incoming { fds: fds.collect(), bytes: packet.bytes }
    }

    #[test]
    fn memory_that_is_named_twice_travels_once_and_keeps_its_identity() {
        let memory = SharedMemory::create("test", 64).unwrap();
        let packet = encode(&Two { a: memory.clone(), b: memory.clone() }).unwrap();
        assert_eq!(packet.handles.len(), 1);
        let back: Two = decode(arrived(packet)).unwrap();
        assert!(Arc::ptr_eq(&back.a, &back.b) && Arc::ptr_eq(&back.a, &memory));
    }

    #[test]
    fn memory_that_was_let_go_is_mapped_anew() {
        let memory = SharedMemory::create("test", 64).unwrap();
        // SAFETY: the mapping is alive and 64 bytes long.
        unsafe { memory.as_ptr().write(42) };
        let packet = encode(&Two { a: memory.clone(), b: memory }).unwrap();
        let packet = arrived(packet);
        let back: Two = decode(packet).unwrap();
        // SAFETY: the mapping is alive and 64 bytes long.
        assert_eq!(unsafe { back.b.as_ptr().read() }, 42);
    }

    #[test]
    fn outside_a_message_is_an_error_that_says_so() {
        let memory = SharedMemory::create("test", 1).unwrap();
        let error = serde_json::to_string(&Two { a: memory.clone(), b: memory }).unwrap_err();
        assert!(error.to_string().contains("only be serialised into a message"), "{error}");
    }

    #[test]
    fn a_forged_index_is_an_error() {
        let packet = Incoming { bytes: vec![7], fds: Vec::new() };
        let error = decode::<Descriptor>(packet).unwrap_err().to_string();
        assert!(error.contains("a message of 0 handles names handle 7"), "{error}");
    }
}
