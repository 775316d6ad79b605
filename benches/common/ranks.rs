//! Starting a benchmark's ranks, as processes of this host.

use torchrs::Result;
use torchrs::distributed::StoreServer;
use torchrs::multiprocessing::Process;

/// Runs `rank` in as many processes as the command line says (default 2), which can join a process
/// group.
pub fn spawn(rank: impl Fn(()) -> Result<()> + Copy + 'static) -> Result<()> {
    torchrs::init();
    let world = std::env::args().filter_map(|arg| arg.parse::<usize>().ok()).next().unwrap_or(2);
    let server = StoreServer::start()?;
    let ranks: Vec<Process> = (0..world)
        .map(|i| {
            Process::builder()
                .name(format!("rank {i}"))
                .env("RANK", i.to_string())
                .env("WORLD_SIZE", world.to_string())
                .inherit("TORCHRS_STORE_FD", server.connect()?)
                .spawn(rank, ())
        })
        .collect::<Result<_>>()?;
    ranks.iter().try_for_each(Process::join)
}
