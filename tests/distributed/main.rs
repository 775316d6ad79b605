//! Jobs of several processes on the CPU: how processes start, talk, share memory, join, train together and fail.

mod channels;
mod comm_hooks;
mod ddp;
mod elastic;
mod examples;
mod fully_shard;
mod hosts;
mod job;
mod metrics;
mod multiprocessing;
mod new_project;
mod process_groups;
mod sharded_checkpoints;
mod shared_tensors;
mod sync_batch_norm;
mod tasks;
mod train_llama;
mod train_loggers;
mod train_program;
mod train_state;
mod train_steps;
mod zero_redundancy;
