// Four floats of a row of {TO}.
fn {TO}_store(first: u32, stride: u32, row: u32, d: u32, value: vec4f) {
    if (row < sizes.T && d < D) {
        let at = first + row * stride + d;
//! if VECTORS
        {TO}[at / 4u] = Element(value);
//! else
        {TO}[at] = Element(value.x);
        if (d + 1u < D) { {TO}[at + 1u] = Element(value.y); }
        if (d + 2u < D) { {TO}[at + 2u] = Element(value.z); }
        if (d + 3u < D) { {TO}[at + 3u] = Element(value.w); }
//! end
    }
}
