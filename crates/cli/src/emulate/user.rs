//! User of the programs in a world.

use emu::User;

use crate::Usage;

/// Option of commands that run programs in a world.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct AsUser {
    /// Run programs as an ordinary user [default name: the caller, also through sudo]
    ///
    /// Only root can name another user.
    #[arg(
        long,
        help_heading = "Programs",
        value_name = "NAME",
        num_args = 0..=1,
        require_equals = true
    )]
    user: Option<Option<String>>,
}

impl AsUser {
    /// Whether the option was given.
    pub(super) fn is_some(&self) -> bool {
        self.user.is_some()
    }

    /// User of the option, if it was given.
    pub(super) fn find(&self) -> anyhow::Result<Option<User>> {
        let found = self.user.as_ref().map(|name| User::find(name.as_deref()));
        found.transpose().map_err(|error| Usage(error.to_string()).into())
    }
}
