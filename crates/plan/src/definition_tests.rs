use super::*;

fn stream() -> Workload {
    Workload::of("tcp_stream").unwrap()
}

const GOOD: &str = r#"
name = "buffers"
question = "Which \"buffer\"?"
workload = ["tcp_stream", "tcp_rr"]
repeats = 3
seed = 9
duration_s = 2
warmup_s = 0.5
[factors]
stack = "millstream"
offload = [true, false]
socket_buffer_bytes = ["auto", 65536]
[factors.tcp_stream]
direction = ["send", "recv"]
streams = [1, 4]
"#;

fn refusal(text: &str) -> String {
    let error = Definition::parse("x.toml", text).unwrap_err().to_string();
    assert!(!error.contains('\n'), "one line: {error}");
    assert!(error.starts_with("x.toml: "), "{error}");
    error
}

fn replaced(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from));
    refusal(&GOOD.replace(from, to))
}

#[test]
fn a_definition_is_read_and_comes_back_from_its_own_toml() {
    let definition = Definition::parse("x.toml", GOOD).unwrap();
    assert_eq!(definition.stacks, ["millstream"]);
    assert_eq!(definition.factors["offload"], ["on", "off"]);
    assert_eq!(definition.factors["socket_buffer_bytes"], ["auto", "65536"]);
    assert_eq!(definition.own_factors[&stream()]["streams"], ["1", "4"]);
    assert_eq!(Definition::parse("again", &definition.to_toml()).unwrap(), definition);
}

#[test]
fn errors_name_the_key_the_value_and_what_is_allowed() {
    let cases = [
        (replaced("name = \"buffers\"", ""), vec!["'name'", "missing"]),
        (replaced("\"buffers\"", "\"a b\""), vec!["'name'", "a b", "letters"]),
        (replaced("[\"tcp_stream\", \"tcp_rr\"]", "\"udp\""), vec!["'udp'", "tcp_stream, tcp_rr"]),
        (replaced("[\"tcp_stream\", \"tcp_rr\"]", "[]"), vec!["'workload'", "empty"]),
        (replaced("repeats = 3", "repeats = 0"), vec!["'repeats'", "0", "from 1 to"]),
        (replaced("repeats = 3", "repeats = \"x\""), vec!["'repeats'", "x", "from 1 to"]),
        (replaced("repeats = 3", "repeat = 3"), vec!["'repeat'", "repeats"]),
        (replaced("seed = 9", "seed = -1"), vec!["'seed'", "-1"]),
        (replaced("duration_s = 2", "duration_s = 0"), vec!["'duration_s'", "0", "seconds"]),
        (replaced("duration_s = 2", "duration_s = \"2\""), vec!["'duration_s'", "2"]),
        (replaced("duration_s = 2", "duration_s = nan"), vec!["'duration_s'", "NaN"]),
        (
            replaced("\"recv\"", "\"sned\""),
            vec!["factors.tcp_stream.direction", "'sned'", "send, recv, both"],
        ),
        (replaced("\"recv\"", "\"send\""), vec!["direction", "'send' twice"]),
        (replaced("[1, 4]", "[1, 5000]"), vec!["streams", "'5000'", "from 1 to 1024"]),
        (replaced("[1, 4]", "[1.5]"), vec!["streams", "1.5"]),
        (replaced("offload =", "ofload ="), vec!["ofload", "offload"]),
        (
            replaced("\"millstream\"", "\"lwip\""),
            vec!["factors.stack", "'lwip'", "kernel, millstream"],
        ),
        (replaced("[factors.tcp_stream]", "[factors.tcp_crr]"), vec!["factors.tcp_crr"]),
        (replaced("seed = 9", "seed = = 9"), vec!["not TOML", "line 6"]),
        (
            replaced("streams = [1, 4]", "stack = \"kernel\""),
            vec!["'factors.tcp_stream.stack'", "give them as 'factors.stack'"],
        ),
        (replaced("seed = 9", "= 9"), vec!["not TOML", "line 6"]),
        (replaced("seed = 9", "\"se\\ned\" = 9"), vec!["unknown key 'se ed'"]),
        (replaced("seed = 9", "steady_cpus = 1"), vec!["steady_cpus", "true, false"]),
    ];
    for (error, parts) in cases {
        for part in parts {
            assert!(error.contains(part), "'{part}' is not in: {error}");
        }
    }
}

#[test]
fn a_factor_must_belong_to_a_workload_that_runs() {
    let text = "name = \"x\"\nworkload = \"tcp_rr\"\n[factors]\ndirection = \"send\"\n";
    let error = refusal(text);
    assert!(error.contains("no factor 'direction' for tcp_rr"), "{error}");
    assert!(error.contains("request_bytes") && !error.contains("streams"), "{error}");
}

#[test]
fn a_factor_is_refused_while_the_one_it_belongs_to_is_off() {
    let text = |factors: &str| {
        format!(
            "name = \"x\"\nworkload = \"tcp_stream\"\n[factors]\npath = \"impaired\"\n{factors}"
        )
    };
    for (name, level, other, on) in [
        ("engine_cpu", "\"far\"", "engine", "\"net\""),
        ("loss_run_packets", "4", "loss_percent", "[0, 0.1]"),
        ("reorder_by_us", "500", "reorder_percent", "5"),
        ("queue_packets", "7", "rate_mbit", "100"),
    ] {
        let error = refusal(&text(&format!("{name} = {level}\n")));
        assert!(error.contains(&format!("'{name}' changes nothing while {other} is")), "{error}");
        let both = text(&format!("{name} = {level}\n{other} = {on}\n"));
        assert!(Definition::parse("x.toml", &both).is_ok(), "{both}");
    }
    let text = "name = \"x\"\nworkload = \"tcp_stream\"\n";
    let set = vec![("engine_cpu".to_owned(), vec!["far".to_owned()])];
    let overrides = Overrides { set, ..Overrides::default() };
    let error = Definition::parse("x", text).unwrap().apply(&overrides).unwrap_err().to_string();
    assert!(error.contains("--set engine=net") && !error.contains('\n'), "{error}");
}

#[test]
fn of_transactions_there_is_no_rival() {
    let text = |workload: &str| {
        format!(
            "name = \"x\"\nworkload = [{workload}]\n[factors]\npath = \"impaired\"\nrival = \"kernel\"\n"
        )
    };
    let error = refusal(&text("\"tcp_rr\""));
    assert!(error.contains("no factor 'rival' for tcp_rr"), "{error}");
    let both = Definition::parse("x", &text("\"tcp_rr\", \"tcp_stream\"")).unwrap();
    let runs = crate::plan(&both, 1);
    let with = |run: &&crate::PlannedRun| run.configuration.level("rival") != "none";
    assert!(runs.iter().filter(with).all(|run| run.configuration.workload == stream()));
    assert!(runs.iter().any(|run| with(&run)));
}

#[test]
fn what_the_command_line_got_wrong_is_named_as_it_was_written() {
    let none = Overrides::default;
    let set = |name: &str, level: &str| vec![(name.to_owned(), vec![level.to_owned()])];
    let cases = [
        (Overrides { duration_s: Some(-1.0), ..none() }, "'--duration' is -1; allowed: 0.1 to"),
        (Overrides { duration_s: Some(f64::NAN), ..none() }, "'--duration' is NaN; allowed: 0.1"),
        (Overrides { warmup_s: Some(-0.5), ..none() }, "'--warmup' is -0.5; allowed: 0 to"),
        (Overrides { repeats: Some(0), ..none() }, "'--repeats' is 0; allowed: a whole number"),
        (Overrides { seed: Some(1 << 63), ..none() }, "'--seed' is 9223372036854775808; allowed:"),
        (Overrides { set: set("streams", "-1"), ..none() }, "'--set streams' has '-1'; allowed:"),
        (
            Overrides { set: [set("mtu", "1500"), set("mtu", "9000")].concat(), ..none() },
            "'--set mtu' is there twice; give all its levels in one",
        ),
        (Overrides { set: set("stack", "lwip"), ..none() }, "'--set stack' has 'lwip'; allowed:"),
        (Overrides { set: set("nope", "1"), ..none() }, "'--set nope': no factor 'nope' for"),
        (
            Overrides { stacks: Some(vec!["lwip".into()]), ..none() },
            "'--stack' has 'lwip'; allowed:",
        ),
    ];
    for (overrides, expected) in cases {
        let error =
            Definition::parse("x", GOOD).unwrap().apply(&overrides).unwrap_err().to_string();
        assert!(error.contains(expected) && !error.contains('\n'), "{error}");
        assert!(!error.contains("_s'"), "a key of the file: {error}");
    }
}

#[test]
fn the_command_line_goes_before_the_file() {
    let mut definition = Definition::parse("x", GOOD).unwrap();
    let overrides = Overrides {
        stacks: Some(vec!["kernel".into()]),
        repeats: Some(1),
        duration_s: Some(0.5),
        steady_cpus: Some(false),
        set: vec![("direction".into(), vec!["both".into()])],
        ..Overrides::default()
    };
    assert!(definition.steady_cpus, "as nothing is said");
    definition.apply(&overrides).unwrap();
    assert!(!definition.steady_cpus);
    assert_eq!(Definition::parse("x", &definition.to_toml()).unwrap(), definition);
    assert_eq!(definition.stacks, ["kernel"]);
    assert_eq!((definition.repeats, definition.seed), (1, Some(9)));
    let direction = Factor::of("direction").unwrap();
    assert_eq!(definition.levels(stream(), direction), ["both"]);
    let wrong = Overrides { set: vec![("mtu".into(), vec!["9".into()])], ..Overrides::default() };
    let error = definition.apply(&wrong).unwrap_err().to_string();
    assert!(error.contains("--set mtu") && error.contains("'9'") && error.contains("1280"));
}

/// A file may name it all the same, as `--stack` measures a part of what is there.
#[test]
fn a_factor_of_a_stack_that_is_not_measured_is_refused() {
    let applied = |file: &str, stacks: &[&str], set: &[(&str, &str)]| {
        let mut definition = Definition::parse("x.toml", file).unwrap();
        let pair = |(name, level): &(&str, &str)| ((*name).to_owned(), vec![(*level).to_owned()]);
        let overrides = Overrides {
            stacks: Some(stacks.iter().map(|&stack| stack.to_owned()).collect()),
            set: set.iter().map(pair).collect(),
            ..Overrides::default()
        };
        definition.apply(&overrides).map_err(|error| error.to_string())
    };
    let both = GOOD.replace("[factors]", "[factors]\nengine = [\"local\", \"net\"]");
    for (name, level) in [("engine", "net"), ("link", "memory")] {
        assert_eq!(
            applied(GOOD, &["kernel"], &[(name, level)]).unwrap_err(),
            format!(
                "'--set {name}' changes nothing on kernel; leave it away, or give the stack, too (--stack \
                 kernel,millstream)"
            )
        );
        assert_eq!(applied(GOOD, &["kernel", "millstream"], &[(name, level)]), Ok(()));
    }
    assert_eq!(applied(GOOD, &["kernel"], &[("engine", "local")]), Ok(()));
    assert_eq!(applied(&both, &["kernel"], &[]), Ok(()));
}

#[test]
fn an_experiment_that_never_ends_is_refused_before_it_is_planned() {
    // Two of offload and two of buffers; tcp_stream has four times as many.
    let mut definition = Definition::parse("x", GOOD).unwrap();
    assert_eq!(definition.block_runs(), 20);
    assert_eq!(crate::plan(&definition, 1).len(), 3 * 20);
    let repeats = |repeats| Overrides { repeats: Some(repeats), ..Overrides::default() };
    definition.apply(&repeats(5_000)).unwrap();
    let error = definition.apply(&repeats(5_001)).unwrap_err().to_string();
    assert!(error.contains("20 configurations, 'repeats' 5001: 100020 runs"), "{error}");
    assert!(error.contains("allowed: up to 100000"), "{error}");

    let all = |low: u32, high: u32| (low..=high).map(|level| level.to_string()).collect();
    let mut huge = repeats(limits::REPEATS_LIMIT);
    for (factor, low, high) in [("streams", 1, 1024), ("mtu", 1280, 3000)] {
        huge.set.push((factor.to_owned(), all(low, high)));
    }
    for factor in ["message_bytes", "socket_buffer_bytes", "peer_buffer_bytes", "request_bytes"] {
        huge.set.push((factor.to_owned(), all(5_000, 6_000)));
    }
    let mut definition = Definition::parse("x", GOOD).unwrap();
    let error = definition.apply(&huge).unwrap_err().to_string();
    assert!(error.contains(&format!("{} runs", u64::MAX)), "{error}");
}
