//! Starting a benchmark's ranks, as processes of this host.

use torchrs::Result;
use torchrs::distributed::StoreServer;
use torchrs::multiprocessing::Process;

/// The number of ranks on the command line.
pub fn asked() -> Option<usize> {
    std::env::args().find_map(|arg| arg.parse().ok())
}

/// Runs `rank` in `world` processes, which can join a process group.
pub fn spawn(world: usize, rank: impl Fn(()) -> Result<()> + Copy + 'static) -> Result<()> {
    torchrs::init();
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
