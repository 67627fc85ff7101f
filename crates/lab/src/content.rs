//! Generated contents of files.

use bytes::Bytes;
use engine::Rng;
use transport::SpecError;
use transport::quantity::Size;

/// Returns the generated content of the transfer of this index, the same for the same seed.
///
/// # Errors
///
/// Memory cannot hold it.
pub fn made_up(seed: u64, index: usize, len: u64) -> Result<Bytes, SpecError> {
    let mut content = zeros(len)?;
    let name = match index {
        0 => "file content".to_owned(),
        _ => format!("file content {index}"),
    };
    Rng::new(seed, &name).fill(&mut content);
    Ok(content.into())
}

/// Content of zeros.
///
/// # Errors
///
/// Memory cannot hold it.
pub(crate) fn zeros(len: u64) -> Result<Vec<u8>, SpecError> {
    let mut content = Vec::new();
    let too_large = || SpecError::invalid(format!("no memory for a file of {}", Size(len)));
    let len = usize::try_from(len).map_err(|_| too_large())?;
    content.try_reserve_exact(len).map_err(|_| too_large())?;
    content.resize(len, 0);
    Ok(content)
}

/// Returns generated content, the same for the same seed.
///
/// # Panics
///
/// Memory cannot hold it; [`made_up`] returns an error instead.
#[must_use]
pub fn random_content(seed: u64, len: u64) -> Bytes {
    made_up(seed, 0, len).expect("the content fits into memory")
}
