//! A program that takes the terminal and ends in one of many ways: for the test that the terminal is given back, and a sketch
//! of a program with a screen.
//!
//! `ends quit|panic|thread|stuck|error`: on the key `q`; by a panic of its own, or of another thread; by a signal while it does
//! nothing; by an error.

use std::process::ExitCode;
use std::time::Duration;

use screen::ratatui::text::Line;
use screen::terminal::{Happening, KeyCode, Screen};

fn main() -> ExitCode {
    let how = std::env::args().nth(1).unwrap_or_default();
    match show(&how) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("ends: {error}");
            ExitCode::FAILURE
        }
    }
}

fn show(how: &str) -> Result<u8, Box<dyn std::error::Error>> {
    let mut screen = Screen::enter()?;
    let mut said = "press a key".to_owned();
    loop {
        screen.draw(|frame| {
            frame.render_widget(Line::from(format!("shown: {said}")), frame.area());
        })?;
        match screen.next(Duration::from_millis(100))? {
            Happening::Key(key) if key.code == KeyCode::Char('q') => return Ok(0),
            Happening::Key(key) if key.code == KeyCode::Char('x') => match how {
                "panic" => panic!("on purpose"),
                // During a drawing: its beginning must not be left on the terminal.
                "drawing" => screen.draw(|_| panic!("on purpose"))?,
                // Later drawings must not overwrite the message of the panic.
                "thread" => {
                    drop(std::thread::spawn(|| panic!("on purpose")).join());
                    said = "LATE LATE LATE".to_owned();
                }
                "stuck" => loop {
                    std::thread::park();
                },
                _ => return Err("on purpose".into()),
            },
            Happening::Key(key) => said = format!("{:?}", key.code),
            Happening::Paste(text) => said = format!("pasted {text:?}"),
            Happening::End(end) => return Ok(end.exit_code()),
            Happening::Resized | Happening::Tick => {}
        }
    }
}
