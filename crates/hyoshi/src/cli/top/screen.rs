//! Draws on the alternate screen of a terminal, and restores the terminal in every case.

use std::io::{self, BufRead, IsTerminal, Write};

use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::terminal::{
    BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate, EnterAlternateScreen, LeaveAlternateScreen,
    disable_raw_mode, enable_raw_mode, size,
};
use crossterm::{execute, queue};
use hyoshi_model::Span;
use hyoshi_os::{Clock, MonotonicClock, Wake, wait_for_input};
use hyoshi_report::TerminalStyle;

use super::view::View;

/// See the module.
pub(super) struct Screen {
    /// False if standard input is not a terminal, or has ended.
    keys: bool,
    shown: String,
}

impl Screen {
    /// Switches to the alternate screen.
    pub fn enter() -> io::Result<Screen> {
        let keys = io::stdin().is_terminal();
        if keys {
            // Keys arrive one by one, including Control-C.
            enable_raw_mode()?;
        }
        let screen = Screen { keys, shown: String::new() };
        // The message of a panic must not vanish with the alternate screen.
        let others = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            leave();
            others(panic);
        }));
        execute!(io::stdout(), EnterAlternateScreen, Hide)?;
        Ok(screen)
    }

    /// Typed keys. Waits for `most` at most, or until a signal posts `wake`.
    pub fn keys(&mut self, most: Span, wake: &Wake, clock: &MonotonicClock) -> Vec<u8> {
        if !self.keys {
            wake.wait_until(clock, clock.now() + most);
            return Vec::new();
        }
        if !wait_for_input(most).unwrap_or(false) {
            return Vec::new();
        }
        let mut stdin = io::stdin().lock();
        let typed = stdin.fill_buf().unwrap_or_default().to_vec();
        stdin.consume(typed.len());
        // At its end, input would stay readable for ever.
        self.keys = !typed.is_empty();
        // Arrow keys arrive as several octets; they have no meaning here.
        if typed.first() == Some(&0x1b) { Vec::new() } else { typed }
    }

    /// Draws the text, if it has changed.
    pub fn show(&mut self, view: &View) -> io::Result<()> {
        // Some terminals do not know their size and report 0.
        let (_, height) = size().ok().filter(|(_, height)| *height > 0).unwrap_or((80, 24));
        let text = view.text(TerminalStyle::of_stdout(), Some(height.into()));
        if text == self.shown {
            return Ok(());
        }
        let mut out = io::stdout().lock();
        queue!(out, BeginSynchronizedUpdate, MoveTo(0, 0))?;
        for (place, line) in text.lines().enumerate() {
            // In raw mode a line needs its own carriage return.
            let end = if place == 0 { "" } else { "\r\n" };
            write!(out, "{end}")?;
            queue!(out, Clear(ClearType::CurrentLine))?;
            write!(out, "{line}")?;
        }
        queue!(out, Clear(ClearType::FromCursorDown), EndSynchronizedUpdate)?;
        out.flush()?;
        self.shown = text;
        Ok(())
    }
}

/// Restores the terminal. Errors cannot be reported.
fn leave() {
    let _ = execute!(io::stdout(), EndSynchronizedUpdate, Show, LeaveAlternateScreen);
    let _ = disable_raw_mode();
}

impl Drop for Screen {
    fn drop(&mut self) {
        leave();
        if !std::thread::panicking() {
            // The hook that restores it.
            drop(std::panic::take_hook());
        }
    }
}
