//! Short forms of a link's tables, for command-line options.

use std::fmt;
use std::str::FromStr;

use serde::de::value::StrDeserializer;
use serde::de::{Deserialize as _, IntoDeserializer as _};
use serde::ser::Serialize as _;
use transport::quantity::{Probability, QuantityError, parts};
use transport::text::SpecError;

use super::{Bucket, Burst, OnError, WhileDown};

impl FromStr for Burst {
    type Err = QuantityError;

    /// Parses `0.001+0.2`, or `0.001+0.2+0.5`: probabilities to enter and to leave the bad state
    /// after a packet, and the loss probability in it, by default 1.
    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let (kind, example) = ("two or three probabilities", "0.001+0.2");
        let [to_bad, to_good, bad_per] = parts(text, kind, example)?;
        Ok(Self {
            to_bad: to_bad.unwrap_or_default().parse()?,
            to_good: to_good.unwrap_or_default().parse()?,
            bad_per: bad_per.map_or(Ok(Probability(1.0)), str::parse)?,
            good_per: Probability(0.0),
            good_ber: Probability(0.0),
            bad_ber: Probability(0.0),
        })
    }
}

impl FromStr for Bucket {
    type Err = QuantityError;

    /// Parses `8 Mbit/s+64 KiB`: sustained rate, and burst above it.
    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let (kind, example) = ("a rate and a size", "8 Mbit/s+64 KiB");
        let wrong = || QuantityError::NotANumber { text: text.to_owned(), kind, example };
        let (rate, burst) = text.split_once('+').ok_or_else(wrong)?;
        Ok(Self { rate: rate.parse()?, burst: burst.parse()?, ceil: None, cburst: None })
    }
}

macro_rules! words {
    ($($kind:ty),*) => {$(
        impl FromStr for $kind {
            type Err = SpecError;

            fn from_str(text: &str) -> Result<Self, SpecError> {
                let name: StrDeserializer<'_, serde::de::value::Error> = text.into_deserializer();
                Self::deserialize(name).map_err(|error| SpecError::invalid(error.to_string()))
            }
        }

        impl fmt::Display for $kind {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.serialize(f)
            }
        }
    )*};
}

words!(OnError, WhileDown);

#[cfg(test)]
mod tests {
    use transport::quantity::Span;

    use super::*;
    use crate::link_spec::{LinkSpec, Periodic};

    #[test]
    fn short_forms_are_the_tables_of_files() {
        let written: LinkSpec = transport::text::parse(
            "burst = { to_bad = \"0.001\", to_good = \"0.2\", bad_per = \"1\" }
            bucket = { rate = \"8 Mbit/s\", burst = \"64 KiB\" }
            outage_every = { period = \"60 s\", down = \"5 s\", first = \"10 s\" }
            on_error = \"damage\"\nwhile_down = \"drop\"",
            "test",
        )
        .unwrap();
        assert_eq!("0.001+0.2".parse().ok(), written.errors.burst);
        assert_eq!("8 Mbit/s + 64 KiB".parse().ok(), written.bucket);
        assert_eq!("60 s+5 s+10 s".parse().ok(), written.outage_every);
        assert_eq!("damage".parse().ok(), written.errors.on_error);
        assert_eq!("drop".parse().ok(), written.while_down);
        let half: Burst = "1e-3+20 %+0.5".parse().unwrap();
        assert_eq!((half.to_good, half.bad_per), (Probability(0.2), Probability(0.5)));
        let at_once: Periodic = "60 s+5 s".parse().unwrap();
        assert_eq!(at_once.first, Span::default());
    }

    #[test]
    fn short_forms_are_written_as_they_are_read() {
        fn same<T: FromStr + fmt::Display>(text: &str) {
            let read = text.parse::<T>().ok().map(|value| value.to_string());
            assert_eq!(read.as_deref(), Some(text));
        }
        same::<Burst>("0.001+0.2");
        same::<Burst>("0.001+0.2+0.5");
        same::<Bucket>("8 Mbit/s+64 KiB");
        let burst = Burst { bad_ber: Probability(1e-3), ..Burst::from_str("0.01+0.2+0").unwrap() };
        assert_eq!(burst.to_string(), "0.01+0.2+0 bad_ber 0.001");
    }

    #[test]
    fn invalid_short_forms_are_refused_with_an_example() {
        for wrong in ["0.1", "", "+0.1", "0.1+", "0.1+0.2+0.3+0.4"] {
            let error = wrong.parse::<Burst>().unwrap_err().to_string();
            assert!(error.contains("0.001+0.2"), "{error}");
        }
        assert!("0.1+2".parse::<Burst>().is_err());
        assert!("8 Mbit/s".parse::<Bucket>().unwrap_err().to_string().contains("+64 KiB"));
        assert!("60 s".parse::<Periodic>().unwrap_err().to_string().contains("60 s+5 s"));
        assert!("60 s+0 s".parse::<Periodic>().unwrap_err().to_string().contains("no time"));
        assert!("lose".parse::<OnError>().unwrap_err().to_string().contains("`damage`"));
        assert!("wait".parse::<WhileDown>().unwrap_err().to_string().contains("`hold`"));
    }
}
