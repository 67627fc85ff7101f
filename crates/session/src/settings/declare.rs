//! Macros that declare settings.

/// Declares a struct of settings, its [`Default`] and its [`Settings`](crate::settings::Settings).
///
/// ```text
/// settings! {
///     /// Settings of an engine.
///     #[derive(Clone, Debug)]
///     pub struct Config [check: Self::bounds, more: Self::visit_remotes] {
///         /// A setting: its key is its name, its values are sizes of 64 bytes or more, or `off`.
///         pub segment_max: Option<usize> as Off<Size> [Least(64)] = None,
///         /// A setting with another key.
///         pub rate_bps("rate"): Option<u64> as Maybe<Rate> = None,
///         /// No setting: drivers set it.
///         pub path: Option<PathId> = None,
///     }
/// }
/// ```
///
/// `check` names a method for [`Settings::check`](crate::settings::Settings::check), `more` names
/// one that visits settings that the fields do not show.
#[macro_export]
macro_rules! settings {
    (
        $(#[$about:meta])*
        $vis:vis struct $name:ident $([$($hook:ident: $method:path),+])? {
            $(
                $(#[doc = $doc:expr])*
                pub $field:ident $(($key:literal))?: $type:ty
                    $(as $form:ty $([$bound:expr])?)? = $default:expr,
            )+
        }
    ) => {
        $(#[$about])*
        $vis struct $name {
            $($(#[doc = $doc])* pub $field: $type,)+
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default,)+ }
            }
        }

        impl $crate::settings::Settings for $name {
            fn visit(
                &mut self,
                visitor: &mut dyn $crate::settings::Visitor,
            ) -> $crate::settings::Visited {
                $($crate::settings!(
                    @field visitor, self.$field, [$($doc),*], [$($key,)? stringify!($field)],
                    [$($form)?], [$($($bound)?)?]
                );)+
                $($($crate::settings!(@visit $hook, $method, self, visitor);)+)?
                Ok(())
            }

            $($($crate::settings!(@check $hook, $method);)+)?
        }
    };
    (@field $visitor:expr, $place:expr, $doc:tt, $keys:tt, [], []) => {};
    (
        @field $visitor:expr, $place:expr, $doc:tt, [$key:expr $(, $name:expr)?], [$form:ty],
        [$($bound:expr)?]
    ) => {
        $crate::visit_field!($visitor, $place, $form, $key, $doc, $($bound)?);
    };
    (@visit more, $method:path, $me:expr, $visitor:expr) => { $method($me, $visitor)?; };
    (@visit check, $method:path, $me:expr, $visitor:expr) => {};
    (@check check, $method:path) => {
        fn check(&mut self) -> Result<(), $crate::settings::Wrong> {
            $method(self)
        }
    };
    (@check more, $method:path) => {};
}

/// The first of several expressions.
#[doc(hidden)]
#[macro_export]
macro_rules! first {
    ($first:expr $(, $other:expr)* $(,)?) => {
        $first
    };
}

/// Visits one field.
#[doc(hidden)]
#[macro_export]
macro_rules! visit_field {
    (
        $visitor:expr, $place:expr, $form:ty, $key:expr, [$($doc:expr),*], $($bound:expr)?
    ) => {{
        use $crate::settings::form::*;
        const FIELD: &$crate::settings::Field = &$crate::settings::Field {
            key: $key,
            doc: &[$($doc),*],
            bound: $crate::first!(
                $({
                    use $crate::settings::Bound::*;
                    Some($bound)
                },)?
                None
            ),
        };
        <$form as Form<_, _>>::visit(FIELD, &mut $place, $visitor)?;
    }};
}

/// Visits settings shared by several structs, in a hand-written method:
///
/// ```text
/// visit! { visitor;
///     /// Time that a neighbour may be away.
///     "patience": self.patience as Span [Interval],
/// }
/// ```
#[macro_export]
macro_rules! visit {
    ($visitor:expr; $(
        $(#[doc = $doc:expr])*
        $key:literal: $($place:tt).+ as $form:ty $([$bound:expr])?,
    )+) => {
        $($crate::visit_field!($visitor, $($place).+, $form, $key, [$($doc),*], $($bound)?);)+
    };
}

/// Names the values of an enum: `words! { Pin { "off" = Pin::Off, "host" = Pin::Host } }`.
#[macro_export]
macro_rules! words {
    ($type:ty { $($word:literal = $value:expr),+ $(,)? }) => {
        impl $crate::settings::form::Words for $type {
            fn words() -> Vec<(&'static str, Self)> {
                vec![$(($word, $value)),+]
            }
        }
    };
}

/// Numbers the values of an enum; the text begins the message about other numbers.
#[macro_export]
macro_rules! numbers {
    ($type:ty, $what:literal { $($number:literal = $value:expr),+ $(,)? }) => {
        impl $crate::settings::form::Numbers for $type {
            const WHAT: &'static str = $what;
            const NUMBERS: &'static [(u64, Self)] = &[$(($number, $value)),+];
            const KNOWN: &'static [u64] = &[$($number),+];
        }
    };
}
