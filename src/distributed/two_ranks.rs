// Part of the examples in this folder, which include it: a job of two ranks.

/// Runs `rank`, which captures nothing, as both ranks of a job, each a process.
fn two_ranks<F>(rank: F) -> torchrs::Result<()>
where
    F: Fn(torchrs::distributed::ProcessGroup) -> torchrs::Result<()> + Copy + 'static,
{
    let job = format!("example-{}", std::process::id());
    let start = |number: &str| {
        torchrs::multiprocessing::Process::builder()
            .env("RANK", number)
            .env("WORLD_SIZE", "2")
            .env("MASTER_ADDR", &job)
            .env("MASTER_PORT", "1")
            .spawn(
                move |_: ()| {
                    let group = torchrs::distributed::init_process_group(Default::default())?;
                    let result = rank(group.clone());
                    // Rank 0 has the store: it stays until the other is through, or has failed.
                    let _ = group.barrier();
                    result
                },
                (),
            )
    };
    let ranks = [start("0")?, start("1")?];
    ranks.iter().try_for_each(|process| process.join())
}
