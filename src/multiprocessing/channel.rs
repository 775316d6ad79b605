//! Typed messages between processes. A [`channel`] goes one way, a [`Channel`] both ways; what is
//! sent is any serde type, in which tensors, shared memory and channels themselves travel by
//! handle. Both ends work from any thread, and can be sent to other processes.

use std::any::type_name;
use std::fmt;
use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::handles::{de_error, decode, encode, export, import_fd, ser_error};
use super::socket::{self, Failure};
use crate::error::{Error, Result};

/// A channel for values of type `T` from any number of senders to any number of receivers, in any
/// processes. Each message reaches one receiver, in the order of sending.
///
/// The channel holds about 200 KiB of messages (hundreds of small ones); then
/// [`send`](Sender::send) waits. A message above 64 KiB goes through shared memory and takes only a
/// few bytes of that.
///
/// An end that is sent to a child is a copy: drop the one that is left here, or the other side
/// never learns that the child has gone. ([`Process::spawn`](super::Process::spawn) takes its
/// arguments by value for that reason.)
///
/// ```
/// let (tx, rx) = torchrs::multiprocessing::channel::<String>()?;
/// tx.send(&"hello".to_owned())?;
/// assert_eq!(rx.recv()?, "hello");
/// # Ok::<(), torchrs::Error>(())
/// ```
///
/// # Errors
/// [`Error::Os`] when the limit of open files is reached.
pub fn channel<T>() -> Result<(Sender<T>, Receiver<T>)> {
    let (a, b) = socket::pair()?;
    Ok((Sender(End::new(a)), Receiver(End::new(b))))
}

/// A two-way channel: one side sends `S` and receives `R`, the other the reverse.
///
/// ```
/// use torchrs::multiprocessing::duplex;
/// let (client, server) = duplex::<u32, String>()?;
/// client.send(&7)?;
/// server.send(&format!("got {}", server.recv()?))?;
/// assert_eq!(client.recv()?, "got 7");
/// # Ok::<(), torchrs::Error>(())
/// ```
///
/// # Errors
/// [`Error::Os`] when the limit of open files is reached.
pub fn duplex<S, R>() -> Result<(Channel<S, R>, Channel<R, S>)> {
    let (a, b) = socket::pair()?;
    Ok((Channel::from_socket(a), Channel::from_socket(b)))
}

/// One end of a socket that carries `T`s.
struct End<T: ?Sized> {
    socket: Arc<OwnedFd>,
    carries: PhantomData<fn(T) -> T>,
}

impl<T> End<T> {
    fn new(socket: OwnedFd) -> Self {
        End { socket: Arc::new(socket), carries: PhantomData }
    }

    fn send(&self, value: &T, deadline: Option<Instant>) -> Result<(), Failure>
    where
        T: Serialize,
    {
        socket::send(self.socket.as_fd(), encode(value)?, deadline)
    }

    fn recv(&self, deadline: Option<Instant>) -> Result<T, Failure>
    where
        T: DeserializeOwned,
    {
        Ok(decode(socket::receive(self.socket.as_fd(), deadline)?)?)
    }
}

impl<T> Clone for End<T> {
    fn clone(&self) -> Self {
        End { socket: self.socket.clone(), carries: PhantomData }
    }
}

/// The sending end of a [`channel`].
///
/// ```
/// use torchrs::multiprocessing::{Process, Sender, channel};
/// let (tx, rx) = channel()?;
/// let child = Process::spawn(|results: Sender<u64>| results.send(&(6 * 7)), tx)?;
/// assert_eq!(rx.recv()?, 42);
/// child.join()?;
/// # Ok::<(), torchrs::Error>(())
/// ```
pub struct Sender<T>(End<T>);

impl<T: Serialize> Sender<T> {
    /// Sends `value`; waits while the channel is full.
    ///
    /// ```
    /// use torchrs::multiprocessing::channel;
    /// let (tx, rx) = channel()?;
    /// tx.send(&vec![1, 2, 3])?;
    /// assert_eq!(rx.recv()?, [1, 2, 3]);
    /// drop(rx);
    /// assert!(matches!(tx.send(&vec![4]), Err(torchrs::Error::Disconnected(_))));
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Disconnected`] when every receiver is gone, and whatever the value's serialisation
    /// refuses.
    pub fn send(&self, value: &T) -> Result<()> {
        self.0.send(value, None).map_err(|f| sending::<T>(f, None))
    }

    /// As [`send`](Self::send), waiting at most `timeout` for room.
    ///
    /// ```
    /// use std::time::Duration;
    /// use torchrs::{Error, multiprocessing::channel};
    /// let (tx, _rx) = channel()?;
    /// let text = "x".repeat(1000);
    /// let full = (0..).find_map(|_| tx.send_timeout(&text, Duration::from_millis(20)).err());
    /// assert!(matches!(full, Some(Error::Timeout { .. })));
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Timeout`] when the channel stayed full; otherwise as [`send`](Self::send).
    pub fn send_timeout(&self, value: &T, timeout: Duration) -> Result<()> {
        self.0.send(value, deadline(timeout)).map_err(|f| sending::<T>(f, Some(timeout)))
    }
}

/// The receiving end of a [`channel`].
///
/// ```
/// use torchrs::multiprocessing::{Process, Receiver, channel};
/// let (tx, rx) = channel()?;
/// let child = Process::spawn(|words: Receiver<String>| assert_eq!(words.recv().unwrap(), "hello"), rx)?;
/// tx.send(&"hello".to_owned())?;
/// child.join()?;
/// # Ok::<(), torchrs::Error>(())
/// ```
pub struct Receiver<T>(End<T>);

impl<T: DeserializeOwned> Receiver<T> {
    /// The next message; waits for one.
    ///
    /// ```
    /// use torchrs::multiprocessing::channel;
    /// let (tx, rx) = channel()?;
    /// tx.send(&1)?;
    /// drop(tx);
    /// assert_eq!(rx.recv()?, 1);
    /// assert!(matches!(rx.recv(), Err(torchrs::Error::Disconnected(_))));
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Disconnected`] when no message is left and every sender is gone, and whatever the
    /// value's deserialisation refuses.
    pub fn recv(&self) -> Result<T> {
        self.0.recv(None).map_err(|f| receiving::<T>(f, None))
    }

    /// As [`recv`](Self::recv), waiting at most `timeout`.
    ///
    /// ```
    /// use std::time::Duration;
    /// use torchrs::{Error, multiprocessing::channel};
    /// let (tx, rx) = channel()?;
    /// tx.send(&1)?;
    /// assert_eq!(rx.recv_timeout(Duration::from_secs(60))?, 1);
    /// assert!(matches!(rx.recv_timeout(Duration::from_millis(5)), Err(Error::Timeout { .. })));
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Timeout`] when nothing came; otherwise as [`recv`](Self::recv).
    pub fn recv_timeout(&self, timeout: Duration) -> Result<T> {
        self.0.recv(deadline(timeout)).map_err(|f| receiving::<T>(f, Some(timeout)))
    }

    /// The next message, if there is one now.
    ///
    /// ```
    /// use torchrs::multiprocessing::channel;
    /// let (tx, rx) = channel()?;
    /// assert_eq!(rx.try_recv()?, None);
    /// tx.send(&1)?;
    /// assert_eq!(rx.try_recv()?, Some(1));
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    pub fn try_recv(&self) -> Result<Option<T>> {
        now(self.0.recv(Some(Instant::now())))
    }
}

/// One side of a two-way channel, from [`duplex`] or
/// [`spawn_connected`](super::ProcessBuilder::spawn_connected): sends `S`, receives `R`.
///
/// ```
/// use torchrs::multiprocessing::{Channel, Process};
/// let length = |_: (), parent: Channel<usize, String>| parent.send(&parent.recv()?.len());
/// let (child, channel): (_, Channel<String, usize>) = Process::builder().spawn_connected(length, ())?;
/// channel.send(&"hello".to_owned())?;
/// assert_eq!(channel.recv()?, 5);
/// child.join()?;
/// # Ok::<(), torchrs::Error>(())
/// ```
pub struct Channel<S, R> {
    sends: End<S>,
    receives: End<R>,
}

impl<S, R> Channel<S, R> {
    pub(super) fn from_socket(socket: OwnedFd) -> Self {
        Self::from_shared(Arc::new(socket))
    }

    fn from_shared(socket: Arc<OwnedFd>) -> Self {
        Channel {
            sends: End { socket: socket.clone(), carries: PhantomData },
            receives: End { socket, carries: PhantomData },
        }
    }
}

impl<S: Serialize, R> Channel<S, R> {
    /// As [`Sender::send`]. Two sides that both only send, and never receive, wait for each other
    /// once the channel is full: [`send_timeout`](Self::send_timeout) gives such a loop an end.
    ///
    /// # Errors
    /// As [`Sender::send`].
    pub fn send(&self, value: &S) -> Result<()> {
        self.sends.send(value, None).map_err(|f| sending::<S>(f, None))
    }

    /// As [`Sender::send_timeout`].
    ///
    /// # Errors
    /// As [`Sender::send_timeout`].
    pub fn send_timeout(&self, value: &S, timeout: Duration) -> Result<()> {
        self.sends.send(value, deadline(timeout)).map_err(|f| sending::<S>(f, Some(timeout)))
    }
}

impl<S, R: DeserializeOwned> Channel<S, R> {
    /// As [`Receiver::recv`].
    ///
    /// # Errors
    /// As [`Receiver::recv`].
    pub fn recv(&self) -> Result<R> {
        self.receives.recv(None).map_err(|f| receiving::<R>(f, None))
    }

    /// As [`Receiver::recv_timeout`].
    ///
    /// # Errors
    /// As [`Receiver::recv_timeout`].
    pub fn recv_timeout(&self, timeout: Duration) -> Result<R> {
        self.receives.recv(deadline(timeout)).map_err(|f| receiving::<R>(f, Some(timeout)))
    }

    /// As [`Receiver::try_recv`].
    ///
    /// # Errors
    /// As [`Receiver::recv`].
    pub fn try_recv(&self) -> Result<Option<R>> {
        now(self.receives.recv(Some(Instant::now())))
    }
}

/// `None` for a timeout too far away to be a point in time.
fn deadline(timeout: Duration) -> Option<Instant> {
    Instant::now().checked_add(timeout)
}

fn now<T>(received: Result<T, Failure>) -> Result<Option<T>> {
    match received {
        Ok(value) => Ok(Some(value)),
        Err(Failure::TimedOut) => Ok(None),
        Err(failure) => Err(receiving::<T>(failure, None)),
    }
}

fn sending<T>(failure: Failure, timeout: Option<Duration>) -> Error {
    explain(failure, timeout, || {
        (
            format!("every receiver of the channel of {} is gone", type_name::<T>()),
            format!("the channel of {} stayed full: nobody receives", type_name::<T>()),
        )
    })
}

fn receiving<T>(failure: Failure, timeout: Option<Duration>) -> Error {
    explain(failure, timeout, || {
        (
            format!("every sender of the channel of {} is gone", type_name::<T>()),
            format!("nothing came through the channel of {}", type_name::<T>()),
        )
    })
}

/// The error for a failure; `messages` are the ones for a closed channel and for a time-out.
fn explain(
    failure: Failure,
    timeout: Option<Duration>,
    messages: impl FnOnce() -> (String, String),
) -> Error {
    match failure {
        Failure::Error(error) => error,
        Failure::Disconnected => Error::Disconnected(messages().0),
        Failure::TimedOut => Error::Timeout {
            seconds: timeout.unwrap_or_default().as_secs_f64(),
            message: messages().1,
        },
    }
}

/// What every end has: cheap clones, the descriptor for `poll`, and serialisation by handle.
macro_rules! end {
    ($name:ident < $($t:ident),+ >, |$this:ident| $socket:expr, |$fd:ident| $from:expr) => {
        impl<$($t),+> $name<$($t),+> {
            fn socket(&self) -> &Arc<OwnedFd> {
                let $this = self;
                $socket
            }
        }

        impl<$($t),+> Clone for $name<$($t),+> {
            fn clone(&self) -> Self {
                let $fd = self.socket().clone();
                $from
            }
        }

        impl<$($t),+> fmt::Debug for $name<$($t),+> {
            fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
                write!(f, "{} on descriptor {:?}", type_name::<Self>(), self.socket())
            }
        }

        /// The socket, for `poll` beside other descriptors: readable when there is a message or
        /// the other side is gone.
        impl<$($t),+> AsFd for $name<$($t),+> {
            fn as_fd(&self) -> BorrowedFd<'_> {
                self.socket().as_fd()
            }
        }

        impl<$($t),+> Serialize for $name<$($t),+> {
            fn serialize<Z: Serializer>(&self, serializer: Z) -> Result<Z::Ok, Z::Error> {
                export(self.socket().clone()).map_err(ser_error)?.serialize(serializer)
            }
        }

        impl<'de, $($t),+> Deserialize<'de> for $name<$($t),+> {
            fn deserialize<Z: Deserializer<'de>>(deserializer: Z) -> Result<Self, Z::Error> {
                let fd = import_fd(u32::deserialize(deserializer)?).map_err(de_error)?;
                let $fd = Arc::new(fd);
                Ok($from)
            }
        }
    };
}

end!(Sender<T>, |s| &s.0.socket, |fd| Sender(End { socket: fd, carries: PhantomData }));
end!(Receiver<T>, |s| &s.0.socket, |fd| Receiver(End { socket: fd, carries: PhantomData }));
end!(Channel<S, R>, |s| &s.sends.socket, |fd| Channel::from_shared(fd));
