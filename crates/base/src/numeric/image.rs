//! The image of a [`Numeric`]: its bytes in blocks, the log and checkpoints, where they are the bytes of a
//! view.
//!
//! ```text
//! scale: u16   unscaled: two's complement in as few bytes as possible, 0 to 16     all little-endian
//! ```
//!
//! NaN and the infinities have scales that no number has, and no further bytes. An image is canonical: two
//! are equal exactly if value and scale are. Most have at most 12 bytes, so that they are inline in the view.

use super::{MAX_SCALE, Numeric};

/// The bytes of the scale.
const SCALE: usize = 2;
/// The largest number of bytes of an image.
const MOST: usize = SCALE + 16;

/// An image, as [`Numeric::image`] makes it.
#[derive(Clone, Copy)]
pub struct NumericImage {
    bytes: [u8; MOST],
    length: u8,
}

impl NumericImage {
    /// The bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

impl Numeric {
    /// The image.
    #[inline]
    pub fn image(self) -> NumericImage {
        let (unscaled, scale) = self.to_parts();
        let mut bytes = [0; MOST];
        bytes[..SCALE].copy_from_slice(&scale.to_le_bytes());
        bytes[SCALE..].copy_from_slice(&unscaled.to_le_bytes());
        // The bits that differ from the sign, and the sign.
        let sign_bits = if unscaled < 0 { (!unscaled).leading_zeros() } else { unscaled.leading_zeros() };
        let digits = if unscaled == 0 { 0 } else { (129 - sign_bits).div_ceil(8) as usize };
        bytes[SCALE + digits..].fill(0);
        NumericImage { bytes, length: (SCALE + digits) as u8 }
    }

    /// The value of an image; `None` for bytes that are not an image.
    pub fn from_image(image: &[u8]) -> Option<Numeric> {
        let (scale, digits) = image.split_first_chunk::<SCALE>()?;
        let scale = u16::from_le_bytes(*scale);
        let mut bytes = match digits.last() {
            Some(last) if *last >= 0x80 => [0xff; 16],
            _ => [0; 16],
        };
        bytes.get_mut(..digits.len())?.copy_from_slice(digits);
        let unscaled = i128::from_le_bytes(bytes);
        let value = match scale {
            0..=MAX_SCALE => Numeric::new(unscaled, scale)?,
            _ => [Numeric::NAN, Numeric::INFINITY, Numeric::NEGATIVE_INFINITY]
                .into_iter()
                .find(|special| special.to_parts() == (unscaled, scale))?,
        };
        // Each value has one image.
        (value.image().bytes() == image).then_some(value)
    }
}
