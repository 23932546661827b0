//! The examples, spoken to by ping, nc and curl.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::capture::{Capture, Whose};
use crate::host::{self, Ip};
use crate::namespace::{Outcome, Stop, judged, not_started, output_of, say};
use crate::pattern::Pattern;

const DEVICE: &str = "judge0";
const ECHO_PORT: &str = "7007";
const UDP_PORT: &str = "7008";
const HTTP_PORT: &str = "8070";

/// A running example, killed in the end.
struct Example(Child);

impl Drop for Example {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The built example, which `cargo test --tests` alone does not build.
fn build(name: &str) -> PathBuf {
    if let Some(built) = std::env::var_os("MILLSTREAM_JUDGE_EXAMPLES") {
        return PathBuf::from(built).join(name);
    }
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build.args(["build", "--quiet", "--offline", "--package", "millstream", "--example", name]);
    if !cfg!(debug_assertions) {
        build.arg("--release");
    }
    build.args(["--manifest-path", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")]);
    let status = build.stdin(Stdio::null()).status().expect("cargo, which runs this test");
    assert!(status.success(), "example {name} does not build");
    let own = std::env::current_exe().expect("this test has a file");
    let profile = own.parent().and_then(Path::parent).expect("target/PROFILE/deps/TEST");
    profile.join("examples").join(name)
}

/// Starts an example on a TAP device and waits until it listens.
fn start(name: &str, more: &[&str]) -> Result<Example, Stop> {
    // Skips where a device is not to be had.
    drop(host::tap(true)?);
    let mut command = Command::new(build(name));
    command.args(["--tap", DEVICE]);
    for ip in [Ip::V4, Ip::V6] {
        let with_len = |addr| format!("{addr}/{}", ip.prefix_len());
        command.args(["--address", &with_len(ip.ours())]);
        command.args(["--host-address", &with_len(ip.kernel())]);
    }
    command.args(more).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut example = Example(command.spawn()?);
    let output = example.0.stdout.take().expect("a pipe");
    let mut lines = BufReader::new(output).lines();
    let listening = lines.by_ref().any(|line| line.is_ok_and(|line| line.starts_with("listening")));
    assert!(listening, "{name} ended before it listened");
    // Whatever else it says must not block it.
    std::thread::spawn(move || lines.for_each(drop));
    Ok(example)
}

/// Runs a program with `input`; returns what it prints.
fn converse(program: &str, args: &[&str], input: &[u8]) -> Result<Vec<u8>, Stop> {
    let mut child = Command::new(program)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| not_started(program, &error))?;
    let mut stdin = child.stdin.take().expect("a pipe");
    let input = input.to_vec();
    let writer = std::thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output()?;
    writer.join().expect("the writer")?;
    assert!(output.status.success(), "{program} {args:?}: {}", output.status);
    Ok(output.stdout)
}

fn contents(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Pattern::new(seed).fill(0, &mut bytes);
    bytes
}

fn ping(ip: Ip, more: &[&str]) -> Outcome {
    let to = ip.ours().to_string();
    let version = if ip == Ip::V4 { "-4" } else { "-6" };
    let args = [&[version, "-n", "-q", "-W", "5"], more, &[to.as_str()]].concat();
    let text = output_of("ping", &args)?;
    assert!(text.contains(" 0% packet loss"), "{text}");
    assert!(!text.contains("errors") && !text.contains("duplicates"), "{text}");
    let summary = text.lines().find(|line| line.contains("transmitted")).unwrap_or_default();
    say(&format!("ping {}: {summary}", args.join(" ")));
    Ok(())
}

fn pings() -> Outcome {
    for ip in [Ip::V4, Ip::V6] {
        ping(ip, &["-c", "3", "-i", "0.2"])?;
        ping(ip, &["-c", "3", "-i", "0.2", "-s", "0"])?;
        // As much as fits the MTU: 1500 less the headers of IP and ICMP.
        let most = if ip == Ip::V4 { "1472" } else { "1452" };
        ping(ip, &["-c", "3", "-i", "0.2", "-s", most, "-M", "do"])?;
        ping(ip, &["-c", "1000", "-i", "0.002"])?;
    }
    Ok(())
}

fn netcat() -> Outcome {
    for ip in [Ip::V4, Ip::V6] {
        let to = ip.ours().to_string();
        for len in [1, 1460, 100_000, 10 << 20] {
            let sent = contents(len as u64, len);
            // -N: shut the write side at the end of input; the echo of everything comes back.
            let got = converse("nc", &["-N", "-w", "30", &to, ECHO_PORT], &sent)?;
            assert!(got == sent, "nc {to}: {} of {len} bytes came back, or others", got.len());
        }
    }
    Ok(())
}

fn netcat_udp() -> Outcome {
    for ip in [Ip::V4, Ip::V6] {
        let to = ip.ours().to_string();
        for len in [1, 1000, 1452] {
            let sent = contents(len as u64, len);
            // It waits a second for more, then ends.
            let got = converse("nc", &["-u", "-w", "1", &to, UDP_PORT], &sent)?;
            assert!(got == sent, "nc -u {to}: {} of {len} bytes came back, or others", got.len());
        }
    }
    Ok(())
}

const FILES: [(&str, usize); 4] =
    [("empty", 0), ("one", 1), ("page.html", 5_000), ("deeper/large.bin", 64 << 20)];

/// A directory with the files, for the time of a test.
fn serve_files(offload: bool) -> Outcome {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |t| t.as_nanos());
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("judge-http-{now}"));
    std::fs::create_dir_all(root.join("deeper"))?;
    for (name, len) in FILES {
        std::fs::write(root.join(name), contents(len as u64, len))?;
    }
    let root_text = root.to_str().expect("a readable path");
    let options = ["--port", HTTP_PORT, "--root", root_text];
    let outcome = against("http_file_server", &options, offload, curl);
    std::fs::remove_dir_all(root)?;
    outcome
}

fn curl() -> Outcome {
    for host in ["10.70.0.2", "[fd70::2]"] {
        let url = |name: &str| format!("http://{host}:{HTTP_PORT}/{name}");
        for (name, len) in FILES {
            let got = converse("curl", &["-g", "-sS", "-f", "--max-time", "300", &url(name)], b"")?;
            assert!(got == contents(len as u64, len), "{}: {} bytes", url(name), got.len());
        }
        // Several files over as few connections as the server allows.
        let (one, page) = (url("one"), url("page.html"));
        let got = converse("curl", &["-g", "-sS", "-f", &page, &one, &page], b"")?;
        assert_eq!(got.len(), 10_001);
        // What is not there, and what lies outside the root.
        let code = ["-g", "-sS", "-o", "/dev/null", "-w", "%{http_code}", "--path-as-is"];
        for name in ["nothing", "../../../../etc/passwd", "%2e%2e/%2e%2e/etc/passwd"] {
            let got = converse("curl", &[&code[..], &[&url(name)]].concat(), b"")?;
            assert!(got.starts_with(b"4"), "{name}: {}", String::from_utf8_lossy(&got));
        }
    }
    Ok(())
}

/// Runs `talk` against a started example. Without offloads everything that passes the device is
/// captured and judged; with them the kernel's side has no complete checksums to show.
fn against(
    example: &str,
    options: &[&str],
    offload: bool,
    talk: impl FnOnce() -> Outcome,
) -> Outcome {
    if offload {
        let _running = start(example, options)?;
        return talk();
    }
    let capture = Capture::new(example);
    let _running = start(example, &[options, &["--no-offload"]].concat())?;
    let live = capture.live(DEVICE)?;
    talk()?;
    live.end()?;
    capture.judge(Whose::All)
}

judged! {
    fn ping_both_families() -> Outcome {
        against("echo", &["--port", ECHO_PORT], true, pings)
    }

    fn ping_both_families_without_offloads() -> Outcome {
        against("echo", &["--port", ECHO_PORT], false, pings)
    }

    fn nc_against_the_echo_server() -> Outcome {
        against("echo", &["--port", ECHO_PORT], true, netcat)
    }

    fn nc_against_the_echo_server_without_offloads() -> Outcome {
        against("echo", &["--port", ECHO_PORT], false, netcat)
    }

    fn nc_against_the_udp_responder() -> Outcome {
        against("udp_responder", &["--port", UDP_PORT], true, netcat_udp)
    }

    fn nc_against_the_udp_responder_without_offloads() -> Outcome {
        against("udp_responder", &["--port", UDP_PORT], false, netcat_udp)
    }

    fn curl_against_the_file_server() -> Outcome {
        serve_files(true)
    }

    fn curl_against_the_file_server_without_offloads() -> Outcome {
        serve_files(false)
    }
}
