//! Outputs that are read, and those that are refused.

use super::known::known_figure;
use super::*;
use millstream_record::keys;

/// As a shell parts them, where quotes do not lie in each other.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (at, part) in text.split('\'').enumerate() {
        match at % 2 {
            0 => words.extend(part.split_whitespace().map(str::to_owned)),
            _ => words.push(part.to_owned()),
        }
    }
    words
}

#[test]
fn figures_of_known_programs_are_read() {
    let of = |command: &str, output: &str| value(&known_figure(&words(command))?, output);
    let iperf3 = "[  5]   0.00-1.00   sec  3.12 GBytes  26.8 Gbits/sec    0             sender\n\
                  [  5]   0.00-1.00   sec  3.11 GBytes  26.7 Gbits/sec                  receiver\n";
    assert_eq!(of("/usr/bin/iperf3 -c 192.0.2.1", iperf3), Some(26.7e9));
    let json = r#"{"end":{"sum_received":{"bits_per_second":2.5e9}}}"#;
    assert_eq!(of("iperf3 -J -c 192.0.2.1", json), Some(2.5e9));
    let udp = r#"{"end":{"sum":{"bits_per_second":1e6}}}"#;
    assert_eq!(of("iperf3 -u -J -c 192.0.2.1", udp), Some(1e6));
    let netperf =
        "Socket  Socket  Message  Elapsed\n bytes\n\n131072  16384  16384    10.00    9412.37   \n";
    assert_eq!(of("netperf -H 192.0.2.1", netperf), Some(9412.37));
    assert_eq!(of("wrk -c 9 http://x", "Requests/sec:  12345.67\n"), Some(12_345.67));
    assert_eq!(of("ab -n 9 http://x/", "Requests per second:    99.5 [#/sec]"), Some(99.5));
    assert_eq!(of("sockperf pp", "sockperf: Summary: Latency is 7.25 usec"), Some(7.25));
    assert_eq!(of("tcp_rr -c", "throughput=1234.5\n"), Some(1234.5));
    assert!(known_figure(&words("somebody -x")).is_none());
    assert_eq!(of("wrk", "no such line"), None);
}

fn value(figure: &Figure, output: &str) -> Option<f64> {
    figure.read(output).ok().map(|reading| reading.value)
}

#[test]
fn what_is_no_number_is_told_and_none_is_cut_out_of_another() {
    let read = |pattern: &str, output: &str| {
        let reading = Figure::parse(pattern, true).unwrap().read(output);
        reading.map(|reading| reading.value)
    };
    let good = [
        (r"rate=(\S+)", "rate=-1.5", -1.5),
        (r"rate=(\S+)", "rate=1e3", 1000.0),
        (r"rate=(\S+)", "\x1b[1;32mrate=\x1b[0m\x1b[38;5;9m12.5\x1b[m\x1b[K", 12.5),
        (r"(\d+)\.\d+ s", "12.9 s", 12.0),
        (r"at (\d+)", "at 12, 13", 12.0),
        (r"^GET,(\d+),", "GET,12345,0.5", 12_345.0),
        (r",(\d+)$", "1,0.5,98765", 98_765.0),
        (r",([0-9]+)$", "20261130,10.0.0.1,5001,3,0.0-10.0,987654321", 987_654_321.0),
        (r"^([\d.]+),", "0.5,7", 0.5),
        (r"at (\d+)", "at 12.", 12.0),
        (r"([\d.]+)ms", "a1.5ms", 1.5),
        (r"([\d.]+) ?([kKMG]?i?)B", "2.5 kB", 2500.0),
        (r"([\d.]+) ?([kKMG]?i?)B", "2 MiB", 2_097_152.0),
        (r"([\d.]+)([mun]?)s", "900us", 900e-6),
    ];
    for (pattern, output, value) in good {
        assert_eq!(read(pattern, output), Ok(value), "{pattern} {output}");
    }
    let bad = [
        (r"rate=(\S+)", "rate=NaN", r#"its figure is "NaN", which is no number"#),
        (r"rate=(\S+)", "rate=1e999", r#"its figure is "1e999", which is no number"#),
        (r"rate=(\S+)", "rate=inf", "no number"),
        (r"rate=(\S+)", "rate=1,234.5", r#"its figure is "1,234.5", which is no number"#),
        (r"rate=(\d+)", "rate=1,234.5", r#"takes "1" alone, out of "rate=1,234.5""#),
        (r"^GET,(\d)", "GET,12345,0.5", r#"takes "1" alone"#),
        (r"rate=(\d+)", "rate=12.5", r#"takes "12" alone, out of "rate=12.5""#),
        (r"(\d+) req/s", "1,234 req/s", r#"takes "234" alone, out of "1,234""#),
        (r"rate.*(\d+)", "rate: 123\n", r#"takes "3" alone, out of "123""#),
        (r"rate=(\d)", "rate=123\n", r#"takes "1" alone"#),
        (r"([\d.]+) (.)B", "2 xB", r#"the prefix of its figure is "x""#),
        (r"rate=(\S+)", "nothing", "its output has no figure (--figure)"),
    ];
    for (pattern, output, why) in bad {
        let said = read(pattern, output).unwrap_err();
        assert!(said.contains(why), "{pattern} {output}: {said}");
    }
    let path = Figure::parse("json:rate", true).unwrap();
    for (document, why) in [
        (r#"{"rate": "1,234"}"#, r#"its figure is "1,234", which is no number"#),
        (r#"{"rate": null}"#, r#"its figure is "null""#),
        (r#"{"rate": 1e999}"#, "its output has no figure"),
        (r#"{"rat": 1}"#, "its output has no figure"),
    ] {
        let said = path.read(document).unwrap_err();
        assert!(said.contains(why), "{document}: {said}");
    }
}

#[test]
fn a_unit_with_another_prefix_is_another_one() {
    let of =
        |pattern: &str, output: &str| Figure::parse(pattern, true).unwrap().read(output).unwrap();
    let plain = |output: &str| of(r"rate=([\d.]+)", output);
    for (one, other, differs) in [
        ("rate=1 Kbits/sec", "rate=1 Mbits/sec", true),
        ("rate=1 bits/sec", "rate=1 Mbits/sec", true),
        ("rate=1 Mbits/sec", "rate=1 bits/sec", true),
        ("rate=900us", "rate=1.2ms", true),
        ("rate=1s", "rate=900ms", true),
        ("rate=1KiB/s", "rate=1MiB/s", true),
        ("rate=1 MB/s", "rate=2 MB/s", false),
        ("rate=9876, x", "rate=10.1k, x", true),
        ("rate=998.7k", "rate=1.02M", true),
        ("rate=9876 IOPS", "rate=10.1k IOPS", true),
        ("rate=1.2k", "rate=1.4k", false),
        ("rate=1 ok", "rate=2 warning", false),
        ("rate=1", "rate=2 ms", false),
    ] {
        let differ = plain(one).has_other_prefix(&plain(other));
        assert_eq!(differ, differs, "{one}, {other}");
    }
    // Where a group takes the prefix nothing is left to differ.
    let with = |output: &str| of(r"rate=([\d.]+)([KM]?)B", output);
    assert!(!with("rate=1KB").has_other_prefix(&with("rate=1MB")));
}

/// Output of Debian 12's programs over the loopback interface.
#[test]
fn outputs_as_programs_wrote_them_are_read_in_base_units() {
    const MIB_PER_S: f64 = 8.0 * 1024.0 * 1024.0;
    macro_rules! said {
        ($command:literal, $file:literal) => {
            ($command, $file, include_str!(concat!("../outputs/", $file, ".txt")))
        };
    }
    let outputs = [
        (said!("iperf3 -c 127.0.0.1", "iperf3"), 3.48e9),
        (said!("iperf3 -c 127.0.0.1 -P 2", "iperf3-streams"), 3.14e9),
        (said!("iperf3 -c 127.0.0.1 -f M", "iperf3-bytes"), 463.0 * MIB_PER_S),
        (said!("iperf3 -c 127.0.0.1 -R -J", "iperf3-reverse-json"), 3_523_077_739.449_205),
        (said!("iperf3 -c 127.0.0.1 -u", "iperf3-udp"), 50.0e6),
        (said!("iperf3 -c 127.0.0.1 -u -J", "iperf3-udp-json"), 50_055_838.756_019_6),
        (said!("iperf3 -c 127.0.0.1 --bidir", "iperf3-both"), 2.67e9),
        (said!("iperf3 -c 127.0.0.1 --bidir -J", "iperf3-both-json"), 1_969_467_560.342_999_5),
        (said!("iperf -c 127.0.0.1", "iperf"), 4.42e9),
        (said!("iperf -c 127.0.0.1 -P 2", "iperf-streams"), 4.53e9),
        (said!("iperf -c 127.0.0.1 -f M", "iperf-bytes"), 1080.0 * MIB_PER_S),
        (said!("iperf -c 127.0.0.1 -u", "iperf-udp"), 52.4e6),
        (said!("wrk -d 1 http://127.0.0.1/", "wrk"), 979.64),
        (said!("ab -n 200 http://127.0.0.1/", "ab"), 558.42),
        (said!("redis-benchmark -t get", "redis-benchmark"), 43_572.98),
        (said!("redis-benchmark -t get -q", "redis-benchmark-quiet"), 31_446.54),
        (said!("redis-benchmark -t get --csv", "redis-benchmark-csv"), 26_809.65),
        (said!("pgbench -S -T 1", "pgbench"), 23_081.887_438),
        (said!("sockperf ping-pong --tcp", "sockperf-ping-pong"), 35.923),
        (said!("sockperf under-load --tcp", "sockperf-under-load"), 25.334),
        (said!("sockperf throughput --tcp", "sockperf-throughput"), 1543.144 * 1_048_576.0),
    ];
    for ((command, file, output), expected) in outputs {
        let figure = known_figure(&words(command)).unwrap();
        assert_eq!(value(&figure, output), Some(expected), "{file}");
        let is_time = figure.key.ends_with("_us");
        assert_eq!(figure.higher_is_better, !is_time, "{file}");
    }
}

/// As their documentation shows what they write.
#[test]
fn outputs_of_programs_that_debian_does_not_have_are_read() {
    for (command, output, expected) in [
        (
            "hey -n 9 http://x",
            "Summary:\n  Average:\t0.03 secs\n  Requests/sec:\t146.5375\n",
            146.5375,
        ),
        ("oha -n 9 http://x", "Summary:\n  Requests/sec:\t4393.6538\n", 4393.6538),
        ("oha -j http://x", r#"{"summary":{"successRate":1.0,"requestsPerSec":9.5}}"#, 9.5),
        (
            "fortio load http://x",
            "# target 99.9% 0.02\nAll done 40000 calls (plus 4 warmup) 0.5 ms avg, 7989.9 qps\n",
            7989.9,
        ),
        ("tcp_stream -c", "local_throughput=0\nremote_throughput=94371840000\n", 94_371_840_000.0),
        (
            "tcp_stream -c -rw",
            "throughput_opt=Mb\nnum_samples=10\nthroughput=9412.50\nthroughput_units=Mbit/s\n\
             correlation_coefficient=1.00\nlocal_throughput=9412500000\nremote_throughput=9300000000\n",
            9412.5e6,
        ),
        ("tcp_stream", "throughput=180.17\nthroughput_units=Gbit/s\n", 180.17e9),
        ("tcp_stream", "throughput=2.00\nthroughput_units=Gibit/s\n", 2_147_483_648.0),
        ("tcp_stream", "throughput=64.00\nthroughput_units=bits/s\n", 64.0),
        ("tcp_stream", "throughput=3.50\nthroughput_units=10^9bits/s\n", 3.5e9),
        ("udp_stream", "throughput=5.00\nthroughput_units=MB/s\n", 40e6),
        ("udp_stream", "throughput=5.00\nthroughput_units=MiB/s\n", 41_943_040.0),
        ("udp_stream", "throughput=5.00\nthroughput_units=MBytes/s\n", 41_943_040.0),
        ("tcp_stream", "throughput=9412.50\ntime_end=1.5\n", 9412.5e6),
        (
            "iperf3 -c x --bidir -f M",
            "[  5][TX-C]   0.00-1.00   sec   324 MBytes   324 MBytes/sec    5             sender\n\
             [  5][TX-C]   0.00-1.02   sec   324 MBytes   318 MBytes/sec                  receiver\n\
             [  7][RX-C]   0.00-1.00   sec   302 MBytes   302 MBytes/sec    1             sender\n\
             [  7][RX-C]   0.00-1.02   sec   296 MBytes   290 MBytes/sec                  receiver\n",
            318.0 * 8_388_608.0,
        ),
        (
            "iperf3 -c x --bidir -P 2 -f M",
            "[  5][TX-C]   0.00-1.02   sec   162 MBytes   159 MBytes/sec                  receiver\n\
             [SUM][TX-C]   0.00-1.02   sec   324 MBytes   318 MBytes/sec                  receiver\n\
             [ 11][TX-C]   0.00-1.02   sec   162 MBytes   159 MBytes/sec                  receiver\n\
             [SUM][RX-C]   0.00-1.02   sec   296 MBytes   290 MBytes/sec                  receiver\n",
            318.0 * 8_388_608.0,
        ),
        (
            "sockperf pp --full-rtt",
            "sockperf: \x1b[2;35m====> avg-rtt=71.846 (std-dev=192.141)\x1b[0m\n\
             sockperf: Summary: Round trip is 71.846 usec\n",
            71.846,
        ),
        ("sockperf ul --full-rtt", "sockperf: ====> avg-rtt=71.5 (std-dev=1.000)\n", 71.5),
        (
            "sockperf tp --giga-size",
            "sockperf: Summary: BandWidth is 0.193 GBps (1.543 Gbps)\n",
            1.543 * 1_048_576e3,
        ),
        (
            "memtier_benchmark -s x",
            "ALL STATS\nType         Ops/sec     Hits/sec\nSets        4531.20          ---\nTotals     49843.15       449.6\n",
            49_843.15,
        ),
        (
            "iperf3 -c x --json-stream",
            "{\"event\":\"interval\",\"data\":{\"sum\":{\"bits_per_second\":3}}}\n{\"event\":\"end\",\"data\":{\"streams\":[],\
             \"sum_sent\":{\"bits_per_second\":8.5,\"sender\":true},\"sum_received\":{\"seconds\":1,\"bits_per_second\":7.25,\
             \"sender\":true}}}\n",
            7.25,
        ),
    ] {
        assert_eq!(
            value(&known_figure(&words(command)).unwrap(), output),
            Some(expected),
            "{command}"
        );
    }
}

#[test]
fn a_known_program_is_known_whatever_starts_it() {
    let json = "warning: no affinity\n{\"end\":{\"sum_received\":{\"bits_per_second\":7}}}\n";
    for command in [
        "taskset -c 1 iperf3 -J -c 192.0.2.1",
        "sh -c 'echo $$ >/sys/fs/cgroup/x/cgroup.procs; exec iperf3 -J -c 192.0.2.1'",
        "env A=b nsenter --net=/run/netns/a /usr/bin/iperf3 --json -c 192.0.2.1",
        "bash -c '(exec \"/usr/bin/iperf3\" -J) | cat'",
    ] {
        let figure = known_figure(&words(command)).unwrap_or_else(|| panic!("{command}"));
        assert_eq!((figure.key.as_str(), value(&figure, json)), (keys::THROUGHPUT, Some(7.0)));
    }
    // A name inside another word is none.
    for command in ["sh -c 'cat lab ab.txt'", "sh -c 'my-iperf3x'", "grep wrkx"] {
        assert!(known_figure(&words(command)).is_none(), "{command}");
    }
    let folder = std::env::temp_dir().join(format!("ms-figure-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("bench");
    std::fs::write(&path, "#!/bin/sh\nexec wrk -d1 \"$1\"\n").unwrap();
    let figure = known_figure(&[path.display().to_string(), "http://x".into()]).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(figure.key, "requests_per_s");
}

#[test]
fn a_figure_is_named_by_a_pattern_a_path_or_a_program() {
    let figure = Figure::parse(r"rate=(\d+)", true).unwrap();
    assert_eq!(value(&figure, "rate=1 rate=22"), Some(22.0));
    let path = Figure::parse("json:a.1.b", false).unwrap();
    assert_eq!(value(&path, r#"{"a":[0,{"b":7}]}"#), Some(7.0));
    assert_eq!(value(&path, r#"{"a":[0,{"b":"7.5"}]}"#), Some(7.5));
    assert_eq!(value(&path, "{}"), None);
    let first = Figure::parse("json:0.rate", false).unwrap();
    assert_eq!(value(&first, "[note] x\n[{\"rate\":3}]"), Some(3.0));
    let named = Figure::parse("sockperf", true).unwrap();
    assert!(!named.higher_is_better, "what is known of it goes before what is not said");
    assert_eq!(value(&named, "avg-latency=3.5 (std-dev=1)"), Some(3.5));
    for bad in ["rate=(", "rate"] {
        let error = Figure::parse(bad, true).unwrap_err().to_string();
        assert!(error.starts_with("--figure") && error.lines().count() == 1, "{error}");
    }
}

/// Netperf's other forms, and two tests in one output.
#[test]
fn netperf_is_read_without_heads_with_cpus_in_columns_and_twice() {
    let figure = Figure::parse("netperf", true).unwrap();
    let banner = "MIGRATED TCP STREAM TEST from 0.0.0.0 port 0 AF_INET\n";
    for (output, expected, unit) in [
        ("131072  16384  16384    1.01     5596.89   \n", 5596.89, None),
        ("131072 16384 16384 1.00 5477.98 100.00 -1.00 2.991 -1.000\n", 5477.98, None),
        ("16384 131072 1 1 1.00 24796.47 9.0 9.0 80.6 80.6\n16384 131072\n", 24_796.47, None),
        ("212992 65507 1.00 44058 0 22989.79\n212992 1.00 24591 12831.77\n\n", 12_831.77, None),
        (
            "212992 65507 1.00 44058 0 22989.7 50.0 2.1\n212992 1.00 24591 128.7 50.0 2.1\n",
            128.7,
            None,
        ),
        ("   5596.89 \n", 5596.89, None),
        ("4194304 1026899 16384 1.00 5642.36 10^6bits/s \n", 5642.36, Some("10^6bits/s")),
        // After a number of a script's own, and of two tests the last.
        (
            "1\n16384 131072 1 1 1.00 318.33\n16384 131072\n16384 131072 1 1 1.00 7.5\n16384 131072\n",
            7.5,
            None,
        ),
        (
            "!!! WARNING\n!!! Confidence intervals: Throughput : 5.1%\n131072 16384 16384 1.0 9.5\n",
            9.5,
            None,
        ),
        (
            "Elapsed Time (sec),Throughput,Throughput Units\n1.00,5642.36,10^9bits/s\n",
            5642.36,
            Some("10^9bits/s"),
        ),
        (
            "Throughput Units,Throughput Confidence Width (%),Throughput\nTrans/s,-1.0,19.5\n",
            19.5,
            Some("Trans/s"),
        ),
        ("THROUGHPUT_UNITS=Trans/s\nTHROUGHPUT=19.5\nLOCAL_CPU_UTIL=99\n", 19.5, Some("Trans/s")),
        (
            "Throughput Throughput Throughput\nUnits      Confidence\n           Width (%)\nTrans/s    -1.0       7.5\n",
            7.5,
            Some("Trans/s"),
        ),
    ] {
        let expected = Reading { value: expected, unit: unit.unwrap_or_default().to_owned() };
        assert_eq!(figure.read(output), Ok(expected.clone()), "{output}");
        let headed = format!("{banner}{output}");
        let read = figure.read(&headed).map(|reading| reading.value);
        assert!(read == Ok(expected.value) || output.starts_with('1'), "{headed}: {read:?}");
    }
    let giga = figure.read(include_str!("../outputs/netperf-TCP_STREAM-fg.txt")).unwrap();
    let mega = figure.read(include_str!("../outputs/netperf-TCP_STREAM.txt")).unwrap();
    assert!(giga.has_other_prefix(&mega) && !giga.has_other_prefix(&giga));
    for (output, why) in [
        ("establish control: are you sure there is a netserver listening\n", "has no figure"),
        ("16384 131072 1 1\n", "has no line whose rate is known"),
        ("131072 16384 16384 1.00 -5477.98\n", "below zero"),
        ("THROUGHPUT=1.8e19\n", "more than any counter holds"),
    ] {
        let said = figure.read(output).unwrap_err();
        assert!(said.contains(why), "{output}: {said}");
    }
}

/// Outputs of tests that failed, which have figures all the same.
#[test]
fn a_rate_that_none_can_have_is_left_out_with_the_reason() {
    let document =
        |rest: &str| format!(r#"{{"end":{{"sum_received":{{"bits_per_second":{rest}}}}}}}"#);
    let failed = document("5e9").replacen('{', r#"{"error":"control socket has closed","#, 1);
    for (program, output, why) in [
        ("iperf3", failed.as_str(), "control socket has closed"),
        ("json:end.sum_received.bits_per_second", &failed, "control socket has closed"),
        ("iperf3", &document("-4e9"), "below zero"),
        ("iperf3", &document("18446744073709551615"), "more than any counter holds"),
        ("json:end.sum_received.bits_per_second", &document("1.8e19"), "more than any counter"),
        ("iperf3", &document("2e15"), "more than any link carries"),
        ("iperf3", "[  5] 0.00-1.00 sec  1 GBytes  -4.00 Gbits/sec   receiver\n", "below zero"),
        (
            "iperf3",
            "[  5] 0.00-1.00 sec  1 GBytes  18446744073 Gbits/sec   receiver\n",
            "more than",
        ),
        ("iperf3", "[  5] 0.00-1.00 sec  1 GBytes  4,00 Gbits/sec   receiver\n", "alone"),
        ("wrk", "Requests/sec:  -1\n", "below zero"),
        ("wrk", "Requests/sec:\n  7 errors\n", "has no figure"),
        ("sockperf", "avg-latency=-3.5 (std-dev=1)", "below zero"),
        (r"rate=([\d.]+)", "rate=1.5e+06", "\"1.5\" alone"),
        (r"([\d.]+) req/s", "1.5e+06 req/s", "\"06\" alone"),
        (r"rate: ?-?([\d.]+)", "rate: -5", "\"5\" alone"),
        (r"([\d.]+) req/s", "1\u{202f}234.5 req/s", "\"234.5\" alone"),
        (r"rate=(\d+)", "rate=0x1f", "\"0\" alone"),
        (r"rate=(\S+)", "rate=18446744073709551615", "more than any counter holds"),
    ] {
        let said = Figure::parse(program, true).unwrap().read(output).unwrap_err();
        assert!(said.contains(why), "{program} {output}: {said}");
    }
    let read = |pattern: &str, output: &str| value(&Figure::parse(pattern, true).unwrap(), output);
    assert_eq!(read("iperf3", &document("0")), Some(0.0), "the least there is");
    assert_eq!(read("wrk", "Requests/sec:  1.5e+06\n"), Some(1.5e6));
    assert_eq!(read(r"n=(-?[0-9.]+)", "n=-3"), Some(-3.0), "of a figure of one's own");
    assert_eq!(read(r"in 10-(\d+) s", "in 10-20 s"), Some(20.0));
    assert_eq!(read("json:error", r#"{"error":"0.5"}"#), Some(0.5));
}

/// Programs whose rate has the requests that failed.
#[test]
fn a_rate_of_requests_that_failed_does_not_count() {
    let wrk = |failed: &str| {
        format!(
            "  71488 requests in 1.00m, 31.52MB read\n\
             \x20 Socket errors: connect 0, read 0, write 0, timeout 792\n\
             {failed}Requests/sec:   1191.42\nTransfer/sec:    537.93KB\n"
        )
    };
    let ab = |failed: &str| {
        format!(
            "Complete requests:      200\n{failed}Total transferred:      68400 bytes\n\
             Requests per second:    558.42 [#/sec] (mean)\n"
        )
    };
    let hey = |statuses: &str| {
        format!(
            "Summary:\n  Total:\t1.0000 secs\n  Requests/sec:\t1000.5\n\nResponse time histogram:\n\
             \x20 0.001 [990]\t|∎∎∎\n\nStatus code distribution:\n{statuses}\n"
        )
    };
    let oha = |statuses: &str| {
        format!(
            "Summary:\n\x1b[32;1m  Success rate:\t100.00%\x1b[0m\n  Requests/sec:\t16511.0\n\n\
             Response time histogram:\n  0.001 ms [990] |\x1b[32m■■■\x1b[39m\n\n\
             Status code distribution:\n{statuses}"
        )
    };
    let oha_json = |codes: &str, errors: &str| {
        format!(
            "{{\n  \"summary\": {{\n    \"successRate\": 1.0,\n    \"requestsPerSec\": 16511.0,\n\
             \x20   \"totalData\": 12000,\n    \"sizePerRequest\": 11\n  }},\n\
             \x20 \"responseTimeHistogram\": {{\n    \"0.0012\": 1000\n  }},\n\
             \x20 \"statusCodeDistribution\": {{{codes}}},\n  \"errorDistribution\": {{{errors}}}\n}}\n"
        )
    };
    let fortio = |codes: &str| {
        format!(
            "Sockets used: 9 (for perfect keepalive, would be 2)\n{codes}\
             All done 20 calls (plus 0 warmup) 3.492 ms avg, 454.2 qps\n"
        )
    };
    let list = "   (Connect: 0, Receive: 3, Length: 190, Exceptions: 1)\n";
    let bad = [
        ("wrk", wrk("  Non-2xx or 3xx responses: 65066\n"), "65066"),
        ("ab", ab("Failed requests:        0\nNon-2xx responses:      200\n"), "200"),
        ("ab", ab(&format!("Failed requests:        194\n{list}")), "4"),
        ("hey", hey("  [200]\t900 responses\n  [502]\t30 responses\n"), "30"),
        (
            "hey",
            hey("  [200]\t900 responses\n\nError distribution:\n  [11]\tGet \"http://x\": EOF\n"),
            "11",
        ),
        ("oha", oha("\x1b[31m  [502] 16511 responses\x1b[39m\n"), "16511"),
        (
            "oha",
            oha("  [200] 99 responses\n\nError distribution:\n  [50] aborted due to deadline\n\
                 \x20 [7] connection error: Connection refused (os error 111)\n"),
            "7",
        ),
        ("oha", oha_json("\n    \"200\": 5,\n    \"502\": 999\n  ", ""), "999"),
        (
            "oha",
            oha_json(
                "\"200\":5",
                "\n    \"aborted due to deadline\": 50,\n    \"operation timed out\": 6\n  ",
            ),
            "6",
        ),
        ("fortio", fortio("Code 200 : 1 (5.0 %)\nCode 503 : 19 (95.0 %)\n"), "19"),
        ("fortio", fortio("Code  -1 : 2 (10.0 %)\nCode 200 : 18 (90.0 %)\n"), "2"),
        ("fortio", r#"{"ActualQPS": 9.5, "RetCodes": {"200": 1, "503": 19}}"#.to_owned(), "19"),
    ];
    for (program, output, count) in bad {
        let figure = Figure::parse(program, true).unwrap();
        let said = figure.failed(&output);
        let expected = format!("{count} of its requests failed, more than 1 %");
        assert_eq!(said.as_deref(), Some(expected.as_str()), "{program} {output}");
        assert!(figure.read(&output).is_ok(), "{program} {output}");
    }
    let varying = "   (Connect: 0, Receive: 0, Length: 190, Exceptions: 0)\n";
    let good = [
        ("wrk", wrk("")),
        ("wrk", wrk("  Non-2xx or 3xx responses: 48\n")),
        ("ab", ab("Failed requests:        0\n")),
        ("ab", ab(&format!("Failed requests:        190\n{varying}"))),
        ("hey", hey("  [200]\t900 responses\n  [301]\t90 responses\n  [502]\t9 responses\n")),
        (
            "oha",
            oha("  [200] 99 responses\n\nError distribution:\n  [50] aborted due to deadline\n"),
        ),
        ("oha", oha_json("\"200\":1000,\"502\":9", "\n    \"aborted due to deadline\": 50\n  ")),
        ("fortio", fortio("Code 200 : 20 (100.0 %)\n")),
        ("redis-benchmark", "GET: 31446.54 requests per second, p50=0.623 msec\n".to_owned()),
    ];
    for (program, output) in good {
        let figure = Figure::parse(program, true).unwrap();
        assert_eq!(figure.failed(&output), None, "{program} {output}");
        assert!(figure.read(&output).is_ok(), "{program} {output}");
    }
    // A pattern of one's own says what it counts.
    let own = Figure::parse(r"Requests/sec: +(\S+)", true).unwrap();
    assert_eq!(own.failed(&wrk("  Non-2xx or 3xx responses: 65066\n")), None);
}

#[test]
fn a_known_program_is_read_from_where_it_has_its_figure() {
    let (with, without) = ("Requests/sec: 7\n", "Requests/sec: many\n");
    let known = Figure::parse("wrk", true).unwrap();
    let own = Figure::parse(r"Requests/sec: (\d)", true).unwrap();
    assert_eq!(known.output_of(without, with), with);
    assert_eq!(known.output_of("Requests/sec: 8\n", with), "Requests/sec: 8\n");
    assert_eq!(known.output_of(without, without), without);
    assert_eq!(own.output_of(without, with), without);
}
