//! The gradients' way to the other ranks. Every parameter's `.grad` is a view into a bucket in
//! shared memory, or on the parameter's GPU, where on the host convolutions and linear maps make their weights'
//! gradients at once and other gradients are copied to; a hook on the parameter counts its bucket down, and a full bucket's all-reduce
//! starts on the communication thread while backward goes on. The end of backward waits for them. The
//! last bucket is full when there is nothing left to go on with: the thread of backward reduces it
//! itself, which spares it to wake another and to be woken.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use super::super::verify::broadcast_all;
use super::buckets::Plan;
use super::hook::{CommHook, GradBucket, Registered};
use super::options::DDPOptions;
use crate::autograd::{HookHandle, queue_callback};
use crate::distributed::{Origin, ProcessGroup, ReduceOp, Work, join_some};
use crate::error::{Error, Result, throw};
use crate::profiler::{self, Category};
use crate::storage::{Device, Storage};
use crate::tensor::{Dtype, Layout, Tensor};

pub(super) struct Reducer {
    group: ProcessGroup,
    /// The model's number among what the group communicates for.
    number: u32,
    names: Vec<String>,
    params: Vec<Tensor>,
    /// Those that required no gradient when the module was wrapped.
    frozen: Vec<(String, Tensor)>,
    /// Of each parameter: its view into a bucket, and the bucket.
    views: Vec<Tensor>,
    bucket_of: Vec<usize>,
    buckets: Vec<Bucket>,
    /// Sent from rank 0 after each backward.
    buffers: Vec<Tensor>,
    find_unused: bool,
    /// Off inside `no_sync`.
    pub sync: AtomicBool,
    state: Mutex<State>,
    /// What reduces the buckets, if it is not an all-reduce.
    hook: OnceLock<Arc<Registered>>,
}

struct Bucket {
    /// All of the bucket's memory, in the group's shared arena or on a GPU.
    flat: Tensor,
    /// Parameters and their places.
    members: Arc<Vec<(Tensor, usize)>>,
    /// What messages call it.
    origin: Origin,
}

/// One backward pass's progress.
#[derive(Default)]
struct State {
    /// Between the first hook of a pass and its end.
    running: bool,
    ready: Vec<bool>,
    /// Gradients that each bucket still waits for.
    missing: Vec<usize>,
    /// The bucket that is sent next: all ranks send them in this order.
    next: usize,
    works: Vec<Work>,
}

impl Reducer {
    pub fn new(
        group: &ProcessGroup,
        params: Vec<(String, Tensor)>,
        buffers: Vec<Tensor>,
        options: &DDPOptions,
    ) -> Result<Arc<Self>> {
        let (trained, frozen): (Vec<_>, Vec<_>) =
            params.into_iter().partition(|(_, t)| t.requires_grad());
        let (names, params): (Vec<String>, Vec<Tensor>) = trained.into_iter().unzip();
        let plans = options.plan(&params);
        let mut bucket_of = vec![0; params.len()];
        let mut views: Vec<Option<Tensor>> = vec![None; params.len()];
        let (mut buckets, count) = (Vec::with_capacity(plans.len()), plans.len());
        let number = group.next_number();
        for (b, Plan { kind: (dtype, device), members, numel }) in plans.into_iter().enumerate() {
            let flat = match device {
                Device::Cpu => group.empty_shared(&[numel], dtype)?,
                device => Tensor::empty([numel], (dtype, device)),
            };
            flat.fill_(0.0);
            for &(i, start) in &members {
                bucket_of[i] = b;
                views[i] = Some(view_into(&flat, start, &params[i]));
            }
            let own = join_some(members.iter().map(|&(i, _)| format!("`{}`", names[i])), ", ");
            let name = format!(
                "DistributedDataParallel's bucket {} of {count}, the gradients of {own}",
                b + 1
            );
            let origin = origin_of(name, number);
            let members = members.into_iter().map(|(i, start)| (params[i].clone(), start));
            buckets.push(Bucket { flat, members: Arc::new(members.collect()), origin });
        }
        let views = views.into_iter().map(|v| v.expect("every parameter is in a bucket")).collect();
        Ok(Arc::new(Reducer {
            group: group.clone(),
            number,
            names,
            params,
            frozen,
            views,
            bucket_of,
            buckets,
            buffers,
            find_unused: options.find_unused_parameters,
            sync: AtomicBool::new(true),
            state: Mutex::default(),
            hook: OnceLock::new(),
        }))
    }

    /// Has `hook` reduce the buckets from now on.
    pub fn register(&self, hook: Box<dyn CommHook>) -> Result<()> {
        let devices = self.buckets.iter().map(|bucket| bucket.flat.device());
        let registered = Arc::new(Registered::new(hook, devices)?);
        self.hook.set(registered).map_err(|_| {
            let what = "another one is registered: a model has one hook";
            Error::argument("register_comm_hook", "hook", what)
        })
    }

    /// Starts to reduce a bucket while backward goes on.
    fn start(&self, index: usize) -> Result<Work> {
        let Bucket { flat, origin, .. } = &self.buckets[index];
        match self.hook.get() {
            Some(hook) => hook.start(&self.group, self.bucket(index)),
            None => origin.over(|| self.group.all_reduce_bucket_async(flat, ReduceOp::Avg)),
        }
    }

    /// Reduces a bucket here.
    fn call(&self, index: usize) -> Result<()> {
        let Bucket { flat, origin, .. } = &self.buckets[index];
        match self.hook.get() {
            Some(hook) => hook.call(&self.group, &self.bucket(index)),
            None => origin.over(|| self.group.all_reduce_bucket(flat, ReduceOp::Avg)),
        }
    }

    /// A bucket as hooks get it.
    fn bucket(&self, index: usize) -> GradBucket {
        let Bucket { flat, members, origin } = &self.buckets[index];
        GradBucket {
            index,
            is_last: index + 1 == self.buckets.len(),
            buffer: flat.clone(),
            members: members.clone(),
            origin: origin.clone(),
        }
    }

    /// Points every parameter's gradient into its bucket and hooks its accumulation.
    pub fn install(self: &Arc<Self>) -> Vec<HookHandle> {
        let hook = |(i, (param, view)): (usize, (&Tensor, &Tensor))| {
            param.set_grad_target(Some(view.clone()));
            let reducer = Arc::downgrade(self);
            param.register_post_accumulate_grad_hook(move |_| {
                if let Some(reducer) = reducer.upgrade() {
                    reducer.gradient_is_there(i);
                }
            })
        };
        self.params.iter().zip(&self.views).enumerate().map(hook).collect()
    }

    /// Takes the parameters' gradients out of the buckets.
    pub fn uninstall(&self) {
        self.params.iter().for_each(|p| p.set_grad_target(None));
    }

    fn gradient_is_there(self: &Arc<Self>, i: usize) {
        if !self.sync.load(Relaxed) {
            return;
        }
        self.move_into_bucket(i);
        let mut state = self.state.lock();
        if !state.running {
            if let Some((name, _)) = self.frozen.iter().find(|(_, t)| t.requires_grad()) {
                drop(state);
                throw(Error::Autograd(format!(
                    "DistributedDataParallel: parameter `{name}` was frozen when the module was wrapped and \
                     requires a gradient now: it is in no bucket, and ranks would train it apart; drop the \
                     wrapper and wrap the module again"
                )));
            }
            state.begin(&self.buckets, self.params.len());
            let reducer = self.clone();
            queue_callback(move || reducer.end_of_backward());
        }
        if std::mem::replace(&mut state.ready[i], true) {
            drop(state);
            throw(Error::Autograd(format!(
                "DistributedDataParallel: parameter `{}` got a second gradient in one backward after \
                 its all-reduce had started; run backward once per step, or all but the last under \
                 `no_sync`",
                self.names[i]
            )));
        }
        state.missing[self.bucket_of[i]] -= 1;
        self.send_full_buckets(&mut state);
    }

    /// A gradient that the user replaced with a tensor of their own is copied to its place.
    fn move_into_bucket(&self, i: usize) {
        let (param, view) = (&self.params[i], &self.views[i]);
        if let Some(grad) = param.grad()
            && grad.device_ptr() != view.device_ptr()
        {
            crate::autograd::no_grad(|| view.copy_(&grad));
            param.set_grad(Some(view.clone()));
        }
    }

    /// Starts the all-reduces of full buckets, but for the last one.
    fn send_full_buckets(&self, state: &mut State) {
        while state.next + 1 < self.buckets.len() && state.missing[state.next] == 0 {
            match self.start(state.next) {
                Ok(work) => state.works.push(work),
                Err(error) => throw(error),
            }
            state.next += 1;
        }
    }

    /// Runs when backward has made all gradients.
    fn end_of_backward(&self) {
        let _span = profiler::span(profiler::END_OF_BACKWARD, Category::Communication);
        let _phase = profiler::Phase::work();
        let mut state = self.state.lock();
        state.running = false;
        let unused: Vec<usize> = (0..self.params.len()).filter(|&i| !state.ready[i]).collect();
        if !unused.is_empty() && !self.find_unused {
            let names = join_some(unused.iter().map(|&i| &self.names[i]), ", ");
            let remedy = if unused.iter().all(|&i| self.params[i].requires_grad()) {
                "if they are meant to be unused in some steps, set `find_unused_parameters`"
            } else {
                "some were frozen after the module was wrapped: drop the wrapper and wrap the module again"
            };
            let error = Error::Autograd(format!(
                "DistributedDataParallel: no gradient reached {} parameter(s): {names}; {remedy}",
                unused.len()
            ));
            self.group.abort(&error.to_string());
            throw(error);
        }
        for &i in &unused {
            // What another rank has there counts; here it is nothing new.
            match self.params[i].grad() {
                Some(_) => self.move_into_bucket(i),
                None => {
                    crate::autograd::no_grad(|| self.views[i].fill_(0.0));
                }
            }
            state.missing[self.bucket_of[i]] -= 1;
        }
        self.send_full_buckets(&mut state);
        let works = std::mem::take(&mut state.works);
        let ready = std::mem::take(&mut state.ready);
        drop(state);
        let last = self.buckets.len().checked_sub(1).map_or(Ok(()), |last| self.call(last));
        // They ran before it: the first error is the cause of later ones.
        let earlier = works.iter().try_for_each(Work::wait);
        let synced = earlier.and(last).and_then(|()| self.settle_unused(&ready)).and_then(|()| {
            let origin = self.origin("buffers, after backward");
            origin.over(|| broadcast_all(&self.group, &self.buffers))
        });
        synced.unwrap_or_else(|error| throw(error));
    }

    fn origin(&self, what: &str) -> Origin {
        origin_of(format!("DistributedDataParallel's {what}"), self.number)
    }

    /// With `find_unused_parameters`: a parameter that another rank used has a gradient here too; one
    /// that no rank used keeps the `.grad` it had.
    fn settle_unused(&self, ready: &[bool]) -> Result<()> {
        if !self.find_unused {
            return Ok(());
        }
        let used = Tensor::from_slice(ready, [ready.len()]).to_dtype(Dtype::U8);
        let origin = self.origin("list of parameters in use");
        origin.over(|| self.group.all_reduce(&used, ReduceOp::Max))?;
        for (i, used) in used.to_vec::<u8>().into_iter().enumerate() {
            if used == 1 && !ready[i] {
                self.params[i].set_grad(Some(self.views[i].clone()));
            }
        }
        Ok(())
    }
}

impl State {
    fn begin(&mut self, buckets: &[Bucket], params: usize) {
        *self = State {
            running: true,
            ready: vec![false; params],
            missing: buckets.iter().map(|b| b.members.len()).collect(),
            next: 0,
            works: Vec::new(),
        };
    }
}

/// The part of a bucket that is `param`'s gradient: a tensor with a version counter of its own.
fn view_into(flat: &Tensor, start: usize, param: &Tensor) -> Tensor {
    let dtype = flat.dtype();
    let layout = Layout::contiguous(param.shape());
    let nbytes = param.numel() * dtype.size();
    match flat.storage().shared_range() {
        Some((memory, at)) => {
            let at = at + start * dtype.size();
            let guard = Box::new(flat.clone());
            Tensor::from_parts(Storage::shared(memory, at, nbytes, Some(guard)), layout, dtype)
        }
        None => flat.narrow(0, start, param.numel()).reshape_to(param.shape()),
    }
}

/// Of the model with this number: the first one's has no need to be told from others.
fn origin_of(mut name: String, number: u32) -> Origin {
    if number > 1 {
        name += &format!(" (model {number})");
    }
    Origin::numbered(name, number)
}
