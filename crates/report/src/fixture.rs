//! An experiment made up for the tests of the report: two workloads, two stacks, five blocks.

use std::collections::BTreeMap;

use millstream_diagnose::stats::Rng;
use millstream_record::*;

/// Experiment and runs; the run of order 7 is invalid.
pub(super) fn experiment() -> (ExperimentRecord, Vec<RunRecord>) {
    let mut experiment =
        ExperimentRecord::new("first-look", 12_345, Timestamp::from_unix_ms(1_795_213_459_123));
    experiment.question =
        "How does Millstream over TAP compare with the kernel over veth, on the same machine?"
            .into();
    experiment.workloads = vec!["tcp_stream".into(), "tcp_rr".into()];
    experiment.stacks = vec!["kernel".into(), "millstream".into()];
    experiment.factors = BTreeMap::from([("direction".into(), vec!["send".into(), "recv".into()])]);
    experiment.repeats = 5;
    experiment.planned_runs = 30;
    experiment.finished_at = Some(Timestamp::from_unix_ms(1_795_213_659_000));
    let by_stack = |kernel: &str, millstream: &str| {
        BTreeMap::from([
            ("kernel".to_owned(), kernel.to_owned()),
            ("millstream".to_owned(), millstream.to_owned()),
        ])
    };
    experiment.differences = vec![
        Difference {
            what: "link".into(),
            by_stack: by_stack(
                "veth pair, offloads on",
                "TAP with virtio-net headers, offloads on",
            ),
        },
        Difference {
            what: "peer".into(),
            by_stack: by_stack("kernel, other namespace", "kernel, other namespace"),
        },
        Difference { what: "congestion control".into(), by_stack: by_stack("cubic", "NewReno") },
    ];
    experiment.definition = "name = \"first-look\"\nrepeats = 5\n\n\
                             [[workload]]\nname = \"tcp_stream\"\ndirection = [\"send\", \"recv\"]\n".into();
    experiment.command_line = vec!["millstream".into(), "run".into(), "first-look".into()];
    for (name, value) in [
        ("cpu.model", "AMD EPYC"),
        ("cpu.count", "2"),
        ("kernel.release", "6.1.0-test"),
        ("kernel.command_line", "mitigations=auto quiet <odd & \"text\">"),
        ("memory.total_bytes", "25222479872"),
        ("millstream.version", "0.1.0"),
        ("millstream.commit", "0a20d3712345"),
        ("sysctl.net.ipv4.tcp_rmem", "4096 131072 6291456"),
    ] {
        experiment.environment.set(name, value);
    }
    experiment
        .environment
        .record::<&str>("cpu.governor", Err("/sys/…/scaling_governor: No such file or directory"));
    let mut rng = Rng::new(1);
    let mut runs = Vec::new();
    for block in 0..5 {
        for (workload, direction) in
            [("tcp_stream", "send"), ("tcp_stream", "recv"), ("tcp_rr", "send")]
        {
            for stack in ["kernel", "millstream"] {
                let order = runs.len() as u32;
                let mut run = run(&experiment, &mut rng, (workload, direction, stack), order);
                run.block = block;
                runs.push(run);
            }
        }
    }
    runs[7]
        .validity
        .reject("the interface counted 3 % of the bytes reported: the traffic took another path");
    runs[7].path = Some(PathProof {
        interface: "near/ms0".into(),
        reported_bytes: 7_000_000_000,
        counted_bytes: 210_000_000,
        agrees: false,
    });
    (experiment, runs)
}

fn run(of: &ExperimentRecord, rng: &mut Rng, what: (&str, &str, &str), order: u32) -> RunRecord {
    let (workload, direction, stack) = what;
    let mut noise =
        |around: f64| around * (0.93 + 0.14 * (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64);
    let mut run = RunRecord::new(of.run_id(order));
    run.experiment_id = of.id.clone();
    run.experiment = of.name.clone();
    run.workload = workload.into();
    run.stack = stack.into();
    run.order = order;
    run.seed = u64::from(order);
    run.started_at = Timestamp::from_unix_ms(of.started_at.unix_ms() + 6_000 * u64::from(order));
    run.duration_s = 3.6;
    run.window = Window { start_s: 0.5, end_s: 3.5 };
    run.factors.insert("ip".into(), "v4".into());
    run.factors.insert("message_bytes".into(), "131072".into());
    if workload == "tcp_stream" {
        run.factors.insert("direction".into(), direction.into());
    }
    let kernel = stack == "kernel";
    let shape = if kernel { 1.0 } else { 0.62 };
    let key = if workload == "tcp_stream" {
        let rate = noise(if direction == "send" { 23.1e9 } else { 19.5e9 } * shape);
        run.results.insert(keys::THROUGHPUT.into(), rate);
        run.results.insert(keys::CPU_PER_GB.into(), noise(0.54 / shape));
        run.results.insert(keys::PAYLOAD.into(), rate / 8.0 * 3.0);
        keys::THROUGHPUT
    } else {
        let rate = noise(if kernel { 52_000.0 } else { 71_000.0 });
        run.results.insert(keys::TRANSACTIONS.into(), rate);
        run.results.insert(keys::CPU_PER_TRANSACTION.into(), noise(31.0 * shape));
        run.results.insert(keys::LATENCY_P50.into(), 1e6 / rate * 0.9);
        run.results.insert(keys::LATENCY_P99.into(), 1e6 / rate * noise(2.4));
        run.results.insert(keys::THROUGHPUT.into(), rate * 8.0);
        keys::TRANSACTIONS
    };
    let rate = run.results[key];
    let series: Vec<f64> = (0..30).map(|_| noise(rate)).collect();
    run.intervals = IntervalSeries {
        start_s: 0.5,
        width_s: 0.1,
        widths_s: Vec::new(),
        series: BTreeMap::from([(key.into(), series)]),
    };
    run.path = Some(PathProof {
        interface: "near/ms0".into(),
        reported_bytes: 7_000_000_000,
        counted_bytes: 7_021_000_000,
        agrees: true,
    });
    run.environment.set("setting.link", if kernel { "veth" } else { "tap" });
    run.environment.set("setting.mtu_bytes", "1500");
    run.probes = probes(kernel, &mut noise);
    run
}

fn probes(kernel: bool, noise: &mut impl FnMut(f64) -> f64) -> Probes {
    const STEPS: usize = 35;
    let mut cpus = Vec::new();
    for cpu in 0..2u32 {
        let (usr, sys, softirq) = match (kernel, cpu) {
            (true, 0) => (0.005, 0.062, 0.021),
            (true, _) => (0.004, 0.071, 0.012),
            (false, 0) => (0.055, 0.030, 0.003),
            (false, _) => (0.006, 0.060, 0.018),
        };
        let mut one = CpuSeries { cpu, ..CpuSeries::default() };
        for step in 0..STEPS {
            let on = if (5..34).contains(&step) { 1.0 } else { 0.08 };
            let parts = [noise(usr * on), noise(sys * on), noise(softirq * on)];
            let steal = if step == 20 { 0.01 } else { 0.0 };
            one.usr_s.push(parts[0]);
            one.sys_s.push(parts[1]);
            one.softirq_s.push(parts[2]);
            one.irq_s.push(0.001 * on);
            one.steal_s.push(steal);
            one.idle_s.push((0.1 - parts.iter().sum::<f64>() - steal - 0.001 * on).max(0.0));
            one.nice_s.push(0.0);
            one.wait_s.push(0.0);
        }
        cpus.push(one);
    }
    let row = |id: &str, name: &str, each: u64| InterruptRow {
        id: id.into(),
        name: name.into(),
        counts: vec![each, each * 2],
        series: vec![vec![each / STEPS as u64; STEPS], vec![each * 2 / STEPS as u64; STEPS]],
    };
    let mut rows = vec![
        row("RES", "Rescheduling interrupts", if kernel { 9_000 } else { 2_000 }),
        row("CAL", "Function call interrupts", 700),
        row("TLB", "TLB shootdowns", 35),
        row("42", "virtio3-tx", 12),
    ];
    rows[3].series.clear();
    let user: f64 = cpus.iter().map(|cpu| cpu.total_s("usr")).sum();
    let worker = |voluntary: u64| WorkerActivity {
        pid: 4711,
        threads: 1,
        usr_s: user / 2.0,
        sys_s: 2.1,
        voluntary_switches: voluntary,
        involuntary_switches: 37,
        seen_on_cpu: BTreeMap::from([(0, 28), (1, 4)]),
        moves_seen: 2,
        ..WorkerActivity::default()
    };
    let info = |role: &str, stack: &str, srtt: f64| TcpInfoRecord {
        role: role.into(),
        connection: 0,
        stack: stack.into(),
        congestion: Some(if stack == "kernel" { "cubic" } else { "newreno" }.into()),
        fields: BTreeMap::from([
            ("srtt_us".into(), srtt),
            ("cwnd_bytes".into(), 1.2e6),
            ("retransmits".into(), 0.0),
        ]),
    };
    Probes {
        interval_s: 0.1,
        times_s: (0..=STEPS).map(|step| 0.05 + step as f64 * 0.1).collect(),
        own_cpu_s: noise(0.004),
        absent: BTreeMap::from([(
            "softnet".into(),
            "/proc/net/softnet_stat: Permission denied".into(),
        )]),
        cpu: Some(CpuActivity { resolution_s: 0.01, cpus }),
        interrupts: Some(Interrupts { cpus: vec![0, 1], rows }),
        cpu_distance_ns: Some(
            (0..STEPS).map(|step| [Some(112), Some(118), None][step % 3]).collect(),
        ),
        context_switches: Some(vec![if kernel { 3_000 } else { 900 }; STEPS]),
        tables: tables(),
        hosts: Some(BTreeMap::from([("near".into(), host(kernel))])),
        idle_states: Some(vec![idle(0, kernel), idle(1, kernel)]),
        workers: Some(BTreeMap::from([
            ("near".into(), worker(8_000)),
            ("far".into(), worker(12_000)),
        ])),
        tcp_info: vec![
            info("near", if kernel { "kernel" } else { "millstream" }, noise(45.0)),
            info("far", "kernel", noise(60.0)),
        ],
        ..Probes::default()
    }
}

fn tables() -> Tables {
    let table = |key, columns: &[Column], rows: &[(&str, &[f64])]| {
        let rows = rows.iter().map(|(key, values)| ((*key).to_owned(), values.to_vec()));
        Table { key, columns: columns.to_vec(), rows: rows.collect() }
    };
    let kinds = ["NET_RX", "TIMER"].map(|kind| Column::new(kind, "", Kind::Counter, ""));
    let waits = Column::new("some", "us", Kind::Counter, "Time in which a task at least waited.");
    let faults =
        Column::new("pgmajfault", "", Kind::Trouble, "Page faults that waited for a disk.");
    BTreeMap::from([
        (
            "softirqs".into(),
            table(Key::Cpu, &kinds, &[("0", &[41_000.0, 900.0]), ("1", &[39_000.0, 870.0])]),
        ),
        ("pressure".into(), table(Key::Resource, &[waits], &[("cpu", &[700_000.0])])),
        ("vmstat".into(), table(Key::Machine, &[faults], &[("all", &[7.0])])),
    ])
}

fn idle(cpu: u32, kernel: bool) -> IdleCpu {
    let state = |name: &str, exit_latency_us, entries, time_us| IdleState {
        name: name.into(),
        exit_latency_us,
        entries,
        time_us,
    };
    let states = vec![
        state("POLL", 0, 3_000, 60_000),
        state("C1", 1, if kernel { 9_000 } else { 6_000 }, 600_000),
    ];
    IdleCpu { cpu, states }
}

fn host(kernel: bool) -> HostCounters {
    let counters = InterfaceCounters {
        rx_bytes: 12_000_000,
        rx_packets: 180_000,
        tx_bytes: if kernel { 8_660_000_000 } else { 5_300_000_000 },
        tx_packets: 140_000,
        rx_bytes_series: vec![400_000; 35],
        tx_bytes_series: vec![250_000_000; 35],
        ..InterfaceCounters::default()
    };
    HostCounters {
        interfaces: BTreeMap::from([
            ("ms0".into(), counters),
            ("lo".into(), InterfaceCounters::default()),
        ]),
        protocols: BTreeMap::from([
            ("Tcp.RetransSegs".into(), 3),
            ("TcpExt.DelayedACKs".into(), 1_234),
        ]),
    }
}
