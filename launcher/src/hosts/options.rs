//! From the command line to what a host brings to the job's rendezvous: torchrun's options, and what is missing of
//! them.

use std::net::{IpAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use torchrs_rendezvous::driver::{Config, Endpoint};
use torchrs_rendezvous::settings::{ScaleUp, Settings};
use torchrs_rendezvous::token::{self, JobToken};

use crate::cli::Options;
use crate::failure::{Doing, Failure};
use crate::plan::Plan;

/// The port at which a job with `--master-addr` begins, as torchrun's.
pub const STATIC_PORT: u16 = 29500;

/// A job over several hosts, as this one sees it.
#[derive(Debug, Serialize, Deserialize)]
pub struct HostsPlan {
    /// Job, hosts, restarts and times; the leader's count.
    pub settings: Settings,
    /// Where the job begins.
    pub endpoint: (String, u16),
    /// Whether that is here; nothing: if the address is this host's and free.
    pub is_host: Option<bool>,
    /// The only addresses at which it listens; none: all by which others may reach it.
    pub local_addrs: Vec<IpAddr>,
    pub node_rank: Option<u32>,
    /// The shared folder in which ties are decided.
    pub lock: Option<PathBuf>,
    /// The secret as the user set it, with where it came from; nothing: the job stays on this host's loopback.
    pub token: Option<(String, String)>,
}

impl HostsPlan {
    /// Of these options; nothing for a job on one host.
    pub fn of(options: &Options) -> Result<Option<Self>, String> {
        let (fewest, most) = options.nnodes.unwrap_or((1, 1));
        if let (1, Some(rank @ 1..)) = (most, options.node_rank) {
            return Err(format!(
                "--node-rank is {rank}, and --nnodes says one host: give all hosts --nnodes N"
            ));
        }
        if most == 1 {
            // What torchrun wants to know of one host, too, has no part in it.
            return Ok(None);
        }
        let conf = Conf::read(options.rdzv_conf.as_deref().unwrap_or(""))?;
        let endpoint = options.rdzv_endpoint.clone();
        let is_static = match (options.rdzv_backend.as_deref(), &endpoint) {
            (Some("static"), None) | (None, None) => true,
            (Some("c10d") | None, Some(_)) => false,
            (Some("static"), Some(_)) => {
                return Err("--rdzv-backend static meets at --master-addr and --master-port, not at --rdzv-endpoint".into());
            }
            (Some("c10d"), None) => {
                return Err("--rdzv-backend c10d needs --rdzv-endpoint HOST:PORT: the host where the job begins".into());
            }
            (Some(other), _) => {
                return Err(format!("--rdzv-backend is `{other}`: write static or c10d"));
            }
        };
        let (endpoint, is_host) = match endpoint {
            Some(endpoint) if !is_static => (endpoint, conf.is_host),
            _ => static_endpoint(options)?,
        };
        if options.rdzv_lock.is_some() && fewest > most / 2 {
            return Err(format!(
                "--rdzv-lock decides which of two halves goes on, and --nnodes {fewest}:{most} lets no half go on: give \
                 {} or less as the fewest",
                most / 2
            ));
        }
        if is_static && fewest != most {
            return Err(format!(
                "--nnodes {fewest}:{most} needs --rdzv-endpoint HOST:PORT; with --master-addr the number of hosts is fixed"
            ));
        }
        if let Some(rank) = options.node_rank.filter(|rank| *rank >= most) {
            return Err(format!(
                "--node-rank is {rank}, and --nnodes allows {most}: give 0 to {}",
                most - 1
            ));
        }
        let settings = Settings {
            job: options.run_id.clone().unwrap_or_else(|| "none".into()),
            hosts: (fewest, most),
            max_restarts: options.max_restarts,
            scale_up: options.scale_up.0,
            last_call: conf.last_call.unwrap_or(Settings::default().last_call),
            join_timeout: conf.join_timeout.unwrap_or(Settings::default().join_timeout),
            lock: options.rdzv_lock.is_some(),
            ..Settings::default()
        };
        let starter = options.under_launcher.as_ref();
        let token = match starter.and_then(|starter| starter.token.clone()) {
            Some(text) => {
                Some(("the token from the launcher that started this one".to_owned(), text))
            }
            None => token::given(options.token_file.as_deref(), &endpoint)
                .map_err(|error| error.to_string())?,
        };
        let local_addrs = options.local_addr.as_deref().map(own_addresses).transpose()?;
        let local_addrs = local_addrs.unwrap_or_default();
        Ok(Some(HostsPlan {
            settings,
            endpoint: (endpoint.host, endpoint.port),
            is_host,
            local_addrs,
            node_rank: options.node_rank,
            lock: options.rdzv_lock.clone(),
            token,
        }))
    }

    /// What the rendezvous is given.
    pub fn config(&self, plan: &Plan) -> Result<Config, Failure> {
        self.config_for(plan.nproc)
    }

    /// The same of a host with so many workers.
    pub fn config_for(&self, nproc: usize) -> Result<Config, Failure> {
        let name = nix::unistd::gethostname().doing(|| "cannot find this host's name".into())?;
        let (host, port) = self.endpoint.clone();
        Ok(Config {
            settings: self.settings.clone(),
            token: self.job_token()?,
            endpoint: Endpoint { host, port },
            is_host: self.is_host,
            local_addrs: self.local_addrs.clone(),
            name: name.to_string_lossy().into_owned(),
            nproc: nproc as u32,
            node_rank: self.node_rank,
            lock: self.lock.clone(),
        })
    }
}

impl HostsPlan {
    /// The job's secret, as a token.
    fn job_token(&self) -> Result<JobToken, Failure> {
        let token = match &self.token {
            Some((source, text)) => JobToken::new(source, text),
            None => Ok(JobToken::of_loopback()),
        };
        token.map_err(|error| Failure::new(error.to_string()))
    }
}

fn static_endpoint(options: &Options) -> Result<(Endpoint, Option<bool>), String> {
    let (_, most) = options.nnodes.unwrap_or((1, 1));
    let Some(host) = options.master_addr.clone() else {
        return Err(format!(
            "--nnodes {most} needs to know where the hosts meet: the same --master-addr HOST --master-port PORT on all \
             of them and --node-rank 0 to {} on each its own, or the same --rdzv-endpoint HOST:PORT on all",
            most - 1
        ));
    };
    let Some(rank) = options.node_rank else {
        return Err(format!(
            "--master-addr with --nnodes {most} needs --node-rank: give each host its own, from 0 (the host of \
             --master-addr) to {}",
            most - 1
        ));
    };
    let port = if options.master_port == 0 { STATIC_PORT } else { options.master_port };
    Ok((Endpoint { host, port }, Some(rank == 0)))
}

/// Of a list of names and addresses, each address once.
fn own_addresses(text: &str) -> Result<Vec<IpAddr>, String> {
    let mut found = Vec::new();
    for name in text.split(',').map(str::trim) {
        let wrong = |what: String| format!("--local-addr `{text}`: `{name}` {what}");
        let name = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
        if name.is_empty() {
            return Err(wrong("names no address: write HOST or HOST,HOST".into()));
        }
        let resolved = (name, 0).to_socket_addrs();
        let mut resolved = resolved.map_err(|error| wrong(format!("is not known: {error}")))?;
        let address = resolved.next().ok_or_else(|| wrong("has no address".into()))?.ip();
        if !found.contains(&address) {
            found.push(address);
        }
    }
    Ok(found)
}

/// `N` or `MIN:MAX`.
pub fn nnodes(text: &str) -> Result<(u32, u32), String> {
    let number = |text: &str| text.trim().parse::<u32>().ok().filter(|n| *n > 0);
    let (fewest, most) = text.split_once(':').unwrap_or((text, text));
    match (number(fewest), number(most)) {
        (Some(fewest), Some(most)) if fewest <= most => Ok((fewest, most)),
        (Some(_), Some(_)) => Err("the fewest hosts are more than the most; write MIN:MAX".into()),
        _ => Err("give a number of hosts of at least 1, or MIN:MAX".into()),
    }
}

/// As an option's value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ScaleUpOption(pub ScaleUp);

/// `now`, `at-checkpoint` or `never`.
pub fn scale_up(text: &str) -> Result<ScaleUpOption, String> {
    Ok(ScaleUpOption(match text {
        "now" => ScaleUp::Now,
        "at-checkpoint" => ScaleUp::AtCheckpoint,
        "never" => ScaleUp::Never,
        _ => return Err("write now, at-checkpoint or never".into()),
    }))
}

/// What `--rdzv-conf` says.
#[derive(Debug, Default, PartialEq)]
struct Conf {
    is_host: Option<bool>,
    last_call: Option<Duration>,
    join_timeout: Option<Duration>,
}

/// Keys of torchrun's that mean nothing here, for what they set does not exist.
const WITHOUT_MEANING: [&str; 8] = [
    "close_timeout",
    "heartbeat_timeout",
    "keep_alive_interval",
    "keep_alive_max_attempt",
    "read_timeout",
    "store_type",
    "use_libuv",
    "cas_backoff_max_seconds",
];

impl Conf {
    fn read(text: &str) -> Result<Self, String> {
        let mut conf = Conf::default();
        for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
            let wrong = |what: &str| format!("--rdzv-conf: `{pair}` {what}");
            let (key, value) = pair.split_once('=').ok_or_else(|| wrong("is no KEY=VALUE"))?;
            let (key, value) = (key.trim(), value.trim());
            let time = || {
                let seconds = value.parse().ok().and_then(|s| Duration::try_from_secs_f64(s).ok());
                seconds.ok_or_else(|| wrong("is no number of seconds"))
            };
            match key {
                "is_host" => {
                    conf.is_host = Some(match value.to_ascii_lowercase().as_str() {
                        "1" | "true" | "yes" | "t" | "y" => true,
                        "0" | "false" | "no" | "f" | "n" => false,
                        _ => return Err(wrong("is neither true nor false")),
                    });
                }
                "last_call_timeout" => conf.last_call = Some(time()?),
                "join_timeout" | "timeout" => conf.join_timeout = Some(time()?),
                key if WITHOUT_MEANING.contains(&key) => {}
                _ => {
                    return Err(wrong(
                        "is not known: is_host, join_timeout, last_call_timeout are",
                    ));
                }
            }
        }
        Ok(conf)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn of(line: &str) -> Result<Option<HostsPlan>, String> {
        HostsPlan::of(&Options::try_parse_from(line.split(' ')).unwrap())
    }

    #[test]
    fn torchruns_two_ways_are_understood() {
        assert!(of("x --nnodes 1 t").unwrap().is_none());
        let line = "x --nnodes 2 --node-rank 1 --master-addr 127.0.0.1 --master-port 5000 t";
        let plan = of(line).unwrap().unwrap();
        assert_eq!((plan.endpoint, plan.is_host), (("127.0.0.1".into(), 5000), Some(false)));
        assert_eq!((plan.settings.hosts, plan.node_rank), ((2, 2), Some(1)));
        let line = "x --nnodes 2:4 --rdzv_backend c10d --rdzv_endpoint localhost --rdzv_id j \
                    --rdzv_conf join_timeout=7,last_call_timeout=0.5,is_host=1 --max_restarts 3 t";
        let plan = of(line).unwrap().unwrap();
        assert_eq!((plan.endpoint, plan.is_host), (("localhost".into(), 29400), Some(true)));
        let settings = plan.settings;
        assert_eq!(
            (settings.hosts, settings.max_restarts, settings.job.as_str()),
            ((2, 4), 3, "j")
        );
        assert_eq!(settings.last_call, Duration::from_millis(500));
        assert_eq!(settings.join_timeout, Duration::from_secs(7));
    }

    #[test]
    fn several_own_addresses_are_a_list() {
        let list = |text: &str| own_addresses(text).map(torchrs_job::addresses::write);
        assert_eq!(list("10.0.0.1").unwrap(), "10.0.0.1");
        assert_eq!(
            list("10.0.0.1, [fd77::1],fd77::2,10.0.0.1").unwrap(),
            "10.0.0.1,fd77::1,fd77::2"
        );
        for text in ["", "10.0.0.1,", "10.0.0.1,no-such.invalid"] {
            assert!(list(text).unwrap_err().starts_with("--local-addr `"), "{text}");
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        for (line, part) in [
            ("x --nnodes 2 t", "--rdzv-endpoint HOST:PORT"),
            ("x --node-rank 1 --master-addr h1 t", "--nnodes N"),
            ("x --nnodes 2 --master-addr 127.0.0.1 t", "--node-rank"),
            ("x --nnodes 2 --master-addr 127.0.0.1 --node-rank 2 t", "give 0 to 1"),
            ("x --nnodes 1:2 --master-addr 127.0.0.1 --node-rank 0 t", "--nnodes 1:2 needs"),
            ("x --nnodes 2 --rdzv-backend c10d t", "needs --rdzv-endpoint"),
            ("x --nnodes 2 --rdzv-backend etcd --rdzv-endpoint 127.0.0.1 t", "static or c10d"),
            ("x --nnodes 2 --rdzv-endpoint 127.0.0.1 --rdzv-conf a=1 t", "`a=1` is not known"),
            (
                "x --nnodes 2 --rdzv-endpoint 127.0.0.1 --rdzv-conf is_host=maybe t",
                "true nor false",
            ),
            ("x --nnodes 2 --rdzv-endpoint 10.77.0.1:1 t", "TORCHRS_JOB_TOKEN"),
        ] {
            let why = of(line).unwrap_err();
            assert!(why.contains(part), "{line}: {why}");
        }
        for text in ["0", "-1", "x", "3:2", "1:2:3", ""] {
            assert!(nnodes(text).is_err(), "{text}");
        }
    }
}
