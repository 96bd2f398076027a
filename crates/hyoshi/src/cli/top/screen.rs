//! A terminal that is taken for a while, and given back as it was however that ends.

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
    /// False where nobody types: standard input is no terminal, or has ended.
    keys: bool,
    shown: String,
}

impl Screen {
    /// Takes the terminal.
    pub fn enter() -> io::Result<Screen> {
        let keys = io::stdin().is_terminal();
        if keys {
            // Keys come one by one, and Control-C as one of them.
            enable_raw_mode()?;
        }
        let screen = Screen { keys, shown: String::new() };
        // What a panic says must not go with the screen that it is said on.
        let others = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            leave();
            others(panic);
        }));
        execute!(io::stdout(), EnterAlternateScreen, Hide)?;
        Ok(screen)
    }

    /// What was typed. Waits no longer than `most`, or until `wake` is posted by a signal.
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
        // At the end of input it would be ready to be read for ever.
        self.keys = !typed.is_empty();
        // Arrows and the like come as several octets, of which none is meant.
        if typed.first() == Some(&0x1b) { Vec::new() } else { typed }
    }

    /// Draws it, if it is not there already.
    pub fn show(&mut self, view: &View) -> io::Result<()> {
        // Some terminals do not know their size and say 0.
        let (_, height) = size().ok().filter(|(_, height)| *height > 0).unwrap_or((80, 24));
        let text = view.text(TerminalStyle::of_stdout(), Some(height.into()));
        if text == self.shown {
            return Ok(());
        }
        let mut out = io::stdout().lock();
        queue!(out, BeginSynchronizedUpdate, MoveTo(0, 0))?;
        for (place, line) in text.lines().enumerate() {
            // Lines end by themselves only where keys are not read one by one.
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

/// Gives the terminal back. Should that fail, there is nobody left to tell.
fn leave() {
    let _ = execute!(io::stdout(), EndSynchronizedUpdate, Show, LeaveAlternateScreen);
    let _ = disable_raw_mode();
}

impl Drop for Screen {
    fn drop(&mut self) {
        leave();
        if !std::thread::panicking() {
            // The hook that gives it back.
            drop(std::panic::take_hook());
        }
    }
}
