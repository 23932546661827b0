//! Fast Open with the kernel's own at the other end, and the kernel's word for it:
//! `TCPI_OPT_SYN_DATA` in its `tcp_info` says that data in the SYN was sent and acknowledged, or
//! received.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use millstream::local::{Stack, TcpListener, TcpStream};
use millstream::tcp::{Config, FastOpenStatus};

use crate::host::{self, Ip};
use crate::namespace::{Outcome, Stop, judged, not_started, say};

const PORT: u16 = 7009;

/// Serves three connections: reads a question, says whether it came with the SYN.
const SERVER: &str = "
import socket, sys
family = socket.AF_INET6 if ':' in sys.argv[1] else socket.AF_INET
listener = socket.socket(family, socket.SOCK_STREAM)
listener.setsockopt(socket.IPPROTO_TCP, 23, 16)
listener.bind((sys.argv[1], int(sys.argv[2])))
listener.listen(16)
print('listening', flush=True)
for _ in range(3):
    stream, _ = listener.accept()
    question = stream.recv(100)
    with_syn = stream.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)[5] & 32
    stream.sendall(b'fast ' if with_syn else b'plain')
    stream.close()
    print(question.decode(), bool(with_syn), flush=True)
";

/// Opens three connections, the question with the SYN where the kernel may, and says whether it
/// did.
const CLIENT: &str = "
import socket, sys
family = socket.AF_INET6 if ':' in sys.argv[1] else socket.AF_INET
for _ in range(3):
    stream = socket.socket(family, socket.SOCK_STREAM)
    stream.sendto(b'question', 0x20000000, (sys.argv[1], int(sys.argv[2])))
    answer = stream.recv(100)
    acked = stream.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)[5] & 32
    stream.close()
    print(answer.decode(), bool(acked), flush=True)
";

/// Switches both sides of the kernel's Fast Open on in this namespace.
fn allow() -> Outcome {
    std::fs::write("/proc/sys/net/ipv4/tcp_fastopen", "3")
        .map_err(|error| Stop::Absent(format!("net.ipv4.tcp_fastopen: {error}")))
}

fn python(program: &str, addr: SocketAddr) -> Result<Child, Stop> {
    let (ip, port) = (addr.ip().to_string(), addr.port().to_string());
    let mut command = Command::new("python3");
    command.args(["-c", program, &ip, &port]).stdin(Stdio::null()).stdout(Stdio::piped());
    command.spawn().map_err(|error| not_started("python3", &error))
}

fn fast() -> Config {
    Config::default().fast_open(true)
}

fn millstream_opens(ip: Ip) -> Outcome {
    let tap = host::tap(true)?;
    allow()?;
    let addr = SocketAddr::new(ip.kernel(), PORT);
    let mut server = python(SERVER, addr)?;
    let mut lines = BufReader::new(server.stdout.take().expect("a pipe")).lines();
    assert_eq!(lines.next().expect("a line")?, "listening");
    let stack = Stack::new(host::engine(&host::pool(), Box::new(tap), Ip::ours)?);
    for round in 0..3 {
        let mut stream = TcpStream::connect_with(&stack, addr, &fast())?;
        stream.write_all(b"question")?;
        let mut answer = [0; 5];
        stream.read_exact(&mut answer)?;
        let info = stream.info()?;
        let (wanted, said) = match round {
            0 => (FastOpenStatus::Requested, "question False"),
            _ => (FastOpenStatus::DataAccepted, "question True"),
        };
        assert_eq!((info.fast_open, info.retransmits), (wanted, 0), "connection {round}");
        assert_eq!(lines.next().expect("a line")?, said, "connection {round}");
    }
    say(&format!("{addr}: the kernel took the data of two SYNs in three"));
    assert!(server.wait()?.success());
    Ok(())
}

fn the_kernel_opens(ip: Ip) -> Outcome {
    let tap = host::tap(true)?;
    allow()?;
    let addr = SocketAddr::new(ip.ours(), PORT);
    let stack = Stack::new(host::engine(&host::pool(), Box::new(tap), Ip::ours)?);
    let listener = TcpListener::bind_with(&stack, addr, 16, &fast())?;
    let mut client = python(CLIENT, addr)?;
    let mut lines = BufReader::new(client.stdout.take().expect("a pipe")).lines();
    for round in 0..3 {
        let (mut stream, _) = listener.accept()?;
        let mut question = [0; 8];
        stream.read_exact(&mut question)?;
        assert_eq!(&question, b"question");
        stream.write_all(b"answer")?;
        assert_eq!(stream.read(&mut question)?, 0, "the client closes");
        let wanted = if round == 0 { "answer False" } else { "answer True" };
        assert_eq!(lines.next().expect("a line")?, wanted, "connection {round}");
    }
    // Not counted in the rounds: the next SYN may come with the end of the connection before.
    assert_eq!(stack.engine().stats().tcp_fast_opens, 2);
    say(&format!("{addr}: Millstream took the data of two SYNs in three"));
    assert!(client.wait()?.success());
    Ok(())
}

judged! {
    fn v4_millstream_opens() -> Outcome {
        millstream_opens(Ip::V4)
    }

    fn v6_millstream_opens() -> Outcome {
        millstream_opens(Ip::V6)
    }

    fn v4_the_kernel_opens() -> Outcome {
        the_kernel_opens(Ip::V4)
    }

    fn v6_the_kernel_opens() -> Outcome {
        the_kernel_opens(Ip::V6)
    }
}
