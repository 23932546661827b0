//! The user's choice of what to see, and how each key changes it.

use std::time::Duration;

use millstream_observe::watch::{Choice, Moment, Sheet, Subject, sheet};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// A wish that a key stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    None,
    /// Look at the machine at once.
    Look,
    Suspend,
    End,
}

/// A table's place, and how it is looked at.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pane {
    /// Column that it is sorted by, if any, and whether the other way around.
    pub sorted: Option<(usize, bool)>,
    /// Lines above the first that is shown.
    pub skipped: usize,
    /// Columns between the first, which stays, and the next that is shown.
    pub columns_skipped: usize,
    /// Lines that there was room for, as they were drawn.
    pub room: usize,
}

/// All of it.
pub struct Screen {
    /// Time between two looks.
    pub delay: Duration,
    pub choice: Choice,
    /// The table that keys are for.
    pub focus: usize,
    /// Only that table is shown.
    pub alone: bool,
    pub help: bool,
    /// Seconds that are being typed.
    pub typed: Option<String>,
    /// The user typed this as a delay, and it is none.
    pub refused: Option<String>,
    pub panes: [Pane; Subject::ALL.len()],
}

impl Screen {
    pub fn new(delay: Duration, busy_only: bool) -> Self {
        Self {
            delay,
            choice: Choice { together: false, busy_only },
            focus: 0,
            alone: false,
            help: false,
            typed: None,
            refused: None,
            panes: Default::default(),
        }
    }

    /// Returns a table as it was chosen.
    pub fn sheet(&self, moment: &Moment, at: usize) -> Sheet {
        let mut sheet = sheet(moment, Subject::ALL[at], self.choice);
        if let Some((column, reversed)) = self.panes[at].sorted {
            sheet.sort(column, reversed);
        }
        sheet
    }

    /// Takes a key.
    pub fn key(&mut self, key: KeyEvent) -> Action {
        self.refused = None;
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c') => Action::End,
                KeyCode::Char('z') => Action::Suspend,
                _ => Action::None,
            };
        }
        if self.typed.is_some() {
            return self.typed_key(key.code);
        }
        if self.help {
            self.help = false;
            return if key.code == KeyCode::Char('q') { Action::End } else { Action::None };
        }
        match key.code {
            KeyCode::Char('q') => return Action::End,
            KeyCode::Char(' ') | KeyCode::Enter => return Action::Look,
            KeyCode::Char('?' | 'h') => self.help = true,
            KeyCode::Char('s' | 'd') => self.typed = Some(String::new()),
            KeyCode::Char('1') => self.choice.together = !self.choice.together,
            KeyCode::Char('i') => self.choice.busy_only = !self.choice.busy_only,
            KeyCode::Char('A') => self.alone = !self.alone,
            KeyCode::Tab => self.focus = (self.focus + 1) % self.panes.len(),
            KeyCode::BackTab => self.focus = (self.focus + self.panes.len() - 1) % self.panes.len(),
            code => self.pane_key(code),
        }
        Action::None
    }

    /// Handles a key for the table in focus. The limits of its movement are known when it is drawn.
    fn pane_key(&mut self, code: KeyCode) {
        let pane = &mut self.panes[self.focus];
        let page = pane.room.max(1);
        match code {
            KeyCode::Up => pane.skipped = pane.skipped.saturating_sub(1),
            KeyCode::Down => pane.skipped = pane.skipped.saturating_add(1),
            KeyCode::PageUp => pane.skipped = pane.skipped.saturating_sub(page),
            KeyCode::PageDown => pane.skipped = pane.skipped.saturating_add(page),
            KeyCode::Home => pane.skipped = 0,
            KeyCode::End => pane.skipped = usize::MAX,
            KeyCode::Left => pane.columns_skipped = pane.columns_skipped.saturating_sub(1),
            KeyCode::Right => pane.columns_skipped = pane.columns_skipped.saturating_add(1),
            KeyCode::Char('<') => {
                let (column, reversed) = pane.sorted.unwrap_or((1, false));
                pane.sorted = Some((column.saturating_sub(1), reversed));
            }
            KeyCode::Char('>') => {
                let next =
                    pane.sorted.map_or((0, false), |(column, reversed)| (column + 1, reversed));
                pane.sorted = Some(next);
            }
            KeyCode::Char('R') => {
                let (column, reversed) = pane.sorted.unwrap_or((0, false));
                pane.sorted = Some((column, !reversed));
            }
            KeyCode::Char('=') => *pane = Pane::default(),
            _ => {}
        }
    }

    /// Handles a key while the seconds are typed.
    fn typed_key(&mut self, code: KeyCode) -> Action {
        let Some(typed) = &mut self.typed else { return Action::None };
        match code {
            // Longer numbers of seconds are none.
            KeyCode::Char(letter) if typed.len() < 12 => typed.push(letter),
            KeyCode::Backspace => drop(typed.pop()),
            KeyCode::Esc => self.typed = None,
            KeyCode::Enter => {
                let typed = self.typed.take().unwrap_or_default();
                match typed.trim().parse().ok().and_then(super::delay) {
                    Some(delay) => {
                        self.delay = delay;
                        return Action::Look;
                    }
                    None if typed.is_empty() => {}
                    None => {
                        self.refused = Some(format!("{typed:?} is not from 0.1 to 86400 seconds"))
                    }
                }
            }
            _ => {}
        }
        Action::None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn press(screen: &mut Screen, keys: &str) -> Action {
        let code = |letter| match letter {
            '\n' => KeyCode::Enter,
            '\t' => KeyCode::Tab,
            letter => KeyCode::Char(letter),
        };
        let mut last = Action::None;
        for letter in keys.chars() {
            last = screen.key(KeyEvent::from(code(letter)));
        }
        last
    }

    #[test]
    fn keys_do_what_they_do_in_top() {
        let mut screen = Screen::new(Duration::from_secs(1), false);
        assert_eq!(press(&mut screen, "1iA\t"), Action::None);
        assert_eq!(screen.choice, Choice { together: true, busy_only: true });
        assert!(screen.alone && screen.focus == 1);
        press(&mut screen, "\t\t\t\t\t");
        assert_eq!(screen.focus, 0, "once around");
        assert_eq!(press(&mut screen, " "), Action::Look);
        assert_eq!(press(&mut screen, "?"), Action::None);
        assert!(screen.help);
        assert_eq!(press(&mut screen, "x"), Action::None);
        assert!(!screen.help, "any key ends the help");
        assert_eq!(press(&mut screen, "q"), Action::End);
        let control = |letter| KeyEvent::new(KeyCode::Char(letter), KeyModifiers::CONTROL);
        assert_eq!(screen.key(control('c')), Action::End);
        assert_eq!(screen.key(control('z')), Action::Suspend);
    }

    #[test]
    fn columns_are_chosen_to_sort_by() {
        let mut screen = Screen::new(Duration::from_secs(1), false);
        press(&mut screen, ">>R");
        assert_eq!(screen.panes[0].sorted, Some((1, true)));
        press(&mut screen, "<<<");
        assert_eq!(screen.panes[0].sorted, Some((0, true)));
        press(&mut screen, "=");
        assert_eq!(screen.panes[0].sorted, None);
        assert!(screen.panes[1].sorted.is_none(), "other tables stay as they are");
    }

    #[test]
    fn a_delay_is_typed_and_one_that_is_none_is_told() {
        let mut screen = Screen::new(Duration::from_secs(1), false);
        assert_eq!(press(&mut screen, "s0.5\n"), Action::Look);
        assert_eq!(screen.delay, Duration::from_millis(500));
        for wrong in ["d0\n", "sq\n", "s-1\n", "sinf\n", "s1e300\n"] {
            assert_eq!(press(&mut screen, wrong), Action::None);
            assert!(screen.refused.is_some(), "{wrong}");
        }
        press(&mut screen, "s\n");
        assert_eq!((screen.delay, screen.refused), (Duration::from_millis(500), None));
    }
}
