//! Code: its points, and the coefficients of its parity symbols.

use std::sync::Arc;

use thiserror::Error;

use super::field::{Field, Tables};
use super::kernel::Path;

/// Maximum number of coefficients kept by a code. Larger codes compute them when needed, which is
/// about as fast as fetching them from outside the cache.
const KEPT_MAX: usize = 1 << 20;

/// Systematic Reed–Solomon code of `k` source symbols and a number of parity symbols. Copies are
/// cheap and share the coefficients.
#[derive(Clone, Debug)]
pub struct Code {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    field: Field,
    path: Path,
    source: usize,
    parity: usize,
    /// Logarithm of `1 / Π (x(i) − x(m))` over the other source symbols, for each source symbol.
    weights: Vec<u64>,
    /// Logarithm of `Π (x(k + j) − x(m))` over the source symbols, for each parity symbol.
    products: Vec<u64>,
    /// Coefficients of each source symbol in all parity symbols, if they are few enough.
    kept: Vec<u16>,
}

/// Error for an impossible code, or an unusable symbol length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum CodeError {
    /// Blocks without source symbols.
    #[error("blocks without source symbols")]
    NoSource,
    /// More symbols than the field has points.
    #[error("{source_symbols} + {parity} symbols, at most {max} are possible")]
    TooLong {
        /// Source symbols of a full block.
        source_symbols: usize,
        /// Parity symbols of a block.
        parity: usize,
        /// [`Field::symbols_max`].
        max: usize,
    },
    /// Zero symbol length, or one that is not a multiple of [`Field::element_len`].
    #[error("symbols of {0} bytes")]
    SymbolLength(usize),
    /// Code that this build lacks, by its feature.
    #[error("this slowlight is built without the feature `{0}`; add `--features {0}` to the build")]
    NotBuilt(&'static str),
}

impl Code {
    /// Creates the code of blocks of at most `source` symbols with `parity` parity symbols, with
    /// the fastest [`Path`] of this machine.
    ///
    /// # Errors
    ///
    /// See [`CodeError`], except [`CodeError::SymbolLength`].
    pub fn new(field: Field, source: usize, parity: usize) -> Result<Self, CodeError> {
        Self::with_path(field, source, parity, Path::best())
    }

    /// Creates a code with a given path, for tests and comparisons. A path that this machine does
    /// not have is replaced by [`Path::Portable`].
    ///
    /// # Errors
    ///
    /// As [`Code::new`].
    pub fn with_path(
        field: Field,
        source: usize,
        parity: usize,
        path: Path,
    ) -> Result<Self, CodeError> {
        let mut inner = Inner::new(field, source, parity, path)?;
        if source * parity <= KEPT_MAX {
            inner.kept = (0..source)
                .flat_map(|esi| (0..parity).map(move |row| (esi, row)))
                .map(|(esi, row)| inner.coefficient(esi, row))
                .collect();
        }
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Creates a code for recovery alone: without coefficients of parity, which takes next to no
    /// time.
    ///
    /// # Errors
    ///
    /// As [`Code::new`].
    pub fn for_recovery(field: Field, source: usize, parity: usize) -> Result<Self, CodeError> {
        Ok(Self { inner: Arc::new(Inner::new(field, source, parity, Path::best())?) })
    }

    /// Checks whether a code with these parameters exists.
    ///
    /// # Errors
    ///
    /// As [`Code::new`].
    pub fn check(field: Field, source: usize, parity: usize) -> Result<(), CodeError> {
        let max = field.symbols_max();
        if source == 0 {
            return Err(CodeError::NoSource);
        }
        if source.saturating_add(parity) > max {
            return Err(CodeError::TooLong { source_symbols: source, parity, max });
        }
        Ok(())
    }

    /// Field of the elements.
    #[must_use]
    pub fn field(&self) -> Field {
        self.inner.field
    }

    /// Implementation of the arithmetic.
    #[must_use]
    pub fn path(&self) -> Path {
        self.inner.path
    }

    /// Source symbols of a full block, `k`.
    #[must_use]
    pub fn source(&self) -> usize {
        self.inner.source
    }

    /// Parity symbols of a block.
    #[must_use]
    pub fn parity(&self) -> usize {
        self.inner.parity
    }

    /// Coefficient of a source symbol in a parity symbol.
    pub(super) fn coefficient(&self, esi: usize, row: usize) -> u16 {
        assert!(esi < self.source(), "source symbol {esi} of {}", self.source());
        if self.inner.kept.is_empty() {
            self.inner.coefficient(esi, row)
        } else {
            self.inner.kept[esi * self.parity() + row]
        }
    }

    /// Checks whether symbols can have this length.
    pub(super) fn check_symbol_len(&self, symbol_len: usize) -> Result<(), CodeError> {
        if symbol_len == 0 || !symbol_len.is_multiple_of(self.field().element_len()) {
            return Err(CodeError::SymbolLength(symbol_len));
        }
        Ok(())
    }

    /// See [`Inner::weights`].
    pub(super) fn weight(&self, esi: usize) -> u64 {
        self.inner.weights[esi]
    }

    /// See [`Inner::products`].
    pub(super) fn product(&self, row: usize) -> u64 {
        self.inner.products[row]
    }
}

impl Inner {
    /// Creates a code without stored coefficients.
    fn new(field: Field, source: usize, parity: usize, path: Path) -> Result<Self, CodeError> {
        Code::check(field, source, parity)?;
        let path = if path.is_available() { path } else { Path::Portable };
        let tables = field.tables();
        let weights = weights(tables, source);
        let products = products(tables, source, parity);
        Ok(Self { field, path, source, parity, weights, products, kept: Vec::new() })
    }

    /// Lagrange's basis polynomial of the source symbol's point, at the parity symbol's point.
    fn coefficient(&self, esi: usize, row: usize) -> u16 {
        let tables = self.field.tables();
        let difference = tables.point(esi) ^ tables.point(self.source + row);
        tables.exp(self.products[row] + self.weights[esi] + tables.order() - tables.log(difference))
    }
}

/// Returns the logarithm of `1 / Π (x(i) − x(m))` over the other points, for each source point.
///
/// The points but the first are a geometric sequence of `n = k − 1` terms. Stepping from `α^i` to
/// `α^(i + 1)` multiplies each of the `n − 1` differences by α, takes `α^(i + 1) − α^n` out, and
/// brings `α^(i + 1) − 1` in: a constant number of operations a point.
fn weights(tables: &Tables, source: usize) -> Vec<u64> {
    let order = tables.order();
    let n = source as u64 - 1;
    // The first point is 0: its differences are the other points.
    let mut product = (0..n).fold(0, |sum, exponent| (sum + exponent) % order);
    let mut weights = vec![(order - product) % order];
    // The second point is 1.
    product = (1..n).fold(0, |sum, exponent| (sum + tables.log(1 ^ tables.exp(exponent))) % order);
    for exponent in 0..n {
        // The difference from 0 is the point itself.
        weights.push((2 * order - product - exponent % order) % order);
        if exponent + 1 < n {
            let next = tables.exp(exponent + 1);
            let taken = tables.log(next ^ tables.exp(n));
            let brought = tables.log(next ^ 1);
            product = (product + (n - 1) + brought + order - taken) % order;
        }
    }
    weights
}

/// Returns the logarithm of `Π (x(k + j) − x(m))` over the source points, for each parity point;
/// computed by steps as in [`weights`].
fn products(tables: &Tables, source: usize, parity: usize) -> Vec<u64> {
    let order = tables.order();
    let n = source as u64 - 1;
    let mut product = (0..n)
        .fold(0, |sum, exponent| (sum + tables.log(tables.exp(n) ^ tables.exp(exponent))) % order);
    (n..n + parity as u64)
        .map(|exponent| {
            let current = (product + exponent) % order;
            let next = tables.exp(exponent + 1);
            if exponent + 1 < n + parity as u64 && n > 0 {
                let taken = tables.log(next ^ tables.exp(n));
                let brought = tables.log(next ^ 1);
                product = (product + n + brought + order - taken) % order;
            }
            current
        })
        .collect()
}
