//! Barriers between real threads, and where the kernel does not give its own.

use std::sync::atomic::AtomicUsize;

use super::*;
use crate::{Link, PairConfig, pair};

/// Begins round after round together with the other thread, writes its number and gives what it
/// then sees of the other.
fn rounds(
    count: usize,
    [own, other]: [&(AtomicUsize, AtomicUsize); 2],
    pass: impl Fn(),
) -> Vec<usize> {
    let round = |number| {
        own.0.store(number, Ordering::Release);
        while other.0.load(Ordering::Acquire) < number {
            std::thread::yield_now();
        }
        own.1.store(number, Ordering::Relaxed);
        pass();
        other.1.load(Ordering::Relaxed)
    };
    (1..=count).map(round).collect()
}

#[test]
fn of_two_that_write_and_then_read_one_sees_the_other() {
    for barrier in [Barrier::of_process(), Barrier::Own] {
        let (often, seldom) = Default::default();
        let count = if cfg!(miri) { 20 } else { 2_000 };
        let (by_often, by_seldom) = std::thread::scope(|scope| {
            let other = scope.spawn(|| rounds(count, [&often, &seldom], || barrier.light()));
            let own = rounds(count, [&seldom, &often], || assert!(barrier.heavy()));
            (other.join().expect("an end"), own)
        });
        for (at, seen) in by_often.into_iter().zip(by_seldom).enumerate() {
            assert!(seen.0 > at || seen.1 > at, "{barrier:?}: neither in round {at}: {seen:?}");
        }
    }
}

/// A filter for this thread alone that refuses `membarrier` as a kernel without it would; false
/// where there are no filters.
fn refuse_membarrier() -> bool {
    let step = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let refused = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;
    let mut steps = [
        // The number of the call: the first field of `struct seccomp_data`.
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, libc::SYS_membarrier as u32),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, refused),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    // SAFETY: the program and its steps live until the call returns; the kernel copies them.
    unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0
    }
}

/// How often this thread has given its processor up to wait.
fn times_slept() -> libc::c_long {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: all zeros are a valid value, which the call writes over.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
        usage.assume_init()
    };
    usage.ru_nvcsw
}

/// Where the kernel has no `membarrier` each side passes its own fence; where it ceases to give it,
/// an end sleeps for a moment at a time and looks.
#[test]
#[cfg_attr(miri, ignore = "Miri has no filters of system calls")]
fn without_the_kernels_fence_nothing_is_promised_that_does_not_hold() {
    let kind = Barrier::of_process();
    let (mut end, _other) = pair(PairConfig::default()).expect("a pair");
    let locked_up = std::thread::spawn(move || {
        if !refuse_membarrier() {
            eprintln!("NOT RUN: no system call can be refused here");
            return;
        }
        assert_eq!(Barrier::ask(), Barrier::Own);
        assert!(Barrier::Own.heavy() && !Barrier::Process.heavy());
        for _ in 0..3 {
            let before = times_slept();
            let may_sleep = end.prepare_sleep();
            assert_eq!(may_sleep, kind == Barrier::Own);
            assert!(may_sleep || times_slept() > before, "it neither may sleep nor has");
        }
    });
    locked_up.join().expect("an end");
}
