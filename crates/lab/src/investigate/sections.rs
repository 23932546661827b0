//! The sections of an investigation, for text and page alike: a further one is an entry here.

use millstream_diagnose::features::{ANY_CPU, of_one_cpu};
use millstream_diagnose::separate::Finding;
use millstream_diagnose::units::{Scale, significant};
use millstream_report::frame::{Cell, Chapter, Frame, Grid, Part, Row, Section};
use millstream_report::kernel::functions;
use millstream_report::{beside, budget, grids, trouble};

use super::drawings::{self, DOTS};
use super::met::Rate;
use super::text::{plain, spoken};
use super::{Heat, Investigation, Suspect};

/// Lines of a list of the page; names in one line; entries of a list in a text.
const LINES: usize = 100;
const MEMBERS: usize = 40;
const SHOWN: usize = 5;
/// Features over which the results are drawn.
const SCATTERS: usize = 3;
/// CPUs of the table of each CPU, the busiest.
const CPUS: usize = 64;
/// Functions of the page.
const FUNCTIONS: usize = 40;
/// Families of features that a text lists; a page lists twice as many.
const FINDINGS: usize = 6;
/// Bytes of a page that heat maps and flame graphs have together, so that it stays below 2 MB, and
/// of a flame graph at least and at most.
const DRAWN_BYTES: usize = 1_500_000;
const FLAME: [usize; 2] = [50_000, 400_000];
/// Classes of the points of each group.
const GROUPS: [&str; 7] = ["g0", "g1", "g2", "g3", "g4", "g5", "g6"];

/// Returns a section that stands by itself.
fn section<'a>(heading: impl Into<String>, parts: Vec<Part<'a>>) -> Section<'a> {
    Section::new(Chapter::NONE, heading, parts)
}

impl Investigation {
    /// Returns all of it as a text.
    pub fn text(&self) -> String {
        self.frame().text()
    }

    /// Returns all of it as a page.
    pub fn html(&self) -> String {
        self.frame().page()
    }

    fn frame(&self) -> Frame<'_> {
        let scale = self.scale();
        let mut sections = vec![section("", self.about())];
        let work = self.work();
        sections.extend(self.budget.iter().flat_map(|one| {
            let spent = budget::section(&one.budget, &one.clients, work);
            [spent, budget::connected(&one.tables)]
        }));
        sections.push(section("", vec![Part::Answer(self.verdict())]));
        sections.push(section("The runs", self.runs(&scale)));
        sections.extend(self.suspects.iter().map(|one| self.suspect(one, &scale)));
        let goes_with = if self.modes.len() > 1 { "the groups" } else { "the results" };
        sections.extend([
            section("Why not double?", vec![Part::line(self.bound()), self.limits.grid()]),
            section(format!("What goes with {goes_with}"), self.findings(goes_with)),
            section(
                "The results over what goes with them",
                vec![Part::on_page(|| self.scatters())],
            ),
        ]);
        let lists = self.met.lists().into_iter();
        sections.extend(lists.map(|(name, title, list)| section(title, self.list(name, list))));
        sections.extend([
            section("Trouble that the machine counted", self.trouble()),
            section("What the probes saw", vec![Part::on_page(|| self.tables())]),
            section("Where the CPUs were, by how the share differs", self.functions()),
            section("Where the CPUs were", vec![Part::on_page(|| self.flames())]),
            section("Each CPU", self.each_cpu()),
            section("CPUs over time", vec![Part::on_page(|| self.over_time())]),
            section("Histograms", vec![Part::on_page(|| self.histograms())]),
            section("What looking cost", vec![Part::on_page(|| self.cost())]),
            section("Not judged, as this was not measured", self.not_judged()),
            section(
                "Notes",
                [&self.left_out, &self.notes]
                    .map(|all| Part::Lines(all.clone(), [usize::MAX, LINES]))
                    .into(),
            ),
            section(
                "",
                vec![Part::Styled("dim", format!("Kept as {}.", self.experiments.join(", ")))],
            ),
        ]);
        Frame { title: self.subject.clone(), sections }
    }

    /// Returns what was looked at, when, and where.
    fn about(&self) -> Vec<Part<'_>> {
        vec![Part::InText(self.subject.clone()), Part::Facts(self.facts.clone())]
    }

    fn runs(&self, scale: &Scale) -> Vec<Part<'_>> {
        let runs = self.observed.len();
        let mut said = format!("{runs} runs, median {}", scale.with_unit(self.median));
        if let Some((low, high)) = self.interval {
            said.push_str(&format!(" (95 %: {} to {})", scale.number(low), scale.number(high)));
        }
        let mut parts = vec![Part::line(said)];
        let groups = self.modes.iter().enumerate().filter(|_| self.modes.len() > 1);
        parts.extend(groups.map(|(at, mode)| {
            let [low, high] = [mode.range.0, mode.range.1].map(|value| scale.number(value));
            let (median, count) = (scale.with_unit(mode.median), mode.members.len());
            let share = 100.0 * mode.share(runs);
            let said =
                format!("group {}: {median} ({low} to {high}), {count} runs, {share:.0} %", at + 1);
            Part::Marked(GROUPS[at % GROUPS.len()], said)
        }));
        parts.push(Part::on_page(move || {
            let seen = self.least_seen_text();
            let seen = seen.map(|seen| format!("Twice as many would show {seen} four times out of five."));
            let few = (DOTS < runs).then(|| {
                format!("{DOTS} of them are drawn, spread evenly from the lowest to the highest, which are among them.")
            });
            let lines = seen.into_iter().chain(few).map(Part::line);
            lines.chain([Part::Markup(self.runs_plot(&self.scale()))]).collect()
        }));
        parts
    }

    fn suspect<'a>(&'a self, suspect: &'a Suspect, scale: &Scale) -> Section<'a> {
        let against = suspect.counter.iter().map(|counter| format!("Against it: {counter}"));
        let mut lines = vec![suspect.evidence.clone()];
        lines.extend(against);
        let mut parts = vec![Part::lines(lines)];
        if !suspect.forced.is_empty() {
            let drawn = || vec![Part::Markup(self.levels_plot(suspect, &self.scale()))];
            parts.push(Part::on_page(drawn));
        }
        let mut lines = suspect.proof(scale);
        lines.extend(suspect.ranked());
        lines.push(format!("Remedy: {}", suspect.cause.remedy));
        lines.push(format!("Source: {}", suspect.cause.source));
        parts.push(Part::lines(lines));
        section(suspect.cause.title.clone(), parts).with_badge(spoken(suspect.verdict()))
    }

    /// Returns the features that go with the groups; of a page, the first that may be chance, too.
    fn findings(&self, goes_with: &str) -> Vec<Part<'_>> {
        let findings = &self.separation.findings;
        let looked_at = self.separation.looked_at;
        let of = |all: &mut dyn Iterator<Item = &Finding>| {
            let row = |one: &Finding| {
                let medians = one.medians.iter().map(|value| plain(*value)).collect::<Vec<_>>();
                let members = match one.members.len() {
                    0 => String::new(),
                    count => count.to_string(),
                };
                let cells = vec![
                    Cell::from(one.feature.as_str()).with_more(first_words(&one.members)),
                    medians.join(" → ").into(),
                    format!("{:.2}", one.strength).into(),
                    format!("{:.4}", one.p).into(),
                    members.into(),
                ];
                Row { class: if one.is_shown() { "" } else { "dim" }, cells }
            };
            let columns = ["feature", "by group", ">strength", ">p", ">say the same"];
            Grid::new("Features that say the same are in one line", columns).rows(all.map(row))
        };
        let shown = of(&mut findings.iter().filter(|one| one.is_shown()).take(FINDINGS));
        let mut parts = vec![match shown.is_empty() {
            true => {
                Part::line(format!("Of {looked_at} features none is shown to go with {goes_with}."))
            }
            false => Part::line(format!("{looked_at} features were looked at; p counts that in.")),
        }];
        if !shown.is_empty() {
            parts.push(Part::InText(shown.text()));
        }
        let on_page = of(&mut findings.iter().take(2 * FINDINGS));
        parts.push(Part::on_page(move || vec![Part::Grid(on_page)]));
        parts
    }

    /// Returns a drawing of the results over each of the features that go with them most.
    fn scatters(&self) -> Vec<Part<'_>> {
        let scale = self.scale();
        let shown = self.separation.findings.iter().filter(|one| one.is_shown()).take(SCATTERS);
        // Of features of single CPUs the highest of any says more.
        let shown = shown.map(|one| {
            let of_any = one.members.iter().find(|name| name.starts_with(ANY_CPU));
            let of_any = of_any.filter(|_| of_one_cpu(&one.feature).is_some());
            of_any.unwrap_or(&one.feature)
        });
        let drawn = self.plots.iter().chain(shown);
        drawn.filter_map(|name| self.scatter(name, &scale)).map(Part::Markup).collect()
    }

    fn list(&self, name: &str, list: &[Rate]) -> Vec<Part<'_>> {
        if let Some(why) = self.met.absent.get(name) {
            return vec![Part::line(format!("Not measured, because {why}"))];
        }
        if list.is_empty() {
            return vec![Part::line("None.")];
        }
        let has_groups = list.iter().any(|one| !one.by_group.is_empty());
        let of = |most: usize| {
            let groups = has_groups.then_some("lowest to highest results");
            let columns = [Some(">in a second"), groups, Some("who")];
            let rows = list.iter().take(most).map(|one| {
                let mut cells = vec![significant(one.per_s).into()];
                cells.extend(has_groups.then(|| one.groups().into()));
                cells.push(Cell::from(one.who.as_str()).with_more(one.stack.join(" ← ")));
                cells
            });
            Grid::new("The most first", columns.into_iter().flatten()).rows(rows)
        };
        let on_page = of(usize::MAX);
        vec![Part::InText(of(SHOWN).text()), Part::on_page(move || vec![Part::Grid(on_page)])]
    }

    /// Returns the functions of the lowest and the highest group, where there are groups.
    fn functions(&self) -> Vec<Part<'_>> {
        let Some((lowest, highest)) = &self.met.profile_ends else { return Vec::new() };
        let of = |most| functions([lowest, highest], ["lowest results", "highest results"], most);
        vec![Part::InText(of(SHOWN).text()), Part::on_page(move || vec![Part::Grid(of(FUNCTIONS))])]
    }

    /// Returns the name of each group, as the tables have it.
    fn of_groups(&self) -> impl Iterator<Item = String> {
        let groups = self.tables.len();
        (1..=groups)
            .map(move |at| if groups > 1 { format!("group {at}") } else { "all runs".into() })
    }

    fn trouble(&self) -> Vec<Part<'_>> {
        let said =
            self.of_groups().zip(&self.tables).map(|(group, tables)| (group, trouble(tables)));
        let lines = said.filter(|(_, said)| !said.is_empty());
        vec![Part::lines(lines.map(|(group, said)| format!("{group}: {said}")).collect())]
    }

    fn tables(&self) -> Vec<Part<'_>> {
        let sides: Vec<_> = self.of_groups().map(Cell::from).zip(&self.tables).collect();
        grids("medians over runs", "group", &sides).into_iter().map(Part::Grid).collect()
    }

    fn flames(&self) -> Vec<Part<'_>> {
        let heat: usize = self.seen.heat.iter().map(|one| drawings::heat(one).len()).sum();
        let bytes = (DRAWN_BYTES.saturating_sub(heat) / 2).clamp(FLAME[0], FLAME[1]);
        let absent = self.met.absent.get("profile");
        let absent = absent.map(|why| Part::line(format!("Not measured, because {why}")));
        let drawn = self.met.flames(bytes).into_iter();
        let drawn = drawn.map(|svg| Part::Markup(format!("<div class=\"flame\">{svg}</div>\n")));
        absent.into_iter().chain(drawn).collect()
    }

    /// Returns the table of the CPUs of a run of the lowest and of one of the highest results,
    /// beside each other.
    fn each_cpu(&self) -> Vec<Part<'_>> {
        let runs = self.seen.heat.iter().filter(|one| !one.is_far);
        let runs: Vec<_> = runs.filter_map(|one| Some((one, one.cpus.as_ref()?))).collect();
        let ends = match &runs[..] {
            [lowest, .., highest] => [("lowest", lowest), ("highest", highest)].to_vec(),
            all => all.iter().map(|one| ("median", one)).collect(),
        };
        let named: Vec<_> =
            ends.into_iter().map(|(name, (_, cpus))| (name.to_owned(), *cpus)).collect();
        vec![Part::Grid(beside(&named, CPUS))]
    }

    /// Returns a heat map for each run that is kept over time.
    fn over_time(&self) -> Vec<Part<'_>> {
        let groups = self.seen.heat.iter().map(|one| one.group + 1).max().unwrap_or(1);
        let drawn = |one: &Heat| {
            let of = match (groups, one.group) {
                (1, _) => "near the median",
                (_, 0) => "of the lowest results",
                (all, group) if group + 1 == all => "of the highest results",
                _ => "of the middle results",
            };
            let host = if one.is_far { "the host of the far end" } else { "this host" };
            let heading = Part::Heading("", format!("{host}, a run {of} ({})", one.run));
            [heading, Part::Markup(drawings::heat(one))]
        };
        let said = match self.seen.heat.is_empty() {
            true => "Not measured.",
            false => "The darker, the larger the share of a step in which the CPU worked.",
        };
        let maps = self.seen.heat.iter().flat_map(drawn);
        std::iter::once(Part::Styled("dim", said.to_owned())).chain(maps).collect()
    }

    fn histograms(&self) -> Vec<Part<'_>> {
        if self.seen.histograms.is_empty() {
            return vec![];
        }
        let said = "By powers of two: the runs of the lowest results to the left, those of the highest to the right. \
                    Those that differ most come first.";
        let drawn = self.seen.histograms.iter().flat_map(|both| {
            [Part::Heading("", both.name.clone()), Part::Markup(drawings::histograms(both))]
        });
        std::iter::once(Part::line(said)).chain(drawn).collect()
    }

    /// Returns the percent of one CPU that each probe and program took, and all of them of the
    /// machine.
    fn cost(&self) -> Vec<Part<'_>> {
        if self.seen.costs.is_empty() {
            return vec![Part::line("Not measured.")];
        }
        let all: f64 = self.seen.costs.iter().map(|(_, percent)| percent).sum();
        let of_machine = all / self.seen.cpus.max(1) as f64;
        let said = format!(
            "{all:.2} % of one CPU, {of_machine:.2} % of this machine, in the median of the runs."
        );
        let shown = self.seen.costs.iter().filter(|(_, percent)| *percent >= 0.001);
        let cells = |(name, percent): &(String, f64)| [name.clone(), format!("{percent:.3} %")];
        let grid = Grid::new("Cost of looking", ["probe or program", ">of one CPU"]);
        let grid = grid.rows(shown.map(cells));
        vec![Part::line(said), Part::Grid(grid)]
    }

    fn not_judged(&self) -> Vec<Part<'_>> {
        let of =
            |(cause, missing): &(String, Vec<String>)| format!("{cause} ({})", missing.join(", "));
        let all: Vec<String> = self.not_judged.iter().map(of).collect();
        if all.is_empty() { vec![] } else { vec![Part::line(format!("{}.", all.join("; ")))] }
    }
}

/// The first of many names, and how many more there are.
fn first_words(names: &[String]) -> String {
    let text = names.iter().take(MEMBERS).cloned().collect::<Vec<_>>().join(", ");
    match names.len() > MEMBERS {
        true => format!("{text} and {} more", names.len() - MEMBERS),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::super::Heat;
    use super::super::tests::investigated;
    use millstream_record::StackRecord;

    /// Everything that there may be much of at once: runs, deep stacks that all differ, features of
    /// one family, CPUs.
    #[test]
    fn a_page_of_a_thousand_runs_and_more_is_small_and_says_what_it_leaves_out() {
        let few = investigated(true);
        let page = few.html();
        for said in ["are drawn", "are left out", " more</span>"] {
            assert!(!page.contains(said), "{said}");
        }
        let mut found = few;
        let observed = found.observed.iter().cycle().take(3_000).cloned();
        found.observed = observed.collect();
        found.observed[1_717].result = 1.0;
        found.observed[2_121].result = 99e9;
        found.left_out = (0..3_000).map(|at| format!("run {at}: its worker stood still")).collect();
        let stack = |at: usize| StackRecord {
            stack: (0..60)
                .map(|depth| format!("function_{}_of_{depth}", at / (60 - depth)))
                .collect(),
            by_cpu: vec![10; 2],
        };
        let profile: Vec<StackRecord> = (0..500).map(stack).collect();
        found.met.profile_ends = Some((profile.clone(), profile.clone()));
        found.met.profile = profile;
        found.met.absent.clear();
        let plot = found.features.keys().next_back().unwrap().clone();
        let values = found.features.get_mut(&plot).unwrap();
        *values = (0..3_000).map(|at| Some(f64::from(at))).collect();
        found.plots = vec![plot.clone()];
        let plot = format!(">{plot}: ");
        let row =
            |cpu: u32| (cpu, (0..120).map(|at| f64::from((at * 7 + cpu) % 9) / 8.0).collect());
        let heat = Heat { busy: (0..64).map(row).collect(), ..Heat::default() };
        found.seen.heat = vec![heat; 6];
        found.separation.findings[0].members =
            (0..5_000).map(|at| format!("feature_{at}")).collect();
        let (level, results) = &mut found.suspects[0].forced[0];
        *results = results.iter().copied().cycle().take(1_000).collect();
        let level = format!("{level} (60 of 1000 are drawn)");
        let page = found.html();
        assert!(page.len() < 2_000_000, "{}", page.len());
        for said in [
            "1500 of them are drawn",
            "<title>run 1717: ",
            "<title>run 2121: ",
            "and 2900 more lines, which are left out.",
            "functions of less than",
            " and 4960 more",
            &level,
            &plot,
        ] {
            assert!(page.contains(said), "{said}");
        }
    }
}
