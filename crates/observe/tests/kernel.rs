//! The programs in the running kernel. Without the rights for them each test says so and passes.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use millstream_observe::bpf::{Called, Counter, Histogram, Kernel, Place, Want, count_costs};
use millstream_observe::symbols::Symbols;
use millstream_observe::table::{Column, CpuTable};

/// Programs, or why there are none.
fn open(want: &Want) -> Option<Kernel> {
    match Kernel::open(want) {
        Ok(kernel) => Some(kernel),
        Err(why) => {
            println!("NOT RUN: {why}");
            None
        }
    }
}

fn sum(kernel: &Kernel, what: Counter) -> u64 {
    kernel.counters().unwrap().iter().map(|one| one.get(what)).sum()
}

/// One system call that this program can count.
fn one_call() {
    let _ = std::fs::symlink_metadata("/proc/self");
}

#[test]
fn what_this_process_does_is_counted() {
    let Some(kernel) = open(&Want { histograms: true, ..Want::default() }) else { return };
    let before: Vec<u64> = Counter::all().map(|what| sum(&kernel, what)).collect();
    let arrived: u64 = kernel.arrivals().map_or(0, |all| all.iter().sum());
    // A thread that sleeps is switched away from.
    for _ in 0..20 {
        std::thread::sleep(std::time::Duration::from_micros(100));
    }
    let risen = |what: Counter| -> Option<u64> {
        let place = Counter::all().position(|one| one == what).unwrap();
        kernel.why_not(what).is_none().then(|| sum(&kernel, what) - before[place])
    };
    if let Some(switches) = risen(Counter::Switches) {
        assert!(switches >= 20, "{switches}");
        assert!(risen(Counter::InvoluntarySwitches).unwrap() <= switches);
    }
    let histograms = kernel.histograms().unwrap();
    for one in &histograms {
        assert_eq!(one.count, one.buckets.iter().sum::<u64>(), "{one:?}");
    }
    assert!(kernel.arrivals().map_or(0, |all| all.iter().sum()) >= arrived);
    // A kernel may lack a tracepoint; a program that its verifier refuses is ours to mend.
    for (program, why) in kernel.absent() {
        println!("NOT RUN: {}: {why}", program.name());
        assert!(!why.starts_with("Permission denied: "), "{}: {why}", program.name());
    }
}

#[test]
fn system_calls_are_counted_and_timed_in_windows() {
    let Some(kernel) = open(&Want { histograms: true, ..Want::default() }) else { return };
    let Ok(before) = kernel.system_calls() else { return println!("NOT RUN: no system calls") };
    let times = |kernel: &Kernel| -> Vec<Histogram> {
        let all = kernel.histograms().unwrap();
        all.into_iter().filter(|one| matches!(one.place, Place::SystemCall(_))).collect()
    };
    let timed = times(&kernel);
    // One that waits all the time, in one call.
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let waiting = std::thread::spawn(move || ended.recv());
    let mut calls = 0;
    while kernel.system_calls().unwrap().windows() < before.windows() + 3 {
        std::hint::black_box(std::os::unix::process::parent_id());
        calls += 1;
    }
    drop(end);
    let _ = waiting.join().unwrap();
    let risen = kernel.system_calls().unwrap().since(&before);
    let counted = risen.counted();
    assert!(counted > 0 && risen.error().is_some(), "{risen:?}");
    assert!(risen.open().as_millis() >= 8 * 3, "three windows: {risen:?}");
    println!("{calls} calls, {risen:?}, error {:?}, low by {}", risen.error(), risen.low_by());
    // All that began in the first half of a window are among those that ended or are longer.
    let after = times(&kernel);
    let of = |all: &[Histogram]| all.iter().map(|one| one.count + one.longer).sum::<u64>();
    let begun = of(&after) - of(&timed);
    assert!((1..=counted).contains(&begun), "{begun} of {counted}");
    for one in &after {
        assert_eq!(one.count, one.buckets.iter().sum::<u64>(), "{one:?}");
        assert!(one.total_ns < one.count * 4_000_000 + 1, "timed for 4 ms at most: {one:?}");
    }
}

#[test]
fn no_programs_for_system_calls_are_there_where_they_are_not_wanted() {
    let Some(kernel) = open(&Want { no_system_calls: true, ..Want::default() }) else { return };
    assert_eq!(kernel.system_calls().unwrap_err().0, "was not asked for");
}

#[test]
fn cross_calls_name_their_senders() {
    let Some(kernel) = open(&Want::default()) else { return };
    // Unmapping memory that another thread has used sends interrupts to its CPU, where there are
    // two.
    let before: u64 = sum(&kernel, Counter::CallIpis) + sum(&kernel, Counter::WakeupIpis);
    let (to, from) = std::sync::mpsc::sync_channel::<u32>(0);
    let other = std::thread::spawn(move || from.iter().count());
    for n in 0..500 {
        to.send(n).unwrap();
        one_call();
    }
    drop(to);
    other.join().unwrap();
    let Ok(senders) = kernel.cross_calls() else { return println!("NOT RUN: no tracepoints") };
    let counted = sum(&kernel, Counter::CallIpis) + sum(&kernel, Counter::WakeupIpis);
    let listed: u64 = senders.iter().filter(|one| !one.requested).map(|one| one.count()).sum();
    // The list is read before the counters are, and calls go on.
    assert!(listed <= counted && counted >= before);
    let mut symbols = Symbols::new();
    for one in &senders {
        println!(
            "{} {} {} {}",
            one.requested,
            symbols.kernel(one.site),
            symbols.kernel(one.callback),
            one.count()
        );
        for (stack, count) in &one.stacks {
            println!("   {count} {:?}", symbols.kernel_stack(stack));
        }
    }
    for wait in kernel.lock_waits().unwrap() {
        println!("{:?} {} {:?}", wait.kind, wait.count, symbols.kernel_stack(&wait.stack));
    }
}

/// Where a thread runs on another CPU, who unmaps memory has that CPU flush what it knows of it.
#[test]
fn the_program_that_has_others_flush_is_behind_its_cross_calls() {
    if std::thread::available_parallelism().unwrap().get() < 2 {
        return println!("NOT RUN: one CPU");
    }
    let Some(kernel) = open(&Want { no_system_calls: true, ..Want::default() }) else { return };
    if kernel.cross_calls().is_err() {
        return println!("NOT RUN: no tracepoints");
    }
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let order = std::sync::atomic::Ordering::Relaxed;
    let mut symbols = Symbols::new();
    let mut behind = || -> usize {
        // The memory of a thread with a stack as large is unmapped at its end.
        for _ in 0..100 {
            let thread = std::thread::Builder::new().stack_size(256 << 20);
            thread.spawn(|| {}).unwrap().join().unwrap();
        }
        let calls = kernel.calls().unwrap().into_iter();
        let own = calls.filter(|one| one.process == std::process::id());
        // Waits for locks have ways, too.
        let senders = kernel.cross_calls().unwrap();
        let is_sent = |way: &Vec<u64>| {
            senders.iter().flat_map(|one| &one.stacks).any(|(stack, _)| stack == way)
        };
        let mut flushes = |to: &Called| match to {
            Called::Kernel(way) if is_sent(way) => {
                symbols.kernel_stack(way).iter().any(|name| name.contains("flush_tlb"))
            }
            _ => false,
        };
        let known = own.filter(|one| flushes(&one.to));
        known.filter(|one| !one.stack.frames.is_empty() && one.stack.top != [0; 16]).count()
    };
    let found = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(order) {
                std::hint::spin_loop();
            }
        });
        let found = (0..1000).any(|_| behind() > 0);
        is_over.store(true, order);
        found
    });
    assert!(found, "none of 100,000 threads had the other CPU flush");
}

#[test]
fn the_table_has_every_column_of_every_cpu() {
    let kernel = open(&Want::default());
    let mut table = CpuTable::open(kernel.as_ref()).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(100));
    let (seconds, rows) = table.sample(kernel.as_ref()).unwrap();
    assert!(seconds > 0.09 && !rows.is_empty());
    let Some(kernel) = &kernel else { return };
    let notes = table.notes(Ok(kernel));
    for row in &rows {
        println!("{} {:?}", row.cpu, Column::ALL.map(|one| row.get(one).map(|v| v.round())));
        for column in Column::ALL {
            assert!(
                row.get(column).is_some()
                    || notes.contains_key(column.name())
                    || column.is_percent(),
                "{} is missing without a reason",
                column.name()
            );
        }
    }
    println!("{notes:?}");
}

#[test]
fn samples_have_stacks_of_this_program_and_costs_are_counted() {
    let want = Want { profile_hz: Some(199), ..Want::default() };
    let Some(kernel) = open(&want) else { return };
    let Ok(_costs) = count_costs() else { return println!("NOT RUN: no statistics") };
    if kernel.absent().contains_key(&millstream_observe::bpf::Program::CpuClock) {
        return println!("NOT RUN: {:?}", kernel.absent());
    }
    // Until the CPU clock has met us: it counts our own time only.
    let me = std::process::id();
    let mine = || -> usize {
        let mut spin = 0u64;
        for n in 0..20_000_000u64 {
            spin = std::hint::black_box(spin.wrapping_add(n));
        }
        kernel.samples().unwrap().iter().filter(|one| one.process == me).count()
    };
    while mine() == 0 {}
    for _ in 0..20 {
        std::thread::sleep(std::time::Duration::from_micros(100));
    }
    let costs = kernel.costs();
    let switches = costs.get(&millstream_observe::bpf::Program::SchedSwitch).unwrap();
    assert!(switches.runs >= 20 && switches.ns > 0, "{costs:?}");
    println!("{costs:?}");
    // Threads that have ended would fill the map in the end.
    let of = |thread: u32| kernel.samples().unwrap().iter().any(|one| one.thread == thread);
    let ended = std::thread::scope(|scope| {
        let met = scope.spawn(|| {
            // PROCESS/task/THREAD.
            let own = std::fs::read_link("/proc/thread-self").unwrap();
            let own = own.file_name().unwrap().to_str().unwrap().parse().unwrap();
            while !of(own) {
                mine();
            }
            own
        });
        met.join().unwrap()
    });
    assert!(of(ended));
    kernel.forget_stacks();
    assert!(!of(ended), "it is forgotten");
    while mine() == 0 {}
}

#[test]
fn a_sample_for_which_there_is_no_room_is_counted() {
    let want = Want { no_system_calls: true, profile_hz: Some(10_000), ..Want::default() };
    let Some(kernel) = open(&want) else { return };
    if let Some(why) = kernel.why_not(Counter::LostSamples) {
        return println!("NOT RUN: {why}");
    }
    kernel.forget_stacks();
    assert_eq!(sum(&kernel, Counter::LostSamples), 0);
    // Each thread that is met is a kind of its own.
    let spin = || (0..300_000u64).fold(0, |sum, n| std::hint::black_box(sum ^ n));
    while sum(&kernel, Counter::LostSamples) == 0 {
        for _ in 0..256 {
            std::thread::spawn(spin).join().unwrap();
        }
    }
    // The CPUs count apart, so that the last places may be taken at once by both.
    assert!(kernel.samples().unwrap().len() >= 8192);
}

/// The probe times one function at each call, and another one only where the first one calls it.
#[test]
fn functions_of_this_program_are_timed_inside_another_alone() {
    #[inline(never)]
    fn timed_function(n: u64) -> u64 {
        std::hint::black_box(n) + 1
    }
    #[unsafe(no_mangle)]
    #[inline(never)]
    extern "C" fn millstream_function_around(n: u64) -> u64 {
        timed_function(std::hint::black_box(n)) + 1
    }
    let path = std::env::current_exe().unwrap();
    let function = |name: &str| (path.clone(), name.to_owned());
    let want = Want {
        no_system_calls: true,
        functions: vec![function("millstream_function_around"), function("timed_function")],
        only_inside: true,
        ..Want::default()
    };
    let Some(kernel) = open(&want) else { return };
    let program = millstream_observe::bpf::Program::FunctionEntry;
    if let Some(why) = kernel.absent().get(&program) {
        return println!("NOT RUN: {why}");
    }
    for n in 0..100 {
        timed_function(millstream_function_around(n));
        timed_function(n);
    }
    let all = kernel.histograms().unwrap();
    let calls = |number: u32| {
        let those = all.iter().filter(|one| one.place == Place::Function(number));
        those.map(|one| one.count).sum::<u64>()
    };
    assert_eq!([calls(0), calls(1)], [100, 100]);
    assert_eq!(kernel.name_of(Place::Function(1)), "function timed_function");
}

/// Two functions call a third one, so often and with these arguments.
#[test]
fn the_argument_of_a_function_is_counted_with_who_called() {
    #[unsafe(no_mangle)]
    #[inline(never)]
    extern "C" fn millstream_function_taking(first: u64, size: u64) -> u64 {
        std::hint::black_box(first + size)
    }
    #[inline(never)]
    fn a_large_caller(n: u64) -> u64 {
        millstream_function_taking(n, 150_670) + 1
    }
    #[inline(never)]
    fn a_small_caller(n: u64) -> u64 {
        millstream_function_taking(n, 64) + 1
    }
    let path = std::env::current_exe().unwrap();
    let want = |argument| Want {
        no_system_calls: true,
        functions: vec![(path.clone(), "millstream_function_taking".to_owned())],
        argument: Some(argument),
        ..Want::default()
    };
    let Some(kernel) = open(&want(2)) else { return };
    let program = millstream_observe::bpf::Program::FunctionEntry;
    if let Some(why) = kernel.absent().get(&program) {
        return println!("NOT RUN: {why}");
    }
    let large: u64 = (0..30).map(a_large_caller).sum();
    let small: u64 = (0..10).map(a_small_caller).sum();
    std::hint::black_box(large + small);
    let mut found = BTreeMap::new();
    let mut symbols = Symbols::new();
    for one in kernel.calls().unwrap() {
        if let Called::Function(number, argument) = one.to {
            assert_eq!((number, one.process), (0, std::process::id()));
            let names = symbols.process(one.process, &[vec![one.stack.top[0]]]).concat();
            let name = if names[0].contains("a_large_caller") { "large" } else { &names[0] };
            let name = if name.contains("a_small_caller") { "small" } else { name };
            *found.entry((argument, name.to_owned())).or_insert(0) += one.count;
        }
    }
    let expected = [((64, "small".to_owned()), 10), ((150_670, "large".to_owned()), 30)];
    assert_eq!(found, expected.into());
    assert_eq!(kernel.calls_left_out(), 0);
    kernel.forget_stacks();
    let of_functions = |kernel: &Kernel| {
        let calls = kernel.calls().unwrap();
        calls.iter().filter(|one| matches!(one.to, Called::Function(..))).count()
    };
    assert_eq!(of_functions(&kernel), 0, "they are forgotten");
    let why = Kernel::open(&want(7)).map(drop).unwrap_err();
    assert!(why.0.starts_with("argument 7: those in registers are read"), "{why}");
}

#[test]
fn a_function_of_the_kernel_is_timed_or_says_why_not() {
    let want = |function: &str| Want {
        no_system_calls: true,
        kernel_function: Some(function.to_owned()),
        ..Want::default()
    };
    // A function that the kernel runs for each of our calls of `stat`.
    let Some(kernel) = open(&want("vfs_statx")) else { return };
    match kernel.absent().iter().find(|(program, _)| program.name().starts_with("kernel_")) {
        Some((_, why)) => {
            assert!(why.starts_with("vfs_statx: ") && !why.contains('\n'), "{why}");
            println!("NOT RUN: {why}");
        }
        None => {
            (0..100).for_each(|_| one_call());
            let all = kernel.histograms().unwrap();
            let calls = all.iter().filter(|one| one.place == Place::KernelFunction);
            assert!(calls.map(|one| one.count).sum::<u64>() >= 100);
        }
    }
    let Some(kernel) = open(&want("no_such_function_of_the_kernel")) else { return };
    let why = kernel.absent().values().find(|why| why.starts_with("no_such_function"));
    assert!(why.is_some_and(|why| why.contains("has no such function")), "{:?}", kernel.absent());
}

#[test]
fn the_objects_are_what_their_sources_give() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("bpf");
    let built_by = std::fs::read_to_string(folder.join("built-by")).unwrap();
    let Ok(clang) = Command::new("clang").arg("--version").output() else {
        return println!("NOT RUN: no clang here");
    };
    if Command::new("llvm-strip").arg("--version").output().is_err() {
        return println!("NOT RUN: no llvm-strip here");
    }
    let here = String::from_utf8_lossy(&clang.stdout).into_owned();
    if !here.lines().next().unwrap_or_default().contains(built_by.trim()) {
        return println!("NOT RUN: built by clang {}, and here is {here}", built_by.trim());
    }
    let copy = std::env::temp_dir().join(format!("millstream-bpf-{}", std::process::id()));
    std::fs::create_dir_all(&copy).unwrap();
    // In another folder, so that no path of it can be in the object.
    for file in std::fs::read_dir(&folder).unwrap() {
        let file = file.unwrap();
        if file.path().extension().is_none_or(|end| end != "o") {
            std::fs::copy(file.path(), copy.join(file.file_name())).unwrap();
        }
    }
    let built = Command::new(copy.join("build")).status().unwrap();
    let read = |folder: &Path, name: &str| std::fs::read(folder.join(name)).unwrap_or_default();
    let same = ["budget.bpf.o", "kernel.bpf.o", "opened.bpf.o", "system_calls.bpf.o"];
    let same = same.map(|name| {
        let committed = read(&folder, name);
        !committed.is_empty() && committed == read(&copy, name)
    });
    std::fs::remove_dir_all(&copy).unwrap();
    assert!(built.success());
    assert_eq!(same, [true; 4], "run crates/observe/bpf/build");
}

/// Returns the numbered rows of `/proc/interrupts`, those of devices, by number and CPU.
fn interrupts_of_devices() -> BTreeMap<(u32, u32), u64> {
    let text = std::fs::read_to_string("/proc/interrupts").unwrap();
    let table = millstream_observe::proc::interrupts::parse(&text).unwrap();
    let mut all = BTreeMap::new();
    for (id, counts, _) in &table.rows {
        if let Ok(number) = id.parse::<u32>() {
            all.extend(table.cpus.iter().map(|cpu| (number, *cpu)).zip(counts.iter().copied()));
        }
    }
    all
}

/// The kernel counts them, too: what it counts between two looks inside ours is the least, between
/// two around ours the most, but for one that goes on.
#[test]
fn interrupts_are_by_device_and_cpu_as_the_kernel_counts_them() {
    let around = interrupts_of_devices();
    let Some(kernel) = open(&Want { no_system_calls: true, ..Want::default() }) else { return };
    if let Some(why) = kernel.why_not(Counter::IrqNs) {
        return println!("NOT RUN: {why}");
    }
    let inside = interrupts_of_devices();
    // The disk answers each write with an interrupt.
    let mut file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    for _ in 0..20 {
        std::io::Write::write_all(&mut file, &[7; 4096]).unwrap();
        file.sync_all().unwrap();
    }
    let least = interrupts_of_devices();
    let found = kernel.interrupt_times().unwrap();
    let most = interrupts_of_devices();
    let mut rises = 0;
    // From 255 on all are one.
    for (key, now) in most.into_iter().filter(|(key, _)| key.0 < 255) {
        let of = |all: &BTreeMap<(u32, u32), u64>| all.get(&key).copied().unwrap_or(0);
        let is = |one: &&Histogram| (one.place, one.cpu) == (Place::Interrupt(key.0), key.1);
        let counted = found.iter().find(is).map_or(0, |one| one.count);
        let (least, most) = (of(&least) - of(&inside), now - of(&around));
        assert!(least <= counted + 1 && counted <= most, "{key:?}: {least}, {counted}, {most}");
        rises += least;
    }
    if rises == 0 {
        println!("NOT RUN: no device interrupted");
    }
}

/// A datagram to a port that nobody has.
#[test]
fn what_the_kernel_drops_is_counted_by_its_reason() {
    let Some(kernel) = open(&Want::default()) else { return };
    let before: u64 = match kernel.drops() {
        Ok(drops) => drops.iter().sum(),
        Err(why) => return println!("NOT RUN: {why}"),
    };
    let port = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.send_to(&[0; 10], port).unwrap();
    assert!(kernel.drops().unwrap().iter().sum::<u64>() > before);
}
