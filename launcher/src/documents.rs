//! What is made from the options' declaration: completions for shells, and the man page.

use std::io::Write;

use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;

/// The completions of `shell` for `command`, as a script.
pub fn completions(shell: Shell, mut command: Command) -> Vec<u8> {
    let (mut script, name) = (Vec::new(), command.get_name().to_owned());
    clap_complete::generate(shell, &mut command, name, &mut script);
    script
}

/// The man page of `command`, in roff.
pub fn man(command: Command) -> Vec<u8> {
    let mut page = Vec::new();
    Man::new(command).render(&mut page).expect("a vector takes all that is written");
    page
}

/// Prints one of them and ends the process. A reader that goes away, as `head` does, is none of its business.
pub fn print(text: &[u8]) -> ! {
    let _ = std::io::stdout().write_all(text);
    std::process::exit(0)
}
