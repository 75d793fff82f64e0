//! The terminal, taken as a whole and always given back: on return, on an error, on a panic in any thread, and when a signal
//! asks the process to end.
//!
//! While a [`Screen`] lives, the terminal shows another screen than before, and sends keys one by one. It marks pasted text
//! as not typed, and shows no cursor. There is one [`Screen`] at a time in a process.

mod backend;
mod signals;

use std::ffi::OsStr;
use std::io::{self, IsTerminal as _, Write as _};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ratatui::crossterm::event::{self, DisableBracketedPaste, EnableBracketedPaste, Event, KeyEventKind};
pub use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::crossterm::{cursor, execute, queue, terminal};
use ratatui::{Frame, Terminal};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use backend::Mute;
use signals::Signals;

/// The time after which the waiting thread sees a signal that came to another thread.
const SLICE: Duration = Duration::from_millis(100);

/// Whether the terminal is in the state in which a [`Screen`] has it.
static TAKEN: AtomicBool = AtomicBool::new(false);
/// Whether there is a [`Screen`].
static ENTERED: AtomicBool = AtomicBool::new(false);
/// Whether a thread has panicked while there was a [`Screen`].
static PANICKED: AtomicBool = AtomicBool::new(false);

/// The reason for which there is no screen.
#[derive(Debug)]
pub enum EnterError {
    /// Standard input or output is no terminal.
    NoTerminal,
    /// The terminal cannot move its cursor, according to the environment: `TERM` is `dumb`, empty or not set.
    Dumb,
    /// There is a [`Screen`] already in this process.
    Taken,
    /// The terminal did not execute a command.
    Io(io::Error),
}

impl std::fmt::Display for EnterError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            EnterError::NoTerminal => f.write_str("standard input and output must be a terminal"),
            EnterError::Dumb => f.write_str(
                "this terminal cannot show a screen because TERM is dumb, empty or not set: set TERM to the terminal's \
                type (such as xterm-256color)",
            ),
            EnterError::Taken => f.write_str("another screen uses the terminal already"),
            EnterError::Io(error) => write!(f, "the terminal cannot be used: {error}"),
        }
    }
}

impl std::error::Error for EnterError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            EnterError::Io(error) => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for EnterError {
    fn from(error: io::Error) -> EnterError {
        EnterError::Io(error)
    }
}

/// An event at the terminal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happening {
    /// A key was pressed, or repeats. Ctrl-C is a key like any other here: the program decides.
    Key(KeyEvent),
    /// Text was pasted: it comes from elsewhere and may hold any characters; its line ends are no keys. Terminals that do
    /// not mark pasted text send keys.
    Paste(String),
    /// The terminal has another size, or its content was lost: draw.
    Resized,
    /// The time to wait is over.
    Tick,
    /// The program has to end, and soon: drop the [`Screen`].
    End(End),
}

/// The reason for which a program has to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// A signal with this number came: SIGINT, SIGTERM or SIGHUP. SIGHUP also where the terminal has gone.
    Signal(i32),
    /// Another thread has panicked: its message stands on the terminal, which is restored.
    Panicked,
}

impl End {
    /// Returns the exit code that a process has by convention when it ends for this reason.
    pub fn exit_code(self) -> u8 {
        match self {
            End::Signal(number) => 128_u8.saturating_add(u8::try_from(number).unwrap_or(0)),
            End::Panicked => 101,
        }
    }
}

/// The terminal, as long as a program has all of it. The terminal is as before once this is dropped.
pub struct Screen {
    terminal: Terminal<Mute>,
    signals: Signals,
}

impl Screen {
    /// Takes the terminal. From now on nothing may be printed.
    ///
    /// [`Screen::next`] reports SIGINT, SIGTERM and SIGHUP until the screen is dropped. After that they do only what other
    /// parts of this process have registered.
    ///
    /// # Errors
    /// As [`can_enter`]; [`EnterError::Taken`] where there is a screen already; [`EnterError::Io`] where the terminal
    /// refuses. The terminal is as before then.
    pub fn enter() -> Result<Screen, EnterError> {
        can_enter()?;
        if ENTERED.swap(true, Ordering::SeqCst) {
            return Err(EnterError::Taken);
        }
        PANICKED.store(false, Ordering::SeqCst);
        Screen::begin().inspect_err(|_| {
            give_back();
            ENTERED.store(false, Ordering::SeqCst);
        })
    }

    fn begin() -> Result<Screen, EnterError> {
        chain_panic_hook();
        let signals = Signals::watch()?;
        take()?;
        let mut terminal = Terminal::new(Mute::new())?;
        terminal.clear()?;
        Ok(Screen { terminal, signals })
    }

    /// Draws a picture; only changes go to the terminal, and all of them at once. Draws nothing where the terminal was given
    /// back: another thread has panicked, and its message stands there.
    ///
    /// # Errors
    /// The terminal cannot be written to.
    pub fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        if !TAKEN.load(Ordering::SeqCst) {
            return Ok(());
        }
        queue!(self.terminal.backend_mut(), terminal::BeginSynchronizedUpdate)?;
        let drawn = self.terminal.draw(draw).map(drop);
        execute!(self.terminal.backend_mut(), terminal::EndSynchronizedUpdate)?;
        drawn
    }

    /// Waits for the next event, for `wait` at most.
    ///
    /// # Errors
    /// The terminal cannot be read, or cannot be taken again after a stop.
    pub fn next(&mut self, wait: Duration) -> io::Result<Happening> {
        let until = Instant::now() + wait;
        loop {
            if let Some(happening) = self.now()? {
                return Ok(happening);
            }
            let rest = until.saturating_duration_since(Instant::now());
            if rest.is_zero() {
                return Ok(Happening::Tick);
            }
            // The next round tells whether there is input.
            input(rest.min(SLICE))?;
        }
    }

    /// Returns an event that has happened already.
    fn now(&mut self) -> io::Result<Option<Happening>> {
        if PANICKED.load(Ordering::SeqCst) {
            return Ok(Some(Happening::End(End::Panicked)));
        }
        if let Some(number) = self.signals.end() {
            return Ok(Some(Happening::End(End::Signal(number))));
        }
        if self.signals.take_continued() {
            return self.resume().map(Some);
        }
        // Checked before the library reads: where the terminal has gone, the library reads for ever.
        if input(Duration::ZERO)?.contains(PollFlags::HUP) {
            return Ok(Some(Happening::End(End::Signal(signal_hook::consts::SIGHUP))));
        }
        while event::poll(Duration::ZERO)? {
            match event::read()? {
                Event::Key(key) if is_suspend(key) => return self.suspend().map(Some),
                Event::Key(key) if key.kind != KeyEventKind::Release => return Ok(Some(Happening::Key(key))),
                Event::Paste(text) => return Ok(Some(Happening::Paste(text))),
                Event::Resize(..) => return Ok(Some(Happening::Resized)),
                _ => {}
            }
        }
        Ok(None)
    }

    /// Stops the process, as Ctrl-Z does with any other program.
    fn suspend(&mut self) -> io::Result<Happening> {
        give_back();
        signal_hook::low_level::emulate_default_handler(signal_hook::consts::SIGTSTP)?;
        self.signals.take_continued();
        self.resume()
    }

    /// Takes the terminal again after another program had it.
    fn resume(&mut self) -> io::Result<Happening> {
        // A process that was stopped from outside had no time to give the terminal back, and the library does not switch to
        // a mode that it takes for the present one.
        let _ = terminal::disable_raw_mode();
        take()?;
        self.terminal.clear()?;
        Ok(Happening::Resized)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A panic during a drawing leaves the beginning of an update in the buffer. Where the terminal has gone there is
        // nothing left to do.
        let out = self.terminal.backend_mut();
        let _ = execute!(out, terminal::EndSynchronizedUpdate);
        give_back();
        ENTERED.store(false, Ordering::SeqCst);
    }
}

/// Checks whether there is a terminal that a [`Screen`] can take; changes nothing.
///
/// # Errors
/// [`EnterError::NoTerminal`] or [`EnterError::Dumb`].
pub fn can_enter() -> Result<(), EnterError> {
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        return Err(EnterError::NoTerminal);
    }
    if is_dumb(std::env::var_os("TERM").as_deref()) {
        return Err(EnterError::Dumb);
    }
    Ok(())
}

/// Columns and rows that a terminal is assumed to have where its size is not known.
pub const USUAL: (u16, u16) = (80, 24);

/// Returns the columns and rows of the terminal on standard output; `None` where it is no terminal, or does not report them.
pub fn size() -> Option<(u16, u16)> {
    if !io::stdout().is_terminal() {
        return None;
    }
    terminal::size().ok().filter(|size| told(*size) == *size)
}

/// Returns the size that a terminal reports, or the usual one: a pseudo-terminal that was given no size reports 0x0.
fn told((columns, rows): (u16, u16)) -> (u16, u16) {
    if columns == 0 || rows == 0 { USUAL } else { (columns, rows) }
}

/// Returns whether a terminal of this type understands no control sequences.
fn is_dumb(term: Option<&OsStr>) -> bool {
    term.is_none_or(|term| term.is_empty() || term == "dumb")
}

fn is_suspend(key: KeyEvent) -> bool {
    key.code == KeyCode::Char('z') && key.modifiers == KeyModifiers::CONTROL
}

/// Waits for events of standard input for at most `wait`; there are none where a signal came in between.
fn input(wait: Duration) -> io::Result<PollFlags> {
    let stdin = io::stdin();
    let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
    let wait = Timespec::try_from(wait).map_err(io::Error::other)?;
    match poll(&mut fds, Some(&wait)) {
        Ok(_) => Ok(fds[0].revents()),
        Err(rustix::io::Errno::INTR) => Ok(PollFlags::empty()),
        Err(error) => Err(error.into()),
    }
}

fn take() -> io::Result<()> {
    TAKEN.store(true, Ordering::SeqCst);
    terminal::enable_raw_mode()?;
    execute!(io::stdout(), terminal::EnterAlternateScreen, EnableBracketedPaste, cursor::Hide)
}

/// Gives the terminal back, once, from any thread; returns whether it was taken. An error has no remedy here.
pub(crate) fn give_back() -> bool {
    if !TAKEN.swap(false, Ordering::SeqCst) {
        return false;
    }
    let mut out = io::stdout();
    let _ = execute!(
        out,
        terminal::EndSynchronizedUpdate,
        DisableBracketedPaste,
        terminal::LeaveAlternateScreen,
        cursor::Show
    );
    let _ = terminal::disable_raw_mode();
    let _ = out.flush();
    true
}

/// Has a panic's message appear on the screen that stays.
fn chain_panic_hook() {
    static CHAINED: Once = Once::new();
    CHAINED.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if give_back() {
                PANICKED.store(true, Ordering::SeqCst);
            }
            before(panic);
        }));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_those_of_shells() {
        assert_eq!(End::Signal(15).exit_code(), 143);
        assert_eq!(End::Signal(-1).exit_code(), 128);
        assert_eq!(End::Panicked.exit_code(), 101);
    }

    #[test]
    fn a_terminal_without_control_sequences_is_told_by_its_type() {
        let is_dumb = |term: Option<&str>| is_dumb(term.map(OsStr::new));
        assert!(is_dumb(None) && is_dumb(Some("")) && is_dumb(Some("dumb")));
        assert!(!is_dumb(Some("xterm")) && !is_dumb(Some("linux")));
    }

    #[test]
    fn a_terminal_without_a_size_has_the_usual_one() {
        for (said, taken) in [((0, 0), USUAL), ((0, 50), USUAL), ((132, 0), USUAL), ((1, 1), (1, 1))] {
            assert_eq!(told(said), taken, "{said:?}");
        }
    }

    #[test]
    fn what_was_not_taken_is_not_given_back() {
        assert!(!give_back());
    }
}
