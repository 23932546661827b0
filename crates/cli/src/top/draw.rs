//! The screen of `top`: lines above, tables below each other, a line at the bottom.

use millstream_observe::watch::{Cell, Moment, Sheet, Subject, summary};
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Clear, Paragraph};

use super::screen::{Pane, Screen};

/// Draws all of it; without a moment, that the first is awaited.
pub fn draw(frame: &mut Frame<'_>, screen: &mut Screen, moment: Option<&Moment>) {
    let area = frame.area();
    let Some(moment) = moment else {
        let wait = format!("millstream top: the first look takes {} s", screen.delay.as_secs_f64());
        return frame.render_widget(Paragraph::new(wait), area);
    };
    if screen.help {
        return frame.render_widget(help(moment), area);
    }
    let head = head(screen, moment);
    let head_height = (head.len() as u16).min(area.height);
    let has_bottom = area.height > head_height + 4;
    let body = Rect {
        y: area.y + head_height,
        height: area.height - head_height - u16::from(has_bottom),
        ..area
    };
    frame.render_widget(Paragraph::new(head), Rect { height: head_height, ..area });
    tables(frame, body, screen, moment);
    if has_bottom {
        let bottom = Rect { y: area.bottom() - 1, height: 1, ..area };
        frame.render_widget(Clear, bottom);
        frame.render_widget(Paragraph::new(bottom_line(screen, moment)), bottom);
    }
}

fn head(screen: &Screen, moment: &Moment) -> Vec<Line<'static>> {
    let name = format!(
        "millstream top, every {} s: the last {:.2} s, looked at in {:.1} ms",
        screen.delay.as_secs_f64(),
        moment.width_s,
        moment.look_s * 1e3
    );
    let mut lines = vec![Line::styled(name, Modifier::BOLD)];
    lines.extend(summary(moment).into_iter().map(Line::from));
    lines
}

fn bottom_line(screen: &Screen, moment: &Moment) -> Line<'static> {
    if let Some(typed) = &screen.typed {
        return Line::styled(format!("seconds between two looks: {typed}_"), Modifier::BOLD);
    }
    if let Some(refused) = &screen.refused {
        return Line::styled(refused.clone(), Modifier::BOLD);
    }
    let names: Vec<&str> = moment.absent.keys().map(String::as_str).collect();
    let notes = match names.is_empty() {
        true => String::new(),
        false => format!(" | not measured, or in another way: {}", names.join(", ")),
    };
    Line::from(format!("? keys, q end, Tab next table{notes}"))
}

fn help(moment: &Moment) -> Paragraph<'static> {
    let mut text = super::HELP.split("\n\n").next().unwrap_or_default().to_owned();
    text.push_str("\n\nNot measured, or in another way:\n");
    for (what, why) in &moment.absent {
        text.push_str(&format!("  {what}: {why}\n"));
    }
    if moment.absent.is_empty() {
        text.push_str("  nothing\n");
    }
    text.push_str("\nAny key goes back.");
    Paragraph::new(text).wrap(ratatui::widgets::Wrap { trim: false })
}

fn tables(frame: &mut Frame<'_>, area: Rect, screen: &mut Screen, moment: &Moment) {
    let shown: Vec<usize> =
        if screen.alone { vec![screen.focus] } else { (0..Subject::ALL.len()).collect() };
    let sheets: Vec<(usize, Sheet)> =
        shown.iter().map(|&at| (at, screen.sheet(moment, at))).collect();
    let wanted: Vec<u16> = sheets
        .iter()
        .map(|(_, sheet)| (1 + sheet.rows.len().max(1) + usize::from(sheet.total.is_some())) as u16)
        .collect();
    let focus = sheets.iter().position(|(at, _)| *at == screen.focus).unwrap_or(0);
    let heights = heights(&wanted, area.height, focus);
    let mut y = area.y;
    for ((at, sheet), height) in sheets.iter().zip(heights) {
        let place = Rect { y, height, ..area };
        let is_focus = *at == screen.focus;
        let pane = &mut screen.panes[*at];
        let lines = table(sheet, pane, Subject::ALL[*at], usize::from(height), is_focus);
        frame.render_widget(Paragraph::new(lines), place);
        y += height;
    }
}

/// Returns the number of lines for each table: as many as it wants, or an equal part of the room.
/// The rest goes to the table in focus, and then to the others.
fn heights(wanted: &[u16], room: u16, focus: usize) -> Vec<u16> {
    let part = room / wanted.len().max(1) as u16;
    let mut heights: Vec<u16> = wanted.iter().map(|wanted| (*wanted).min(part)).collect();
    let mut left = room - heights.iter().sum::<u16>();
    let others = (0..wanted.len()).filter(|at| *at != focus);
    for at in std::iter::once(focus).chain(others) {
        if let (Some(height), Some(wanted)) = (heights.get_mut(at), wanted.get(at)) {
            let more = (wanted - *height).min(left);
            *height += more;
            left -= more;
        }
    }
    heights
}

/// Returns a table in `height` lines. A position beyond its ends is put right in `pane`.
fn table(
    sheet: &Sheet,
    pane: &mut Pane,
    subject: Subject,
    height: usize,
    is_focus: bool,
) -> Vec<Line<'static>> {
    let columns = sheet.heads.len();
    if let Some((column, _)) = &mut pane.sorted {
        *column = (*column).min(columns - 1);
    }
    pane.columns_skipped = pane.columns_skipped.min(columns.saturating_sub(2));
    pane.room = height.saturating_sub(1 + usize::from(sheet.total.is_some()));
    pane.skipped = pane.skipped.min(sheet.rows.len().saturating_sub(pane.room));
    let widths = sheet.widths();
    let shown: Vec<usize> = std::iter::once(0).chain(1 + pane.columns_skipped..columns).collect();
    let line = |words: &dyn Fn(usize) -> String| {
        let padded = shown.iter().map(|&column| {
            let (word, width) = (words(column), widths[column]);
            match sheet.is_of_text(column) {
                true => format!("{word:<width$} "),
                false => format!("{word:>width$} "),
            }
        });
        padded.collect::<Vec<String>>()
    };
    let head_style = match is_focus {
        true => Style::new().add_modifier(Modifier::REVERSED | Modifier::BOLD),
        false => Style::new().add_modifier(Modifier::REVERSED | Modifier::DIM),
    };
    let sorted = pane.sorted.map(|(column, _)| column);
    let head = line(&|column| sheet.heads[column].name.to_owned());
    let spans = head.into_iter().zip(&shown).map(|(word, column)| match sorted == Some(*column) {
        true => Span::styled(word, head_style.add_modifier(Modifier::UNDERLINED)),
        false => Span::styled(word, head_style),
    });
    let mut lines = vec![Line::from(spans.collect::<Vec<_>>()).style(head_style)];
    let of_row = |row: &Vec<Cell>| Line::from(line(&|column| row[column].text()).concat());
    lines.extend(sheet.rows.iter().skip(pane.skipped).take(pane.room).map(of_row));
    if sheet.rows.is_empty() {
        lines.push(Line::from(format!("no {} to show", subject.title())));
    }
    lines.extend(sheet.total.as_ref().map(of_row));
    lines
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use millstream_observe::probe::Absent;
    use millstream_observe::watch::Watch;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::crossterm::event::{KeyCode, KeyEvent};

    use super::*;

    fn shown(screen: &mut Screen, moment: Option<&Moment>, (width, height): (u16, u16)) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, screen, moment)).unwrap();
        let buffer = terminal.backend().buffer();
        let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        (0..height).map(|y| line(y).trim_end().to_owned() + "\n").collect()
    }

    fn moment() -> Moment {
        let why = Absent("not asked for".to_owned());
        Watch::open(Err(why)).unwrap().sample().unwrap()
    }

    #[test]
    fn all_tables_are_there_and_what_is_missing_is_named() {
        let (moment, mut screen) = (moment(), Screen::new(Duration::from_secs(1), false));
        assert!(shown(&mut screen, None, (80, 24)).contains("the first look takes 1 s"));
        let text = shown(&mut screen, Some(&moment), (160, 60));
        for head in
            ["xcal", "in/s", "intr/s", "recv-q", "waits for", "sockets", "turns/s", "retr B/s"]
        {
            assert!(text.contains(head), "{head} in {text}");
        }
        assert!(text.contains("in another way: ") && text.contains("csw"), "{text}");
        screen.help = true;
        let help = shown(&mut screen, Some(&moment), (160, 60));
        assert!(help.contains("csw: not measured, because not asked for"), "{help}");
    }

    #[test]
    fn a_screen_of_any_size_is_drawn() {
        let (moment, mut screen) = (moment(), Screen::new(Duration::from_secs(1), false));
        for alone in [false, true] {
            screen.alone = alone;
            for size in [(1, 1), (3, 2), (20, 5), (80, 6), (80, 24), (250, 100)] {
                for code in [KeyCode::End, KeyCode::Right, KeyCode::Tab, KeyCode::PageUp] {
                    screen.key(KeyEvent::from(code));
                    shown(&mut screen, Some(&moment), size);
                }
            }
        }
    }

    #[test]
    fn the_first_column_stays_when_others_are_passed_over() {
        let (moment, mut screen) = (moment(), Screen::new(Duration::from_secs(1), false));
        for _ in 0..30 {
            screen.key(KeyEvent::from(KeyCode::Right));
        }
        let text = shown(&mut screen, Some(&moment), (80, 24));
        let head = text.lines().find(|line| line.starts_with("CPU")).unwrap();
        assert!(head.ends_with("si") && !head.contains("minf"), "{head}");
        assert_eq!(screen.panes[0].columns_skipped, 16);
    }

    #[test]
    fn room_goes_to_the_table_in_focus() {
        assert_eq!(heights(&[3, 4, 5, 6], 40, 0), [3, 4, 5, 6]);
        assert_eq!(heights(&[30, 4, 50, 60], 40, 2), [10, 4, 16, 10]);
        assert_eq!(heights(&[3, 4, 50, 60], 40, 0), [3, 4, 23, 10]);
        assert_eq!(heights(&[9], 4, 0), [4]);
        assert_eq!(heights(&[5, 5], 0, 1), [0, 0]);
    }
}
