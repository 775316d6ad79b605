//! An executor's machine: it runs the threads of one block after the other. A thread that never waits
//! costs a call; one that waits keeps its fiber, and another fiber goes on with the threads after it.

use super::abi::{self, barrier};
use super::collective::{self, Offer};
use super::report::{Failure, Waiting};
use super::thread::{State, Thread};
use super::trap::{self, Slot};
use crate::code::{Code, Result};
use crate::fiber::{Fiber, switch};
use crate::random::Random;
use crate::settings;
use std::collections::VecDeque;
use std::ffi::{CStr, c_char, c_void};

/// The machine of an executor.
#[derive(Debug)]
pub struct Machine {
    slot: Option<&'static Slot>,
    fibers: Vec<Fiber>,
    /// Fibers on which no thread stands.
    idle: Vec<usize>,
    /// The fiber that runs.
    fiber: usize,
    threads: Vec<Thread>,
    /// Threads that can go on.
    ready: VecDeque<u32>,
    /// The order in which threads begin, under the adversary.
    order: Vec<u32>,
    begun: usize,
    ended: usize,
    at_barrier: usize,
    /// Threads that wait for lanes of their warps.
    in_warps: usize,
    /// The thread that runs, or ran last.
    pub current: usize,
    kernel: *const abi::Kernel,
    arguments: *const *const c_void,
    shape: [u32; 3],
    failure: Option<Failure>,
    random: Option<Random>,
    shared: super::launch::SharedMemory,
}

/// What the threads of kernels can call.
pub static FUNCTIONS: abi::Functions =
    abi::Functions { barrier: on_barrier, warp: on_warp, fail: on_fail, pause: on_pause };

impl Machine {
    /// A machine for the calling thread.
    pub fn new() -> Machine {
        Machine {
            slot: trap::slot(),
            fibers: Vec::new(),
            idle: Vec::new(),
            fiber: 0,
            threads: Vec::new(),
            ready: VecDeque::new(),
            order: Vec::new(),
            begun: 0,
            ended: 0,
            at_barrier: 0,
            in_warps: 0,
            current: 0,
            kernel: std::ptr::null(),
            arguments: std::ptr::null(),
            shape: [1; 3],
            failure: None,
            random: settings::adversary().map(Random::fresh),
            shared: super::launch::SharedMemory::default(),
        }
    }

    /// The adversary's dice, if there is one.
    pub fn random(&mut self) -> Option<&mut Random> {
        self.random.as_mut()
    }

    /// The buffer of dynamic shared memory.
    pub fn shared(&mut self) -> &mut super::launch::SharedMemory {
        &mut self.shared
    }

    /// The threads of the block that ran last.
    pub fn threads(&self) -> &[Thread] {
        &self.threads
    }

    /// Runs all threads of a block to their ends.
    pub fn run_block(
        &mut self,
        kernel: *const abi::Kernel,
        arguments: *const *const c_void,
        shape: [u32; 3],
    ) -> core::result::Result<(), Failure> {
        let count = shape.iter().product::<u32>() as usize;
        self.kernel = kernel;
        self.arguments = arguments;
        self.shape = shape;
        self.threads.clear();
        self.threads.resize(count, Thread::default());
        self.ready.clear();
        (self.begun, self.ended, self.at_barrier, self.in_warps) = (0, 0, 0, 0);
        if let Some(random) = &mut self.random {
            self.order.clear();
            self.order.extend(0..count as u32);
            for i in (1..count).rev() {
                self.order.swap(i, random.below(i as u64 + 1) as usize);
            }
        }
        loop {
            if let Some(thread) = self.next_ready() {
                self.current = thread as usize;
                self.switch_to(self.threads[self.current].fiber)?;
            } else if self.begun < count {
                let fiber = self.idle_fiber()?;
                self.switch_to(fiber)?;
            } else if self.ended == count {
                return Ok(());
            } else {
                self.abandon();
                return Err(Failure::Stuck(Waiting::of(&self.threads)));
            }
        }
    }

    /// Takes a thread that can go on.
    fn next_ready(&mut self) -> Option<u32> {
        if let Some(random) = &mut self.random
            && self.ready.len() > 1
        {
            let other = random.below(self.ready.len() as u64) as usize;
            self.ready.swap(0, other);
        }
        self.ready.pop_front()
    }

    /// A fiber on which no thread stands.
    fn idle_fiber(&mut self) -> core::result::Result<usize, Failure> {
        if let Some(fiber) = self.idle.pop() {
            return Ok(fiber);
        }
        let fiber =
            Fiber::new(run_threads, (&raw mut *self).cast()).map_err(|_| Failure::NoStack)?;
        self.fibers.push(fiber);
        Ok(self.fibers.len() - 1)
    }

    /// Runs a fiber until it waits, has nothing to do, or fails.
    fn switch_to(&mut self, fiber: usize) -> core::result::Result<(), Failure> {
        let Some(slot) = self.slot else { return Err(Failure::NoStack) };
        self.fiber = fiber;
        let to = self.fibers[fiber].pointer;
        // SAFETY: the fiber stands at `to`, where it was prepared or last left.
        unsafe { switch::switch(slot.enter(), to, (&raw mut *self).cast()) };
        if let Some((signal, address)) = slot.leave() {
            let overflow = self.fibers[fiber].overflows_at(address);
            self.failure = Some(Failure::Signal { signal, address, overflow });
        }
        match self.failure.take() {
            None => Ok(()),
            Some(failure) => {
                self.abandon();
                Err(failure)
            }
        }
    }

    /// Forgets what stands on any fiber.
    fn abandon(&mut self) {
        let me: *mut c_void = (&raw mut *self).cast();
        for fiber in &mut self.fibers {
            fiber.restart(run_threads, me);
        }
        self.idle.clear();
        self.idle.extend(0..self.fibers.len());
    }

    /// Calls a function of ours that may fault, such as a copy; a fault is an illegal address.
    pub fn guarded(&mut self, device: usize, what: &str, call: &mut dyn FnMut()) -> Result {
        struct Task<'a> {
            machine: *mut Machine,
            call: &'a mut dyn FnMut(),
        }
        extern "C" fn run(task: *mut c_void) -> ! {
            // SAFETY: the task lives on the stack of `guarded`, which waits for this.
            let task = unsafe { &mut *task.cast::<Task>() };
            (task.call)();
            let machine = task.machine;
            // SAFETY: as above; nothing is left on this stack that needs to be dropped.
            unsafe { leave_for_good(machine) }
        }
        let fiber = match self.idle_fiber() {
            Ok(fiber) => fiber,
            Err(_) => return Err(Code::OPERATING_SYSTEM),
        };
        let me = &raw mut *self;
        let mut task = Task { machine: me, call };
        self.fibers[fiber].restart(run, (&raw mut task).cast());
        let outcome = self.switch_to(fiber);
        self.fibers[fiber].restart(run_threads, me.cast());
        if !self.idle.contains(&fiber) {
            self.idle.push(fiber);
        }
        outcome.map_err(|failure| failure.say(device, what))
    }

    /// The next thread to begin.
    fn begin_next(&mut self) -> Option<usize> {
        if self.begun == self.threads.len() {
            return None;
        }
        let thread = match &self.random {
            Some(_) => self.order[self.begun] as usize,
            None => self.begun,
        };
        self.begun += 1;
        Some(thread)
    }

    /// Ends a thread, which may be what others waited for.
    fn end(&mut self, thread: usize) {
        self.threads[thread].state = State::Done;
        self.ended += 1;
        if self.at_barrier > 0 && self.at_barrier + self.ended == self.threads.len() {
            self.release_barrier(usize::MAX);
        }
        if self.in_warps == 0 {
            return;
        }
        let first = thread & !31;
        for other in first..self.threads.len().min(first + 32) {
            let waits = self.threads[other].state == State::Warp;
            if waits && self.threads[other].mask >> (thread & 31) & 1 == 1 {
                self.meet(other, usize::MAX);
            }
        }
    }

    /// Lets all threads go on that wait at the barrier; the caller is not put among the ready ones.
    fn release_barrier(&mut self, caller: usize) {
        let waiting = || self.threads.iter().filter(|thread| thread.state == State::Barrier);
        let Some(first) = waiting().next().copied() else { return };
        if waiting().any(|thread| (thread.line, thread.operation) != (first.line, first.operation))
        {
            self.failure = Some(Failure::Stuck(Waiting::of(&self.threads)));
            return;
        }
        let count = waiting().filter(|thread| thread.offer.value != 0).count();
        let result = match first.operation {
            barrier::COUNT => count as u64,
            barrier::AND => u64::from(count == self.at_barrier),
            barrier::OR => u64::from(count > 0),
            _ => 0,
        };
        self.at_barrier = 0;
        for (number, thread) in self.threads.iter_mut().enumerate() {
            if thread.state == State::Barrier {
                thread.state = State::Running;
                thread.result = result;
                if number != caller {
                    self.ready.push_back(number as u32);
                }
            }
        }
    }

    /// Whether all lanes that a thread waits for are there; then all of them go on.
    fn meet(&mut self, thread: usize, caller: usize) -> bool {
        let first = thread & !31;
        let lanes = self.threads.len().min(first + 32) - first;
        let Thread { mask, operation, .. } = self.threads[thread];
        let mut present = 0u32;
        for lane in (0..lanes).filter(|lane| mask >> lane & 1 == 1) {
            let other = &self.threads[first + lane];
            match other.state {
                State::Done => {}
                State::Warp if (other.mask, other.operation) == (mask, operation) => {
                    present |= 1 << lane
                }
                _ => return false,
            }
        }
        let mut offers = [Offer::default(); 32];
        for lane in (0..lanes).filter(|lane| present >> lane & 1 == 1) {
            offers[lane] = self.threads[first + lane].offer;
        }
        for lane in (0..lanes).filter(|lane| present >> lane & 1 == 1) {
            let other = &mut self.threads[first + lane];
            other.result = collective::result(operation, lane, &offers, present);
            other.state = State::Running;
            self.in_warps -= 1;
            if first + lane != caller {
                self.ready.push_back((first + lane) as u32);
            }
        }
        true
    }
}

impl Default for Machine {
    fn default() -> Self {
        Machine::new()
    }
}

/// Leaves the running fiber; the next switch to it goes on from here.
///
/// # Safety
/// The caller stands on the running fiber of the machine.
unsafe fn leave(machine: *mut Machine) {
    // SAFETY: as above; the executor's own stack stands where the slot says.
    unsafe {
        let fiber: *mut Fiber = (*machine).fibers.as_mut_ptr().add((*machine).fiber);
        let Some(slot) = (*machine).slot else { return };
        let home = *slot.enter();
        switch::switch(&raw mut (*fiber).pointer, home, machine.cast());
    }
}

/// Leaves the running fiber, to which nobody comes back.
///
/// # Safety
/// As for [`leave`].
unsafe fn leave_for_good(machine: *mut Machine) -> ! {
    loop {
        // SAFETY: this function's contract, which is that of `leave`.
        unsafe { leave(machine) };
    }
}

/// What a fiber does: threads that have not begun, one after the other.
extern "C" fn run_threads(machine: *mut c_void) -> ! {
    let machine: *mut Machine = machine.cast();
    // SAFETY: the machine waits on the executor's stack while a fiber runs, so that nobody else uses it;
    // no reference into it is held over a call that may switch.
    unsafe {
        let mine = (*machine).fiber;
        loop {
            while (*machine).ready.is_empty()
                && let Some(thread) = (*machine).begin_next()
            {
                (*machine).current = thread;
                let state = &mut (&mut (*machine).threads)[thread];
                state.state = State::Running;
                state.fiber = mine;
                let [width, height, _] = (*machine).shape.map(|n| n as usize);
                let (x, rest) =
                    if width > thread { (thread, 0) } else { (thread % width, thread / width) };
                let (y, z) = if height > rest { (rest, 0) } else { (rest % height, rest / height) };
                ((*(*machine).kernel).thread)((*machine).arguments, x as u32, y as u32, z as u32);
                (*machine).end(thread);
                if (*machine).failure.is_some() {
                    leave_for_good(machine);
                }
            }
            (*machine).idle.push(mine);
            leave(machine);
        }
    }
}

/// A thread reached a barrier.
unsafe extern "C" fn on_barrier(machine: *mut c_void, kind: u32, predicate: u32, line: u32) -> u32 {
    let machine: *mut Machine = machine.cast();
    // SAFETY: as in `run_threads`.
    unsafe {
        let me = (*machine).current;
        let thread = &mut (&mut (*machine).threads)[me];
        thread.state = State::Barrier;
        thread.operation = kind;
        thread.line = line;
        thread.offer.value = u64::from(predicate);
        (*machine).at_barrier += 1;
        if (*machine).at_barrier + (*machine).ended == (*machine).threads.len() {
            (*machine).release_barrier(me);
            if (*machine).failure.is_some() {
                leave_for_good(machine);
            }
        } else {
            leave(machine);
        }
        (&(*machine).threads)[me].result as u32
    }
}

/// A thread reached a collective of its warp.
unsafe extern "C" fn on_warp(
    machine: *mut c_void,
    mask: u32,
    operation: u32,
    value: u64,
    source: u32,
    line: u32,
) -> u64 {
    let machine: *mut Machine = machine.cast();
    // SAFETY: as in `run_threads`.
    unsafe {
        let me = (*machine).current;
        if mask >> (me & 31) & 1 == 0 {
            (*machine).failure = Some(Failure::NotInMask { operation, mask, line });
            leave_for_good(machine);
        }
        let thread = &mut (&mut (*machine).threads)[me];
        thread.state = State::Warp;
        (*machine).in_warps += 1;
        thread.mask = mask;
        thread.operation = operation;
        thread.line = line;
        thread.offer = Offer { value, source };
        if !(*machine).meet(me, me) {
            leave(machine);
        }
        (&(*machine).threads)[me].result
    }
}

/// A thread ends the kernel.
unsafe extern "C" fn on_fail(
    machine: *mut c_void,
    reason: u32,
    text: *const c_char,
    file: *const c_char,
    line: u32,
) {
    let machine: *mut Machine = machine.cast();
    // SAFETY: as in `run_threads`; the texts are constants of the shared object.
    unsafe {
        let said = |text: *const c_char| CStr::from_ptr(text).to_string_lossy().into_owned();
        (*machine).failure = Some(match reason {
            abi::failure::ASSERT => Failure::Assert { text: said(text), file: said(file), line },
            _ => Failure::Trap,
        });
        leave_for_good(machine)
    }
}

/// A thread lets the others run.
unsafe extern "C" fn on_pause(machine: *mut c_void) {
    let machine: *mut Machine = machine.cast();
    // SAFETY: as in `run_threads`.
    unsafe {
        let me = (*machine).current;
        (*machine).ready.push_back(me as u32);
        leave(machine);
    }
}
