//! The text and the page of the ways that were measured: a table of all of them, and on the page
//! for each number of routes and of peers a bar for each stage, the kernel's below this stack's.

use std::fmt::Write;

use millstream_report::frame::{Cell, Chapter, Frame, Grid, Part, Section};

use super::{PAYLOAD_BYTES, Stage, Way};

/// The width of a drawing.
const WIDTH: f64 = 1120.0;
/// The room at its left, for the names of stages.
const LEFT: f64 = 90.0;
/// The room behind the longest bar, for the text about it.
const RIGHT: f64 = 210.0;
/// The height of a bar, of its line, and of the gap between two stages.
const BAR: f64 = 14.0;
const LINE: f64 = 18.0;
const APART: f64 = 8.0;

/// Returns the text and the page of these ways.
pub fn frame(ways: &[Way]) -> Frame<'static> {
    let heading = format!("{PAYLOAD_BYTES} bytes of data; ns of each stage");
    let mut sections = vec![Section::new(Chapter::NONE, heading, vec![Part::Grid(table(ways))])];
    let cases = ways.chunk_by(|a, b| (a.routes, a.peers) == (b.routes, b.peers));
    sections.extend(cases.map(|case| {
        let (routes, peers) = (counted(case[0].routes, "route"), counted(case[0].peers, "peer"));
        let drawing = Part::Markup(drawn(case));
        Section::new(Chapter::NONE, format!("To {peers}, with {routes}"), vec![drawing])
    }));
    Frame { title: "The way of a datagram to the link".to_owned(), sections }
}

fn table(ways: &[Way]) -> Grid {
    let stages = Stage::ALL.map(|stage| format!(">{}", stage.name()));
    let stages = stages.iter().map(String::as_str);
    let heads = ["side", ">threads", ">routes", ">peers"].into_iter().chain(stages).chain([">all"]);
    let rows = ways.iter().map(|way| {
        let of = |stage| way.ns(stage).map_or_else(|| "-".to_owned(), |ns| format!("{ns:.0}"));
        let numbers = [way.threads, way.routes, way.peers].map(|number| number.to_string());
        let ns = Stage::ALL.map(of).into_iter().chain([format!("{:.0}", way.total_ns)]);
        let texts = [way.side.to_owned()].into_iter().chain(numbers).chain(ns);
        texts.map(Cell::from).collect::<Vec<_>>()
    });
    Grid::new("", heads).rows(rows)
}

/// Returns a bar for each stage of each way, all of one scale.
fn drawn(ways: &[Way]) -> String {
    let most = ways.iter().flat_map(|way| &way.stages).fold(1.0, |most, (_, ns)| ns.max(most));
    let (mut bars, mut y) = (String::new(), 0.0);
    // A stage may be without a figure where the kernel's side was not measured.
    let is_there = |stage: &Stage| ways.iter().any(|way| way.ns(*stage).is_some());
    for stage in Stage::ALL.into_iter().filter(is_there) {
        let (name, below) = (stage.name(), BAR * 0.8);
        let (x, at) = (LEFT - 8.0, y + below);
        let _ = write!(bars, "<text class=\"end\" x=\"{x:.0}\" y=\"{at:.1}\">{name}</text>");
        for (way, ns) in ways.iter().filter_map(|way| Some((way, way.ns(stage)?))) {
            let class = if way.side == "kernel" { "k-sys" } else { "k-usr" };
            let width = ns / most * (WIDTH - LEFT - RIGHT);
            let said = format!("{ns:.0} ns, {}, {}", way.side, counted(way.threads, "thread"));
            let (x, at) = (LEFT + width + 6.0, y + below);
            let _ = writeln!(
                bars,
                "<rect class=\"{class}\" x=\"{LEFT}\" y=\"{y:.0}\" width=\"{width:.1}\" height=\"{BAR}\"/>\
                 <text x=\"{x:.1}\" y=\"{at:.1}\">{said}</text>"
            );
            y += LINE;
        }
        y += APART;
    }
    let of = "class=\"budget\" role=\"img\"";
    format!("<div class=\"scroll\"><svg {of} viewBox=\"0 0 {WIDTH} {y:.0}\">\n{bars}</svg></div>\n")
}

/// Returns `1 thread`, or `2 threads`.
fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text has each figure once, and the page has it as a number and as a length: allocation
    /// and copy apart, the kernel's below this stack's, both numbers of threads.
    #[test]
    fn each_stage_is_in_the_table_and_a_bar_as_long_as_its_time() {
        use Stage::{Allocation, Call, Copy, Link, Route};
        let way = |side, threads, stages: &[(Stage, f64)]| {
            let total_ns = stages.iter().map(|(_, ns)| ns).sum();
            Way { side, threads, routes: 1, peers: 4096, stages: stages.to_vec(), total_ns }
        };
        let ways = [
            way("millstream", 1, &[(Call, 20.0), (Allocation, 41.0), (Copy, 5.0), (Link, -0.4)]),
            way("kernel", 1, &[(Call, 400.0), (Route, 60.0), (Allocation, 340.0), (Copy, 90.0)]),
            way("millstream", 2, &[(Call, 25.0), (Allocation, 82.0), (Copy, 10.0), (Link, 3.0)]),
            way("kernel", 2, &[(Call, 820.0), (Route, 64.0), (Allocation, 345.0), (Copy, 80.0)]),
        ];
        let text = "64 bytes of data; ns of each stage:\n  \
             side        threads  routes  peers  call  allocation  copy  route  headers  link   all\n  \
             ───────────────────────────────────────────────────────────────────────────────────────\n  \
             millstream        1       1   4096    20          41     5      -        -     0    66\n  \
             kernel            1       1   4096   400         340    90     60        -     -   890\n  \
             millstream        2       1   4096    25          82    10      -        -     3   120\n  \
             kernel            2       1   4096   820         345    80     64        -     -  1309\n";
        assert_eq!(frame(&ways).text(), text);
        let page = frame(&ways).page();
        assert!(page.contains("<h2>To 4096 peers, with 1 route</h2>"), "{page}");
        // The longest, 820 ns, is as wide as there is room for.
        for (side, width, said) in [
            ("k-sys", "820.0", "820 ns, kernel, 2 threads"),
            ("k-sys", "400.0", "400 ns, kernel, 1 thread"),
            ("k-usr", "41.0", "41 ns, millstream, 1 thread"),
            ("k-usr", "82.0", "82 ns, millstream, 2 threads"),
            ("k-usr", "0.0", "0 ns, millstream, 1 thread"),
        ] {
            let bar = page.lines().find(|line| line.contains(&format!(">{said}</text>")));
            let bar = bar.unwrap_or_else(|| panic!("{said}: {page}"));
            let drawn = format!("<rect class=\"{side}\" x=\"90\"");
            assert!(bar.contains(&drawn) && bar.contains(&format!(" width=\"{width}\"")), "{bar}");
        }
        let at = |said: &str| page.find(said).unwrap();
        assert!(
            at(">allocation</text>") < at("41 ns, mill") && at("41 ns, mill") < at("340 ns, k")
        );
        assert!(!page.contains(">headers</text>"), "none has a figure: {page}");
        assert!(
            at("345 ns, kernel") < at(">copy</text>") && at(">copy</text>") < at(">5 ns, mill")
        );
    }
}
