//! The frame of every page and every text: a title, and sections in chapters. A section has its
//! parts once, and each part draws itself on a page and in a text.

mod grid;

use millstream_foreign::shown;
use minijinja::{Environment, context};
use serde::Serialize;

pub use grid::{Cell, Column, Grid, Row, of_place};

/// The page, and the style of all pages.
const PAGE: &str = include_str!("frame.html");
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
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
#[derive(Serialize)]
pub struct Section<'a> {
    chapter: Chapter,
    heading: String,
    /// A word on what the section says, beside its heading.
    badge: &'static str,
    is_folded: bool,
    parts: Vec<Part<'a>>,
}

/// A part of a section.
#[derive(Serialize)]
#[serde(tag = "kind", content = "of")]
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
    /// A table; nothing without rows.
    Grid(Grid),
    /// A heading inside the section, with the class of what it names.
    Heading(&'static str, String),
    /// A paragraph of a class, on a page alone.
    Styled(&'static str, String),
    /// A name, and values in boxes, on a page alone.
    Boxes(&'static str, String, Vec<String>),
    /// Names with their values, in a text one line.
    Facts(Vec<(String, String)>),
    /// Parts that the reader of a page opens, or that are open already.
    Folded(String, bool, Vec<Part<'a>>),
    /// Lines that stay as they are, on a page alone.
    Code(String),
    /// Drawings, on a page alone.
    Markup(String),
    /// Parts of a page alone, made only when one is drawn.
    #[serde(skip)]
    OnPage(Box<dyn FnOnce() -> Vec<Part<'a>> + 'a>),
    /// Lines of a text alone.
    #[serde(skip)]
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

    /// Adds the parts that a page draws of it.
    fn for_page(self, out: &mut Vec<Self>) {
        out.push(match self {
            Self::OnPage(parts) => return parts().into_iter().for_each(|part| part.for_page(out)),
            Self::InText(_) => return,
            Self::Grid(grid) if grid.is_empty() => return,
            Self::Facts(all) if all.is_empty() => return,
            Self::Lines(all, _) | Self::Caution(all, _) | Self::Boxes(_, _, all)
                if all.is_empty() =>
            {
                return;
            }
            Self::Lines(lines, most) => Self::Lines(first_of(lines, most[1]), most),
            Self::Caution(remarks, most) => Self::Caution(first_of(remarks, most), most),
            Self::Folded(heading, is_open, parts) => {
                Self::Folded(heading, is_open, for_page(parts))
            }
            part => part,
        });
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
            Self::Grid(grid) if grid.is_empty() => {}
            Self::Grid(grid) => {
                // A blank line is between two tables, before the heading of the second.
                let is_second = out.iter().any(|line| line.starts_with('─'));
                let is_headed = out.last().is_some_and(|line| line.ends_with(':'));
                out.extend((is_second && !is_headed).then(String::new));
                out.extend(grid.text().lines().map(str::to_owned));
            }
            Self::Heading(_, text) => {
                out.extend((!out.is_empty()).then(String::new));
                out.push(format!("{text}:"));
            }
            Self::Facts(all) if all.is_empty() => {}
            Self::Facts(all) => {
                let all = all.into_iter().map(|(name, value)| format!("{name} {value}"));
                out.push(all.collect::<Vec<_>>().join("; "));
            }
            Self::InText(text) => out.extend(text.lines().map(str::to_owned)),
            Self::Styled(..) | Self::Boxes(..) | Self::Folded(..) => {}
            Self::Code(_) | Self::Markup(_) | Self::OnPage(_) => {}
        }
    }
}

fn for_page(parts: Vec<Part<'_>>) -> Vec<Part<'_>> {
    let mut drawn = Vec::new();
    parts.into_iter().for_each(|part| part.for_page(&mut drawn));
    drawn
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
    ///
    /// # Panics
    ///
    /// When the template cannot be rendered, which tests exclude.
    pub fn page(self) -> String {
        let mut environment = Environment::new();
        environment.set_trim_blocks(true);
        environment.set_lstrip_blocks(true);
        environment.add_template("frame.html", PAGE).expect("a template");
        let sections = self.sections.into_iter();
        let sections = sections.map(|one| Section { parts: for_page(one.parts), ..one });
        let sections: Vec<_> = sections.filter(|one| !one.parts.is_empty()).collect();
        let in_one =
            |a: &Section<'_>, b: &Section<'_>| a.chapter == b.chapter && a.chapter != Chapter::NONE;
        let chapters: Vec<&[Section<'_>]> = sections.chunk_by(in_one).collect();
        let page = environment.get_template("frame.html").expect("the page");
        page.render(context! { title => self.title, style => STYLE, chapters }).expect("a page")
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
                Section::new(
                    Chapter::NONE,
                    "Empty",
                    vec![
                        Part::Lines(vec![], [9; 2]),
                        Part::Grid(Grid::new("nothing", ["a"])),
                        Part::Boxes("", "none".to_owned(), vec![]),
                        Part::Caution(vec![], 9),
                    ],
                ),
            ],
        }
    }

    #[test]
    fn parts_are_the_same_in_a_text_and_on_a_page() {
        let text = "It is so.\n\nLists:\n  line 1\n  … and 2 more lines, which are left out.\n\n\
                    not decided: Why?\n  <name>  count\n  ──────────────\n  a&b     1,000\n  c           2\n";
        assert_eq!(frame().text(), text);
        let page: String = frame().page().lines().collect();
        for said in [
            "<title>&lt;T&gt; · Millstream</title>",
            "<a href=\"#all\">All</a>",
            "<section id=\"all\"><h2>All of it</h2><p class=\"verdict\">It is so.</p><h3>Lists</h3>",
            "<p>line 2</p><p>… and 1 more lines, which are left out.</p><p class=\"dim\">for the page</p>",
            "<section class=\"card\"><h2>Why? <span class=\"badge not-decided\">not decided</span></h2>",
            "<th scope=\"col\">&lt;name&gt;</th><th scope=\"col\" class=\"r\">count</th>",
            "<th scope=\"row\" class=\"t1\">a&amp;b</th><td class=\"r\">1,000</td>",
            "<td class=\"r\">2<br><span class=\"dim\">in small print</span></td>",
        ] {
            assert!(page.contains(said), "{said}: {page}");
        }
        assert!(!page.contains("Empty"), "a section without a line is none");
    }

    #[test]
    fn tables_of_a_text_are_apart() {
        let grid = || Part::Grid(Grid::new("", ["a"]).rows([["1".to_owned()]]));
        let text = Section::new(Chapter::NONE, "", vec![grid(), grid()]).text().unwrap();
        assert_eq!(text.lines().filter(|line| line.is_empty()).count(), 1, "{text}");
    }
}
