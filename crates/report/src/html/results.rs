//! The results on a page: tables of many cases at once, and of each case its plots and numbers.

use super::super::frame::{Cell, Grid, Part};
use super::super::matrix::{self, Matrix};
use super::super::metric::Better;
use super::super::model::Case;
use super::super::room::Scope;
use super::super::{text, verdict};
use super::dots;
use super::svg::figure;

const LEAD: &str = "Every point is a run, at the height of its block. The line is the median, the band its 95 % bootstrap \
                    interval; of five runs it can be no wider than their range, which covers the median in 94 of 100 cases.";
const CROSS: &str = "<p class=\"lead\">A cross <svg class=\"key\" viewBox=\"0 0 12 12\" aria-hidden=\"true\"><path class=\"pt s0 \
                     bad\" d=\"M2 2l8 8m0 -8l-8 8\"/></svg> is a run that does not count.</p>\n";

/// Returns the table of a text, and what a page has before its plots.
pub(in super::super) fn head<'a>(scope: Scope<'a>) -> Vec<Part<'a>> {
    let model = scope.model;
    let grid = (!model.cases.is_empty()).then(|| Part::InText(text::results(model).text()));
    let on_page = move || {
        let mut parts = vec![Part::Styled("lead", LEAD.to_owned())];
        if model.runs.iter().any(|run| !model.counts(run)) {
            parts.push(Part::Markup(CROSS.to_owned()));
        }
        let (shown, full) = scope.room.cases(&model.cases);
        if shown < model.cases.len() {
            parts.push(Part::line(format!(
                "Of {} cases the first {shown} are shown here; `millstream show` has all of them.",
                model.cases.len()
            )));
        }
        if full < shown {
            parts.push(Part::line(format!(
                "For want of room the first {full} of them have all their results in numbers, and tables of the machine \
                 and of TCP; the others have their main results. `millstream show … --json FILE` writes everything."
            )));
        }
        parts.extend(text::held(model).map(|(workload, levels)| {
            Part::Boxes("", format!("{workload} everywhere with"), levels)
        }));
        parts
    };
    grid.into_iter().chain([Part::on_page(on_page)]).collect()
}

/// Returns the tables of many cases at once, with so many lines in all as there is room for.
pub(in super::super) fn matrices<'a>(scope: Scope<'a>) -> Vec<Part<'a>> {
    let all = matrix::of(scope.model);
    let most = (scope.room.case_lines / all.len().max(1)).max(1);
    let parts = |(at, matrix): (usize, Matrix)| {
        let Matrix { heading, metric, head, lines, counts } = matrix;
        let title = format!("{heading}: {metric}");
        let mut parts = vec![Part::Heading("", title.clone())];
        parts.extend(counts.iter().map(|count| {
            let worst = if count.worst.is_empty() { "" } else { "; worst " };
            Part::line(format!(
                "{}: {} of {} cases hold; {}{worst}{}.",
                count.row, count.held, count.cases, count.overall, count.worst
            ))
        }));
        let more = lines.len().saturating_sub(most);
        let cells = |line: Vec<matrix::Entry>| {
            let cell = |one: matrix::Entry| {
                Cell::from(one.text).with_class(if one.short { "poor" } else { "" })
            };
            line.into_iter().map(cell).collect::<Vec<_>>()
        };
        let caption = format!("{title}, bold where worse than the first stack");
        let head = head.iter().map(|name| format!(">{name}")).collect::<Vec<_>>();
        let grid = Grid::new(caption, head.iter().map(String::as_str))
            .rows(lines.into_iter().take(most).map(cells));
        let mut folded = vec![Part::Grid(grid)];
        if more > 0 {
            let said = format!(
                "{more} more cases are left out; `millstream show … --matrix` has all of them."
            );
            folded.push(Part::Styled("dim", said));
        }
        parts.push(Part::Folded("Every case".to_owned(), at == 0, folded));
        parts
    };
    all.into_iter().enumerate().flat_map(parts).collect()
}

/// Returns the cases that are shown.
pub(super) fn shown<'a>(scope: Scope<'a>) -> &'a [Case<'a>] {
    &scope.model.cases[..scope.room.cases(&scope.model.cases).0]
}

/// Returns the cases that are shown in full.
pub(in super::super) fn full<'a>(scope: Scope<'a>) -> &'a [Case<'a>] {
    &scope.model.cases[..scope.room.cases(&scope.model.cases).1]
}

/// Returns the label and the parts of each case that is shown.
pub(in super::super) fn cases<'a>(
    scope: Scope<'a>,
) -> impl Iterator<Item = (String, Vec<Part<'a>>)> {
    let Scope { model, room, .. } = scope;
    let (shown, full) = room.cases(&model.cases);
    let shown = &model.cases[..shown];
    let parts = move |(at, case): (usize, &'a Case<'a>)| {
        let on_page = move || {
            let points = room.points_each(shown);
            let mut parts = vec![Part::lines(verdict::of_case(case))];
            parts.push(Part::Markup(plots(case, points)));
            let which = if at < full { "All" } else { "The main" };
            let numbers = vec![Part::Grid(text::numbers(model, case, at < full))];
            parts.push(Part::Folded(format!("{which} results in numbers"), false, numbers));
            parts
        };
        (case.label.clone(), vec![Part::on_page(on_page)])
    };
    shown.iter().enumerate().map(parts)
}

fn plots(case: &Case<'_>, points: usize) -> String {
    let headline = case.tables.iter().enumerate().filter(|(_, table)| table.metric.headline);
    let plots = headline.map(|(at, table)| {
        let (svg, left_out) = dots::plot(case, at, points);
        let hint = match table.metric.better {
            Better::Higher => " · higher is better",
            Better::Lower => " · lower is better",
            Better::Neither => "",
        };
        let said = format!("{}{hint}", table.scale.unit);
        figure("card", &table.metric.label, &said, &svg, &left_out)
    });
    format!("<div class=\"plots\">\n{}</div>\n", plots.collect::<String>())
}
