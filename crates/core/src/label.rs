//! The one macro for enums that are stored or sent: a closed list of words, in one place.

/// A word that is not one of a closed list.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{value}` is not a {kind}; it is one of {allowed}")]
pub struct UnknownLabel {
    /// What the word was meant to be, for example `run state`.
    pub kind: &'static str,
    /// The word that was given.
    pub value: String,
    /// The words that exist, separated by commas.
    pub allowed: String,
}

/// Declares an enum whose variants have one spelling each, everywhere.
macro_rules! labelled {
    ($(#[$meta:meta])* $kind:literal $name:ident { $($(#[$vmeta:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name { $($(#[$vmeta])* $variant),+ }

        impl $name {
            /// Every value, in the order in which they are declared.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The one spelling of this value.
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
            type Err = $crate::label::UnknownLabel;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Self::ALL.iter().copied().find(|label| label.as_str() == text).ok_or_else(|| {
                    $crate::label::UnknownLabel {
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
    fn a_label_is_read_as_it_is_written() {
        for &level in Level::ALL {
            assert_eq!(level.as_str().parse(), Ok(level));
        }
    }

    #[test]
    fn an_unknown_label_is_refused_with_the_words_that_exist() {
        let refused = "loud".parse::<Level>().unwrap_err();
        assert_eq!(refused.to_string(), "`loud` is not a level; it is one of debug, info, warn, error");
    }
}
