//! Runs every operation of `torchrs-mpi` under a real MPI, with every type, against a plain model.
//!
//!     mpirun -np 3 mpi_check            the operations; rank 0 prints `ok: N checks`
//!     mpirun -np 3 mpi_check stop       waits that end by a deadline or a watch, while all ranks live
//!     mpirun -np 3 mpi_check fault      a rank is killed: the others' deadline ends their waits
//!     mpirun -np 2 mpi_check measure    our all-reduce beside the bare, blocking `MPI_Allreduce`
//!
//! `tools/checks/check-mpi` runs all of them under both families.

use std::fmt::Debug;
use std::time::{Duration, Instant};

use half::{bf16, f16};

use torchrs_mpi::{Communicator, Element, Failure, Memory, Mpi, Polling, Reduction, Request};

type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

const LIMIT: Duration = Duration::from_secs(30);
const SHORT: Duration = Duration::from_millis(400);

fn main() -> Result<()> {
    let mpi = Mpi::load(LIMIT)?;
    let mode = std::env::args().nth(1).unwrap_or_default();
    match mode.as_str() {
        "" => check(mpi)?,
        "stop" => stop(mpi)?,
        "fault" => fault(mpi)?,
        "measure" => measure(mpi)?,
        other => panic!("mode {other}; must be one of: stop, fault, measure"),
    }
    Ok(())
}

/// The small number of a rank at an index: products of four fit an i8, and all are exact in f16.
fn number(rank: usize, i: usize, element: Element) -> i64 {
    let n: i64 = [3, -1, 2, 1, -2, -3, 1, 2][(rank * 5 + i * 3 + i / 7) % 8];
    if element == Element::U8 { n.abs() } else { n }
}

fn bytes(element: Element, n: i64) -> Vec<u8> {
    let (f, negative) = (n as f32, -n as f32);
    match element {
        Element::U8 | Element::I8 => vec![n as u8],
        Element::Bool => vec![(n & 1) as u8],
        Element::I16 => (n as i16).to_ne_bytes().to_vec(),
        Element::I32 => (n as i32).to_ne_bytes().to_vec(),
        Element::I64 => n.to_ne_bytes().to_vec(),
        Element::F32 => f.to_ne_bytes().to_vec(),
        Element::F64 => f64::from(f).to_ne_bytes().to_vec(),
        Element::F16 => f16::from_f32(f).to_ne_bytes().to_vec(),
        Element::BF16 => bf16::from_f32(f).to_ne_bytes().to_vec(),
        Element::C64 => [f.to_ne_bytes(), negative.to_ne_bytes()].concat(),
        Element::C128 => [f64::from(f).to_ne_bytes(), f64::from(negative).to_ne_bytes()].concat(),
    }
}

fn reduced(reduction: Reduction, element: Element, numbers: impl Iterator<Item = i64>) -> i64 {
    let numbers = numbers.map(|n| if element == Element::Bool { n & 1 } else { n });
    let combine = |a: i64, b: i64| match reduction {
        Reduction::Sum if element == Element::Bool => a | b,
        Reduction::Sum => a + b,
        Reduction::Product => a * b,
        Reduction::Min => a.min(b),
        Reduction::Max => a.max(b),
        Reduction::Band => a & b,
        Reduction::Bor => a | b,
        Reduction::Bxor => a ^ b,
    };
    numbers.reduce(combine).unwrap_or_default()
}

/// Bytes that begin where any element may, as memory of tensors does.
struct Aligned(Vec<u64>, usize);

impl Aligned {
    fn of(bytes: &[u8]) -> Self {
        let mut words = vec![0u64; bytes.len().div_ceil(8)];
        for (i, byte) in bytes.iter().enumerate() {
            words[i / 8] |= u64::from(*byte) << (8 * (i % 8));
        }
        Aligned(words, bytes.len())
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes: Vec<u8> = self.0.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.truncate(self.1);
        bytes
    }
}

// SAFETY: a vector's elements lie on the heap and do not move with it; `1` is within them.
unsafe impl Memory for Aligned {
    fn address(&mut self) -> *mut u8 {
        self.0.as_mut_ptr().cast()
    }
    fn size(&self) -> usize {
        self.1
    }
}

struct Checks {
    group: Communicator,
    done: usize,
}

impl Checks {
    fn wait<M>(&self, request: Result<Request<M>, Failure>) -> Result<M, Failure> {
        request?.wait(LIMIT, &mut || None)
    }

    fn same<T: PartialEq + Debug>(&mut self, got: T, right: T, what: &str) {
        let (rank, size) = (self.group.rank(), self.group.size());
        assert!(got == right, "rank {rank} of {size}, {what}: {got:?}, must be {right:?}");
        self.done += 1;
    }

    /// All that reduces, `n` elements (for each rank where there are parts).
    fn reductions(&mut self, element: Element, reduction: Reduction, n: usize) -> Result<()> {
        let (rank, size) = (self.group.rank(), self.group.size());
        let what = format!("{element} {reduction} {n}");
        let mine = |from: usize, n: usize, r: usize| -> Vec<u8> {
            (from..from + n).flat_map(|i| bytes(element, number(r, i, element))).collect()
        };
        let model = |from: usize, n: usize| -> Vec<u8> {
            let at = |i| reduced(reduction, element, (0..size).map(|r| number(r, i, element)));
            (from..from + n).flat_map(|i| bytes(element, at(i))).collect()
        };
        let own = || Aligned::of(&mine(0, n, rank));
        let all = self.wait(self.group.all_reduce(own(), element, reduction))?;
        self.same(all.bytes(), model(0, n), &format!("all_reduce {what}"));
        let root = n % size;
        let at_root = self.wait(self.group.reduce(own(), element, reduction, root))?.bytes();
        let right = if rank == root { model(0, n) } else { mine(0, n, rank) };
        self.same(at_root, right, &format!("reduce {what}"));
        for counts in [vec![n; size], (0..size).map(|r| n * (r % 3)).collect()] {
            let total = counts.iter().sum();
            let first = counts[..rank].iter().sum();
            let from = Aligned::of(&mine(0, total, rank));
            let into = Aligned::of(&vec![0; counts[rank] * element.size()]);
            let request = self.group.reduce_scatter(from, into, &counts, element, reduction);
            let (_, part) = self.wait(request)?;
            self.same(part.bytes(), model(first, counts[rank]), &format!("reduce_scatter {what}"));
        }
        Ok(())
    }

    /// All that moves bytes, `n` of each rank, or `n` times its number.
    fn moves(&mut self, n: usize) -> Result<()> {
        let (rank, size) = (self.group.rank(), self.group.size());
        let part = |r: usize, to: usize, n: usize| -> Vec<u8> {
            (0..n).map(|i| (r * 31 + to * 7 + i) as u8).collect()
        };
        let root = n % size;
        let memory = if rank == root { part(root, 0, n) } else { vec![0; n] };
        let all = self.wait(self.group.broadcast(memory, root))?;
        self.same(all, part(root, 0, n), &format!("broadcast {n}"));
        for counts in [vec![n; size], (0..size).map(|r| n * (r % 3)).collect()] {
            let what = format!("{counts:?}");
            let parts: Vec<Vec<u8>> = (0..size).map(|r| part(r, 0, counts[r])).collect();
            let mut memory: Vec<Vec<u8>> = counts.iter().map(|n| vec![0; *n]).collect();
            memory[rank].clone_from(&parts[rank]);
            let memory = memory.concat();
            let all = self.wait(self.group.all_gather(memory.clone(), &counts))?;
            self.same(all, parts.concat(), &format!("all_gather {what}"));
            let (own, all) = (parts[rank].clone(), parts.concat());
            let mine = if rank == root { memory } else { own.clone() };
            let gathered = self.wait(self.group.gather(mine, &counts, root))?;
            let right = if rank == root { all.clone() } else { own.clone() };
            self.same(gathered, right, &format!("gather {what}"));
            let mine = if rank == root { all.clone() } else { vec![0; own.len()] };
            let scattered = self.wait(self.group.scatter(mine, &counts, root))?;
            let right = if rank == root { all } else { own };
            self.same(scattered, right, &format!("scatter {what}"));
        }
        for are_equal in [true, false] {
            // From r to q goes what both can work out.
            let count = |r: usize, q: usize| if are_equal { n } else { n * ((r + 2 * q) % 3) };
            let sends: Vec<usize> = (0..size).map(|q| count(rank, q)).collect();
            let receives: Vec<usize> = (0..size).map(|r| count(r, rank)).collect();
            let from = (0..size).flat_map(|q| part(rank, q, sends[q])).collect::<Vec<_>>();
            let into = vec![0u8; receives.iter().sum()];
            let request = self.group.all_to_all(from, into, &sends, &receives, are_equal);
            let (_, got) = self.wait(request)?;
            let right = (0..size).flat_map(|r| part(r, rank, receives[r])).collect::<Vec<_>>();
            self.same(got, right, &format!("all_to_all {n}"));
        }
        // Round the ring, two tags, received in the other order.
        let (next, previous) = ((rank + 1) % size, (rank + size - 1) % size);
        let sent = [0, 1].map(|tag| self.group.send(part(rank, tag.into(), n), next, tag));
        for tag in [1u16, 0] {
            let got = self.wait(self.group.receive(vec![0u8; n], previous, tag))?;
            self.same(got, part(previous, tag.into(), n), &format!("receive {n}"));
        }
        for request in sent {
            self.wait(request)?;
        }
        self.wait(self.group.barrier())?;
        Ok(())
    }

    /// What holds of floats and of integers at their ends.
    fn numbers(&mut self) -> Result<()> {
        let (rank, size) = (self.group.rank(), self.group.size());
        for reduction in [Reduction::Min, Reduction::Max] {
            // Rank r has NaN at r; the last element is a zero of either sign.
            let at = |i| if i == rank { f32::NAN } else { 1.0 };
            let mut own: Vec<f32> = (0..=size).map(at).collect();
            own[size] = if rank == 0 { -0.0 } else { 0.0 };
            let got = self.wait(self.group.all_reduce(own.clone(), Element::F32, reduction))?;
            let right = if reduction == Reduction::Min { -0.0f32 } else { 0.0 };
            self.same(got[..size].iter().all(|x| x.is_nan()), true, "NaN of f32");
            if size > 1 {
                self.same(got[size].to_bits(), right.to_bits(), "zero");
            }
            let wide: Vec<f64> = own.iter().map(|x| f64::from(*x)).collect();
            let got = self.wait(self.group.all_reduce(wide, Element::F64, reduction))?;
            self.same(got[..size].iter().all(|x| x.is_nan()), true, "NaN of f64");
            let half: Vec<f16> = own.iter().map(|x| f16::from_f32(*x)).collect();
            let got = self.wait(self.group.all_reduce(half, Element::F16, reduction))?;
            self.same(got[..size].iter().all(|x| x.is_nan()), true, "NaN of f16");
        }
        let wraps = vec![i32::MAX; 5];
        let got = self.wait(self.group.all_reduce(wraps, Element::I32, Reduction::Sum))?;
        self.same(got, vec![i32::MAX.wrapping_mul(size as i32); 5], "wrapping");
        // Sums that depend on the order are the same on all ranks.
        for n in [3, 1000, 300_000] {
            let own: Vec<f32> = (0..n).map(|i| ((i * 7 + rank * 13) as f32).sin() * 1e3).collect();
            let got = self.wait(self.group.all_reduce(own, Element::F32, Reduction::Sum))?;
            let mix =
                |hash: u64, x: &f32| (hash ^ u64::from(x.to_bits())).wrapping_mul(0x100_0000_01b3);
            let mut hashes = vec![0i64; size];
            hashes[rank] = got.iter().fold(0xcbf2_9ce4, mix) as i64;
            let own = hashes[rank];
            let hashes = self.wait(self.group.all_gather(hashes, &vec![8; size]))?;
            self.same(hashes, vec![own; size], "equal bits on all ranks");
        }
        Ok(())
    }

    /// Misuse is told, and harms nothing.
    fn misuse(&mut self) -> Result<()> {
        let size = self.group.size();
        let told = |error: Option<Failure>| error.map(|e| e.to_string()).unwrap_or_default();
        let error = told(self.group.broadcast(vec![0u8; 3], size).err());
        let right = format!("broadcast: argument `root`: {size}; ranks are 0 to {}", size - 1);
        self.same(error, right, "a root that is not there");
        let error = told(self.group.all_reduce(vec![0u8; 3], Element::F32, Reduction::Sum).err());
        self.same(error.contains("must be a multiple of f32's 4"), true, &error);
        let error = told(self.group.all_gather(vec![0u8; 3], &[]).err());
        self.same(error.contains("0 of them; must be one for each"), true, &error);
        let error = told(self.group.send(vec![0u8], 0, 1 << 14).err());
        self.same(error, "send: argument `tag`: 16384; must be below 16384".to_owned(), "a tag");
        self.same(self.group.unusable().is_none(), true, "after misuse");
        Ok(())
    }
}

fn check(mpi: &'static Mpi) -> Result<()> {
    let world = mpi.world()?;
    let (rank, size, none) = (world.rank(), world.size(), &mut || None);
    let mut done = 0;
    let key = -i32::try_from(rank).unwrap_or(0);
    // The others in reverse order; without rank 0 the list of the rest.
    let mut groups = vec![world.duplicate(LIMIT, none)?, mpi.alone()?];
    groups.extend(world.split((rank != 0).then_some(3), key, LIMIT, none)?);
    if rank != 0 {
        let rest: Vec<usize> = (1..size).rev().collect();
        groups.push(world.group(&rest, 5, LIMIT, none)?);
        assert_eq!((groups[2].rank(), groups[3].rank()), (size - 1 - rank, size - 1 - rank));
    } else {
        assert_eq!((groups.len(), groups[0].rank(), groups[1].size()), (2, 0, 1));
    }
    for group in groups {
        let mut checks = Checks { group, done: 0 };
        for longest in [usize::MAX, 64] {
            checks.group.set_longest(longest);
            for element in Element::ALL {
                for reduction in Reduction::ALL.into_iter().filter(|r| r.takes(element)) {
                    for n in [0, 1, 13, if longest == 64 { 100 } else { 3000 }] {
                        checks.reductions(element, reduction, n)?;
                    }
                }
            }
            for n in [0, 1, 13, 200, if longest == 64 { 1000 } else { 300_000 }] {
                checks.moves(n)?;
            }
        }
        checks.group.set_longest(usize::MAX);
        checks.numbers()?;
        checks.misuse()?;
        done += checks.done;
    }
    if rank == 0 {
        println!("ok: {done} checks ({size} ranks, {})", mpi.version());
    }
    Ok(())
}

/// Waits that nobody answers. MPI is not finalised after them.
fn stop(mpi: &'static Mpi) -> Result<()> {
    let (world, none) = (mpi.world()?, &mut || None);
    let rank = world.rank();
    let [a, b, c] = [(); 3].map(|()| world.duplicate(LIMIT, &mut || None));
    let (a, b, c) = (a?, b?, c?);
    let start = Instant::now();
    if rank == 0 {
        let never = a.receive(vec![0u8; 8], 1 % a.size(), 9)?;
        let mut looks = 0;
        let failure = never.wait(LIMIT, &mut || {
            looks += 1;
            (looks == 50).then(|| "rank 1 is said to be dead".to_owned())
        });
        let text = failure.unwrap_err().to_string();
        assert!(text.ends_with(": rank 1 is said to be dead"), "{text}");
    } else {
        let sum = a.all_reduce(vec![1f32; 1 << 20], Element::F32, Reduction::Sum)?;
        let failure = sum.wait(SHORT, none).unwrap_err();
        assert!(matches!(failure, Failure::TimedOut { .. }), "{failure}");
        assert!(start.elapsed() >= SHORT);
        let failure = c.split(Some(0), 0, SHORT, none).unwrap_err();
        assert!(matches!(failure, Failure::TimedOut { .. }), "{failure}");
        assert!(c.unusable().is_some());
    }
    let text = a.barrier().unwrap_err().to_string();
    assert!(text.contains("the communicator is unusable"), "{text}");
    // Another one still works.
    let sum = b.all_reduce(vec![1i32; 3], Element::I32, Reduction::Sum)?.wait(LIMIT, none)?;
    assert_eq!(sum, vec![b.size() as i32; 3]);
    let error = mpi.finalise(LIMIT, none).unwrap_err().to_string();
    assert!(error.contains("an operation has failed before"), "{error}");
    println!("ok: rank {rank} stopped");
    // The first that ends without MPI_Finalize may have the launcher end the others.
    b.barrier()?.wait(LIMIT, none)?;
    Ok(())
}

/// The last rank is killed between two operations.
fn fault(mpi: &'static Mpi) -> Result<()> {
    let world = mpi.world()?.duplicate(LIMIT, &mut || None)?;
    let (rank, limit) = (world.rank(), Duration::from_secs(2));
    for step in 0.. {
        if step == 20 && rank + 1 == world.size() {
            // SAFETY: a signal to this process itself.
            unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
        }
        let start = Instant::now();
        let sum = world.all_reduce(vec![1f32; 100_000], Element::F32, Reduction::Sum);
        if let Err(failure) = sum.and_then(|sum| sum.wait(limit, &mut || None)) {
            let waited = start.elapsed().as_secs_f64();
            println!("ok: rank {rank} ended in step {step} after {waited:.2} s: {failure}");
            break;
        }
    }
    Ok(())
}

fn measure(mpi: &'static Mpi) -> Result<()> {
    let world = mpi.world()?.duplicate(LIMIT, &mut || None)?;
    let spinning = Polling { spin: LIMIT, ..Polling::default() };
    if world.rank() == 0 {
        println!("{}, {} ranks; f32 sum, median (best) in ms", mpi.version(), world.size());
    }
    for (name, size, n) in [
        ("4 KiB", 4 << 10, 400),
        ("256 KiB", 256 << 10, 200),
        ("4 MiB", 4 << 20, 40),
        ("100 MiB", 100 << 20, 7),
    ] {
        let mut times: [Vec<Duration>; 3] = Default::default();
        let mut data = vec![1f32; size / 4];
        // In turns, so that what else the machine does meets all three.
        for turn in 0..n + 2 {
            for (way, times) in times.iter_mut().enumerate() {
                data.fill(1.0);
                world.barrier()?.wait(LIMIT, &mut || None)?;
                let start = Instant::now();
                if way == 0 {
                    world.bare_all_reduce(&mut data)?;
                } else {
                    let sum = world.all_reduce(data, Element::F32, Reduction::Sum)?;
                    let polling = if way == 1 { Polling::default() } else { spinning };
                    data = sum.wait_with(polling, LIMIT, &mut || None)?;
                }
                // The first two turns warm up.
                if turn >= 2 {
                    times.push(start.elapsed());
                }
                assert_eq!(data[0], world.size() as f32);
            }
        }
        if world.rank() == 0 {
            let [bare, ours, spun] = times.map(median_and_best);
            let row = |(median, best): (f64, f64)| {
                format!(
                    "{median:.3} ({best:.3}), bare / it {:.2} ({:.2})",
                    bare.0 / median,
                    bare.1 / best
                )
            };
            println!(
                "{name:>8}: bare {:.3} ({:.3}); ours {}; only spinning {}",
                bare.0,
                bare.1,
                row(ours),
                row(spun)
            );
        }
    }
    Ok(())
}

/// Median and best, in milliseconds.
fn median_and_best(mut times: Vec<Duration>) -> (f64, f64) {
    times.sort();
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    (ms(times[times.len() / 2]), ms(times[0]))
}
