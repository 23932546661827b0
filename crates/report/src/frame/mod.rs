//! The frame of every page and every text: a title, and sections in chapters. A section has its
//! parts once, and each part draws itself on a page and in a text.

mod grid;

use millstream_foreign::{markup as escape, shown};

pub use grid::{Cell, Column, Grid, Row, of_place};

/// The style of all pages.
const STYLE: &str = include_str!("style.css");

/// A page, or a text for a terminal.
pub struct Frame<'a> {
    /// The title of the page. A text begins with its first section.
    pub title: String,
    /// The sections, in their order.
    pub sections: Vec<Section<'a>>,
}

/// A part of a page that its head leads to. Neighbouring sections of one chapter are under one
/// heading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chapter {
    /// Its anchor; empty where each section stands by itself.
    pub id: &'static str,
    /// Its name in the head of the page.
    pub name: &'static str,
    /// Its heading, or nothing.
    pub heading: &'static str,
}

impl Chapter {
    /// The chapter of sections that stand by themselves.
    pub const NONE: Self = Self { id: "", name: "", heading: "" };
}

/// Parts under a heading. One without parts is left out.
pub struct Section<'a> {
    chapter: Chapter,
    heading: String,
    /// A word on what the section says, beside its heading.
    badge: &'static str,
    is_folded: bool,
    parts: Vec<Part<'a>>,
}

/// A part of a section.
pub enum Part<'a> {
    /// Sentences, so many in a text and so many on a page at most.
    Lines(Vec<String>, [usize; 2]),
    /// A sentence with the mark that its points have in a drawing.
    Marked(&'static str, String),
    /// The question.
    Question(String),
    /// The answer.
    Answer(String),
    /// Remarks to keep in mind, so many on a page at most.
    Caution(Vec<String>, usize),
    /// A table.
    Grid(Grid),
    /// A heading inside the section, with the class of what it names.
    Heading(&'static str, String),
    /// A paragraph of a class, on a page alone.
    Styled(&'static str, String),
    /// A name, and values in boxes, on a page alone.
    Boxes(&'static str, String, Vec<String>),
    /// Parts that the reader of a page opens, or that are open already.
    Folded(String, bool, Vec<Part<'a>>),
    /// Drawings, on a page alone.
    Markup(String),
    /// Parts of a page alone, made only when one is drawn.
    OnPage(Box<dyn FnOnce() -> Vec<Part<'a>> + 'a>),
    /// Lines of a text alone.
    InText(String),
}

impl<'a> Part<'a> {
    /// Returns one sentence.
    pub fn line(line: impl Into<String>) -> Self {
        Self::Lines(vec![line.into()], [1, 1])
    }

    /// Returns all of these sentences.
    pub fn lines(lines: Vec<String>) -> Self {
        Self::Lines(lines, [usize::MAX; 2])
    }

    /// Returns parts of a page alone, which are made only when one is drawn.
    pub fn on_page(parts: impl FnOnce() -> Vec<Self> + 'a) -> Self {
        Self::OnPage(Box::new(parts))
    }

    fn markup(self, out: &mut String) {
        let mut paragraph = |class: &str, text: &str| {
            out.push_str(&format!("<p{}>{}</p>\n", class_of(class), escape(text)));
        };
        match self {
            Self::Lines(lines, [_, most]) => {
                first_of(lines, most).iter().for_each(|line| paragraph("", line));
            }
            Self::Marked(class, line) => out.push_str(&format!(
                "<p><svg class=\"key\" viewBox=\"0 0 12 12\" aria-hidden=\"true\"><circle class=\"{class}\" cx=\"6\" cy=\"6\" r=\"5\"/></svg> {}</p>\n",
                escape(&line)
            )),
            Self::Question(text) => paragraph("question", &text),
            Self::Answer(text) => paragraph("verdict", &text),
            Self::Caution(remarks, _) if remarks.is_empty() => {}
            Self::Caution(remarks, most) => {
                let remarks = first_of(remarks, most);
                let all = remarks.iter().map(|one| format!("<li>{}</li>\n", escape(one)));
                out.push_str(&format!(
                    "<div class=\"caution\" role=\"note\"><b>To keep in mind</b>\n<ul class=\"notes\">{}</ul></div>\n",
                    all.collect::<String>()
                ));
            }
            Self::Grid(grid) => grid.markup(out),
            Self::Heading(class, text) => {
                out.push_str(&format!("<h4{}>{}</h4>\n", class_of(class), escape(&text)));
            }
            Self::Styled(class, text) => paragraph(class, &text),
            Self::Boxes(class, name, values) => {
                let all = values.iter().map(|one| format!("<span>{}</span>", escape(one)));
                let (class, name) = (class_of(class), escape(&name));
                let all: String = all.collect();
                out.push_str(&format!("<p class=\"held\"><b{class}>{name}</b> {all}</p>\n"));
            }
            Self::Folded(heading, is_open, parts) => {
                let open = if is_open { " open" } else { "" };
                out.push_str(&format!("<details{open}><summary>{}</summary>\n", escape(&heading)));
                parts.into_iter().for_each(|part| part.markup(out));
                out.push_str("</details>\n");
            }
            Self::Markup(markup) => out.push_str(&markup),
            Self::OnPage(parts) => parts().into_iter().for_each(|part| part.markup(out)),
            Self::InText(_) => {}
        }
    }

    fn text(self, out: &mut Vec<String>) {
        match self {
            Self::Lines(lines, [most, _]) => out.extend(first_of(lines, most)),
            Self::Marked(_, line) | Self::Question(line) | Self::Answer(line) => out.push(line),
            Self::Caution(remarks, _) if remarks.is_empty() => {}
            Self::Caution(remarks, _) => {
                out.extend(["".to_owned(), "To keep in mind:".to_owned()]);
                out.extend(remarks.into_iter().map(|one| format!("  ! {one}")));
            }
            Self::Grid(grid) => {
                // A blank line is between two tables.
                let is_second = out.iter().any(|line| line.starts_with('─'));
                out.extend(is_second.then(String::new));
                out.extend(grid.text().lines().map(str::to_owned));
            }
            Self::Heading(_, text) => out.push(format!("{text}:")),
            Self::InText(text) => out.extend(text.lines().map(str::to_owned)),
            Self::Styled(..) | Self::Boxes(..) | Self::Folded(..) => {}
            Self::Markup(_) | Self::OnPage(_) => {}
        }
    }
}

fn class_of(class: &str) -> String {
    if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") }
}

/// Returns the first lines, and a last one that says how many more there are.
pub fn first_of(mut lines: Vec<String>, most: usize) -> Vec<String> {
    if lines.len() > most {
        let more = lines.len() - most;
        lines.truncate(most);
        lines.push(format!("… and {more} more lines, which are left out."));
    }
    lines
}

impl<'a> Section<'a> {
    /// Returns a section without a badge.
    pub fn new(chapter: Chapter, heading: impl Into<String>, parts: Vec<Part<'a>>) -> Self {
        Self { chapter, heading: heading.into(), badge: "", is_folded: false, parts }
    }

    /// Returns the section with a badge beside its heading.
    pub fn with_badge(self, badge: &'static str) -> Self {
        Self { badge, ..self }
    }

    /// Returns the section for the reader of a page to open.
    pub fn folded(self) -> Self {
        Self { is_folded: true, ..self }
    }

    /// Returns what is between the headings of the chapter and of the next section.
    fn markup(self) -> String {
        let Self { chapter, heading, badge, is_folded, parts } = self;
        let mut body = String::new();
        parts.into_iter().for_each(|part| part.markup(&mut body));
        let said = escape(&heading);
        match (body.is_empty(), chapter.id, badge) {
            (true, ..) => body,
            _ if is_folded => format!("<details><summary>{said}</summary>\n{body}</details>\n"),
            _ if heading.is_empty() || heading == chapter.heading => body,
            (_, "", "") => format!("<h2>{said}</h2>\n{body}"),
            (_, "", badge) => {
                let class = badge.replace(' ', "-");
                format!("<h2>{said} <span class=\"badge {class}\">{badge}</span></h2>\n{body}")
            }
            _ => format!("<h3>{said}</h3>\n{body}"),
        }
    }

    /// Returns heading and lines, which are set in where there is a heading; `None` without a line.
    fn text(self) -> Option<String> {
        let Self { heading, badge, parts, .. } = self;
        let mut lines = Vec::new();
        parts.into_iter().for_each(|part| part.text(&mut lines));
        if lines.is_empty() {
            return None;
        }
        let mut text = match (heading.as_str(), badge) {
            ("", _) => String::new(),
            (heading, "") if heading.ends_with('?') => format!("{}\n", shown(heading)),
            (heading, "") => format!("{}:\n", shown(heading)),
            (heading, badge) => format!("{badge}: {}\n", shown(heading)),
        };
        let set_in = if heading.is_empty() { "" } else { "  " };
        for line in lines {
            let line = format!("{set_in}{}", shown(line));
            text.push_str(&format!("{}\n", line.trim_end()));
        }
        Some(text)
    }
}

impl Frame<'_> {
    /// Returns the sections as a text, a blank line between them.
    pub fn text(self) -> String {
        let sections = self.sections.into_iter().filter_map(Section::text);
        sections.collect::<Vec<_>>().join("\n")
    }

    /// Returns the sections as a page that needs no network and no script.
    pub fn page(self) -> String {
        let Self { title, sections } = self;
        let drawn = sections.into_iter().map(|one| (one.chapter, one.badge, one.markup()));
        let drawn: Vec<_> = drawn.filter(|(_, _, markup)| !markup.is_empty()).collect();
        let (mut head, mut main) = (String::new(), String::new());
        for of_chapter in drawn.chunk_by(|a, b| a.0 == b.0 && a.0 != Chapter::NONE) {
            let (Chapter { id, name, heading }, badge, _) = of_chapter[0];
            match (id, badge) {
                ("", "") => main.push_str("<section>\n"),
                ("", _) => main.push_str("<section class=\"card\">\n"),
                _ => {
                    head.push_str(&format!("<a href=\"#{id}\">{name}</a>"));
                    main.push_str(&format!("<section id=\"{id}\">\n"));
                }
            }
            if !heading.is_empty() {
                main.push_str(&format!("<h2>{heading}</h2>\n"));
            }
            of_chapter.iter().for_each(|(_, _, markup)| main.push_str(markup));
            main.push_str("</section>\n");
        }
        if !head.is_empty() {
            head = format!("<nav aria-label=\"Sections\">{head}</nav>");
        }
        let title = escape(&title);
        format!(
            r##"<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="generator" content="millstream">
<title>{title} · Millstream</title>
<style>{STYLE}</style>
</head>
<body>
<a class="skip" href="#main">Skip to the answer</a>
<header>
<div class="brand"><svg viewBox="0 0 28 20" width="28" height="20" aria-hidden="true"><path d="M1 5c4-5 8 5 13 0s9 5 13 0M1 11c4-5 8 5 13 0s9 5 13 0M1 17c4-5 8 5 13 0s9 5 13 0"/></svg>
Millstream</div>
{head}
</header>
<main id="main">
<h1>{title}</h1>
{main}</main>
</body>
</html>
"##
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHAPTER: Chapter = Chapter { id: "all", name: "All", heading: "All of it" };

    fn frame() -> Frame<'static> {
        let rows = [
            vec![Cell::of_stack(1, "a&b"), Cell::from("1,000")],
            vec![Cell::from("c"), Cell::from("2").with_more("in small print")],
        ];
        let grid = Grid::new("Numbers", ["<name>", ">count"]).rows(rows);
        let lines = (1..=3).map(|at| format!("line {at}")).collect();
        let page_alone = Part::on_page(|| vec![Part::Styled("dim", "for the page".to_owned())]);
        Frame {
            title: "<T>".to_owned(),
            sections: vec![
                Section::new(CHAPTER, "", vec![Part::Answer("It is so.".to_owned())]),
                Section::new(CHAPTER, "Lists", vec![Part::Lines(lines, [1, 2]), page_alone]),
                Section::new(Chapter::NONE, "Why?", vec![Part::Grid(grid)])
                    .with_badge("not decided"),
                Section::new(Chapter::NONE, "Empty", vec![Part::Lines(vec![], [9; 2])]),
            ],
        }
    }

    #[test]
    fn parts_are_the_same_in_a_text_and_on_a_page() {
        let text = "It is so.\n\nLists:\n  line 1\n  … and 2 more lines, which are left out.\n\n\
                    not decided: Why?\n  <name>  count\n  ──────────────\n  a&b     1,000\n  c           2\n";
        assert_eq!(frame().text(), text);
        let page = frame().page();
        for said in [
            "<title>&lt;T&gt; · Millstream</title>",
            "<a href=\"#all\">All</a>",
            "<section id=\"all\">\n<h2>All of it</h2>\n<p class=\"verdict\">It is so.</p>\n<h3>Lists</h3>\n",
            "<p>line 2</p>\n<p>… and 1 more lines, which are left out.</p>\n<p class=\"dim\">for the page</p>",
            "<section class=\"card\">\n<h2>Why? <span class=\"badge not-decided\">not decided</span></h2>",
            "<th scope=\"col\">&lt;name&gt;</th><th scope=\"col\" class=\"r\">count</th>",
            "<th scope=\"row\" class=\"t1\">a&amp;b</th><td class=\"r\">1,000</td>",
            "<td class=\"r\">2<br><span class=\"dim\">in small print</span></td>",
        ] {
            assert!(page.contains(said), "{said}: {page}");
        }
        assert!(!page.contains("Empty"), "a section without a line is none");
    }
}
