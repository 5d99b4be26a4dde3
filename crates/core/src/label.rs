//! The `labelled!` macro: enums whose values are stored and sent as fixed words.

/// A word that is not a value of the enum.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{value}` is not a {kind}; it is one of {allowed}")]
pub struct UnknownLabelError {
    /// The enum in plain words, for example `run state`.
    pub kind: &'static str,
    pub value: String,
    /// The valid words, separated by commas.
    pub allowed: String,
}

/// Declares an enum whose variants have the same spelling in the database, in JSON and in messages.
macro_rules! labelled {
    ($(#[$meta:meta])* $kind:literal $name:ident { $($(#[$vmeta:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name { $($(#[$vmeta])* $variant),+ }

        impl $name {
            /// Every value, in the order of declaration.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The spelling of this value.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::label::UnknownLabelError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Self::ALL.iter().copied().find(|label| label.as_str() == text).ok_or_else(|| {
                    $crate::label::UnknownLabelError {
                        kind: $kind,
                        value: text.chars().take(64).collect(),
                        allowed: Self::ALL.iter().map(|label| label.as_str()).collect::<Vec<_>>().join(", "),
                    }
                })
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }

        #[cfg(feature = "schema")]
        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({"type": "string", "enum": [$($text),+]})
            }
        }
    };
}
pub(crate) use labelled;

#[cfg(test)]
mod tests {
    use crate::event::Level;

    #[test]
    fn labels_round_trip_through_text() {
        for &level in Level::ALL {
            assert_eq!(level.as_str().parse(), Ok(level));
        }
    }

    #[test]
    fn unknown_label_error_lists_the_valid_words() {
        let refused = "loud".parse::<Level>().unwrap_err();
        assert_eq!(refused.to_string(), "`loud` is not a level; it is one of debug, info, warn, error");
    }
}
