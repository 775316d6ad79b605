//! Whether a host fits a job: the same job, the same release, the same options, a place of its own.

use crate::protocol::Host;
use crate::settings::Settings;

/// Why a host cannot take part in the leader's job, for its user. `own`: the leader's, whose host may not be there
/// yet.
pub(crate) fn objection<'a>(
    own: (&Settings, Option<&Host>),
    mut others: impl Iterator<Item = &'a Host>,
    (settings, host): (&Settings, &Host),
) -> Option<String> {
    let (wanted, leader) = own;
    let job = &settings.job;
    if *job != wanted.job {
        return Some(format!(
            "this is job `{}`, and it asks for job `{job}`: give all hosts the same --rdzv-id",
            wanted.job
        ));
    }
    if let Some(leader) = leader.filter(|leader| leader.fingerprint != host.fingerprint) {
        return Some(format!(
            "{} has torchrs {} and {} has torchrs {}, which do not fit together: install the same release on all hosts",
            leader.name, leader.version, host.name, host.version
        ));
    }
    let differs = |option: &str, own: String, theirs: String| {
        let name = &host.name;
        Some(format!(
            "{name} was started with {option} {theirs}, and the leader with {option} {own}: give all hosts the same"
        ))
    };
    if settings.hosts != wanted.hosts {
        return differs("--nnodes", range(wanted.hosts), range(settings.hosts));
    }
    if settings.max_restarts != wanted.max_restarts {
        let (own, theirs) = (wanted.max_restarts, settings.max_restarts);
        return differs("--max-restarts", own.to_string(), theirs.to_string());
    }
    if settings.lock != wanted.lock {
        let (with, without) = match wanted.lock {
            true => ("the leader", host.name.as_str()),
            false => (host.name.as_str(), "the leader"),
        };
        return Some(format!(
            "{with} was started with --rdzv-lock, and {without} without: give all hosts the same shared folder"
        ));
    }
    if settings.scale_up != wanted.scale_up {
        let (own, theirs) = (wanted.scale_up.to_string(), settings.scale_up.to_string());
        return differs("--scale-up", own, theirs);
    }
    let (rank, most) = (host.node_rank?, wanted.hosts.1);
    if rank >= most {
        let name = &host.name;
        return Some(format!("{name} has --node-rank {rank}, and there are {most} hosts at most"));
    }
    let other = others.find(|other| other.node_rank == Some(rank) && other.id != host.id)?;
    Some(format!(
        "both {} and {} have --node-rank {rank}: give each its own",
        other.name, host.name
    ))
}

/// As the user writes it.
fn range((fewest, most): (u32, u32)) -> String {
    match fewest == most {
        true => most.to_string(),
        false => format!("{fewest}:{most}"),
    }
}
