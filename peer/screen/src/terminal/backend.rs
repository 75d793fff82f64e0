//! The backend that a [`Screen`](super::Screen) draws through: crossterm's, without questions to the terminal.

use std::io::{self, BufWriter, Stdout, Write};

use ratatui::backend::{Backend, ClearType, CrosstermBackend, WindowSize};
use ratatui::buffer::Cell;
use ratatui::layout::{Position, Size};

use super::told;

/// Size of the output buffer, in bytes. All output of one drawing goes to the terminal at once, as far as it fits in
/// there.
const OUT_BYTES: usize = 64 << 10;

/// Crossterm's backend, which never waits for an answer of the terminal and never shows or hides the cursor.
///
/// Some terminals do not report where the cursor is, and ratatui asks at each clear. It also prints to standard error when
/// it cannot show the cursor again, and panics where standard error is closed. [`Screen`](super::Screen) hides the cursor
/// while it lives, so neither is needed.
pub(super) struct Mute<W: Write = BufWriter<Stdout>>(CrosstermBackend<W>);

impl Mute {
    /// Draws on standard output.
    pub(super) fn new() -> Mute {
        Mute(CrosstermBackend::new(BufWriter::with_capacity(OUT_BYTES, io::stdout())))
    }
}

impl<W: Write> Write for Mute<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Write::flush(&mut self.0)
    }
}

impl<W: Write> Backend for Mute<W> {
    type Error = io::Error;

    fn draw<'a, I>(&mut self, content: I) -> io::Result<()>
    where
        I: Iterator<Item = (u16, u16, &'a Cell)>,
    {
        self.0.draw(content)
    }

    fn hide_cursor(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn show_cursor(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn get_cursor_position(&mut self) -> io::Result<Position> {
        Ok(Position::ORIGIN)
    }

    fn set_cursor_position<P: Into<Position>>(&mut self, position: P) -> io::Result<()> {
        self.0.set_cursor_position(position)
    }

    fn clear(&mut self) -> io::Result<()> {
        self.0.clear()
    }

    fn clear_region(&mut self, clear_type: ClearType) -> io::Result<()> {
        self.0.clear_region(clear_type)
    }

    fn size(&self) -> io::Result<Size> {
        let Size { width, height } = self.0.size()?;
        Ok(told((width, height)).into())
    }

    fn window_size(&mut self) -> io::Result<WindowSize> {
        let WindowSize { columns_rows: Size { width, height }, pixels } = self.0.window_size()?;
        Ok(WindowSize { columns_rows: told((width, height)).into(), pixels })
    }

    fn flush(&mut self) -> io::Result<()> {
        Backend::flush(&mut self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A terminal that must not be written to.
    struct Untouched;

    impl Write for Untouched {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            panic!("written: {}", bytes.escape_ascii())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn the_cursor_is_neither_asked_for_nor_shown() {
        let mut backend = Mute(CrosstermBackend::new(Untouched));
        assert_eq!(backend.get_cursor_position().unwrap(), Position::ORIGIN);
        backend.show_cursor().unwrap();
        backend.hide_cursor().unwrap();
    }
}
