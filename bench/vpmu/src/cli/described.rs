//! The options of a command, whose help begins with what the command does.

use std::ops::Deref;

use clap::builder::Resettable;
use clap::{ArgMatches, Args, Command, Error, FromArgMatches, Id};

/// Options that leave a command its description. Those that are defined when they are asked for would put their own in its place.
#[derive(Clone, Debug)]
pub struct Described<A>(Box<A>);

impl<A> Described<A> {
    /// Wraps `args`, which were not parsed as a command's.
    pub fn new(args: A) -> Self {
        Self(Box::new(args))
    }

    /// Returns the options.
    #[must_use]
    pub fn into_inner(self) -> A {
        *self.0
    }
}

impl<A> Deref for Described<A> {
    type Target = A;

    fn deref(&self) -> &A {
        &self.0
    }
}

fn described(command: Command, augment: fn(Command) -> Command) -> Command {
    let (about, long) = (command.get_about().cloned(), command.get_long_about().cloned());
    // A script's option that is given once more is no mistake: the last one counts.
    augment(command).about(Resettable::from(about)).long_about(Resettable::from(long)).args_override_self(true)
}

impl<A: Args> Args for Described<A> {
    fn augment_args(command: Command) -> Command {
        described(command, A::augment_args)
    }

    fn augment_args_for_update(command: Command) -> Command {
        described(command, A::augment_args_for_update)
    }

    fn group_id() -> Option<Id> {
        A::group_id()
    }
}

impl<A: FromArgMatches> FromArgMatches for Described<A> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        A::from_arg_matches(matches).map(Self::new)
    }

    fn from_arg_matches_mut(matches: &mut ArgMatches) -> Result<Self, Error> {
        A::from_arg_matches_mut(matches).map(Self::new)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        self.0.update_from_arg_matches(matches)
    }

    fn update_from_arg_matches_mut(&mut self, matches: &mut ArgMatches) -> Result<(), Error> {
        self.0.update_from_arg_matches_mut(matches)
    }
}
