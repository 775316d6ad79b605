//! How a call of a group reaches its backend: here and now, or on the communication thread, in the order of
//! its queue.

use std::sync::Arc;

use super::collective::{Collective, Pace, RawBuffer};
use super::direction::Message;
use super::group::{BEFORE, Member};
use super::nccl::{HostAndGpu, Started};
use super::queue::Queue;
use super::{Deadline, ProcessGroup, Work};
use crate::cuda::graph;
use crate::cuda::{Event, Stream};
use crate::error::Result;
use crate::profiler::{self, Category, Phase, Span};

/// A collective's span in a profile.
fn span_of(name: &'static str, collective: &Collective) -> Span {
    let memory = collective.send.as_ref().or(collective.recv.as_ref());
    let bytes = memory.map_or(0, RawBuffer::nbytes);
    profiler::span_of_bytes(name, Category::Communication, bytes)
}

/// The backend of a collective, whose place is that of what it takes to make it.
fn found<T>(collective: &Collective, make: impl FnOnce() -> T) -> T {
    match &collective.signature.origin {
        Some(origin) => origin.over(make),
        None => make(),
    }
}

impl ProcessGroup {
    /// Runs `collective` here and now; one on a GPU comes into its place between what the current
    /// stream has and gets. A profile shows it by `name`.
    pub(super) fn run(&self, name: &'static str, collective: &Collective) -> Result<()> {
        let member = self.member(collective.signature.kind.name())?;
        self.take_part(member, collective.gpu)?;
        let backend = |_: &_| Ok(member.backend.clone());
        self.run_in(&member.queue, collective.gpu, name, collective, backend)
    }

    /// [`run`](Self::run) of a message, in its direction's order and not in the GPU's: the others'
    /// messages may be what this one waits for.
    pub(super) fn run_message(&self, name: &'static str, message: &Message) -> Result<()> {
        let Message { direction, prepared } = message;
        let backend = |deadline: &_| direction.backend(deadline);
        self.run_in(&direction.queue, None, name, &prepared.collective, backend)
    }

    /// Runs a collective of `backend` when it is its turn in a queue and, where `order` names one, on a GPU.
    fn run_in(
        &self,
        queue: &Queue,
        order: Option<usize>,
        name: &'static str,
        collective: &Collective,
        backend: impl FnOnce(&Deadline) -> Result<Arc<HostAndGpu>>,
    ) -> Result<()> {
        let deadline = Deadline::after(self.timeout());
        let _phase = Phase::collective(collective.signature.kind.name());
        queue.run(order, || {
            let _span = span_of(name, collective);
            let (backend, pace) = (found(collective, || backend(&deadline))?, Pace::Foreground);
            let Some(gpu) = collective.gpu else { return backend.run(collective, &deadline, pace) };
            let ready = Stream::current(gpu)?.record_event()?;
            backend.start(collective, &ready, &deadline, pace, &mut || {})?.join_current_stream()
        })
    }

    /// Starts `collective` on the communication thread, and `then`, which also keeps its memory
    /// alive, after it has succeeded. A profile shows it by `name`.
    pub(super) fn start(
        &self,
        name: &'static str,
        collective: Collective,
        then: impl FnOnce() + Send + 'static,
    ) -> Result<Work> {
        let member = self.member(collective.signature.kind.name())?;
        self.take_part(member, collective.gpu)?;
        let own = member.backend.clone();
        let backend = |_: &_| Ok(own);
        self.start_in(&member.queue, collective.gpu, name, collective, backend, then)
    }

    /// [`start`](Self::start) of a message, on its direction's own thread.
    pub(super) fn start_message(&self, name: &'static str, message: Message) -> Result<Work> {
        let Message { direction, prepared } = message;
        let (own, collective) = (direction.clone(), prepared.collective.clone());
        let backend = move |deadline: &_| own.backend(deadline);
        let then = prepared.completion();
        self.start_in(&direction.queue, None, name, collective, backend, then)
    }

    /// As [`run_in`](Self::run_in), on the queue's thread.
    fn start_in(
        &self,
        queue: &Queue,
        order: Option<usize>,
        name: &'static str,
        collective: Collective,
        backend: impl FnOnce(&Deadline) -> Result<Arc<HostAndGpu>> + Send + 'static,
        then: impl FnOnce() + Send + 'static,
    ) -> Result<Work> {
        let deadline = Deadline::after(self.timeout());
        let ready = match collective.gpu {
            Some(gpu) => Some(Stream::current(gpu)?.record_event()?),
            None => None,
        };
        queue.start(&self.world_rank().to_string(), order, move || {
            let _span = span_of(name, &collective);
            let (backend, pace) = (found(&collective, || backend(&deadline))?, Pace::Background);
            let Some(ready) = ready else {
                backend.run(&collective, &deadline, pace)?;
                then();
                return Ok(None);
            };
            let mut then = Some(then);
            let mut once = || then.take().into_iter().for_each(|then| then());
            backend.start(&collective, &ready, &deadline, pace, &mut once).map(Some)
        })
    }

    /// Before a collective on a GPU is submitted. A graph that records it keeps the group, which looks
    /// after its replays.
    fn take_part(&self, member: &Member, gpu: Option<usize>) -> Result<()> {
        let Some(gpu) = gpu else { return Ok(()) };
        if member.gpu.get().is_none() {
            let what = "the first collective of a process group on a GPU";
            graph::refuse(Stream::current(gpu)?, what, BEFORE)?;
            let _ = member.gpu.set(gpu);
        } else if graph::is_current_stream_capturing(gpu)? {
            graph::take_part(gpu, self.clone());
        }
        Ok(())
    }

    /// Starts a job that may call collectives of this group itself, on the communication thread. On a
    /// GPU its work is done after the event that it gives.
    pub(crate) fn start_job(
        &self,
        call: &str,
        gpu: Option<usize>,
        job: impl FnOnce() -> Result<Option<Event>> + Send + 'static,
    ) -> Result<Work> {
        let member = self.member(call)?;
        let name = self.world_rank().to_string();
        member.queue.start(&name, gpu, || Ok(job()?.map(Started::after)))
    }

    /// Runs such a job here and now.
    pub(crate) fn run_job<T>(
        &self,
        call: &str,
        gpu: Option<usize>,
        job: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        self.in_turn(call, gpu, |_, _| job())
    }

    /// Runs something of the backend's in its turn.
    pub(super) fn in_turn<T>(
        &self,
        call: &str,
        gpu: Option<usize>,
        job: impl FnOnce(&HostAndGpu, &Deadline) -> Result<T>,
    ) -> Result<T> {
        let member = self.member(call)?;
        let deadline = Deadline::after(self.timeout());
        let _phase = Phase::collective(call);
        member.queue.run(gpu, || job(&member.backend, &deadline))
    }
}
