//! The port where a job's hosts meet, from the job's id: all find the same one without a word to each other.

/// Above the ports that Linux gives to outgoing connections by default (32,768 to 60,999).
const FIRST: u16 = 61_440;
const COUNT: u64 = 4_096;
/// Steps of one job that run side by side may share their first host. This keeps them apart from each other,
/// and from the next jobs.
const BETWEEN_STEPS: u64 = 257;

/// The port of the job `job_id`: from 61,440 to 65,535, the same on all hosts and for the whole job.
///
/// Of ids that are numbers, as Slurm's `JOB` or `JOB.STEP`, it is 61,440 + (JOB + 257 x STEP) mod 4,096: jobs that
/// follow each other never have the same. Of other ids it is 61,440 + FNV-1a of the text mod 4,096.
///
/// ```
/// use torchrs_job::cluster::meeting_port;
/// assert_eq!((meeting_port("2.0"), meeting_port("3.0"), meeting_port("2.1")), (61442, 61443, 61699));
/// assert_ne!(meeting_port("train-a"), meeting_port("train-b"));
/// ```
pub fn meeting_port(job_id: &str) -> u16 {
    let (job, step) = job_id.split_once('.').unwrap_or((job_id, "0"));
    let place = match (job.parse::<u64>(), step.parse::<u64>()) {
        (Ok(job), Ok(step)) => (job % COUNT) + (step % COUNT) * BETWEEN_STEPS,
        _ => fnv_1a(job_id.as_bytes()),
    };
    FIRST + (place % COUNT) as u16
}

fn fnv_1a(text: &[u8]) -> u64 {
    text.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn jobs_that_follow_each_other_and_their_steps_meet_apart() {
        let ports: BTreeSet<u16> = (0..200).map(|job| meeting_port(&format!("{job}.0"))).collect();
        assert_eq!(ports.len(), 200);
        let steps: BTreeSet<u16> = (0..10).map(|step| meeting_port(&format!("7.{step}"))).collect();
        assert_eq!(steps.len(), 10);
        let largest = format!("{0}.{0}", u64::MAX);
        assert!((61_440..=65_535).contains(&meeting_port(&largest)));
    }

    #[test]
    fn names_of_jobs_spread_over_the_ports() {
        let ports: BTreeSet<u16> = (0..100).map(|i| meeting_port(&format!("train-{i}"))).collect();
        assert!(ports.len() > 90 && *ports.first().unwrap() >= FIRST, "{}", ports.len());
    }
}
