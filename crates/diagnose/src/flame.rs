//! Flame graphs as SVG without scripts: each function a bar as wide as the samples that it was met
//! in.

use std::collections::BTreeMap;
use std::fmt::Write;

use millstream_foreign::markup;
use millstream_record::StackRecord;

const WIDTH: f64 = 1200.0;
const LINE: f64 = 16.0;
/// Narrower bars are left out; so are those above them.
const LEAST: f64 = 0.4;
const LETTER: f64 = 6.6;
/// Levels that are drawn at most.
const DEPTH: usize = 128;

#[derive(Default)]
struct Node {
    count: u64,
    /// Share of all samples of the other set.
    other: u64,
    children: BTreeMap<String, Node>,
}

impl Node {
    fn add(&mut self, stack: &[String], count: u64, is_other: bool) {
        let mut node = self;
        for level in 0..=stack.len().min(DEPTH) {
            match is_other {
                true => node.other += count,
                false => node.count += count,
            }
            let Some(name) = stack.get(level) else { break };
            node = node.children.entry(name.clone()).or_default();
        }
    }

    fn depth(&self) -> usize {
        1 + self.children.values().map(Self::depth).max().unwrap_or(0)
    }
}

/// The flame graph of a profile. The longest stack is the height; the widths are shares of all
/// samples.
pub fn flame_graph(title: &str, profile: &[StackRecord]) -> String {
    flame_graph_within(title, profile, usize::MAX)
}

/// Returns the flame graph in at most so many bytes. Narrow bars are left out until it fits, and
/// the title says which.
pub fn flame_graph_within(title: &str, profile: &[StackRecord], bytes: usize) -> String {
    draw_within(title, &tree(profile, &[]), None, bytes)
}

/// Draws the flame graph of `profile`: a function with more of the time than in `base` is red, one
/// with less is blue.
pub fn flame_difference(title: &str, base: &[StackRecord], profile: &[StackRecord]) -> String {
    flame_difference_within(title, base, profile, usize::MAX)
}

/// Returns the coloured flame graph in at most so many bytes, with narrow bars left out as in
/// [`flame_graph_within`].
pub fn flame_difference_within(
    title: &str,
    base: &[StackRecord],
    profile: &[StackRecord],
    bytes: usize,
) -> String {
    let tree = tree(profile, base);
    let ratio = tree.count as f64 / tree.other.max(1) as f64;
    draw_within(title, &tree, Some(ratio), bytes)
}

/// A function, or a state of the CPUs, with its shares of the samples of two profiles.
#[derive(Clone, Debug, PartialEq)]
pub struct FunctionShare {
    /// Its name.
    pub name: String,
    /// Its shares of both profiles.
    pub shares: [f64; 2],
}

impl FunctionShare {
    /// Returns the second share less the first one.
    pub fn difference(&self) -> f64 {
        self.shares[1] - self.shares[0]
    }
}

/// Returns the states of the CPUs, then the functions in which they were, by how much their shares
/// of the two profiles differ. A sample is of the innermost function.
pub fn function_shares(base: &[StackRecord], profile: &[StackRecord]) -> Vec<FunctionShare> {
    let states = ["CPU idle", "CPU in the kernel", "CPU in programs"];
    let mut of_states =
        states.map(|name| FunctionShare { name: name.to_owned(), shares: [0.0; 2] });
    let mut functions: BTreeMap<&str, [f64; 2]> = BTreeMap::new();
    for (at, stacks) in [base, profile].into_iter().enumerate() {
        let all: u64 = stacks.iter().map(StackRecord::count).sum();
        for one in stacks {
            let share = one.count() as f64 / all as f64;
            let innermost = one.stack.last().map_or("", String::as_str);
            let state = match one.is_idle() {
                true => 0,
                false => {
                    if innermost.ends_with("_[k]") {
                        1
                    } else {
                        2
                    }
                }
            };
            of_states[state].shares[at] += share;
            if state != 0 {
                functions.entry(innermost).or_default()[at] += share;
            }
        }
    }
    let named = |(name, shares): (&str, [f64; 2])| FunctionShare { name: name.to_owned(), shares };
    let mut functions: Vec<FunctionShare> = functions.into_iter().map(named).collect();
    functions.sort_by(|a, b| b.difference().abs().total_cmp(&a.difference().abs()));
    of_states.into_iter().chain(functions).collect()
}

fn draw_within(title: &str, root: &Node, ratio: Option<f64>, bytes: usize) -> String {
    let (mut least, mut svg) = (LEAST, draw(title, root, ratio, LEAST));
    while svg.len() > bytes && least < WIDTH {
        least *= 1.5;
        let percent = least * 100.0 / WIDTH;
        let title = format!("{title}; functions of less than {percent:.2} % are left out");
        svg = draw(&title, root, ratio, least);
    }
    svg
}

fn tree(profile: &[StackRecord], other: &[StackRecord]) -> Node {
    let mut root = Node::default();
    for (stacks, is_other) in [(profile, false), (other, true)] {
        for one in stacks {
            root.add(&one.stack, one.count(), is_other);
        }
    }
    root
}

/// `ratio`: samples of the profile by samples of the base, where there is one.
fn draw(title: &str, root: &Node, ratio: Option<f64>, least: f64) -> String {
    let height = (root.depth() as f64 + 2.0) * LINE;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"monospace\" font-size=\"11\">\n<text x=\"4\" y=\"12\">{} ({} samples)</text>\n",
        markup(title),
        root.count
    );
    if root.count > 0 {
        bars(&mut svg, root, root.count as f64, (ratio, least), (0.0, height - LINE));
    }
    svg.push_str("</svg>\n");
    svg
}

fn bars(
    svg: &mut String,
    node: &Node,
    all: f64,
    (ratio, least): (Option<f64>, f64),
    (mut x, y): (f64, f64),
) {
    for (name, child) in &node.children {
        let width = child.count as f64 / all * WIDTH;
        if width < least {
            continue;
        }
        let percent = child.count as f64 * 100.0 / all;
        let (colour, change) = match ratio {
            None => (
                if name.ends_with("_[k]") { "#e0a070" } else { "#80b0d8" }.to_owned(),
                String::new(),
            ),
            Some(ratio) => {
                let before = child.other as f64 * ratio;
                let change = (child.count as f64 - before) * 100.0 / all;
                (shade(change), format!(", {change:+.2} points"))
            }
        };
        let _ = write!(
            svg,
            "<g><title>{0}: {1} samples, {percent:.2} %{change}</title><rect x=\"{x:.1}\" y=\"{y:.1}\" \
             width=\"{width:.1}\" height=\"{2}\" fill=\"{colour}\" stroke=\"#fff\" stroke-width=\"0.5\"/>",
            markup(name),
            child.count,
            LINE - 1.0
        );
        let letters = (width / LETTER) as usize;
        if letters >= 3 {
            let short: String = name.chars().take(letters).collect();
            let _ = write!(
                svg,
                "<text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                x + 2.0,
                y + 11.0,
                markup(&short)
            );
        }
        svg.push_str("</g>\n");
        bars(svg, child, all, (ratio, least), (x, y - LINE));
        x += width;
    }
}

/// White for no change, red for 5 points more and above, blue for less.
fn shade(points: f64) -> String {
    let pale = 255 - (points.abs().min(5.0) * 30.0) as u8;
    match points {
        points if points > 0.05 => format!("#ff{pale:02x}{pale:02x}"),
        points if points < -0.05 => format!("#{pale:02x}{pale:02x}ff"),
        _ => "#eeeeee".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack(names: &[&str], count: u64) -> StackRecord {
        let stack = names.iter().map(|name| (*name).to_owned()).collect();
        StackRecord { stack, by_cpu: vec![count] }
    }

    #[test]
    fn bars_are_as_wide_as_their_samples_and_lie_on_their_callers() {
        let profile = [stack(&["a", "b"], 30), stack(&["a"], 30), stack(&["c<T>"], 60)];
        let svg = flame_graph("one & all", &profile);
        assert!(svg.contains("one &amp; all (120 samples)"), "{svg}");
        assert!(
            svg.contains(
                "<title>a: 60 samples, 50.00 %</title><rect x=\"0.0\" y=\"64.0\" width=\"600.0\""
            ),
            "{svg}"
        );
        assert!(svg.contains(
            "<title>b: 30 samples, 25.00 %</title><rect x=\"0.0\" y=\"48.0\" width=\"300.0\""
        ));
        assert!(svg.contains("c&lt;T&gt;: 60 samples") && !svg.contains("script"));
        assert!(flame_graph("none", &[]).ends_with("</svg>\n"));
    }

    #[test]
    fn a_difference_is_of_shares_not_of_samples() {
        let base = [stack(&["a"], 10), stack(&["b"], 10)];
        let svg = flame_difference("x", &base, &[stack(&["a"], 90), stack(&["b"], 30)]);
        assert!(svg.contains("a: 90 samples, 75.00 %, +25.00 points"), "{svg}");
        assert!(svg.contains("b: 30 samples, 25.00 %, -25.00 points"));
        let same = flame_difference("x", &base, &[stack(&["a"], 40), stack(&["b"], 40)]);
        assert_eq!(same.matches("#eeeeee").count(), 2);
    }

    #[test]
    fn functions_are_told_by_how_their_shares_differ_behind_the_states_of_the_cpus() {
        let base = [
            stack(&["idle", "cpuidle_enter_[k]"], 50),
            stack(&["p", "main", "work"], 25),
            stack(&["p", "main", "read", "copy_[k]"], 25),
        ];
        let after = [
            stack(&["idle", "cpuidle_enter_[k]"], 2),
            stack(&["p", "main", "work"], 3),
            stack(&["p", "other", "work"], 3),
            stack(&["p", "main", "read", "copy_[k]"], 2),
        ];
        let told = function_shares(&base, &after);
        let told: Vec<_> = told.iter().map(|one| (one.name.as_str(), one.shares)).collect();
        let expected = [
            ("CPU idle", [0.5, 0.2]),
            ("CPU in the kernel", [0.25, 0.2]),
            ("CPU in programs", [0.25, 0.6]),
            ("work", [0.25, 0.6]),
            ("copy_[k]", [0.25, 0.2]),
        ];
        assert!(told.len() == expected.len(), "{told:?}");
        for ((name, shares), (expected, values)) in told.into_iter().zip(expected) {
            let is_same = |at: usize| (shares[at] - values[at]).abs() < 1e-9;
            assert!(name == expected && is_same(0) && is_same(1), "{name}: {shares:?}");
        }
        assert!(function_shares(&[], &[]).iter().all(|one| one.shares == [0.0; 2]));
    }

    /// XML 1.0, 2.2: a browser opens no drawing with another character.
    #[test]
    fn a_symbol_with_control_characters_makes_a_drawing_all_the_same() {
        let profile = [stack(&["a]]>&<\u{1b}[31m\u{7}\u{fffe}", "b\nc"], 3)];
        let svg = flame_graph("\u{0}title\u{202e}", &profile);
        assert!(
            svg.contains("<title>a]]&gt;&amp;&lt;\\u001b[31m\\u0007\\ufffe: 3 samples"),
            "{svg}"
        );
        let is_char =
            |letter: char| letter == '\n' || (!letter.is_control() && letter < '\u{fffe}');
        assert!(svg.chars().all(is_char) && !svg.contains("]]>"), "{svg}");
    }
}
