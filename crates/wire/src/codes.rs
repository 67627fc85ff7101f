//! Macros for enums of one-byte codes and for sets of flags.

/// Defines an enum of codes, with a variant for unknown ones. Codes are of one byte, unless the
/// table gives a type.
#[macro_export]
macro_rules! codes {
    ($(#[$about:meta])* $name:ident { $($codes:tt)+ }) => {
        $crate::codes! { $(#[$about])* $name(u8) { $($codes)+ } }
    };
    ($(#[$about:meta])* $name:ident($code:ty) {
        $($(#[$doc:meta])* $variant:ident = $value:literal;)+
    }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[$doc])* $variant,)+
            /// A code without a name.
            Other($code),
        }

        impl $name {
            /// Returns the variant of a code.
            #[must_use]
            pub const fn from_code(code: $code) -> Self {
                match code {
                    $($value => Self::$variant,)+
                    other => Self::Other(other),
                }
            }

            /// Returns the code on the wire.
            #[must_use]
            pub const fn code(self) -> $code {
                match self {
                    $(Self::$variant => $value,)+
                    Self::Other(code) => code,
                }
            }
        }
    };
}

/// Defines an enum of [`codes`] whose `Display` is their name. Unknown ones are shown as `code 9`,
/// unless the table gives a type and a format.
#[macro_export]
macro_rules! named_codes {
    ($(#[$about:meta])* $name:ident { $($codes:tt)+ }) => {
        $crate::named_codes! { $(#[$about])* $name(u8, "code {}") { $($codes)+ } }
    };
    ($(#[$about:meta])* $name:ident($code:ty, $other:literal) {
        $($(#[$doc:meta])* $variant:ident = $value:literal, $text:literal;)+
    }) => {
        $crate::codes! {
            $(#[$about])*
            $name($code) { $($(#[$doc])* $variant = $value;)+ }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self {
                    $(Self::$variant => f.write_str($text),)+
                    Self::Other(code) => write!(f, $other, code),
                }
            }
        }
    };
}

/// Implements the methods of sets of flags, which are structs of one number.
#[macro_export]
macro_rules! flags {
    ($name:ident) => {
        impl $name {
            /// Whether all of `flags` are set.
            #[must_use]
            pub const fn contains(self, flags: Self) -> bool {
                self.0 & flags.0 == flags.0
            }

            /// Whether one of `flags` is set.
            #[must_use]
            pub const fn intersects(self, flags: Self) -> bool {
                self.0 & flags.0 != 0
            }

            /// Returns the set with `flags` added.
            #[must_use]
            pub const fn with(self, flags: Self) -> Self {
                Self(self.0 | flags.0)
            }

            /// Returns the set with `flags` removed.
            #[must_use]
            pub const fn without(self, flags: Self) -> Self {
                Self(self.0 & !flags.0)
            }
        }
    };
}
