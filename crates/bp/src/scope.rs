//! Files and records of a layer's engine in a store that layers of the same kind share: their
//! names end with a mark of the layer.

use bytes::Bytes;
use engine::{Area, Effect, FileName, FilestoreRequest, IndexRequest, StoreEffect};

/// Mark of a layer. The default one marks nothing: the engine has the store for itself.
#[derive(Clone, Debug, Default)]
pub(super) struct Scope(String);

impl Scope {
    /// Mark of the layer with this name, which no other layer of the node has.
    pub(super) fn of_layer(name: &str) -> Self {
        Self(format!(".{:08x}", crc32c::crc32c(name.as_bytes())))
    }

    /// Name of an engine's working file in the store. Other files keep their names.
    pub(super) fn file(&self, name: FileName) -> FileName {
        if name.area() != Area::Spool || self.0.is_empty() {
            return name;
        }
        let marked = FileName::spool(&format!("{}{}", name.path(), self.0));
        marked.expect("a name with letters and digits behind it is a name")
    }

    /// An effect of the engine, with the names of the store.
    pub(super) fn effect(&self, effect: Effect) -> Effect {
        let Effect::Store(effect) = effect else { return effect };
        Effect::Store(match effect {
            StoreEffect::Open { ticket, name, mode } => {
                StoreEffect::Open { ticket, name: self.file(name), mode }
            }
            StoreEffect::Filestore { ticket, request } => {
                StoreEffect::Filestore { ticket, request: self.request(request) }
            }
            StoreEffect::Index { ticket, request } => {
                let request = match request {
                    IndexRequest::Put { key, value } => {
                        IndexRequest::Put { key: key + &self.0, value }
                    }
                    IndexRequest::Remove { key } => IndexRequest::Remove { key: key + &self.0 },
                    load @ IndexRequest::Load { .. } => load,
                };
                StoreEffect::Index { ticket, request }
            }
            StoreEffect::Read { .. }
            | StoreEffect::Write { .. }
            | StoreEffect::Sync { .. }
            | StoreEffect::Work { .. }
            | StoreEffect::Close { .. } => effect,
        })
    }

    /// The requests that engines of layers make.
    fn request(&self, request: FilestoreRequest) -> FilestoreRequest {
        match request {
            FilestoreRequest::DenyFile(name) => FilestoreRequest::DenyFile(self.file(name)),
            FilestoreRequest::Install { from, to } => {
                FilestoreRequest::Install { from: self.file(from), to: self.file(to) }
            }
            other => other,
        }
    }

    /// Records of this layer, as its engine knows them.
    pub(super) fn records(&self, records: Vec<(String, Bytes)>) -> Vec<(String, Bytes)> {
        let own = records.into_iter().filter_map(|(mut key, value)| {
            key.truncate(key.strip_suffix(&self.0)?.len());
            Some((key, value))
        });
        own.collect()
    }
}

#[cfg(test)]
mod tests {
    use engine::Ticket;

    use super::*;

    #[test]
    fn engines_see_their_own_names() {
        let [one, other] = ["one", "other"].map(Scope::of_layer);
        let put = |key: &str| {
            let request = IndexRequest::Put { key: key.to_owned(), value: Bytes::new() };
            StoreEffect::Index { ticket: Ticket(1), request }.into()
        };
        let Effect::Store(StoreEffect::Index { request: IndexRequest::Put { key, .. }, .. }) =
            one.effect(put("sar-7"))
        else {
            panic!("it is still a record")
        };
        assert!(key.starts_with("sar-7."), "{key}");
        let stored = vec![("bp-1".to_owned(), Bytes::new()), (key, Bytes::new())];
        assert_eq!(one.records(stored.clone()), [("sar-7".to_owned(), Bytes::new())]);
        assert_eq!(other.records(stored), []);
        let [working, file] =
            [FileName::spool("sar-7"), FileName::file("sar-7")].map(Result::unwrap);
        assert_eq!(one.file(working.clone()).path().len(), "sar-7.01234567".len());
        assert_ne!(one.file(working.clone()), other.file(working.clone()));
        assert_eq!(one.file(file.clone()), file);
        assert_eq!(Scope::default().file(working.clone()), working);
    }
}
