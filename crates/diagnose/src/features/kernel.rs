//! Features from what BPF programs counted.

use millstream_record::Probes;

use super::{Seen, distance};

/// Counts that grow with what is moved, by their names in the record.
const PER_UNIT: [(&str, &str); 9] = [
    ("system_calls", "system_calls_per_unit"),
    ("involuntary_switches", "involuntary_switches_per_unit"),
    ("wakeup_ipis", "wakeup_ipis_sent_per_unit"),
    ("call_ipis", "call_ipis_sent_per_unit"),
    ("mutex_spins", "lock_spins_per_unit"),
    ("rw_lock_spins", "rw_lock_spins_per_unit"),
    ("minor_faults", "machine_page_faults_per_unit"),
    ("device_interrupts", "device_interrupts_per_unit"),
    ("napi_polls", "napi_polls_per_unit"),
];

pub(super) fn kernel(seen: &mut Seen, probes: &Probes) {
    let Some(kernel) = &probes.kernel else { return };
    for (count, feature) in PER_UNIT {
        if let Some(total) = kernel.total(count) {
            seen.per_unit(feature, total);
        }
    }
    // All of the machine; where the ends are busy nearly all are theirs.
    let moved: f64 = probes.tcp_info.iter().filter_map(|one| one.fields.get("bytes_acked")).sum();
    if let Some(calls) = kernel.total("system_calls").filter(|calls| *calls > 0.0 && moved > 0.0) {
        seen.put("bytes_per_system_call", moved / calls, distance::PROTOCOL);
    }
    if let Some(moved) = kernel.total("migrations") {
        seen.per_second("migrations_per_s", moved, distance::MACHINE);
    }
    if let Some(waited) = kernel.total("lock_waits_s") {
        seen.per_second("lock_wait_share", waited, distance::MACHINE);
    }
    if let (Some(polls), Some(packets)) = (kernel.total("napi_polls"), kernel.total("napi_packets"))
        && polls > 0.0
    {
        seen.put("packets_per_napi_poll", packets / polls, distance::PROTOCOL);
        let full = kernel.total("napi_full").unwrap_or(0.0);
        seen.put("full_napi_polls_share", full / polls, distance::PROTOCOL);
    }
    for (count, feature) in
        [("softirqs_s", "softirq_time_share"), ("device_interrupts_s", "interrupt_time_share")]
    {
        let Some(by_cpu) = kernel.counts.get(count) else { continue };
        for (cpu, time) in kernel.cpus.iter().zip(by_cpu) {
            let share = time / seen.span;
            seen.put(format!("cpu{cpu}.{feature}"), share, distance::CPU_TIME);
        }
        let most = by_cpu.iter().fold(0.0, |most: f64, time| most.max(*time));
        seen.put(format!("busiest_{feature}"), most / seen.span, distance::CPU_TIME);
    }
    // By what the other CPU is to run: the same function is called from many places.
    let mut callbacks = std::collections::BTreeMap::<&str, u64>::new();
    for call in &kernel.call_requests {
        *callbacks.entry(&call.callback).or_default() += call.count;
    }
    for (callback, count) in callbacks {
        // The laboratory itself makes these calls: it reads the counters of other CPUs, and
        // attaches programs.
        if callback.starts_with("__perf_event") || callback == "do_sync_core" {
            continue;
        }
        seen.per_unit(&format!("calls_of_{callback}_per_unit"), count as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::super::features;
    use millstream_record::{
        CrossCallRecord, KernelActivity, RunRecord, TcpInfoRecord, Window, keys,
    };

    #[test]
    fn counts_are_by_unit_and_times_are_shares() {
        let mut run = RunRecord::new("x");
        run.window = Window { start_s: 0.0, end_s: 2.0 };
        run.results.insert(keys::TRANSACTION_COUNT.into(), 100.0);
        run.probes.times_s = vec![0.0, 2.0];
        let count = |name: &str, by_cpu: [f64; 2]| (name.to_owned(), by_cpu.to_vec());
        let counts = [
            count("call_ipis", [150.0, 50.0]),
            count("softirqs_s", [0.5, 0.1]),
            count("system_calls", [900.0, 100.0]),
            count("napi_polls", [10.0, 10.0]),
            count("napi_packets", [100.0, 300.0]),
        ];
        let call = |callback: &str, count| CrossCallRecord {
            callback: callback.to_owned(),
            count,
            ..CrossCallRecord::default()
        };
        run.probes.kernel = Some(KernelActivity {
            cpus: vec![0, 1],
            counts: counts.into(),
            call_requests: vec![
                call("flush_tlb_func", 30),
                call("wake", 9),
                call("__perf_event_read", 7),
                call("do_sync_core", 7),
                call("flush_tlb_func", 20),
            ],
            ..KernelActivity::default()
        });
        run.probes.tcp_info = vec![TcpInfoRecord {
            fields: [("bytes_acked".to_owned(), 64_000.0)].into(),
            ..TcpInfoRecord::default()
        }];
        let found = features(&[&run]);
        let of =
            |name: &str| found.iter().find(|one| one.name == name).and_then(|one| one.values[0]);
        assert_eq!(of("call_ipis_sent_per_unit"), Some(2.0));
        assert_eq!(of("cpu0.softirq_time_share"), Some(0.25));
        assert_eq!(of("busiest_softirq_time_share"), Some(0.25));
        assert_eq!(of("packets_per_napi_poll"), Some(20.0));
        assert_eq!(of("calls_of_flush_tlb_func_per_unit"), Some(0.5));
        assert_eq!(of("calls_of___perf_event_read_per_unit"), None);
        assert_eq!(of("calls_of_do_sync_core_per_unit"), None);
        assert_eq!(of("system_calls_per_unit"), Some(10.0));
        assert_eq!(of("bytes_per_system_call"), Some(64.0));
        assert_eq!(of("migrations_per_s"), None, "was not measured");
    }
}
